"""The use case of replicated state, brought up, run and proved (STARE I-A, IV)."""

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
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.jobs.embedded import machine
from stackcast.jobs.embedded.kinds import in_background
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

#: Metres between edges that hold each other's states: those beside each other.
_NEAR = 450.0
_READY_S = 120.0
_CONVERGED_S = 120.0
_ANSWER_S = 60.0
_LOOK_S = 0.1
#: From replicas that were registered to the first report.
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
    """Who runs where. ``hosts``: edge to the host of its tracker; ``controller``: its host."""

    city: City
    network: Network
    hosts: Mapping[str, str]
    controller: str
    neighbours: Mapping[str, tuple[str, ...]]


def plan(city: City, settings: Settings, lab: RunOptions) -> Plan:
    """Decides who runs where; the second host has two trackers where there are more than two edges,
    as in STARE Fig. 7a, so that they have each other's states without the network.

    Raises LabError, NetworkError, SettingsError.
    """
    edges = list(dict.fromkeys(place.edge for place in city.places().values()))
    few = len(edges) - (len(edges) > 2)
    lab = dataclasses.replace(lab, publishers=few + 1, hosts=lab.hosts or 1)
    read = read_network(lab.network_options(settings.encoding, settings.label_bits))
    network = read.network
    *names, controller = network.publishers()
    order = [names[0], names[1], *names[1:]] if few < len(edges) else list(names)
    near = neighbours(city.places().values(), _NEAR)
    return Plan(city, network, dict(zip(edges, order, strict=True)), controller, near)


def run(options: CityOptions, lab: RunOptions, settings: Settings, lifecycle: Lifecycle) -> int:
    """Returns the exit code: 0 only if every replica and every movement is as it should be."""
    began = time.monotonic()
    with Progress() as progress:
        folder, _ = prepare(settings, lab)
        where = plan(City(options.edges, options.scanners, lab.seed), settings, lab)
        progress.say(f"network: {where.network.words()}")
        with _bring_up(options, settings, lifecycle, where, folder, progress) as up:
            status = up.track(options, lifecycle, progress)
            with progress.stage("replicas and movements, compared with brute force"):
                verdict = up.prove()
        shown = page.MobilityReport(
            dataclasses.asdict(verdict),
            where.network,
            where.city.places(),
            where.hosts | {"controller": where.controller},
            status,
            dataclasses.asdict(options)
            | {"network": lab.network_name or "fabric", "seed": lab.seed},
            round(time.monotonic() - began, 1),
        )
        page.write(folder, shown)
    return 0 if verdict.exact else 1


@contextmanager
def _bring_up(
    options: CityOptions,
    settings: Settings,
    lifecycle: Lifecycle,
    where: Plan,
    folder: Path,
    progress: Progress,
) -> Iterator[_Running]:
    network, loss = where.network, options.loss / 100
    with ExitStack() as stack:
        hosts = where.hosts.values()
        up = stack.enter_context(ReplicationLab(folder, network, hosts, where.controller, loss))
        lab = up.lab
        lab.clear()
        progress.log_to(folder / "log" / "run.log")
        defaults = machine.spark_properties()
        starting = in_background(
            lambda: session.start("stackcast mobility_tracking", defaults=defaults)
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
            tables = Tables(spark, settings.tables)
            tables.create()
            addresses = dict.fromkeys(network.switches, lab.p4runtime)
            fill(tables, network_to_rows(network, addresses, REPLICATING[0]))
            refresh(tables, settings, lifecycle)
        text = f"replica controller, {len(up.middlewares)} middlewares, {len(hosts)} trackers"
        with progress.stage(text):
            up.begin()
            trackers = _trackers(up, where, folder / "receipts")
            up.ready()
            reports = {e: json.loads(c.ready(_READY_S))["reports"] for e, c in trackers.items()}
        ensure_topic(lab.bootstrap_servers, TOPIC, 2)
        with progress.stage("the stream of the whole city"):
            places = where.city.places().values()
            stream = MovementStream(spark, lab.bootstrap_servers, folder / "tables", places)
        time.sleep(_SETTLED_S)
        yield _Running(where, lab, trackers, reports, stream, folder)


def _trackers(up: ReplicationLab, where: Plan, out: Path) -> dict[str, Child]:
    """Begins a tracker for each edge."""
    scanners = {name: [p.edge, p.x, p.y] for name, p in where.city.places().items()}
    city = out / "city.json"
    city.write_text(json.dumps({"scanners": scanners, "neighbours": where.neighbours}))
    return {
        edge: up.child(
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
            *("--middleware", "{}:{}".format(*up.middlewares[host])),
        )
        for edge, host in where.hosts.items()
    }


class _Running:
    """The use case, up."""

    def __init__(
        self,
        where: Plan,
        lab: Lab,
        trackers: Mapping[str, Child],
        reports: Mapping[str, str],
        stream: MovementStream,
        folder: Path,
    ) -> None:
        self._where, self._lab, self._folder = where, lab, folder
        self._trackers, self._reports, self._stream = trackers, reports, stream
        self._sent: list[Any] = []
        self._converged = False

    def track(
        self, options: CityOptions, lifecycle: Lifecycle, progress: Progress
    ) -> dict[str, Any]:
        """Has scanners report, and ends everybody; returns the network's counts."""
        stop = StopRequest()
        self._sent = self._where.city.reports(options.reports)
        total = len(self._sent)
        with progress.stage(f"reports of {len(self._where.city.places())} scanners") as stage:
            feeding = in_background(
                lambda: self._feed(options.speedup, stop, lambda n: progress.count(stage, n, total))
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

    def _feed(self, speedup: int, stop: StopRequest, told: Any) -> None:
        """Sends each report when it is due to its tracker and to the topic."""
        places = self._where.city.places()
        with ExitStack() as stack:
            producer = connect_producer(self._lab.bootstrap_servers)
            stack.enter_context(closing(producer))
            wires: dict[str, Any] = {}
            for name, place in places.items():
                ip, _, port = self._reports[place.edge].rpartition(":")
                wire = stack.enter_context(socket.create_connection((ip, int(port)), _ANSWER_S))
                wires[name] = stack.enter_context(wire.makefile("rwb", buffering=0))
            began = time.monotonic()
            for number, (due, report) in enumerate(self._sent, 1):
                if stop.wait(max(0.0, began + due / speedup - time.monotonic())):
                    return
                line = report.pack()
                producer.send(TOPIC, line, key=report.scanner.encode())
                wires[report.scanner].write(line + b"\n")
                if not wires[report.scanner].readline():
                    raise LabError("CHILD_FAILED", f"the tracker of {report.scanner} has ended")
                told(number)
            producer.flush()

    def _converge(self) -> bool:
        """Waits until each holds the last update of all its neighbours; False if it takes too
        long."""
        deadline = time.monotonic() + _CONVERGED_S
        while time.monotonic() < deadline:
            said = {e: json.loads(c.ask("status", _ANSWER_S)) for e, c in self._trackers.items()}
            if all(
                said[edge]["newest"].get(other, 0) == said[other]["last"]
                for edge, others in self._where.neighbours.items()
                for other in others
            ):
                return True
            time.sleep(_LOOK_S)
        return False

    def prove(self) -> Verdict:
        """Compares all with brute force."""
        places = {n: (p.edge, p.x, p.y) for n, p in self._where.city.places().items()}
        sent = [(report.scanner, report.devices) for _, report in self._sent]
        told = {
            edge: json.loads((self._folder / "receipts" / f"{edge}.json").read_text())
            for edge in self._trackers
        }
        return prove(
            expected(places, sent, KEPT_MS),
            self._where.neighbours,
            told,
            self._stream.movements(),
            self._converged,
        )
