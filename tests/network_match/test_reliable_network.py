"""Filtering in the network that loses nothing.

Switches match a feed over links that lose a tenth of all frames. The stream announces to each host
which messages it should have, and hosts ask for missing ones. Two publishers feed at different
switches, each with its own partition. The parts are a broker, a stream, whose first process is
killed, lab switches that the refresher fills, and hosts that are `stackcast receive`. The oracle is
brute force over the rules.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import random
import shutil
import signal
from collections import defaultdict
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from crash_world import Program
from crashing_stream import Story
from following import drain
from paths import COMPILED_P4, SUPPORT
from ports import free_port
from pyspark.sql import SparkSession
from rerequesting import Service
from waiting import until

from stackcast import schemas
from stackcast.cli.explain import text_of
from stackcast.jobs import check_delivery
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.replay.explanation import SentExplanation
from stackcast.jobs.adapters.switches.lead import Refresher
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.jobs.adapters.wire import Opener, sink_options
from stackcast.jobs.embedded.feed import Share, feed
from stackcast.lab.proof.receipts import datagrams_of, packet_receipt
from stackcast.lab.traffic.publisher import ensure_topic
from stackcast.lab.traffic.topic_log import TopicLog
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.lab.up.broker import Broker
from stackcast.lab.up.deployment import ingress_rows
from stackcast.lab.up.lab import Lab
from stackcast.udfs.errors import LabError
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.messages.reference import HEADER, build_packet, read_message, read_packet
from stackcast.udfs.messages.sequence import session_id
from stackcast.udfs.messages.specification import parse_specification
from stackcast.udfs.network.ingresses import Ingresses
from stackcast.udfs.network.programs import FILTERING
from stackcast.udfs.network.rows import network_to_rows
from stackcast.udfs.network.topology import fabric

pytestmark = pytest.mark.long

ITCH = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
NETWORK = fabric(pods=2, racks=2, hosts=1, planes=1, spines=1, publishers=2)
PUBLISHERS = ("feed1", "feed2")
LOSS = 0.1
HOSTS = ("h1", "h2", "h4")
RULES = {
    "high": ("h1", "price > 60"),
    "side": ("h2", 'buy_sell == "B" and shares >= 300'),
    "both": ("h1", "shares < 300 : fwd(h1, h4)"),
}
#: Switches cannot match this rule exactly, so the stream must not announce its messages either.
REFUSED = ("h4", "stock > AAPL")


class Deployment:
    """Tables, switches that the refresher fills, a topic, and a stream."""

    def __init__(
        self, spark: SparkSession, broker: Broker, tables: Tables, folder: Path, lab: Lab
    ) -> None:
        self.folder, self.tables, self.spark = folder, tables, spark
        self.settings = Settings(
            match="network",
            tables=tables.location,
            publisher=",".join(PUBLISHERS),
            udp_window=32,
            topic=f"itch.{folder.name}",
            dead_letter_topic=f"dead.{folder.name}",
            checkpoint=str(folder / "checkpoint"),
            max_offsets_per_trigger=40,
            latency="microbatch",
            rerequest_identify="name",
            ledger_interval="1 second",
            p4_folder=str(COMPILED_P4),
            kafka={"bootstrap.servers": broker.bootstrap_servers},
        )
        self.lab = lab
        self.packets: list[tuple[int, int, bytes]] = []
        rows = network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, lab.p4runtime), FILTERING)
        for name, content in rows.items():
            tables.append(name, content)
        for name, content in ingress_rows(lab.ingress).items():
            tables.append(name, content)
        author = {"updated_by": "test", "updated_at": dt.datetime.now(dt.UTC)}
        common = {"format": "itch", "enabled": True, **author}
        rules = {**RULES, "refused": REFUSED}.items()
        tables.append(
            "subscriptions",
            [common | {"id": n, "subscriber": h, "filter": f} for n, (h, f) in rules],
        )
        with Refresher(tables, self.settings) as refresher:
            assert not refresher.once()
        (rejected,) = tables.rows("rejected_subscriptions")
        assert rejected["id"] == "refused"
        ensure_topic(broker.bootstrap_servers, self.settings.dead_letter_topic, 1)
        self.log = TopicLog(
            broker.bootstrap_servers, self.settings.topic, partitions=len(PUBLISHERS)
        )

    def crashing_stream(self, crash: str, passing: int) -> Program:
        default = Settings()
        settings = {
            name: value
            for name, value in dataclasses.asdict(self.settings).items()
            if value != getattr(default, name)
        }
        story = Story(settings, crash, passing, conf={"spark.driver.memory": "1g"})
        path = self.folder / "story.json"
        path.write_text(json.dumps(dataclasses.asdict(story)))
        return Program(self.folder, str(SUPPORT / "crashing_stream.py"), str(path))

    def feed(self, messages: int, seed: int) -> None:
        """Send a session into the network, half of it by each publisher.

        The number of a packet is its position in the topic.
        """
        opener = Opener(sink_options(self.settings))
        ingresses = Ingresses.from_rows(self.tables.rows("ingresses"))
        for number, name in enumerate(PUBLISHERS):
            host = NETWORK.hosts[name]
            with closing(opener(opener.way(ingresses, name, host.switch))) as sink:
                session, share = TradingSession(messages, seed, 20), Share(number, len(PUBLISHERS))
                fed = feed(self.settings, host, sink, session, Event(), share=share, topic=self.log)
            self.packets += fed.packets

    def partition(self, session: bytes) -> int:
        return [session_id(self.log.topic, number) for number in (0, 1)].index(session)

    def expected(self) -> dict[str, dict[bytes, list[bytes]]]:
        """Returns the packets that hosts should have, by host and session.

        They are computed rule by rule and message by message.
        """
        rows = [Subscription(n, host, text) for n, (host, text) in RULES.items()]
        rules, rejected = check(rows, ITCH, set(NETWORK.hosts), "")
        assert not rejected
        packets: dict[str, dict[bytes, list[bytes]]] = defaultdict(lambda: defaultdict(list))
        for _, number, packet in self.packets:
            session, _, messages = read_packet(packet)
            by_host: dict[str, list[bytes]] = defaultdict(list)
            for message in messages:
                event = read_message(ITCH, message)
                matching = [rule.receivers for rule in rules if matches(rule.condition, event)]
                for host in {host for receivers in matching for host in receivers}:
                    by_host[host].append(message)
            for host, content in by_host.items():
                packets[host][session].append(build_packet(session, number, content))
        return packets


def test_over_links_that_lose_a_tenth_every_host_has_exactly_what_it_asked_for_in_the_end(
    spark: SparkSession, broker: Broker, empty_tables: Path, tmp_path: Path
):
    shutil.copytree(empty_tables, tmp_path / "tables")
    addresses = {host: f"127.0.0.1:{free_port()}" for host in HOSTS}
    with ExitStack() as stack:
        lab = Lab(tmp_path / "lab", NETWORK, broker=False, external=addresses, loss=LOSS)
        stack.enter_context(lab).up()
        tables = open_tables(spark, str(tmp_path / "tables"))
        deployed = Deployment(spark, broker, tables, tmp_path, lab)
        service = Service(deployed)
        stack.callback(service.close)
        # It is killed between its summaries and its record of them, so they are sent again.
        stream = deployed.crashing_stream("before report", 3)
        stack.callback(stream.kill)
        hosts = {}
        for host, address in addresses.items():
            where = "{}:{}".format(*service.rerequests.address)
            hosts[host] = Program(
                tmp_path,
                *("-m", "stackcast.cli.main", "receive", "--rerequest", where),
                *("--listen", address, "--summary-port", "0"),
                *("--topic", deployed.log.topic.name, "--topic-id", deployed.log.topic.id),
                *("--partitions", str(len(PUBLISHERS))),
                *("--name", host, "--from-start", "--json"),
                *("--order", "sequence", "--receipts", str(tmp_path / f"{host}.mold")),
            )
            stack.callback(hosts[host].kill)
        for program in hosts.values():
            program.until("listening at")
        deployed.feed(1200, 3)
        assert stream.end() < 0
        deployed.feed(400, 4)
        drain(spark, deployed.settings)
        expected = deployed.expected()
        count = {host: sum(map(len, expected[host].values())) for host in HOSTS}
        assert min(count.values()) > 50 and all(len(expected[host]) == 2 for host in HOSTS)

        def received(host: str) -> list[bytes]:
            try:
                return list(datagrams_of(tmp_path / f"{host}.mold"))
            except (FileNotFoundError, LabError):
                return []  # the file does not exist yet, or its last record is incomplete

        for host, program in hosts.items():
            until(partial(lambda h: len(received(h)) >= count[h], host), program)
            program.process.send_signal(signal.SIGTERM)
            assert program.end() == 0, program.output[-2000:]
            by_session: dict[bytes, list[bytes]] = defaultdict(list)
            for datagram in received(host):
                by_session[datagram[:10]].append(datagram)
            assert by_session == expected[host]
            counts = json.loads(program.output.splitlines()[-1])["statistics"]
            # Most of it came by the switches, and the service sent what the links lost.
            assert counts["received"] > counts["repaired"] > 0.1 * count[host]
            zero = ("losses", "unexpected", "disputed", "malformed")
            assert not any(counts[name] for name in zero)
        assert lab.status()["drops"]["loss"] > 100
        check_explanations(deployed, expected)
        check_proof(deployed, sum(count.values()))


def check_proof(deployed: Deployment, number: int) -> None:
    """Topic and ledger prove the packets that hosts wrote, and not if one is missing."""
    files = {
        host: [*map(packet_receipt, datagrams_of(deployed.folder / f"{host}.mold"))]
        for host in HOSTS
    }
    evidence = check_delivery.Evidence(deployed.spark, deployed.settings)
    verdict = evidence.verdict(files, ordered=False)
    assert verdict.proved, [*verdict.lines()]
    assert verdict.owed == verdict.received == number
    removed = files["h2"].pop(7)
    (fault,) = evidence.verdict(files, ordered=False).faults["missing"]
    assert (fault.host, fault.sequence) == ("h2", removed.sequence)


def check_explanations(deployed: Deployment, expected: dict[str, dict[bytes, list[bytes]]]) -> None:
    """The explanation of a packet of each publisher names receivers, path and rules."""
    explanation = SentExplanation(deployed.spark, deployed.settings, deployed.tables)
    sessions = sorted(expected["h1"], key=deployed.partition)
    for publisher, session in zip(PUBLISHERS, sessions, strict=True):
        packet = random.Random(5).choice(expected["h1"][session])
        number = HEADER.unpack_from(packet)[1]
        content = explanation.explain(session.decode(), number, "h1")
        receivers = {
            host for host in expected if any(d[:18] == packet[:18] for d in expected[host][session])
        }
        assert set(content["receivers"]) == receivers and content["received"]
        (frame,) = [frame for frame in content["frames"] if frame["receivers"] == ["h1"]]
        assert frame["hex"] == packet.hex()
        path = frame["paths"]["h1"]
        switch = NETWORK.hosts["h1"].switch
        assert (path[0], path[-2:]) == (publisher, [switch, "h1"])
        (published,) = [p for _, n, p in deployed.packets if p[:18] == packet[:18]]
        assert len(content["events"]) == len(read_packet(published)[2])
        assert {rule["id"] for rule in content["rules"] if rule["matches"]} <= {"high", "both"}
        assert f"packet from {publisher} to h1" in text_of(content)
