"""Filtering in the network that loses nothing: switches match a feed over links that lose a tenth
of all frames, the stream beside it tells each host what it should have, and hosts ask for the rest.

Two publishers feed at switches of their own, each by a partition of its own. A broker, the
stream in a process of its own that is killed, lab switches written by the refresher, and hosts that
are `stackcast receive`. The oracle is brute force over the rules.
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
from paths import ROOT, SUPPORT
from ports import free_port
from pyspark.sql import SparkSession
from rerequesting import Service
from waiting import until

import schemas
from cli.explain import text_of
from jobs import check_delivery
from jobs.adapters.app.settings import Settings
from jobs.adapters.replay.explanation import SentExplanation
from jobs.adapters.switches.lead import Refresher
from jobs.adapters.tables.tables import Tables
from jobs.adapters.wire import Opener, sink_options
from jobs.embedded.feed import Share, feed
from lab.proof.receipts import datagrams_of, packet_receipt
from lab.traffic.publisher import ensure_topic
from lab.traffic.topic_log import TopicLog
from lab.traffic.trading_session import TradingSession
from lab.up.broker import Broker
from lab.up.lab import Lab
from udfs.errors import LabError
from udfs.filters.meaning.evaluate import matches
from udfs.filters.subscriptions import Subscription, check
from udfs.messages.reference import HEADER, build_packet, read_message, read_packet
from udfs.messages.sequence import session_id
from udfs.messages.specification import parse_specification
from udfs.network.programs import FILTERING
from udfs.network.rows import network_to_rows
from udfs.network.topology import fabric

pytestmark = pytest.mark.integration

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
#: What switches match exactly alone; the stream must not tell a host of it either.
REFUSED = ("h4", "stock > AAPL")


class Deployment:
    """Tables, switches that are written by them, a topic, a stream and the service beside it."""

    def __init__(
        self, spark: SparkSession, broker: Broker, tables: Tables, folder: Path, lab: Lab
    ) -> None:
        self.folder, self.tables, self.spark = folder, tables, spark
        self.settings = Settings(
            match="network",
            tables=tables.location,
            publisher=",".join(PUBLISHERS),
            sink_publishers=",".join(f"{name}={lab.ingress[name]}" for name in PUBLISHERS),
            udp_window=32,
            topic=f"itch.{folder.name}",
            dead_letter_topic=f"dead.{folder.name}",
            checkpoint=str(folder / "checkpoint"),
            max_offsets_per_trigger=40,
            latency="microbatch",
            rerequest_identify="name",
            ledger_interval="1 second",
            p4_folder=str(ROOT / "p4"),
            kafka={"bootstrap.servers": broker.bootstrap_servers},
        )
        self.lab = lab
        self.packets: list[tuple[int, int, bytes]] = []
        rows = network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, lab.p4runtime), FILTERING)
        for name, each in rows.items():
            tables.append(name, each)
        who = {"updated_by": "test", "updated_at": dt.datetime.now(dt.UTC)}
        common = {"format": "itch", "enabled": True, **who}
        written = {**RULES, "refused": REFUSED}.items()
        tables.append(
            "subscriptions",
            [common | {"id": n, "subscriber": h, "filter": f} for n, (h, f) in written],
        )
        with Refresher(tables, self.settings) as refresher:
            assert not refresher.once()
        (rejected,) = tables.rows("rejected_subscriptions")
        assert rejected["id"] == "refused"
        ensure_topic(broker.bootstrap_servers, self.settings.dead_letter_topic, 1)
        self.log = TopicLog(
            broker.bootstrap_servers, self.settings.topic, partitions=len(PUBLISHERS)
        )

    def stream(self, crash: str = "", passing: int = 1) -> Program:
        given = dataclasses.asdict(self.settings)
        given = {k: v for k, v in given.items() if v != getattr(Settings(), k)}
        story = Story(
            given,
            crash,
            passing,
            drained=str(self.folder / "drained"),
            conf={"spark.driver.memory": "1g"},
        )
        path = self.folder / f"story-{crash.replace(' ', '-')}.json"
        path.write_text(json.dumps(dataclasses.asdict(story)))
        return Program(self.folder, str(SUPPORT / "crashing_stream.py"), str(path))

    def feed(self, messages: int, seed: int) -> None:
        """Sends a session into the network, half of it by each publisher, each packet under its
        place in the topic."""
        opener = Opener(sink_options(self.settings))
        for number, name in enumerate(PUBLISHERS):
            host = NETWORK.hosts[name]
            with closing(opener(opener.way(name, host.switch))) as sink:
                session, share = TradingSession(messages, seed, 20), Share(number, len(PUBLISHERS))
                told = feed(
                    self.settings, host, sink, session, Event(), share=share, topic=self.log
                )
            self.packets += told.packets

    def partition(self, session: bytes) -> int:
        return [session_id(self.settings.topic, each) for each in (0, 1)].index(session)

    def owed(self) -> dict[str, dict[bytes, list[bytes]]]:
        """By host and session, what it should have: rule by rule, message by message."""
        rows = [Subscription(n, host, text) for n, (host, text) in RULES.items()]
        rules, rejected = check(rows, ITCH, set(NETWORK.hosts), "")
        assert not rejected
        found: dict[str, dict[bytes, list[bytes]]] = defaultdict(lambda: defaultdict(list))
        for _, number, packet in self.packets:
            session, _, messages = read_packet(packet)
            wanted: dict[str, list[bytes]] = defaultdict(list)
            for message in messages:
                event = read_message(ITCH, message)
                hit = [rule.receivers for rule in rules if matches(rule.condition, event)]
                for host in {host for receivers in hit for host in receivers}:
                    wanted[host].append(message)
            for host, mine in wanted.items():
                found[host][session].append(build_packet(session, number, mine))
        return found


def test_over_links_that_lose_a_tenth_every_host_has_exactly_what_it_asked_for_in_the_end(
    spark: SparkSession, broker: Broker, empty_tables: Path, tmp_path: Path
):
    shutil.copytree(empty_tables, tmp_path / "tables")
    addresses = {host: f"127.0.0.1:{free_port()}" for host in HOSTS}
    with ExitStack() as stack:
        lab = Lab(tmp_path / "lab", NETWORK, broker=False, external=addresses, loss=LOSS)
        stack.enter_context(lab).up()
        tables = Tables(spark, str(tmp_path / "tables"))
        made = Deployment(spark, broker, tables, tmp_path, lab)
        service = Service(made)
        stack.callback(service.close)
        hosts = {}
        for host, address in addresses.items():
            where = "{}:{}".format(*service.rerequests.address)
            hosts[host] = Program(
                tmp_path,
                *("-m", "cli.main", "receive", "--rerequest", where),
                *("--listen", address, "--summary-port", "0"),
                *("--topic", made.settings.topic, "--partitions", str(len(PUBLISHERS))),
                *("--name", host, "--from-start", "--json"),
                *("--order", "sequence", "--receipts", str(tmp_path / f"{host}.mold")),
            )
            stack.callback(hosts[host].kill)
            hosts[host].until("listening at")
        # Killed between its summaries and its record of them: the batch is told again.
        first = made.stream("before report", 3)
        stack.callback(first.kill)
        made.feed(1200, 3)
        assert first.end() < 0
        last = made.stream()
        stack.callback(last.kill)
        made.feed(400, 4)
        (tmp_path / "drained").touch()
        assert last.end() == 0, last.output[-4000:]
        owed = made.owed()
        count = {host: sum(map(len, owed[host].values())) for host in HOSTS}
        assert min(count.values()) > 50 and all(len(owed[host]) == 2 for host in HOSTS)

        def had(host: str) -> list[bytes]:
            try:
                return list(datagrams_of(tmp_path / f"{host}.mold"))
            except (FileNotFoundError, LabError):
                return []  # not begun, or the last one is being written

        for host, program in hosts.items():
            until(partial(lambda h: len(had(h)) >= count[h], host), program)
            program.process.send_signal(signal.SIGTERM)
            assert program.end() == 0, program.output[-2000:]
            came: dict[bytes, list[bytes]] = defaultdict(list)
            for datagram in had(host):
                came[datagram[:10]].append(datagram)
            assert came == owed[host]
            told = json.loads(program.output.splitlines()[-1])["statistics"]
            # The switches brought most of it, and what the links lost came from the service.
            assert told["received"] > told["repaired"] > 0.1 * count[host]
            assert not any(told[name] for name in ("losses", "unexpected", "disputed", "malformed"))
        assert lab.status()["drops"]["loss"] > 100
        explains(made, owed)
        proves(made, sum(count.values()))


def proves(made: Deployment, owed: int) -> None:
    """What hosts wrote down is proved by topic and ledger, and one packet less is not."""
    files = {
        host: [*map(packet_receipt, datagrams_of(made.folder / f"{host}.mold"))] for host in HOSTS
    }
    evidence = check_delivery.Evidence(made.spark, made.settings)
    verdict = evidence.verdict(files, ordered=False)
    assert verdict.proved, [*verdict.lines()]
    assert verdict.owed == verdict.received == owed
    lost = files["h2"].pop(7)
    (fault,) = evidence.verdict(files, ordered=False).faults["missing"]
    assert (fault.host, fault.sequence) == ("h2", lost.sequence)


def explains(made: Deployment, owed: dict[str, dict[bytes, list[bytes]]]) -> None:
    """Why a host got what it got of a packet, and by which way, is told as ever."""
    explanation = SentExplanation(made.spark, made.settings, made.tables)
    for sender, session in enumerate(sorted(owed["h1"], key=made.partition)):
        explains_one(made, owed, explanation, PUBLISHERS[sender], session)


def explains_one(
    made: Deployment,
    owed: dict[str, dict[bytes, list[bytes]]],
    explanation: SentExplanation,
    publisher: str,
    session: bytes,
) -> None:
    packet = random.Random(5).choice(owed["h1"][session])
    number = HEADER.unpack_from(packet)[1]
    found = explanation.explain(session.decode(), number, "h1")
    got = {host for host in owed if any(d[:18] == packet[:18] for d in owed[host][session])}
    assert set(found["receivers"]) == got and found["received"]
    (mine,) = [each for each in found["frames"] if each["receivers"] == ["h1"]]
    assert mine["hex"] == packet.hex()
    way = mine["paths"]["h1"]
    switch = NETWORK.hosts["h1"].switch
    assert (way[0], way[-2:]) == (publisher, [switch, "h1"])
    (whole,) = [p for _, n, p in made.packets if p[:18] == packet[:18]]
    assert len(found["events"]) == len(read_packet(whole)[2])
    assert {rule["id"] for rule in found["rules"] if rule["matches"]} <= {"high", "both"}
    assert f"packet from {publisher} to h1" in text_of(found)
