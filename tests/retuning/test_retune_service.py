"""Retuning under traffic: a real stream sends through real switches while rules and trees change.

The lab provides broker, switches and hosts; stream and refresher are the jobs. Trees come and go by
each strategy, and a link fails while the service runs. `jobs/check_delivery.py` proves that hosts
received everything except what the failed link lost before the tables said that it is down, and
that hosts received the rest when they asked for it.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import shlex
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from crash_world import Program, packets
from following import following, polled
from kafka import KafkaProducer
from paths import ROOT
from ports import free_port
from pyspark.sql import SparkSession
from rerequesting import Service, repaired
from retuning_service import check_place_is_free, get, record_of_rows, retuning_service
from waiting import until

from stackcast.jobs import check_delivery
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.planning.versions import LINK_STATES
from stackcast.jobs.adapters.retune.record import RecordedPublications, read_record
from stackcast.jobs.adapters.stream.spark_stream import start
from stackcast.jobs.adapters.tables.conflicts import retried
from stackcast.jobs.adapters.tables.edits import change_tree_states, replace_changed
from stackcast.jobs.adapters.tables.network_versions import NetworkVersions
from stackcast.jobs.adapters.tables.recorded_topics import topic_of_row
from stackcast.jobs.adapters.tables.tables import TREES, Tables
from stackcast.lab.proof import verdict as verdicts
from stackcast.lab.proof.receipts import datagrams_of, packet_receipt, receipts
from stackcast.lab.traffic.publisher import ensure_topic
from stackcast.lab.up.lab import Lab
from stackcast.udfs.messages.sequence import OFFSET_SHIFT, session_id
from stackcast.udfs.network.rows import network_to_rows
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.trees.strategies.registry import STRATEGIES

pytestmark = pytest.mark.integration

#: Any link between switches may fail: the second plane is a detour.
NETWORK = fabric(pods=2, racks=2, hosts=2, planes=2, spines=1)
(FEED,) = NETWORK.publishers()
HOSTS = sorted(NETWORK.subscribers())
TOPIC = "itch.raw"
#: Packets per second, and seconds between two edits of rules.
RATE = 10
EDIT_SECONDS = 3
#: The maximum number of links that fail until one has lost a notification.
MOST_CUTS = 4
#: It stores no trees, so trees of other strategies are removed.
PLAIN = "hops"


class Cut(NamedTuple):
    """A link that failed under traffic.

    Attributes:
        link: its switches.
        first: the first batch that may have lost frames on it.
        rerouted: the first batch that avoids it.
        lost: the number of frames that all failed links have lost so far.
    """

    link: tuple[str, str]
    first: int
    rerouted: int
    lost: int

    def explains(self, fault: verdicts.Fault) -> bool:
        return fault.kind == "missing" and self.first <= fault.batch < self.rerouted


class World:
    """A deployment of the lab, and its stream, which runs within `running`."""

    def __init__(self, spark: SparkSession, lab: Lab, tables: Tables, folder: Path) -> None:
        self.spark, self.lab, self.tables, self.folder = spark, lab, tables, folder
        self.settings = Settings(
            tables=tables.location,
            publisher=FEED,
            udp_endpoint=lab.ingress[FEED],
            udp_window=64,
            topic=TOPIC,
            dead_letter_topic="itch.dead",
            checkpoint=str(folder / "checkpoint"),
            latency="microbatch",
            trigger="1 second",
            rerequest_identify="name",
            kafka={"bootstrap.servers": lab.bootstrap_servers},
        )
        rows = network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, lab.p4runtime))
        for name, content in rows.items():
            tables.append(name, content)
        author = {"updated_by": "test", "updated_at": dt.datetime.now(dt.UTC)}
        tables.append(
            "subscriptions",
            [
                {"id": host, "subscriber": host, "format": "itch", "enabled": True, **author}
                | {"filter": f"shares > {100 * number}"}
                for number, host in enumerate(HOSTS)
            ],
        )
        self.published = 0
        self.failures: list[BaseException] = []
        self._packets = enumerate(packets(random.Random(5)))
        self._dice = random.Random(3)
        ensure_topic(lab.bootstrap_servers, TOPIC, 2)

    def trees(self) -> list[dict[str, Any]]:
        return polled(self.tables, TREES)

    def active(self) -> list[dict[str, Any]]:
        return [row for row in self.trees() if row["state"] == "active"]

    def states(self) -> Counter[str]:
        return Counter(row["state"] for row in self.trees())

    @contextmanager
    def running(self) -> Iterator[None]:
        """Publish records, edit rules, and run stream and refresher, until all records are sent."""
        ending = threading.Event()

        def guarded(work: Callable[[threading.Event], None]) -> None:
            try:
                work(ending)
            except BaseException as error:
                self.failures.append(error)

        threads = [threading.Thread(target=guarded, args=(w,)) for w in (self._publish, self._edit)]
        stream = threading.Thread(target=guarded, args=(self._stream,))
        with following(self.tables, self.settings):
            # Before the switches are ready, they drop frames.
            versions = NetworkVersions(self.tables)
            until(versions.ready)
            for thread in (stream, *threads):
                thread.start()
            try:
                self.wait_for_batches(2)
                yield
            finally:
                ending.set()
                for thread in (*threads, stream):
                    thread.join(600)
        assert self.runs() and not stream.is_alive()
        self.lab.settle()

    def runs(self) -> bool:
        """Fails if a thread of `running` has failed."""
        assert not self.failures, self.failures
        return True

    def _publish(self, ending: threading.Event) -> None:
        producer = KafkaProducer(bootstrap_servers=self.lab.bootstrap_servers, acks="all")
        for number, packet in self._packets:
            producer.send(TOPIC, packet, partition=number % 2)
            self.published += 1
            if ending.wait(1 / RATE):
                break
        producer.flush()
        producer.close()

    def _edit(self, ending: threading.Event) -> None:
        """Change the filter of one host at a time; some filters select few messages.

        Most hosts keep their filters, so that each strategy has trees that are worth a change.
        """
        while not ending.wait(EDIT_SECONDS):
            host, least = self._dice.choice(HOSTS[:3]), self._dice.choice((0, 200, 900))
            rows = self.tables.rows("subscriptions")
            edited = [
                row | {"filter": f"shares > {least}"} if row["id"] == host else row for row in rows
            ]
            replace_changed(self.tables, "subscriptions", edited, ("id",), rows)

    def _stream(self, ending: threading.Event) -> None:
        lifecycle = Lifecycle()
        query, delivery = start(self.spark, self.settings, lifecycle)

        def finished() -> bool:
            return ending.is_set() and sum(delivery.recorder.processed.values()) >= self.published

        try:
            lifecycle.run(query, finished)
            delivery.flush_summaries()
        finally:
            delivery.close()

    def batches(self) -> int:
        return len(polled(self.tables, "egress_ledger"))

    def wait_for_batches(self, number: int) -> None:
        """Wait until the ledger has this number of further batches."""
        before = self.batches()
        until(lambda: self.runs() and self.batches() >= before + number)

    def ledger(self) -> list[dict[str, Any]]:
        return sorted(polled(self.tables, "egress_ledger"), key=lambda row: row["batch_id"])

    def _heaviest(self, cuts: Sequence[Cut]) -> tuple[str, str]:
        """Returns the link between switches with most traffic, except links that failed before."""
        before = self.lab.status()["link_bytes"]
        self.wait_for_batches(2)
        after = self.lab.status()["link_bytes"]
        traffic = {
            (link.switch, link.neighbor): after[name] - before[name]
            for link in NETWORK.links
            if link.neighbor in NETWORK.switches and (name := f"{link.switch}->{link.neighbor}")
        }
        for cut in cuts:
            del traffic[cut.link]
        return max(traffic, key=traffic.__getitem__)

    def _set_up(self, link: tuple[str, str], up: bool) -> int:
        """Write into the table that a link is up or down; returns the first batch that knows."""
        rows = self.tables.rows("links")
        changed = [
            row | {"up": up} if {row["switch"], row["neighbor"]} == {*link} else row for row in rows
        ]
        assert replace_changed(self.tables, "links", changed, ("link_id",), rows)
        version = self.tables.version("links")

        def informed() -> list[int]:
            versions = [(row["batch_id"], row["versions"][LINK_STATES]) for row in self.ledger()]
            return [batch for batch, links in versions if links >= version]

        until(lambda: self.runs() and informed())
        return informed()[0]

    def fail(self, retuned: Callable[[], None], cuts: Sequence[Cut]) -> Cut:
        """Let a link fail that is not among ``cuts``, then write so into the table, then repair it.

        retuned: waits until the service has installed further trees.
        """
        before = cuts[-1].lost if cuts else 0
        while True:
            link = self._heaviest(cuts)
            first = self.batches()
            assert self._lost() == before
            self.lab.plug(*link, False)
            self.wait_for_batches(2)
            if self._lost() > before:
                break
            # Trees have changed since the measurement, and no frame crosses the link.
            self.lab.plug(*link, True)
        rerouted = self._set_up(link, False)
        lost = self._lost()
        retuned()
        self.wait_for_batches(2)
        # No further frame is lost, whatever trees came and went.
        assert self._lost() == lost
        self.lab.plug(*link, True)
        self._set_up(link, True)
        retuned()
        print(f"{link} lost {lost - before} frames of the batches from {first} to {rerouted}")
        return Cut(link, first, rerouted, lost)

    def _lost(self) -> int:
        drops = self.lab.status()["drops"]
        assert drops.keys() <= {"link_down"}, drops
        return int(drops.get("link_down", 0))

    def verdict(self) -> verdicts.DeliveryVerdict:
        """Returns the verdict about all batches so far."""
        evidence = check_delivery.Evidence(self.spark, self.settings)
        return evidence.verdict(receipts(self.lab.folder))

    def repaired(self) -> verdicts.DeliveryVerdict:
        """Returns the verdict after each host has asked for everything in the summaries."""
        ends = {
            session_id(topic_of_row(row), part["partition"]): part["until_offset"] << OFFSET_SHIFT
            for row in self.ledger()
            for part in row["partitions"]
        }
        received = {
            host: list(datagrams_of(self.lab.folder / "receipts" / f"{host}.mold"))
            for host in HOSTS
        }
        service = Service(self)
        try:
            complete = {
                host: repaired(service.rerequests, host, received[host], ends)[0] for host in HOSTS
            }
        finally:
            service.close()
        evidence = check_delivery.Evidence(self.spark, self.settings)
        after = {host: [*map(packet_receipt, datagrams)] for host, datagrams in complete.items()}
        return evidence.verdict(after, ordered=False)

    def remove_trees(self) -> None:
        """Retire all trees, as a person may do."""

        def retire() -> None:
            moves = {row["tree_id"]: ("active", "retiring") for row in self.trees()}
            change_tree_states(self.tables, moves)

        retried(retire)
        until(lambda: self.runs() and set(self.states()) <= {"retired"})

    def arguments(self, strategies: str) -> list[str]:
        options = ["--strategies", strategies, "--every", "3s", "--wait", "600", "--max-rules", "3"]
        options += ["--objective", "labels", "--window", "10s", "--min-saving", "0"]
        return [*options, "--report", str(self.folder / "report")]

    def service(
        self,
        strategies: str,
        port: int = 0,
        record: Callable[..., RecordedPublications] = read_record,
    ) -> AbstractContextManager[Callable[[], bool]]:
        return retuning_service(self.settings, self.arguments(strategies), port, record)


@pytest.fixture
def world(
    spark: SparkSession, tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    # Verdicts list all faults, and not the first few.
    monkeypatch.setattr(verdicts, "SHOWN", 1 << 20)
    with Lab(tmp_path / "lab", NETWORK) as lab:
        lab.up()
        yield World(spark, lab, tables, tmp_path)


def faults_of(verdict: verdicts.DeliveryVerdict) -> list[verdicts.Fault]:
    return [fault for faults in verdict.faults.values() for fault in faults]


@pytest.mark.long
def test_the_service_retunes_under_traffic_and_around_a_link_that_fails(world: World) -> None:
    port = free_port()
    with world.running():
        with world.service("tree,relation", port) as runs:
            until(lambda: runs() and world.states()["active"])
            until(lambda: runs() and '"last_round": "done"' in get(port, "health"))
            assert runs()
            health = json.loads(get(port, "health"))
            assert health["status"] == "ok", health

            def retuned() -> None:
                """Wait until trees are active that were installed since."""
                newest = max(row["tree_id"] for row in world.trees())
                until(lambda: runs() and any(row["tree_id"] > newest for row in world.active()))

            # All frames on a link may be summaries: then a second link fails.
            cuts = [world.fail(retuned, [])]
            while len(cuts) < MOST_CUTS and not any(
                cuts[-1].explains(fault) for fault in faults_of(world.verdict())
            ):
                cuts.append(world.fail(retuned, cuts))
            assert runs()
            assert 'stackcast_retune_trees_total{state="installing"}' in get(port, "metrics")
        check_place_is_free(world.tables)
        world.wait_for_batches(2)
    verdict = world.verdict()
    faults = faults_of(verdict)
    print(verdict.batches, verdict.owed, Counter(row["strategy"] for row in world.trees()))
    assert verdict.waiting == 0 and verdict.repeats == 0 and verdict.owed > 500
    # No message is astray, double or out of order, and only failed links lost any.
    assert faults, list(verdict.lines())
    assert all(any(cut.explains(fault) for cut in cuts) for fault in faults), (cuts, faults)
    # Each host learns of them, asks for them, and receives them, once.
    repaired = world.repaired()
    assert repaired.proved and repaired.repeats == 0, list(repaired.lines())
    versions = list(verdict.versions.values())
    assert len({batch["virtual_trees"] for batch in versions}) > 2
    assert len({batch["subscriptions"] for batch in versions}) > 3


@pytest.mark.long
@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != PLAIN])
def test_trees_of_a_strategy_change_under_traffic_and_hosts_lose_and_double_nothing(
    world: World, strategy: str
) -> None:
    with world.running():
        with world.service(strategy, record=record_of_rows) as runs:
            until(lambda: runs() and any(row["strategy"] == strategy for row in world.active()))
            world.wait_for_batches(2)
        world.remove_trees()
        world.wait_for_batches(2)
    verdict = world.verdict()
    assert verdict.waiting == 0 and verdict.repeats == 0, list(verdict.lines())
    assert verdict.owed > 100 and faults_of(verdict) == []
    trees = {row["versions"]["virtual_trees"] for row in world.ledger()}
    assert len(trees) > 2


@pytest.mark.long
def test_the_service_as_a_process_ends_by_sigterm_with_exit_code_0(world: World) -> None:
    port = free_port()
    conf = {
        "spark.master": "local[1]",
        "spark.driver.memory": "1g",
        "spark.sql.warehouse.dir": world.folder / "warehouse",
        "spark.stackcast.tables": world.tables.location,
        "spark.stackcast.metrics.port": port,
    }
    options = " ".join(f"--conf {shlex.quote(f'{k}={v}')}" for k, v in conf.items())
    with world.running():
        service = Program(
            world.folder,
            str(ROOT / "jobs" / "retune_trees.py"),
            *world.arguments("tree,relation"),
            PYSPARK_SUBMIT_ARGS=f"{options} pyspark-shell",
        )
        try:
            until(lambda: world.states()["active"], service)
            until(lambda: '"status": "ok"' in get(port, "health"), service)
            service.process.send_signal(signal.SIGTERM)
            assert service.end() == 0, service.output[-4000:]
        finally:
            service.kill()
        check_place_is_free(world.tables)
