"""Filtering of events in the network that loses nothing.

Switches match the events of sensors over links that lose a tenth of all frames. The job
`attribute_stream` announces to each host which events it should have, and `stackcast receive
--event-frames` asks for missing ones. The oracle is brute force over the rules, in plain Python.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections import defaultdict
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import pytest
from crash_world import Program
from following import job_on_thread
from kafka_topics import kafka_topic
from paths import COMPILED_P4
from ports import free_port
from pyspark.sql import SparkSession
from rerequesting import Service
from waiting import until

from stackcast.cli.explain import text_of
from stackcast.jobs import attribute_stream, check_delivery
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.replay.explanation import SentExplanation
from stackcast.jobs.adapters.switches.lead import Refresher
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.jobs.adapters.wire import open_sink, sink_options
from stackcast.jobs.embedded.feed import feed_events
from stackcast.lab.proof.attribute_reader import frame_reader
from stackcast.lab.proof.receipts import datagrams_of, packet_receipt
from stackcast.lab.proof.verification import Batch
from stackcast.lab.traffic import sensors
from stackcast.lab.traffic.publisher import ensure_topic
from stackcast.lab.traffic.topic_log import TopicLog
from stackcast.lab.up import deployment
from stackcast.lab.up.broker import Broker
from stackcast.lab.up.lab import Lab
from stackcast.udfs.errors import LabError
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.messages.reference import HEADER, build_packet
from stackcast.udfs.messages.sequence import session_id
from stackcast.udfs.network.topology import line

pytestmark = pytest.mark.integration

NETWORK = line(3, 2)
REGISTRY = sensors.registry()
LOSS = 0.1
EVENTS = 900


@dataclass
class Deployment:
    """A deployment for the service and the proof.

    Attributes:
        packets: number and frame of each event that was fed.
    """

    spark: SparkSession
    settings: Settings
    tables: Tables
    packets: list[tuple[int, bytes]]

    @property
    def session(self) -> bytes:
        return session_id(kafka_topic(self.settings), 0)

    def expected(self) -> dict[str, list[bytes]]:
        """Returns the packets that each host should have, computed rule by rule."""
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
        packets: dict[str, list[bytes]] = defaultdict(list)
        for number, frame in self.packets:
            (event,) = read(frame, batch)
            hosts = {h for r in rules if matches(r.condition, event.event) for h in r.receivers}
            for host in hosts:
                packets[host].append(build_packet(self.session, number, [event.message]))
        return packets


@pytest.mark.long
def test_over_links_that_lose_a_tenth_every_host_has_exactly_the_events_that_it_asked_for(
    spark: SparkSession, broker: Broker, empty_tables: Path, tmp_path: Path
):
    shutil.copytree(empty_tables, tmp_path / "tables")
    addresses = {host: f"127.0.0.1:{free_port()}" for host in sorted(NETWORK.subscribers())[:3]}
    servers = broker.bootstrap_servers
    with ExitStack() as stack:
        lab = Lab(tmp_path / "lab", NETWORK, broker=False, external=addresses, loss=LOSS)
        stack.enter_context(lab).up()
        tables = open_tables(spark, str(tmp_path / "tables"))
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
            starting_offsets="earliest",
            p4_folder=str(COMPILED_P4),
            kafka={"bootstrap.servers": servers},
            given=frozenset({"attributes.encoding", "topic", "deadLetter.topic", "checkpoint"}),
        )
        rows = deployment.rows(
            NETWORK, lab.p4runtime, 20, 3, match="network", message_format="attributes"
        )
        for name, content in rows.items():
            tables.append(name, list(content))
        with Refresher(tables, settings) as refresher:
            assert not refresher.once()
        ensure_topic(servers, settings.dead_letter_topic, 1)
        log = stack.enter_context(TopicLog(servers, settings.topic))
        deployed = Deployment(spark, settings, tables, [])
        service = Service(deployed)
        stack.callback(service.close)
        hosts = {}
        for host, address in addresses.items():
            hosts[host] = Program(
                tmp_path,
                *("-m", "stackcast.cli.main", "receive"),
                *("--event-frames", settings.attributes_encoding),
                *("--rerequest", "{}:{}".format(*service.rerequests.address)),
                *("--listen", address, "--summary-port", "0"),
                *("--name", host, "--topic", settings.topic, "--topic-id", log.topic.id),
                *("--from-start", "--json"),
                *("--order", "sequence", "--receipts", str(tmp_path / f"{host}.mold")),
            )
            stack.callback(hosts[host].kill)
            hosts[host].until("listening at")
        stream = stack.enter_context(
            job_on_thread(lambda lifecycle: attribute_stream.deliver(settings, lifecycle))
        )
        with closing(open_sink(sink_options(settings))) as sink:
            fed = feed_events(
                *(settings, NETWORK.hosts["feed1"], REGISTRY, sink),
                *(sensors.events(EVENTS, 5), Event()),
                topic=log,
            )
        deployed.packets += [(number, frame) for _, number, frame in fed.packets]
        assert len(deployed.packets) == EVENTS
        expected = deployed.expected()

        def received(host: str) -> list[bytes]:
            try:
                return list(datagrams_of(tmp_path / f"{host}.mold"))
            except (FileNotFoundError, LabError):
                return []  # the file does not exist yet, or its last record is incomplete

        for host, program in hosts.items():
            assert len(expected[host]) > 20

            def complete(host: str = host) -> bool:
                return stream() and len(received(host)) >= len(expected[host])

            until(complete, program)
            program.process.send_signal(signal.SIGTERM)
            assert program.end() == 0, program.output[-2000:]
            assert received(host) == expected[host]
            counts = json.loads(program.output.splitlines()[-1])["statistics"]
            assert counts["received"] > counts["repaired"] > 0.05 * len(expected[host])
            zero = ("losses", "unexpected", "disputed", "malformed")
            assert not any(counts[name] for name in zero)
        assert lab.status()["drops"]["loss"] > 50
    check_explanation(deployed, expected, next(iter(addresses)))
    check_proof(deployed, expected, tmp_path, set(addresses))


def check_proof(
    deployed: Deployment, expected: dict[str, list[bytes]], folder: Path, hosts: set[str]
) -> None:
    """The proof accepts the packets that hosts wrote, and not if one is missing."""
    # The lab's own hosts do not ask, so the proof gets the packets that they should have.
    packets = expected | {host: [*datagrams_of(folder / f"{host}.mold")] for host in hosts}
    files = {host: [*map(packet_receipt, datagrams)] for host, datagrams in packets.items()}
    evidence = check_delivery.Evidence(deployed.spark, deployed.settings)
    verdict = evidence.verdict(files, ordered=False)
    assert verdict.proved, [*verdict.lines()]
    assert verdict.owed == verdict.received == sum(map(len, expected.values()))
    first = min(hosts)
    removed = files[first].pop(7)
    (fault,) = evidence.verdict(files, ordered=False).faults["missing"]
    assert (fault.host, fault.sequence) == (first, removed.sequence)


def check_explanation(deployed: Deployment, expected: dict[str, list[bytes]], host: str) -> None:
    """The explanation of an event names its receivers, its path and its rules."""
    packet = expected[host][len(expected[host]) // 2]
    session, number, _ = HEADER.unpack_from(packet)
    explanation = SentExplanation(deployed.spark, deployed.settings, deployed.tables).explain(
        session.decode(), number, host
    )
    receivers = {name for name, packets in expected.items() if packet in packets}
    assert set(explanation["receivers"]) == receivers
    (frame,) = [frame for frame in explanation["frames"] if frame["receivers"] == [host]]
    assert frame["hex"] == packet.hex()
    assert frame["paths"][host][0] == "feed1" and frame["paths"][host][-1] == host
    assert any(rule["matches"] for rule in explanation["rules"])
    assert f"packet from feed1 to {host}" in text_of(explanation)
