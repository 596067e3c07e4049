"""Starts the use case of replicated state, runs it, and proves the result (STARE I-A, IV)."""

from __future__ import annotations

import dataclasses
import json
import logging
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mobility_report as page
from city import City
from expected_movements import expected
from movement_stream import TOPIC, MovementStream
from movements import neighbours
from sightings import KEPT_MS
from stackcast.jobs.adapters.app import session
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.embedded import machine
from stackcast.jobs.embedded.lab import fill, prepare, refresh
from stackcast.jobs.embedded.options import RunOptions
from stackcast.jobs.embedded.progress import Progress
from stackcast.jobs.embedded.replication import ReplicationLab
from stackcast.lab.fabric.topologies import read_network
from stackcast.lab.traffic.publisher import connect_producer, ensure_topic
from stackcast.lab.up.lab import Lab
from stackcast.lab.up.process import Child
from stackcast.udfs.errors import LabError
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.programs import REPLICATING
from stackcast.udfs.network.rows import network_to_rows
from stackcast.udfs.stop_request import StopRequest
from verdict import Verdict, prove

log = logging.getLogger(__name__)

#: Largest distance of edges that replicate each other's states, which are adjacent, in metres.
_NEAR = 450.0
#: Longest waits for programs that start, for replicas and for answers, in seconds.
_READY_S = 120.0
_CONVERGED_S = 120.0
_ANSWER_S = 60.0
_LOOK_S = 0.1
#: Time from the registration of the replicas to the first report, in seconds.
_SETTLED_S = 1.0


@dataclass(frozen=True)
class CityOptions:
    """The city that is tracked.

    Attributes:
        edges: number of edge clouds, each with a tracker.
        scanners: number of WiFi scanners at each edge cloud.
        reports: number of reports of each scanner, one every 20 seconds of the city's time.
        speedup: seconds of the city's time in one second of the run.
        loss: percent of the frames that each link loses.
    """

    edges: int = 6
    scanners: int = 3
    reports: int = 9
    speedup: int = 10
    loss: int = 1


@dataclass(frozen=True)
class Plan:
    """Hosts of the programs.

    Attributes:
        city: the city.
        network: the network of the lab.
        hosts: host of the tracker of each edge.
        controller: host of the replica controller.
        neighbours: edges whose states each edge replicates.
    """

    city: City
    network: Network
    hosts: Mapping[str, str]
    controller: str
    neighbours: Mapping[str, tuple[str, ...]]


def plan(city: City, settings: Settings, lab: RunOptions) -> Plan:
    """Choose a host for each program.

    With more than two edges, the second host has two trackers, as in STARE Fig. 7a, which exchange
    their states without the network.

    Args:
        city: the city.
        settings: settings of the lab.
        lab: options of the lab.

    Raises:
        LabError, NetworkError, SettingsError: the lab cannot have this network.
    """
    edges = list(dict.fromkeys(place.edge for place in city.places().values()))
    host_count = len(edges) - (len(edges) > 2)
    lab = dataclasses.replace(lab, publishers=host_count + 1, hosts=lab.hosts or 1)
    network = read_network(lab.network_options(settings.encoding, settings.label_bits)).network
    *names, controller = network.publishers()
    order = [names[0], names[1], *names[1:]] if host_count < len(edges) else list(names)
    near = neighbours(city.places().values(), _NEAR)
    return Plan(city, network, dict(zip(edges, order, strict=True)), controller, near)


def run(options: CityOptions, lab: RunOptions, settings: Settings, lifecycle: Lifecycle) -> int:
    """Run the use case. Return exit code 0 if all replicas and movements are correct, or 1."""
    start = time.monotonic()
    with Progress() as progress:
        folder, _ = prepare(settings, lab)
        placement = plan(City(options.edges, options.scanners, lab.seed), settings, lab)
        progress.say(f"network: {placement.network.words()}")
        with _start(options, settings, lifecycle, placement, folder, progress) as running:
            status = running.track(options, lifecycle, progress)
            with progress.stage("replicas and movements, compared with brute force"):
                verdict = running.prove()
        report = page.MobilityReport(
            dataclasses.asdict(verdict),
            placement.network,
            placement.city.places(),
            placement.hosts | {"controller": placement.controller},
            status,
            dataclasses.asdict(options)
            | {"network": lab.network_name or "fabric", "seed": lab.seed},
            round(time.monotonic() - start, 1),
        )
        page.write(folder, report)
    return 0 if verdict.exact else 1


@contextmanager
def _start(
    options: CityOptions,
    settings: Settings,
    lifecycle: Lifecycle,
    placement: Plan,
    folder: Path,
    progress: Progress,
) -> Iterator[_Running]:
    """Start the lab and all programs, and stop them at the end."""
    network, loss = placement.network, options.loss / 100
    with ExitStack() as stack:
        hosts = placement.hosts.values()
        replication = stack.enter_context(
            ReplicationLab(folder, network, hosts, placement.controller, loss)
        )
        lab = replication.lab
        lab.clear()
        progress.log_to(folder / "log" / "run.log")
        defaults = machine.spark_properties()
        starting = SYSTEM_THREADS.start(
            "session", session.start, "stackcast mobility_tracking", defaults=defaults
        )
        with progress.stage("switches and broker"):
            lab.up()
        with progress.stage("Spark and its tables, entries on switches"):
            spark = starting.result()
            stack.callback(session.stop, spark)
            lifecycle.hold_jvm(spark)
            settings = dataclasses.replace(
                settings, tables=str(folder / "tables"), checkpoint=str(folder / "checkpoint")
            )
            tables = open_tables(spark, settings.tables)
            tables.create()
            addresses = dict.fromkeys(network.switches, lab.p4runtime)
            fill(tables, network_to_rows(network, addresses, REPLICATING[0]))
            refresh(tables, settings, lifecycle)
        text = (
            f"replica controller, {len(replication.middlewares)} middlewares, {len(hosts)} trackers"
        )
        with progress.stage(text):
            replication.begin()
            trackers = _start_trackers(replication, placement, folder / "receipts")
            replication.ready()
            reports = {e: json.loads(c.ready(_READY_S))["reports"] for e, c in trackers.items()}
        ensure_topic(lab.bootstrap_servers, TOPIC, 2)
        with progress.stage("the stream of the whole city"):
            places = placement.city.places().values()
            stream = MovementStream(spark, lab.bootstrap_servers, folder / "tables", places)
        time.sleep(_SETTLED_S)
        yield _Running(placement, lab, trackers, reports, stream, folder)


def _start_trackers(replication: ReplicationLab, placement: Plan, out: Path) -> dict[str, Child]:
    """Start a tracker for each edge."""
    scanners = {name: [p.edge, p.x, p.y] for name, p in placement.city.places().items()}
    city = out / "city.json"
    city.write_text(json.dumps({"scanners": scanners, "neighbours": placement.neighbours}))
    return {
        edge: replication.child(
            f"tracker-{edge}",
            *(
                str(Path(__file__).with_name("tracker.py")),
                "--edge",
                edge,
                "--city",
                str(city),
                "--out",
                str(out),
            ),
            *("--middleware", "{}:{}".format(*replication.middlewares[host])),
        )
        for edge, host in placement.hosts.items()
    }


class _Running:
    """The use case while it runs."""

    def __init__(
        self,
        placement: Plan,
        lab: Lab,
        trackers: Mapping[str, Child],
        reports: Mapping[str, str],
        stream: MovementStream,
        folder: Path,
    ) -> None:
        self._placement, self._lab, self._folder = placement, lab, folder
        self._trackers, self._reports, self._stream = trackers, reports, stream
        self._sent: list[Any] = []
        self._converged = False

    def track(
        self, options: CityOptions, lifecycle: Lifecycle, progress: Progress
    ) -> dict[str, Any]:
        """Send all reports, stop the trackers, and return the counters of the network."""
        stop = StopRequest()
        self._sent = self._placement.city.reports(options.reports)
        total = len(self._sent)
        with progress.stage(f"reports of {len(self._placement.city.places())} scanners") as stage:
            feeding = SYSTEM_THREADS.start(
                *("feed", self._feed, options.speedup, stop),
                lambda number: progress.count(stage, number, total),
            )

            def finished() -> bool:
                self._lab.check()
                if not feeding.done():
                    return False
                feeding.result()
                return self._stream.reports >= total

            try:
                lifecycle.run(self._stream.query, finished)
            finally:
                stop.set()
            feeding.result()
        with progress.stage("every replica has the last update"):
            self._converged = self._converge()
        for child in self._trackers.values():
            child.ask("stop", _ANSWER_S)
        return self._lab.status()

    def _feed(self, speedup: int, stop: StopRequest, show: Any) -> None:
        """Send each report to its tracker and to the topic when it is due.

        Args:
            speedup: seconds of the city's time in one second of the run.
            stop: ends sending.
            show: called with the number of reports sent.
        """
        places = self._placement.city.places()
        with ExitStack() as stack:
            producer = connect_producer(self._lab.bootstrap_servers)
            stack.enter_context(closing(producer))
            wires: dict[str, Any] = {}
            for name, place in places.items():
                ip, _, port = self._reports[place.edge].rpartition(":")
                wire = stack.enter_context(socket.create_connection((ip, int(port)), _ANSWER_S))
                wires[name] = stack.enter_context(wire.makefile("rwb", buffering=0))
            start = time.monotonic()
            for number, (due, report) in enumerate(self._sent, 1):
                if stop.wait(max(0.0, start + due / speedup - time.monotonic())):
                    return
                line = report.pack()
                producer.send(TOPIC, line, key=report.scanner.encode())
                wires[report.scanner].write(line + b"\n")
                if not wires[report.scanner].readline():
                    raise LabError("CHILD_FAILED", f"the tracker of {report.scanner} has ended")
                show(number)
            producer.flush()

    def _converge(self) -> bool:
        """Wait until each tracker has the last update of all its neighbours.

        Returns:
            False if that takes too long.
        """
        deadline = time.monotonic() + _CONVERGED_S
        while time.monotonic() < deadline:
            status = {
                edge: json.loads(child.ask("status", _ANSWER_S))
                for edge, child in self._trackers.items()
            }
            if all(
                status[edge]["newest"].get(other, 0) == status[other]["last"]
                for edge, others in self._placement.neighbours.items()
                for other in others
            ):
                return True
            time.sleep(_LOOK_S)
        return False

    def prove(self) -> Verdict:
        """Compare replicas and movements with brute force."""
        places = {n: (p.edge, p.x, p.y) for n, p in self._placement.city.places().items()}
        sent = [(report.scanner, report.devices) for _, report in self._sent]
        results = {
            edge: json.loads((self._folder / "receipts" / f"{edge}.json").read_text())
            for edge in self._trackers
        }
        return prove(
            expected(places, sent, KEPT_MS),
            self._placement.neighbours,
            results,
            self._stream.movements(),
            self._converged,
        )
