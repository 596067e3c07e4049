"""Filtering of events in the network that loses nothing: switches match what sensors send over
links that lose a tenth of all frames, `jobs/attribute_stream.py` beside them tells each host what
it should have, and `stackcast receive --events` asks for the rest.

The oracle is brute force over the rules, from the records in plain Python.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections import defaultdict
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from crash_world import Program
from paths import P4, ROOT
from ports import free_port
from pyspark.sql import SparkSession
from rerequesting import Service
from waiting import until

from cli.explain import text_of
from jobs import check_delivery
from jobs.adapters.app.settings import Settings
from jobs.adapters.replay.explanation import SentExplanation
from jobs.adapters.switches.lead import Refresher
from jobs.adapters.tables.tables import Tables
from jobs.adapters.wire import open_sink, sink_options
from jobs.embedded.feed import feed_events
from lab.proof.attribute_reader import frame_reader
from lab.proof.receipts import datagrams_of, packet_receipt
from lab.proof.verification import Batch
from lab.traffic import sensors
from lab.traffic.publisher import ensure_topic
from lab.traffic.topic_log import TopicLog
from lab.up import deployment
from lab.up.broker import Broker
from lab.up.lab import Lab
from udfs.errors import LabError
from udfs.filters.meaning.evaluate import matches
from udfs.filters.subscriptions import Subscription, check
from udfs.messages.reference import HEADER, build_packet
from udfs.messages.sequence import session_id
from udfs.network.topology import line

pytestmark = pytest.mark.integration

NETWORK = line(3, 2)
REGISTRY = sensors.registry()
LOSS = 0.1
EVENTS = 900


@dataclass
class Deployment:
    """What the service and the proof take; packets: number and frame of each event that was fed."""

    spark: SparkSession
    settings: Settings
    tables: Tables
    packets: list[tuple[int, bytes]]

    @property
    def session(self) -> bytes:
        return session_id(self.settings.topic, 0)

    def owed(self) -> dict[str, list[bytes]]:
        """By host, what it should have of the events: rule by rule."""
        refused = {row["id"] for row in self.tables.rows("rejected_subscriptions")}
        rows = [
            Subscription(row["id"], row["subscriber"], row["filter"])
            for row in self.tables.rows("subscriptions")
            if row["id"] not in refused
        ]
        specification = REGISTRY.specification()
        rules, rejected = check(rows, specification, set(NETWORK.hosts), "feed1")
        assert not rejected and len(rules) > 10
        read, batch = frame_reader(), Batch(0, {}, [], REGISTRY)
        found: dict[str, list[bytes]] = defaultdict(list)
        for number, frame in self.packets:
            (event,) = read(frame, batch)
            hosts = {h for r in rules if matches(r.condition, event.event) for h in r.receivers}
            for host in hosts:
                found[host].append(build_packet(self.session, number, [event.message]))
        return found


def conf(settings: Settings) -> str:
    """The properties of the job, as a command line has them."""
    given = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.stackcast.match": "network",
        "spark.stackcast.tables": settings.tables,
        "spark.stackcast.publisher": settings.publisher,
        "spark.stackcast.sink.udp.endpoint": settings.udp_endpoint,
        "spark.stackcast.sink.udp.window": settings.udp_window,
        "spark.stackcast.topic": settings.topic,
        "spark.stackcast.deadLetter.topic": settings.dead_letter_topic,
        "spark.stackcast.checkpoint": settings.checkpoint,
        "spark.stackcast.startingOffsets": "earliest",
        "spark.stackcast.latency": settings.latency,
        "spark.stackcast.ledger.interval": settings.ledger_interval,
        "spark.stackcast.kafka.bootstrap.servers": settings.kafka["bootstrap.servers"],
    }
    words = " ".join(f"--conf '{key}={value}'" for key, value in given.items())
    return f"{words} pyspark-shell"


def test_over_links_that_lose_a_tenth_every_host_has_exactly_the_events_that_it_asked_for(
    spark: SparkSession, broker: Broker, empty_tables: Path, tmp_path: Path
):
    shutil.copytree(empty_tables, tmp_path / "tables")
    addresses = {host: f"127.0.0.1:{free_port()}" for host in sorted(NETWORK.subscribers())[:3]}
    servers = broker.bootstrap_servers
    with ExitStack() as stack:
        lab = Lab(tmp_path / "lab", NETWORK, broker=False, external=addresses, loss=LOSS)
        stack.enter_context(lab).up()
        tables = Tables(spark, str(tmp_path / "tables"))
        settings = Settings(
            match="network",
            format="attributes",
            tables=tables.location,
            publisher="feed1",
            udp_endpoint=lab.ingress["feed1"],
            udp_window=32,
            topic=f"events.{tmp_path.name}",
            dead_letter_topic=f"dead.{tmp_path.name}",
            checkpoint=str(tmp_path / "checkpoint"),
            latency="microbatch",
            rerequest_identify="name",
            ledger_interval="1 second",
            p4_folder=str(P4),
            kafka={"bootstrap.servers": servers},
            given=frozenset({"attributes.encoding"}),
        )
        rows = deployment.rows(
            NETWORK, lab.p4runtime, 20, 3, match="network", message_format="attributes"
        )
        for name, each in rows.items():
            tables.append(name, list(each))
        with Refresher(tables, settings) as refresher:
            assert not refresher.once()
        ensure_topic(servers, settings.dead_letter_topic, 1)
        log = stack.enter_context(TopicLog(servers, settings.topic))
        made = Deployment(spark, settings, tables, [])
        service = Service(made)
        stack.callback(service.close)
        hosts = {}
        for host, address in addresses.items():
            hosts[host] = Program(
                tmp_path,
                *("-m", "cli.main", "receive", "--events", settings.attributes_encoding),
                *("--rerequest", "{}:{}".format(*service.rerequests.address)),
                *("--listen", address, "--summary-port", "0"),
                *("--name", host, "--topic", settings.topic, "--from-start", "--json"),
                *("--order", "sequence", "--receipts", str(tmp_path / f"{host}.mold")),
            )
            stack.callback(hosts[host].kill)
            hosts[host].until("listening at")
        stream = Program(
            tmp_path, str(ROOT / "jobs/attribute_stream.py"), PYSPARK_SUBMIT_ARGS=conf(settings)
        )
        stack.callback(stream.kill)
        with closing(open_sink(sink_options(settings))) as sink:
            fed = feed_events(
                *(settings, NETWORK.hosts["feed1"], REGISTRY, sink),
                *(sensors.events(EVENTS, 5), Event()),
                topic=log,
            )
        made.packets += [(number, frame) for _, number, frame in fed.packets]
        assert len(made.packets) == EVENTS
        owed = made.owed()

        def had(host: str) -> list[bytes]:
            try:
                return list(datagrams_of(tmp_path / f"{host}.mold"))
            except (FileNotFoundError, LabError):
                return []  # not begun, or the last one is being written

        for host, program in hosts.items():
            assert len(owed[host]) > 20
            until(partial(lambda h: len(had(h)) >= len(owed[h]), host), stream)
            program.process.send_signal(signal.SIGTERM)
            assert program.end() == 0, program.output[-2000:]
            assert had(host) == owed[host]
            told = json.loads(program.output.splitlines()[-1])["statistics"]
            assert told["received"] > told["repaired"] > 0.05 * len(owed[host])
            assert not any(told[name] for name in ("losses", "unexpected", "disputed", "malformed"))
        stream.process.send_signal(signal.SIGTERM)
        assert stream.end() == 0, stream.output[-4000:]
        assert lab.status()["drops"]["loss"] > 50
        explains(made, owed, next(iter(addresses)))
        proves(made, owed, tmp_path, set(addresses))


def proves(made: Deployment, owed: dict[str, list[bytes]], folder: Path, hosts: set[str]) -> None:
    """What hosts wrote down is proved by topic and ledger, and one event less is not."""
    # The lab's own hosts do not ask; they are taken to have all.
    wrote = owed | {host: [*datagrams_of(folder / f"{host}.mold")] for host in hosts}
    files = {host: [*map(packet_receipt, datagrams)] for host, datagrams in wrote.items()}
    evidence = check_delivery.Evidence(made.spark, made.settings)
    verdict = evidence.verdict(files, ordered=False)
    assert verdict.proved, [*verdict.lines()]
    assert verdict.owed == verdict.received == sum(map(len, owed.values()))
    first = min(hosts)
    lost = files[first].pop(7)
    (fault,) = evidence.verdict(files, ordered=False).faults["missing"]
    assert (fault.host, fault.sequence) == (first, lost.sequence)


def explains(made: Deployment, owed: dict[str, list[bytes]], host: str) -> None:
    """Why a host got an event, and by which way, is told as ever."""
    packet = owed[host][len(owed[host]) // 2]
    session, number, _ = HEADER.unpack_from(packet)
    found = SentExplanation(made.spark, made.settings, made.tables).explain(
        session.decode(), number, host
    )
    assert set(found["receivers"]) == {h for h, each in owed.items() if packet in each}
    (mine,) = [each for each in found["frames"] if each["receivers"] == [host]]
    assert mine["hex"] == packet.hex()
    assert mine["paths"][host][0] == "feed1" and mine["paths"][host][-1] == host
    assert any(rule["matches"] for rule in found["rules"])
    assert f"packet from feed1 to {host}" in text_of(found)
