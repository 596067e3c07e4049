"""Real-time mode on real Spark, Kafka and Delta, with a UDP socket where the switches would be."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import json
import shutil
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from crash_world import ROOT, Program
from delivery_cases import MODEL, NETWORK, TREES, message
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from polling import polled
from pyspark.sql import SparkSession

from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import Settings
from jobs.adapters.checkpoint import positions
from jobs.adapters.planning import formats
from jobs.adapters.realtime.stream import RealTimeStream, check
from jobs.adapters.stream.kafka import Topics
from jobs.adapters.stream.watch import StreamWatch
from jobs.adapters.tables.tables import Tables
from lab.traffic.publisher import ensure_topic
from lab.up.broker import Broker
from udfs.errors import SettingsError, StreamError
from udfs.messages.attributes.registry import attribute
from udfs.messages.reference import build_packet
from udfs.messages.sequence import session_id, split_sequence
from udfs.network.rows import network_to_rows, tree_to_row
from udfs.stacks.dissect import dissect

pytestmark = pytest.mark.integration

PUBLISHER = "feed1"
WAIT_S = 180
RULES = {
    "low": ("h1", "price < 50"),
    "high": ("h2", "price >= 50"),
    "sum": ("h3", "count() > 0 : fwd(h3)"),
}
PRICE = 10_000


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap_servers


class World:
    """Tables, topic, receiver and stream of one test."""

    numbers = itertools.count()

    def __init__(
        self,
        spark: SparkSession,
        bootstrap: str,
        networked: Path,
        folder: Path,
        rules: Mapping[str, tuple[str, str]] = RULES,
        **others: Any,
    ) -> None:
        number = next(self.numbers)
        shutil.copytree(networked, folder / "tables")
        self.spark, self.tables = spark, Tables(spark, str(folder / "tables"))
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        self.socket.bind(("127.0.0.1", 0))
        self.frames: list[bytes] = []
        self.published: list[bytes | None] = []
        settings = Settings(
            tables=self.tables.location,
            checkpoint=str(folder / "checkpoint"),
            topic=f"itch.now{number}",
            dead_letter_topic=f"itch.now{number}.dead",
            realtime_ledger_topic=f"itch.now{number}.ledger",
            realtime_batch="5 seconds",
            latency="realtime",
            publisher=PUBLISHER,
            udp_endpoint=f"127.0.0.1:{self.socket.getsockname()[1]}",
            summary_port=0,
            wait_seconds=30,
            kafka={"bootstrap.servers": bootstrap},
            given=frozenset({"topic", "deadLetter.topic", "checkpoint", "realtime.ledgerTopic"}),
            **others,
        )
        self.settings = formats.of_settings(settings, settings.format)
        ensure_topic(bootstrap, self.settings.topic, 1)
        self.subscribe(rules)
        self.producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
        threading.Thread(target=self._receive, daemon=True).start()

    def subscribe(self, rules: Mapping[str, tuple[str, str]]) -> None:
        columns = {"format": self.settings.format, "enabled": True, "updated_by": "test"}
        now = dt.datetime.now(dt.UTC)
        self.tables.append(
            "subscriptions",
            [
                {"id": name, "subscriber": host, "filter": text, "updated_at": now, **columns}
                for name, (host, text) in rules.items()
            ],
        )

    def sql(self, text: str, table: str) -> None:
        self.spark.sql(text.format(f"delta.`{self.tables.location}/{table}`"))

    def publish(self, *records: bytes | None) -> None:
        for record in records:
            self.producer.send(self.settings.topic, record, key=b"any", partition=0)
            self.published.append(record)
        self.producer.flush()

    @contextmanager
    def stream(self) -> Iterator[RealTimeStream]:
        """A stream that is asked to stop at the end."""
        lifecycle = Lifecycle()
        topics = Topics(self.spark, self.settings)
        watch = StreamWatch(self.spark, self.settings, topics)
        stream = RealTimeStream(self.spark, self.settings, lifecycle, topics, watch)
        errors: list[BaseException] = []

        def run() -> None:
            try:
                stream.run()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield stream
        finally:
            lifecycle.stopping.set()
            thread.join()
            stream.close()
        assert not errors, errors

    def delivered(self) -> dict[str, Counter[int]]:
        """How often each host got the messages of each record, as the switches would forward."""
        hosts: dict[str, Counter[int]] = {host: Counter() for host in NETWORK.subscribers()}
        session = session_id(self.settings.topic, 0)
        for frame in list(self.frames):
            parts = dissect(frame)
            assert parts.session == session
            offset, _ = split_sequence(parts.sequence)
            for host in MODEL.deliver(PUBLISHER, parts.labels).hosts:
                hosts[host][offset] += 1
        return hosts

    def wait(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not done():
            assert time.monotonic() < deadline, self.delivered()
            time.sleep(0.05)

    def read(self, topic: str) -> list[dict[str, Any]]:
        """All records of a topic of JSON."""
        consumer = KafkaConsumer(
            bootstrap_servers=self.settings.kafka["bootstrap.servers"],
            consumer_timeout_ms=1000,
            enable_auto_commit=False,
        )
        places = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(places)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(places)
        rows = []
        while any(consumer.position(place) < ends[place] for place in places):
            for records in consumer.poll(1000).values():
                rows += [json.loads(record.value) for record in records]
        consumer.close()
        return rows

    def ledger(self) -> list[dict[str, Any]]:
        rows = self.read(self.settings.realtime_ledger_topic)
        return sorted(rows, key=lambda row: row["from_offset"])

    def close(self) -> None:
        self.producer.close()
        self.socket.close()

    def _receive(self) -> None:
        while True:
            try:
                self.frames.append(self.socket.recv(65_535))
            except OSError:
                return


@pytest.fixture(scope="module")
def networked(
    spark: SparkSession, empty_tables: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Tables of the network and its trees."""
    folder = tmp_path_factory.mktemp("networked") / "tables"
    shutil.copytree(empty_tables, folder)
    tables = Tables(spark, str(folder))
    rows = network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, "127.0.0.1:1"))
    for name, content in rows.items():
        tables.append(name, content)
    tables.append("virtual_trees", [tree_to_row(tree) for tree in TREES])
    return folder


@pytest.fixture
def world(spark: SparkSession, bootstrap: str, networked: Path, tmp_path: Path) -> Iterator[World]:
    made = World(spark, bootstrap, networked, tmp_path)
    yield made
    made.close()


def packet(price: int) -> bytes:
    return build_packet(b"SOURCE0001", 1, [message("A", price=price * PRICE)])


def once(offsets: Sequence[int]) -> Counter[int]:
    return Counter(dict.fromkeys(offsets, 1))


def test_deliveries_edits_and_bad_tables(world, caplog):
    with world.stream():
        world.publish(*(packet(n % 100) for n in range(300)))
        world.publish(b"\x00damaged", None)
        low = [n for n in range(300) if n % 100 < 50]
        high = [n for n in range(300) if n % 100 >= 50]
        world.wait(lambda: sum(world.delivered()["h2"].values()) >= len(high))
        got = world.delivered()
        assert got["h1"] == once(low) and got["h2"] == once(high)
        # A rule with state is nobody's here, and says so.
        world.wait(lambda: polled(world.tables, "rejected_subscriptions") != [])
        (rejected,) = world.tables.rows("rejected_subscriptions")
        assert (rejected["id"], rejected["code"]) == ("sum", "SUBSCRIPTION.STATE_IN_REALTIME")

        # An edit is live while the stream runs, for whatever comes next.
        world.subscribe({"new": ("h4", "price == 7")})

        def asked_and_answered() -> bool:
            world.publish(packet(7))
            time.sleep(0.2)
            return bool(world.delivered()["h4"])

        world.wait(asked_and_answered)
        # And the table says since when.
        live = "live_subscriptions"
        world.wait(lambda: "new" in {row["id"] for row in polled(world.tables, live)})
        since = {row["id"]: row["since_version"] for row in polled(world.tables, live)}
        assert "sum" not in since and since.pop("new") > max(since.values())

        # Tables that cannot be used leave the last good plan where it is.
        world.sql("UPDATE {} SET host = 'feed9' WHERE role = 'publisher'", "hosts")
        world.wait(lambda: "the last good ones stay live" in caplog.text)
        world.publish(packet(7))
        last = len(world.published) - 1
        world.wait(lambda: bool(world.delivered()["h4"][last] and world.delivered()["h1"][last]))
        world.wait(lambda: bool(polled(world.tables, "egress_ledger")))
    ledger = world.ledger()
    # Every record is in one row, whatever became of it.
    assert ledger[0]["from_offset"] == 0 and ledger[-1]["until_offset"] == len(world.published)
    assert all(before["until_offset"] == after["from_offset"] for before, after in pairwise(ledger))
    assert sum(row["packets"] for row in ledger) == len(world.published)
    assert sum(row["frames"] for row in ledger) == len(world.frames)
    assert sum(row["bytes"] for row in ledger) == sum(map(len, world.frames))
    reasons: Counter[str] = sum((Counter(row["dead_letters"]) for row in ledger), Counter())
    assert reasons.total() == 2
    letters = world.read(world.settings.dead_letter_topic)
    assert sorted((x["offset"], x["reason"]) for x in letters) == [
        (300, "truncated_header"),
        (301, "empty_record"),
    ]
    edits = [row["versions"]["subscriptions"] for row in ledger]
    assert edits == sorted(edits) and len(set(edits)) == 2
    # What refresh_switches must know of it: which versions are in use, and nothing sent.
    assert all(not row["partitions"] for row in world.tables.rows("egress_ledger"))


def test_stopped_and_started_again_it_sends_each_record_once_and_cut_off_at_least_once(world):
    with world.stream():
        world.publish(*(packet(1) for _ in range(50)))
        world.wait(lambda: len(world.delivered()["h1"]) == 50)
    world.publish(*(packet(60) for _ in range(50)))
    with world.stream():
        world.wait(lambda: len(world.delivered()["h2"]) == 50)
        world.publish(packet(1))
        world.wait(lambda: len(world.delivered()["h1"]) == 51)
    got = world.delivered()
    assert got["h1"] == once([*range(50), 100]) and got["h2"] == once(range(50, 100))
    # Cut off, with no word from the workers: what they sent last is sent again, the same bytes.
    with world.stream() as stream:
        world.publish(*(packet(2) for _ in range(20)))
        world.wait(lambda: len(world.delivered()["h1"]) == 71)
        stream.query.stop()
    world.publish(packet(3))
    with world.stream():
        world.wait(lambda: len(world.delivered()["h1"]) == 72)
    assert set(world.delivered()["h1"]) == {*range(50), *range(100, 122)}
    by_number: dict[int, set[bytes]] = {}
    for frame in world.frames:
        by_number.setdefault(dissect(frame).sequence, set()).add(frame)
    assert all(len(frames) == 1 for frames in by_number.values())
    ends = {row["until_offset"] for row in world.ledger()}
    assert max(ends) == len(world.published)
    with pytest.raises(StreamError) as refused:
        positions.refuse_after_real_time(world.spark, world.settings)
    assert refused.value.code == "STREAM.CHECKPOINT_OF_REALTIME"
    assert f'{{"{world.settings.topic}": {{"0": 122}}}}' in refused.value.message


def test_events_of_attributes_leave_at_once_too(spark, bootstrap, networked, tmp_path):
    rules = {"warm": ("h1", "temp > 20"), "damp": ("h2", "hum > 15 and temp < 25")}
    world = World(spark, bootstrap, networked, tmp_path, rules, format="attributes")
    who = {"registered_by": "test", "registered_at": dt.datetime.now(dt.UTC)}
    temp, hum = attribute(0, "temp", "decimal"), attribute(3, "hum", "unsigned")
    world.tables.append("attributes", [dataclasses.asdict(each) | who for each in (temp, hum)])
    values = [{"temp": n % 40 + 0.5, "hum": n % 30} for n in range(200)]
    warm = [n for n, each in enumerate(values) if each["temp"] > 20]
    damp = [n for n, each in enumerate(values) if each["hum"] > 15 and each["temp"] < 25]
    try:
        with world.stream():
            world.publish(*(json.dumps(each).encode() for each in values))
            world.publish(b'{"temp": ', b'{"wind": 3}', b'{"temp": NaN}', None)
            world.publish(b'{"temp": 40}')
            world.wait(lambda: bool(world.delivered()["h1"][204]))
            # A name that is registered meanwhile is known, for whatever comes next.
            wind = attribute(1, "wind", "unsigned")
            world.tables.append("attributes", [dataclasses.asdict(wind) | who])
            world.subscribe({"windy": ("h4", "wind == 3")})

            def asked_and_answered() -> bool:
                world.publish(b'{"wind": 3}')
                time.sleep(0.2)
                return bool(world.delivered()["h4"])

            world.wait(asked_and_answered)
            world.publish(b'{"temp": 50}')
            last = len(world.published) - 1
            world.wait(lambda: bool(world.delivered()["h1"][last]))
            world.wait(lambda: len(world.read(world.settings.dead_letter_topic)) > 3)
        got = world.delivered()
        assert got["h1"] == once([*warm, 204, last]) and got["h2"] == once(damp)
        ledger = world.ledger()
        assert sum(row["packets"] for row in ledger) == len(world.published)
        letters = world.read(world.settings.dead_letter_topic)
        assert sorted((x["offset"], x["reason"]) for x in letters)[:4] == [
            (200, "malformed_json"),
            (201, "unknown_attribute"),
            (202, "not_a_number"),
            (203, "malformed_json"),
        ]
    finally:
        world.close()


@pytest.mark.parametrize("closed", ["dead_letter_topic", "realtime_ledger_topic"])
def test_a_topic_that_takes_nothing_holds_up_neither_records_nor_edits(
    world, bootstrap, closed, caplog
):
    topic = getattr(world.settings, closed)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    # Every record is too large for it.
    admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"max.message.bytes": "1"})])
    admin.close()
    with world.stream():
        world.publish(b"\x00damaged", packet(1))
        world.wait(lambda: f"topic {topic} for" in caplog.text)
        world.subscribe({"new": ("h4", "price == 7")})

        def asked_and_answered() -> bool:
            world.publish(b"\x00damaged", packet(7))
            time.sleep(0.2)
            return bool(world.delivered()["h4"])

        world.wait(asked_and_answered)
        last = len(world.published) - 1
        world.wait(lambda: bool(world.delivered()["h1"][last]))
    assert world.delivered()["h1"] == once(range(1, last + 1, 2))
    ledger = world.ledger()
    if closed == "realtime_ledger_topic":
        assert ledger == []
    else:
        # Each report is there once.
        assert all(a["until_offset"] == b["from_offset"] for a, b in pairwise(ledger))
        assert sum(row["packets"] for row in ledger) == len(world.published)
        assert sum(row["frames"] for row in ledger) == len(world.frames)
    positions_now = positions.Positions(world.spark, world.settings).read()
    assert positions_now == {0: ledger[-1]["until_offset"] if ledger else 0}


def test_killed_with_all_its_processes_it_goes_on_and_nothing_is_lost(world, tmp_path):
    """kill -9 of the driver, its JVM and the workers while they send; then a start in this one."""
    own = {
        "kafka.bootstrap.servers": world.settings.kafka["bootstrap.servers"],
        "latency": "realtime",
        "realtime.batch": "5 seconds",
        "tables": world.tables.location,
        "checkpoint": world.settings.checkpoint,
        "topic": world.settings.topic,
        "deadLetter.topic": world.settings.dead_letter_topic,
        "realtime.ledgerTopic": world.settings.realtime_ledger_topic,
        "publisher": PUBLISHER,
        "sink.udp.endpoint": world.settings.udp_endpoint,
        "summary.port": "0",
    }
    conf = {f"spark.stackcast.{key}": value for key, value in own.items()}
    conf |= {"spark.master": "local[2,4]", "spark.driver.memory": "1g"}
    words = " ".join(f"--conf '{key}={value}'" for key, value in conf.items())
    program = Program(
        tmp_path,
        str(ROOT / "jobs" / "itch_stream.py"),
        PYSPARK_SUBMIT_ARGS=f"{words} pyspark-shell",
    )
    try:
        # Records go on coming while it is killed, some seconds after the first has arrived.
        world.publish(packet(1))
        world.wait(lambda: program.process.poll() is not None or bool(world.delivered()["h1"][0]))
        assert program.process.poll() is None, program.output[-4000:]
        for number in range(1, 600):
            world.publish(packet(number % 100))
            time.sleep(0.005)
            if number == 400:
                program.kill()
    finally:
        program.kill()
    with world.stream():
        world.publish(packet(1))
        last = len(world.published) - 1
        world.wait(lambda: bool(world.delivered()["h1"][last]))
    got = world.delivered()
    assert set(got["h1"]) == {0, last, *(n for n in range(1, 600) if n % 100 < 50)}
    assert set(got["h2"]) == {n for n in range(1, 600) if n % 100 >= 50}
    assert not got["h3"] and not got["h4"]
    # Something was under way when it died, and is sent again; all else is sent once.
    again = {n for host in ("h1", "h2") for n, times in got[host].items() if times > 1}
    assert again and min(again) > 0
    by_number: dict[int, set[bytes]] = {}
    for frame in world.frames:
        by_number.setdefault(dissect(frame).sequence, set()).add(frame)
    assert all(len(frames) == 1 for frames in by_number.values())


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"kafka": {}}, "embedded lab"),
        ({"format": "attributes", "attributes_unknown": "register"}, "attributes.unknown"),
        ({"realtime_batch": "2 seconds"}, "5 seconds or more"),
    ],
)
def test_settings_that_do_not_go_with_it_are_refused(others, words):
    usual: dict[str, Any] = {"latency": "realtime", "kafka": {"bootstrap.servers": "k:1"}}
    check(Settings(**usual))
    with pytest.raises(SettingsError, match=words) as refused:
        check(Settings(**(usual | others)))
    assert refused.value.code == "SETTINGS.BAD_VALUE"
