"""The stream of the main job with a real broker, Spark, Delta, switches and sockets of hosts."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from following import drain, polled
from itchcpp.parser import MessageParser
from kafka import KafkaProducer
from kafka_topics import kafka_topic
from pcap_deployment import expected
from pyspark.sql import Row, SparkSession
from scapy.utils import rdpcap
from table_edits import change

from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.stream.delivery import BatchDelivery
from stackcast.jobs.adapters.stream.spark_stream import start
from stackcast.jobs.adapters.switches.lead import Refresher
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.lab.proof import verification
from stackcast.lab.traffic.packets import groups
from stackcast.lab.traffic.publisher import ensure_topic
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.lab.up.lab import Lab
from stackcast.udfs.errors import KafkaError, TableError
from stackcast.udfs.messages.reference import build_packet, read_message
from stackcast.udfs.messages.sequence import session_id, split_sequence
from stackcast.udfs.network.rows import network_to_rows, tree_to_row
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.stacks.dissect import dissect
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.integration

NETWORK = fabric(pods=2, racks=2, hosts=1, planes=1, spines=1)
PUBLISHER = "feed1"
#: Tables to which each batch adds rows.
RECORDS = ("egress_ledger", "delivery_statistics")
MESSAGES = list(TradingSession(messages=6_000, seed=3, symbols=20))
PACKETS = [build_packet(b"SOURCE0001", 1, g) for g in groups(MESSAGES, seed=3)]
RULES = {
    "high": ("h1", "price > 200"),
    "side": ("h2", 'buy_sell == "B" and shares >= 300'),
    "none": ("h3", "shares > 4000000000"),
    "both": ("h1", "trade.price > 20 : fwd(h1, h4)"),
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("lab"), NETWORK) as started:
        started.up()
        yield started


def settings_of(lab: Lab, location: str, **others: object) -> Settings:
    return Settings(
        tables=location,
        publisher=PUBLISHER,
        udp_endpoint=lab.ingress[PUBLISHER],
        udp_window=64,
        wait_seconds=60,
        latency="microbatch",
        kafka={"bootstrap.servers": lab.bootstrap_servers},
        **others,
    )


def subscribe(tables: Tables, rules: dict[str, tuple[str, str]]) -> None:
    updated_at = dt.datetime.now(dt.UTC)
    tables.append(
        "subscriptions",
        [
            {
                "id": name,
                "subscriber": host,
                "format": "itch",
                "filter": text,
                "enabled": True,
                "updated_by": "test",
                "updated_at": updated_at,
            }
            for name, (host, text) in rules.items()
        ],
    )


@pytest.fixture(scope="module")
def filled_tables(
    spark: SparkSession, empty_tables: Path, lab: Lab, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return tables with the lab's network and RULES; its switches are in step with them."""
    folder = tmp_path_factory.mktemp("filled") / "tables"
    shutil.copytree(empty_tables, folder)
    tables = open_tables(spark, str(folder))
    addresses = dict.fromkeys(NETWORK.switches, lab.p4runtime)
    for name, rows in network_to_rows(NETWORK, addresses).items():
        tables.append(name, rows)
    tables.append("virtual_trees", [tree_to_row(t) for t in broadcast_trees(NETWORK)])
    subscribe(tables, RULES)
    with Refresher(tables, settings_of(lab, tables.location)) as refresher:
        assert refresher.once() == {}
    return folder


class Deployment:
    """Tables, topic and stream of one test, on the lab of all tests."""

    numbers = itertools.count()

    def __init__(self, spark: SparkSession, lab: Lab, filled: Path, folder: Path) -> None:
        number = next(self.numbers)
        shutil.copytree(filled, folder / "tables")
        self.spark, self.lab = spark, lab
        self.tables = open_tables(spark, str(folder / "tables"))
        self.settings = settings_of(
            lab,
            self.tables.location,
            topic=f"itch.test{number}",
            dead_letter_topic=f"itch.dead{number}",
            checkpoint=str(folder / "checkpoint"),
        )
        ensure_topic(lab.bootstrap_servers, self.settings.topic, 2)
        ensure_topic(lab.bootstrap_servers, self.settings.dead_letter_topic, 1)

    def sql(self, text: str, table: str) -> list[Row]:
        """Run SQL; ``{}`` is the place of the table."""
        place = f"delta.`{self.tables.location}/{table}`"
        return self.spark.sql(text.format(place)).collect()

    def publish(self, packets: Sequence[bytes | None]) -> None:
        producer = KafkaProducer(bootstrap_servers=self.lab.bootstrap_servers, acks="all")
        for number, packet in enumerate(packets):
            producer.send(self.settings.topic, packet, key=b"any", partition=number % 2)
        producer.flush()
        producer.close()

    def run(self, *steps: Callable[[], None]) -> BatchDelivery:
        """Run the stream: drain, then each step and drain again, then stop."""
        return drain(self.spark, self.settings, *steps)

    @property
    def ledger(self) -> list[dict]:
        return sorted(self.tables.rows("egress_ledger"), key=lambda row: row["batch_id"])

    def receipts(self) -> dict[str, list[verification.Receipt]]:
        """Return the notifications that the hosts received from this topic."""
        return {host: [r for r in received if r.messages] for host, received in self.all_receipts()}

    def all_receipts(self) -> list[tuple[str, list[verification.Receipt]]]:
        """Return the same with summaries, which have no messages."""
        self.lab.settle()
        topic = kafka_topic(self.settings)
        sessions = {session_id(topic, p) for p in range(2)}
        return [
            (host, [r for r in received if r.session in sessions])
            for host, received in verification.receipts(self.lab.folder).items()
        ]

    def outcome(self, specification, granted=None) -> verification.Tallies:
        """Compare the receipts with a brute force over the rules of each batch of the ledger."""
        expectation = expected(
            self.tables,
            Topics(self.spark, self.settings),
            self.settings,
            specification,
            NETWORK.subscribers(),
            granted,
        )
        return verification.compare(expectation, self.receipts())


@pytest.fixture
def deployment(spark: SparkSession, lab: Lab, filled_tables: Path, tmp_path: Path) -> Deployment:
    return Deployment(spark, lab, filled_tables, tmp_path)


@pytest.fixture(scope="module")
def delivered(
    spark: SparkSession, lab: Lab, filled_tables: Path, tmp_path_factory: pytest.TempPathFactory
) -> Deployment:
    """Return a stream that sent all packets in one batch; its last test repeats the batch."""
    deployment = Deployment(spark, lab, filled_tables, tmp_path_factory.mktemp("delivered"))
    deployment.publish(PACKETS)
    deployment.run()
    return deployment


def test_every_host_receives_exactly_its_subscriptions(delivered, itch):
    outcome = delivered.outcome(itch)
    assert outcome.exact
    assert outcome.received > 500
    assert outcome.hosts["h3"].received == 0
    received = delivered.receipts()
    messages = [m for host in ("h1", "h2", "h4") for r in received[host] for m in r.messages]
    # An independent decoder reads the messages from the hosts' sockets.
    stream = b"".join(len(m).to_bytes(2) + m for m in messages)
    decoded = list(MessageParser().parse_stream(stream))
    assert len(decoded) == len(messages)


def test_statistics_and_ledger_record_the_frames_that_were_sent(delivered):
    received = delivered.receipts()
    statistics = {r["subscriber"]: r for r in delivered.tables.rows("delivery_statistics")}
    assert {h: s["notifications"] for h, s in statistics.items()} == {
        host: len(r) for host, r in received.items() if r
    }
    assert {h: s["messages"] for h, s in statistics.items()} == {
        host: sum(len(x.messages) for x in r) for host, r in received.items() if r
    }
    publications = delivered.tables.rows("publication_statistics")
    for column in ("notifications", "messages"):
        counted: Counter[str] = Counter()
        for r in publications:
            counted.update(dict.fromkeys(r["receivers"], r[column]))
        assert counted == {host: s[column] for host, s in statistics.items()}
    assert {r["publisher"] for r in publications} == {PUBLISHER}
    (row,) = delivered.ledger
    sequences = [(r.session, r.sequence) for host in received.values() for r in host]
    for p in row["partitions"]:
        numbers = [
            r.sequence
            for host in received.values()
            for r in host
            if r.session == session_id(kafka_topic(delivered.settings), p["partition"])
        ]
        assert (p["first_sequence"], p["last_sequence"]) == (min(numbers), max(numbers))
    assert row["packets"] == len(PACKETS)
    assert row["messages"] == len(MESSAGES)
    assert len(set(sequences)) == row["frames"]


def test_the_tables_explain_the_plan(delivered, itch):
    leaves = {tuple(r["receivers"]) for r in delivered.tables.rows("filter_leaves")}
    stacks = {tuple(r["receivers"]) for r in delivered.tables.rows("header_stacks")}
    hosts = {host for receivers in leaves for host in receivers}
    # A summary goes to one host.
    assert stacks == (leaves - {()}) | {(host,) for host in hosts}
    price = itch.field("price")
    raw = price.encode("250").to_bytes(4).hex()
    condition = f"field = 'add_order.price' AND low <= X'{raw}' AND X'{raw}' <= high"
    assert delivered.sql("SELECT * FROM {} WHERE " + condition, "filter_entries")


def test_the_pcap_sink_holds_the_same_frames(delivered, tmp_path):
    received = delivered.receipts()
    folder = tmp_path / "frames"
    pcap_settings = dataclasses.replace(
        delivered.settings,
        sink="pcap",
        pcap_path=str(folder),
        checkpoint=str(tmp_path / "second"),
    )
    drain(delivered.spark, pcap_settings)
    frames = [bytes(p) for path in sorted(folder.glob("*.pcap")) for p in rdpcap(str(path))]
    dissected = [d for d in map(dissect, frames) if d.summary is None]
    framed = {(d.session, d.sequence, d.messages) for d in dissected}
    assert framed == {tuple(r) for receipts in received.values() for r in receipts}
    assert len(dissected) == len(framed)


def test_a_batch_that_runs_again_sends_the_same_bytes_and_counts_once(delivered, itch):
    before = delivered.receipts()
    ledger, statistics = (delivered.tables.rows(name) for name in RECORDS)
    # The stream crashed after the last frame and before the commit of the offsets, and an editor
    # has changed a rule since.
    commits = Path(delivered.settings.checkpoint) / "commits"
    for path in (commits / "0", commits / ".0.crc"):
        path.unlink(missing_ok=True)
    change(delivered.tables, "subscriptions", {"id": "high"}, filter="price > 1")
    delivered.run()
    after = delivered.receipts()
    for host, receipts in before.items():
        assert sorted(after[host]) == sorted(receipts * 2)
    for name, rows in zip(RECORDS, (ledger, statistics), strict=True):
        assert delivered.tables.rows(name) == rows


def test_an_edit_by_sql_is_live_in_the_next_batch_and_an_unusable_one_is_not(deployment, itch):
    third = len(PACKETS) // 3
    deployment.publish(PACKETS[:third])

    def edit() -> None:
        deployment.sql("UPDATE {} SET filter = 'shares > 0' WHERE id = 'none'", "subscriptions")
        deployment.publish(PACKETS[third : 2 * third])

    def break_network() -> None:
        change(deployment.tables, "hosts", {"host": "h1"}, switch="nowhere")
        deployment.publish(PACKETS[2 * third :])

    deployment.run(edit, break_network)
    versions = [dict(row["versions"]) for row in deployment.ledger]
    numbers = [batch["subscriptions"] for batch in versions]
    assert len(set(numbers)) == 2
    assert numbers == sorted(numbers)
    # The last usable version of the hosts stays live.
    assert len(versions) >= 3 and {batch["hosts"] for batch in versions} == {1}
    outcome = deployment.outcome(itch)
    assert outcome.exact
    assert outcome.hosts["h3"].received > 500


def test_a_host_gets_only_granted_messages_from_the_next_batch_on(deployment, itch):
    third = len(PACKETS) // 3
    deployment.publish(PACKETS[:third])

    def grant() -> None:
        editor = {"updated_by": "test", "updated_at": dt.datetime.now(dt.UTC)}
        grants = [("dear", "*", "price > 200"), ("trades", "h4", "trade.price > 10")]
        deployment.tables.append(
            "grants",
            [
                {"id": name, "subscriber": host, "format": "itch", "filter": text, **editor}
                for name, host, text in grants
            ],
        )
        deployment.publish(PACKETS[third : 2 * third])

    def revoke() -> None:
        rejected = {row["id"]: row for row in polled(deployment.tables, "rejected_subscriptions")}
        assert {row["code"] for row in rejected.values()} == {"SUBSCRIPTION.NOT_GRANTED"}
        assert set(rejected) == {"side", "none", "both"}
        assert "'h2' is not allowed to receive all" in rejected["side"]["message"]
        # `who_gets` reads these rows.
        leaves = polled(deployment.tables, "filter_leaves")
        assert {host for row in leaves for host in row["receivers"]} == {"h1"}
        deployment.tables.overwrite("grants", [])
        deployment.publish(PACKETS[2 * third :])

    deployment.run(grant, revoke)
    versions = [dict(row["versions"]) for row in deployment.ledger]
    assert {batch["subscriptions"] for batch in versions} == {1}
    assert sorted({batch["grants"] for batch in versions}) == [0, 1, 2]
    granted = {0: set(RULES), 1: {"high"}, 2: set(RULES)}
    outcome = deployment.outcome(itch, granted)
    assert outcome.exact
    assert outcome.hosts["h2"].received > 100
    assert deployment.tables.rows("rejected_subscriptions") == []


def test_damaged_records_are_counted_by_reason_and_affect_no_other_records(deployment, itch):
    noise = random.Random(1)
    good = PACKETS[:200]
    message = MESSAGES[0]
    unknown = build_packet(b"SOURCE0001", 1, [message, b"?" + message[1:], message])
    short = build_packet(b"SOURCE0001", 1, [message[:-1]])
    damaged: list[bytes | None] = [
        good[0][:-3],
        good[1][:7],
        good[2] + b"xx",
        good[3][:18] + b"\x00\x0d" + good[3][20:],
        b"",
        None,
        noise.randbytes(1_000_000),
        unknown,
        short,
        build_packet(b"SOURCE0001", 1, []),
        build_packet(b"SOURCE0001", 1, [])[:18] + b"\xff\xff",
    ]
    packets: list[bytes | None] = list(good)
    for number, packet in enumerate(damaged):
        packets.insert(number * 17, packet)
    deployment.publish(packets)
    deployment.run()
    assert deployment.outcome(itch).exact
    (row,) = deployment.ledger
    letters = [
        json.loads(r.value)
        for r in deployment.spark.read.format("kafka")
        .option("kafka.bootstrap.servers", deployment.lab.bootstrap_servers)
        .option("subscribe", deployment.settings.dead_letter_topic)
        .load()
        .collect()
    ]
    assert row["dead_letters"] == len(letters) == 9
    reasons = sorted(letter["reason"] for letter in letters)
    assert reasons == sorted(
        ["truncated_message", "truncated_header", "trailing_bytes", "truncated_message"]
        + ["empty_record"] * 2
        + ["record_too_large", "unknown_message_type", "wrong_message_length"]
    )
    (typed,) = (x for x in letters if x["reason"] == "unknown_message_type")
    place = next(i for i, p in enumerate(packets) if p is unknown)
    assert (typed["topic"], typed["partition"], typed["offset"], typed["index"]) == (
        deployment.settings.topic,
        place % 2,
        place // 2,
        1,
    )
    assert bytes.fromhex(typed["sample"]) == b"?" + message[1:]


def test_a_rule_that_does_not_compile_is_rejected_and_all_others_are_live(deployment, itch):
    subscribe(
        deployment.tables,
        {
            "typo": ("h1", "prise > 3"),
            "open": ("h1", "price > 3 and\n (shares < 2"),
            "lost": ("h77", "price > 3"),
            "code": ("h1", "__import__('os').system('true')"),
        },
    )
    deployment.publish(PACKETS[:300])
    deployment.run()
    rejected = {row["id"]: row for row in deployment.tables.rows("rejected_subscriptions")}
    assert {name: row["code"] for name, row in rejected.items()} == {
        "typo": "SUBSCRIPTION.UNKNOWN_FIELD",
        "open": "SUBSCRIPTION.SYNTAX",
        "lost": "SUBSCRIPTION.UNKNOWN_HOST",
        "code": "SUBSCRIPTION.SYNTAX",
    }
    assert (rejected["typo"]["line"], rejected["typo"]["column"]) == (1, 1)
    assert "price" in rejected["typo"]["message"]
    assert rejected["open"]["line"] == 2
    assert deployment.outcome(itch).exact


def test_state_continues_over_batches_edits_and_a_crash(deployment, itch):
    events = [read_message(itch, message) for message in MESSAGES]
    orders = [event for event in events if "add_order.stock" in event]
    symbol = Counter(event["add_order.stock"] for event in orders).most_common(1)[0][0]
    prices = [event["add_order.price"] for event in orders if event["add_order.stock"] == symbol]
    stock = f"stock == {itch.field('stock').render(symbol)}"
    price = itch.field("price").render(sum(prices) // len(prices))
    subscribe(
        deployment.tables,
        {
            "average": ("h3", f"{stock} and avg(price, 60000000) > {price}"),
            "many": ("h2", "count(600000000) > 400 and price > 0"),
            "update": ("h4", f"{stock} and shares > 500 : {{ fwd(h3); recent <- count() }}"),
            "read": ("h4", "not recent < 1 and add_order_mpid.shares > 0"),
            "moved": ("h4", f"{stock} and moved(price, 1.5)"),
        },
    )
    half = len(PACKETS) // 2
    deployment.settings = dataclasses.replace(
        deployment.settings, max_offsets_per_trigger=half // 2 + 10
    )
    deployment.publish(PACKETS[:half])

    def edit() -> None:
        change(deployment.tables, "subscriptions", {"id": "high"}, filter="price > 250")
        deployment.publish(PACKETS[half:])

    deployment.run(edit)
    assert deployment.outcome(itch).exact
    before = deployment.receipts()
    assert 0 < sum(len(r.messages) for r in before["h3"]) < len(prices)
    *_, last = deployment.ledger
    assert last["batch_id"] >= 3
    # The stream crashed before it wrote the state of the last batch, so the batch starts again.
    for folder, name in (("commits", "{}"), ("stackcast-state", "{}.bin")):
        path = Path(deployment.settings.checkpoint, folder, name.format(last["batch_id"]))
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    # The next records find the state that the batch leaves.
    deployment.publish(PACKETS[:200])
    deployment.run()
    offsets = {
        (session_id(kafka_topic(deployment.settings), p["partition"]), offset)
        for p in last["partitions"]
        for offset in range(p["from_offset"], p["until_offset"])
    }
    repeated = sum(
        len(receipt.messages)
        for receipts in before.values()
        for receipt in receipts
        if (receipt.session, split_sequence(receipt.sequence)[0]) in offsets
    )
    outcome = deployment.outcome(itch)
    assert (outcome.missing, outcome.extra, outcome.duplicates) == (0, 0, repeated)
    assert repeated and outcome.expected > sum(
        len(r.messages) for receipts in before.values() for r in receipts
    )


def test_a_stop_ends_after_the_batch_in_progress_and_repeats_nothing(deployment, itch):
    deployment.settings = dataclasses.replace(deployment.settings, max_offsets_per_trigger=100)
    packets = PACKETS[:800]
    deployment.publish(packets)
    lifecycle = Lifecycle()
    query, delivery = start(deployment.spark, deployment.settings, lifecycle)

    def first_batch_began() -> bool:
        return query.status["isTriggerActive"] and bool(
            query.lastProgress or delivery.recorder.processed
        )

    lifecycle.run(query, first_batch_began)
    delivery.close()
    batches = len(deployment.ledger)
    assert 0 < batches < len(packets) // 100
    deployment.run()
    assert len(deployment.ledger) > batches
    assert deployment.outcome(itch).exact


def test_a_missing_table_and_a_missing_broker_are_one_clear_error(spark, lab, tmp_path):
    settings = dataclasses.replace(
        settings_of(lab, str(tmp_path / "nothing"), topic="itch.test.none"), wait_seconds=0
    )
    with pytest.raises(KafkaError, match="NO_TOPIC"):
        start(spark, settings, Lifecycle())
    ensure_topic(lab.bootstrap_servers, settings.topic, 1)
    with pytest.raises(TableError, match=r"MISSING.*create_tables"):
        start(spark, settings, Lifecycle())
    away = dataclasses.replace(settings, kafka={"bootstrap.servers": "127.0.0.1:9"})
    with pytest.raises(KafkaError, match=r"BROKER_UNREACHABLE.*127\.0\.0\.1:9"):
        start(spark, away, Lifecycle())
    assert not (tmp_path / "nothing").exists()
