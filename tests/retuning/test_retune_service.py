"""Retuning as a service, while a real stream sends through real switches and rules change.

Broker, switches and hosts are the lab's; stream and refresher are the jobs. Trees come and go under
the traffic, by each strategy, and a link fails while the service runs. `jobs/check_delivery.py`
proves what hosts got: all but what the link took with it until the table said that it is down, and
that as soon as they asked for it.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import shlex
import signal
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from crash_world import Program, packets
from following import following
from kafka import KafkaProducer
from paths import ROOT
from polling import polled
from ports import free_port
from pyspark.sql import SparkSession
from rerequesting import Service, repaired
from waiting import until

from jobs import check_delivery, retune_trees
from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import Settings
from jobs.adapters.planning.versions import LINK_STATES
from jobs.adapters.stream.micro_batches import start
from jobs.adapters.tables.network_versions import NetworkVersions
from jobs.adapters.tables.tables import TREES, Tables
from lab.proof import verdict as verdicts
from lab.proof.receipts import Receipt, datagrams_of, packet_receipt, receipts
from lab.traffic.publisher import ensure_topic
from lab.up.lab import Lab
from udfs.messages.sequence import OFFSET_SHIFT, session_id
from udfs.network.rows import network_to_rows
from udfs.network.topology import fabric
from udfs.trees.strategies.registry import STRATEGIES

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: Any link between switches may fail: the other plane is a way round.
NETWORK = fabric(pods=2, racks=2, hosts=2, planes=2, spines=1)
(FEED,) = NETWORK.publishers()
HOSTS = sorted(NETWORK.subscribers())
TOPIC = "itch.raw"
RATE = 10
#: A run draws so many strategies, as each takes a while; one with --kills takes all.
DRAWN = 1
#: Links that fail at most until one has taken a notification with it.
MOST_CUTS = 4
#: Stores no tree, and so what others stored goes.
PLAIN = "hops"


class Cut(NamedTuple):
    """A link that failed under traffic: the first batch that may have lost frames by it, the first
    that went round it, and frames that links have lost in all."""

    link: tuple[str, str]
    first: int
    rerouted: int
    lost: int

    def took(self, fault: verdicts.Fault) -> bool:
        return fault.kind == "missing" and self.first <= fault.batch < self.rerouted


class World:
    """A deployment with a stream that runs. names: of the rules that change."""

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
            rerequest_identify="name",
            kafka={"bootstrap.servers": lab.bootstrap_servers},
        )
        rows = network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, lab.p4runtime))
        for name, content in rows.items():
            tables.append(name, content)
        who = {"updated_by": "test", "updated_at": dt.datetime.now(dt.UTC)}
        tables.append(
            "subscriptions",
            [
                {"id": host, "subscriber": host, "format": "itch", "enabled": True, **who}
                | {"filter": f"shares > {100 * number}"}
                for number, host in enumerate(HOSTS)
            ],
        )
        self.edits = self.published = 0
        self.lifecycle = Lifecycle()
        ensure_topic(lab.bootstrap_servers, TOPIC, 2)

    def trees(self) -> list[dict[str, Any]]:
        return polled(self.tables, TREES)

    def active(self) -> list[dict[str, Any]]:
        return [row for row in self.trees() if row["state"] == "active"]

    def states(self) -> Counter[str]:
        return Counter(row["state"] for row in self.trees())

    @contextmanager
    def running(self) -> Iterator[None]:
        """Records come, rules change, stream and refresher run; all is sent at the end."""
        failures: list[BaseException] = []
        ending = threading.Event()

        def guarded(work: Callable[[threading.Event], None]) -> None:
            try:
                work(ending)
            except BaseException as error:
                failures.append(error)

        works = [threading.Thread(target=guarded, args=(w,)) for w in (self._publish, self._edit)]
        stream = threading.Thread(target=guarded, args=(self._stream,))
        with following(self.tables, self.settings):
            # Until they are, frames go astray.
            ready = NetworkVersions(self.tables)
            until(lambda: bool(ready.ready()))
            for thread in (stream, *works):
                thread.start()
            try:
                yield
            finally:
                ending.set()
                for thread in (*works, stream):
                    thread.join(300)
        assert not failures and not stream.is_alive(), failures

    def _publish(self, ending: threading.Event) -> None:
        producer = KafkaProducer(bootstrap_servers=self.lab.bootstrap_servers, acks="all")
        for number, packet in enumerate(packets(random.Random(5))):
            producer.send(TOPIC, packet, partition=number % 2)
            self.published += 1
            if ending.wait(1 / RATE):
                break
        producer.flush()
        producer.close()

    def _edit(self, ending: threading.Event) -> None:
        """Each time another host wants other messages, and some no more than a few."""
        name, draw = f"delta.`{self.tables.location}/subscriptions`", random.Random(3)
        while not ending.wait(3):
            host, least = draw.choice(HOSTS), draw.choice((0, 200, 900))
            self.spark.sql(f"UPDATE {name} SET filter = 'shares > {least}' WHERE id = '{host}'")
            self.edits += 1

    def _stream(self, ending: threading.Event) -> None:
        query, delivery = start(self.spark, self.settings, self.lifecycle)

        def finished() -> bool:
            return ending.is_set() and sum(delivery.processed.values()) >= self.published

        try:
            self.lifecycle.run(query, finished)
            delivery.tell_rest()
        finally:
            delivery.close()

    def batches(self) -> int:
        return len(polled(self.tables, "egress_ledger"))

    def sent(self, batches: int) -> None:
        """Wait until so many more batches are on record."""
        before = self.batches()
        until(lambda: self.batches() >= before + batches)

    def ledger(self) -> list[dict[str, Any]]:
        return sorted(polled(self.tables, "egress_ledger"), key=lambda row: row["batch_id"])

    def _heaviest(self, cuts: Sequence[Cut]) -> tuple[str, str]:
        """The link between switches that frames cross most now, of those that did not fail yet."""
        before = self.lab.status()["link_bytes"]
        self.sent(2)
        after = self.lab.status()["link_bytes"]
        carried = {
            (link.switch, link.neighbor): after[way] - before[way]
            for link in NETWORK.links
            if link.neighbor in NETWORK.switches and (way := f"{link.switch}->{link.neighbor}")
        }
        for cut in cuts:
            del carried[cut.link]
        return max(carried, key=carried.__getitem__)

    def _tell(self, link: tuple[str, str], up: bool) -> int:
        """Writes into the table that a link is up or down; returns the first batch that knows."""
        name = f"delta.`{self.tables.location}/links`"
        self.spark.sql(f"UPDATE {name} SET up = {up} WHERE switch IN {link} AND neighbor IN {link}")
        version = self.tables.version("links")

        def knowing() -> list[int]:
            told = [(r["batch_id"], r["versions"][LINK_STATES]) for r in self.ledger()]
            return [batch for batch, known in told if known >= version]

        until(knowing)
        return knowing()[0]

    def fail(self, adapted: Callable[[], None], cuts: Sequence[Cut]) -> Cut:
        """After these, another link goes down, later the table says so, the service goes on, and
        the link comes back."""
        link = self._heaviest(cuts)
        first, before = self.batches(), cuts[-1].lost if cuts else 0
        assert self._lost() == before
        self.lab.plug(*link, False)
        self.sent(2)
        rerouted = self._tell(link, up=False)
        lost = self._lost()
        assert lost > before
        adapted()
        self.sent(2)
        # Not one more, whatever trees came and went meanwhile.
        assert self._lost() == lost
        self.lab.plug(*link, True)
        self._tell(link, up=True)
        adapted()
        print(f"{link} lost {lost - before} frames of the batches from {first} to {rerouted}")
        return Cut(link, first, rerouted, lost)

    def _lost(self) -> int:
        drops = self.lab.status()["drops"]
        assert drops.keys() <= {"link_down"}, drops
        return int(drops.get("link_down", 0))

    def faults(self) -> list[verdicts.Fault]:
        evidence = check_delivery.Evidence(self.spark, self.settings)
        return faults_of(evidence.verdict(receipts(self.lab.folder)))

    def repaired(self) -> dict[str, list[Receipt]]:
        """What each host has once it has asked for what it lacks, as only the stream's summaries
        tell it."""
        ends = {
            session_id(TOPIC, each["partition"]): each["until_offset"] << OFFSET_SHIFT
            for row in self.ledger()
            for each in row["partitions"]
        }
        heard = {
            host: list(datagrams_of(self.lab.folder / "receipts" / f"{host}.mold"))
            for host in HOSTS
        }
        service = Service(self)
        try:
            found = {host: repaired(service.rerequests, host, heard[host], ends) for host in HOSTS}
        finally:
            service.close()
        return {host: [packet_receipt(each) for each in had] for host, (had, _) in found.items()}

    def without_trees(self) -> None:
        """Somebody takes all trees out."""
        active = {row["tree_id"]: ("active", "retiring") for row in self.trees()}
        self.tables.move(TREES, "tree_id", "state", active)
        until(lambda: set(self.states()) <= {"retired"})

    def arguments(self, strategies: str) -> list[str]:
        how = ["--strategies", strategies, "--every", "1s", "--wait", "30", "--rules", "3"]
        how += ["--objective", "labels", "--window", "10s", "--min-saving", "0"]
        return [*how, "--report", str(self.folder / "report")]

    def retuned(self, strategy: str) -> None:
        """The service runs by one strategy until its trees are in use."""
        lifecycle, failures = Lifecycle(), []
        asked = retune_trees.parser().parse_args(self.arguments(strategy))

        def adapted() -> bool:
            return any(row["strategy"] == strategy for row in self.active())

        def watch() -> None:
            try:
                until(adapted)
                self.sent(2)
            except BaseException as error:
                failures.append(error)
            finally:
                lifecycle.stopping.set()

        thread = threading.Thread(target=watch)
        thread.start()
        assert retune_trees.work(asked, self.settings, lifecycle) == retune_trees.DONE
        thread.join(300)
        assert not failures, (strategy, failures)

    def service(self, port: int) -> Program:
        """In a process of its own."""
        conf = {
            "spark.master": "local[1]",
            "spark.driver.memory": "1g",
            "spark.sql.warehouse.dir": self.folder / "warehouse",
            "spark.stackcast.tables": self.tables.location,
            "spark.stackcast.metrics.port": port,
        }
        options = " ".join(f"--conf {shlex.quote(f'{k}={v}')}" for k, v in conf.items())
        return Program(
            self.folder,
            str(ROOT / "jobs" / "retune_trees.py"),
            *self.arguments("tree,relation"),
            PYSPARK_SUBMIT_ARGS=f"{options} pyspark-shell",
        )


def faults_of(verdict: verdicts.DeliveryVerdict) -> list[verdicts.Fault]:
    return [fault for found in verdict.faults.values() for fault in found]


def get(port: int, what: str) -> str:
    with (
        suppress(urllib.error.URLError, ConnectionError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/{what}", timeout=10) as answer,
    ):
        return str(answer.read().decode())
    return ""


@pytest.fixture
def world(spark: SparkSession, tables: Tables, tmp_path: Path) -> Iterator[World]:
    with Lab(tmp_path / "lab", NETWORK) as lab:
        lab.up()
        yield World(spark, lab, tables, tmp_path)


def test_trees_change_under_traffic_by_each_strategy_and_hosts_lose_and_double_nothing(
    world: World, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All faults, and not the first few.
    monkeypatch.setattr(verdicts, "SHOWN", 1 << 20)
    names = [name for name in STRATEGIES if name != PLAIN]
    if not request.config.getoption("--kills"):
        names = random.Random().sample(names, DRAWN)
    print(f"by {names}")
    with world.running():
        world.sent(3)
        for name in names:
            world.retuned(name)
            world.without_trees()
        # As its users run it, and end it whatever it is at.
        port = free_port()
        service = world.service(port)
        try:
            until(lambda: world.states()["active"], service)
            until(lambda: '"last_round": "done"' in get(port, "health"), service)
            told = json.loads(get(port, "health"))
            assert told["status"] == "ok", told

            def adapted() -> None:
                """It has installed trees since, and they are in use."""
                newest = max(row["tree_id"] for row in world.trees())
                until(lambda: any(r["tree_id"] > newest for r in world.active()), service)

            # All that a link carries may be summaries: then another fails, too.
            cuts = [world.fail(adapted, [])]
            while len(cuts) < MOST_CUTS and not any(map(cuts[-1].took, world.faults())):
                cuts.append(world.fail(adapted, cuts))
            assert 'stackcast_retune_trees_total{state="installing"}' in get(port, "metrics")
            service.process.send_signal(signal.SIGTERM)
            assert service.end() == 0, service.output[-4000:]
        finally:
            service.kill()
        # It gave its place back.
        places = [row for row in world.tables.rows("writers") if row["role"] == "retuning"]
        own = [row for row in places if row["pid"] == service.process.pid]
        assert own and own[-1]["epoch"] == max(row["epoch"] for row in places)
        assert any(row["ended_at"] for row in own)
        world.sent(2)
    world.lab.settle()
    changed = Counter(row["strategy"] for row in world.trees())
    assert {*names} <= set(changed), changed
    evidence = check_delivery.Evidence(world.spark, world.settings)
    verdict = evidence.verdict(receipts(world.lab.folder))
    faults = faults_of(verdict)
    print(verdict.batches, verdict.owed, verdict.repeats, changed)
    assert verdict.waiting == 0 and verdict.repeats == 0
    assert verdict.owed > 500
    # Nothing is astray, twice or out of order, and lost is only what the link took with it.
    assert faults, list(verdict.lines())
    assert all(any(cut.took(fault) for cut in cuts) for fault in faults), (cuts, faults)
    # A host hears of each of them, asks for it, and gets it, once.
    asked = evidence.verdict(world.repaired(), ordered=False)
    assert asked.proved and asked.repeats == 0, list(asked.lines())
    versions = list(verdict.versions.values())
    assert len({each["virtual_trees"] for each in versions}) > 2 * len(names)
    assert len({each["subscriptions"] for each in versions}) > 3
