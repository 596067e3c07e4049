"""A stream that writes pcap files; the forwarding model delivers their frames without a lab."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kafka import KafkaProducer
from kafka_topics import kafka_topic
from pyspark.sql import SparkSession
from table_edits import change

from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import KAFKA_PREFIX, PREFIX, Settings
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.planning import formats
from stackcast.jobs.adapters.stream.failures import after_failure
from stackcast.jobs.adapters.stream.spark_stream import NO_CONSENT, Consent, start
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.jobs.adapters.wire.pcap import read_pcap
from stackcast.lab.proof import verification
from stackcast.lab.traffic.packets import groups
from stackcast.lab.traffic.publisher import ensure_topic
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.udfs.errors import StreamError
from stackcast.udfs.filters.subscriptions import CheckedRule, Subscription, check
from stackcast.udfs.messages.reference import build_packet
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.network.rows import network_to_rows, tree_to_row
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.stacks.dissect import dissect
from stackcast.udfs.stacks.forwarding import ForwardingModel, network_tables
from stackcast.udfs.trees.broadcast import broadcast_trees

#: Only against hangs, seconds.
HANG_S = 900
NETWORK = fabric(pods=2, racks=2, hosts=1, planes=1, spines=1)
TREES = broadcast_trees(NETWORK)
MODEL = ForwardingModel(NETWORK, network_tables(NETWORK, TREES))
PUBLISHER = "feed1"
PARTITIONS = 2
#: Settings for a stream in real time, with slices that are short.
SLICES = {"latency": "realtime", "realtime_slice": "300 milliseconds"}
RULES = {
    "high": ("h1", "price > 200"),
    "side": ("h2", 'buy_sell == "B" and shares >= 300'),
    "both": ("h1", "trade.price > 20 : fwd(h1, h4)"),
}


@cache
def records() -> list[bytes]:
    """Returns about three hundred packets of a trading session."""
    messages = list(TradingSession(messages=1_200, seed=3, symbols=20))
    return [build_packet(b"SOURCE0001", 1, group) for group in groups(messages, seed=3)]


def fill(
    tables: Tables, rules: Mapping[str, tuple[str, str]] = RULES, message_format: str = "itch"
) -> None:
    """Write the network, its tree and rules into empty tables."""
    for name, rows in network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, "s:1")).items():
        tables.append(name, rows)
    tables.append("virtual_trees", [tree_to_row(tree) for tree in TREES])
    editor = {"updated_by": "test", "updated_at": dt.datetime.now(dt.UTC)}
    common = {"format": message_format, "enabled": True, **editor}
    rows = [
        common | {"id": name, "subscriber": host, "filter": text}
        for name, (host, text) in rules.items()
    ]
    tables.append("subscriptions", rows)


class Deployment:
    """A stream with its tables, topic, checkpoint and frames in one folder."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path, **others: Any) -> None:
        self.spark, self.servers, self.folder = spark, servers, folder
        values = {
            "topic": f"itch.{folder.name}",
            "dead_letter_topic": f"dead.{folder.name}",
            "tables": str(folder / "tables"),
            "checkpoint": str(folder / "checkpoint"),
            "publisher": PUBLISHER,
            "sink": "pcap",
            "pcap_path": str(folder / "frames"),
            "latency": "microbatch",
            "kafka": {"bootstrap.servers": servers},
        }
        self.settings = Settings(**(values | others))
        self.tables = open_tables(spark, self.settings.tables)
        ensure_topic(servers, self.settings.topic, PARTITIONS)
        ensure_topic(servers, self.settings.dead_letter_topic, 1)

    @property
    def topics(self) -> Topics:
        return Topics(self.spark, self.settings)

    def set(self, **values: Any) -> None:
        """Change settings of the next runs."""
        self.settings = dataclasses.replace(self.settings, **values)

    def properties(self) -> dict[str, str]:
        """Returns the Spark properties of the settings, for a job in its own process."""
        defaults, settings = Settings(), self.settings
        keys = {f.metadata["key"]: f.name for f in dataclasses.fields(Settings) if f.metadata}
        properties = {
            PREFIX + key: str(getattr(settings, name))
            for key, name in keys.items()
            if getattr(settings, name) != getattr(defaults, name)
        }
        return properties | {KAFKA_PREFIX + key: value for key, value in settings.kafka.items()}

    def committed(self) -> int:
        """Returns the last batch, or -1 if Spark has not committed it or there is none."""
        begun = [p.name for p in Path(self.settings.checkpoint, "offsets").glob("[0-9]*")]
        last = self.last_slice()
        return last if last == max(map(int, begun), default=-1) else -1

    def last_slice(self) -> int:
        """Returns the last slice or batch that is committed, or -1 if there is none."""
        names = (path.name for path in Path(self.settings.checkpoint, "commits").glob("[0-9]*"))
        return max(map(int, names), default=-1)

    def offsets(self, batch: int) -> dict[int, int]:
        """Returns the offset at which a batch ended, by partition."""
        path = Path(self.settings.checkpoint, "offsets", str(batch))
        if not path.exists():
            return {}
        partitions = json.loads(path.read_text().splitlines()[-1])[self.settings.topic]
        return {int(p): int(offset) for p, offset in partitions.items()}

    def sql(self, text: str, table: str) -> list[Any]:
        """Run SQL; ``{}`` is the place of the table."""
        place = f"delta.`{self.tables.location}/{table}`"
        return self.spark.sql(text.format(place)).collect()

    def change(self, table: str, where: Mapping[str, Any], **columns: Any) -> None:
        """Change rows of a table; see `table_edits.change`."""
        change(self.tables, table, where, **columns)

    def publish(self, packets: Sequence[bytes], partitions: int = PARTITIONS) -> None:
        producer = KafkaProducer(bootstrap_servers=self.servers, acks="all")
        for number, packet in enumerate(packets):
            producer.send(self.settings.topic, packet, partition=number % partitions)
        producer.flush()
        producer.close()

    def run(self, *steps: Callable[[], None], consent: Consent = NO_CONSENT) -> None:
        """Run the stream until it has delivered all records, again after each step, and stop it.

        Raises:
            StreamError: the error of the job, if the stream ends by itself.
        """
        lifecycle = Lifecycle()
        query, delivery = start(self.spark, self.settings, lifecycle, consent)
        remaining = list(steps)
        last_batch = -1
        deadline = time.monotonic() + HANG_S

        def drained() -> bool:
            nonlocal last_batch, deadline
            assert time.monotonic() < deadline, f"batch {last_batch} was the last for {HANG_S} s"
            batch = self.committed()
            if batch == last_batch:
                return False
            # A request to Kafka takes longer than a listing of a folder.
            last_batch = batch
            if self.offsets(batch) != self.topics.end_offsets():
                return False
            if not remaining:
                return True
            remaining.pop(0)()
            last_batch, deadline = -1, time.monotonic() + HANG_S
            return False

        try:
            lifecycle.run(query, drained)
            delivery.flush_summaries()
        except StreamError as error:
            raise after_failure(self.spark, self.settings, error) from error
        finally:
            delivery.close()

    @property
    def ledger(self) -> list[dict[str, Any]]:
        return sorted(self.tables.rows("egress_ledger"), key=lambda row: row["started_at"])

    def frames(self) -> list[bytes]:
        """Returns the frames with messages, in the order of the files' times."""
        files = sorted(
            Path(self.settings.pcap_path).glob("*.pcap"), key=lambda p: p.stat().st_mtime
        )
        frames = [r.frame for path in files for r in read_pcap(path.open("rb"))]
        return [frame for frame in frames if dissect(frame).messages]

    def outcome(
        self, specification: Specification, frames: Sequence[bytes] | None = None
    ) -> verification.Tallies:
        """Compare what hosts get from the frames with a brute force over the ledger's batches."""
        expectation = expected(
            self.tables,
            Topics(self.spark, self.settings),
            self.settings,
            specification,
            NETWORK.subscribers(),
        )
        return verification.compare(
            expectation, receipts(self.frames() if frames is None else frames)
        )


def deliver_in_slices(deployment: Deployment, packets: Sequence[bytes]) -> int:
    """Deliver packets in real time; returns the number of the last slice."""
    deployment.set(**SLICES)
    deployment.publish(packets)
    deployment.run()
    return deployment.committed()


def feed(
    deployment: Deployment,
    packets: Iterable[bytes],
    interval: float,
    after_each: Callable[[], None] = lambda: None,
) -> None:
    """Publish packets one by one.

    Args:
        deployment: stream to publish for.
        packets: packets, which go to the partitions in turn.
        interval: seconds between two packets.
        after_each: called after each packet.
    """
    producer = KafkaProducer(bootstrap_servers=deployment.servers, acks="all")
    for number, packet in enumerate(packets):
        producer.send(deployment.settings.topic, packet, partition=number % PARTITIONS)
        time.sleep(interval)
        after_each()
    producer.close()


def exact_deliveries(deployment: Deployment, specification: Specification) -> int:
    """Returns the number of deliveries; fails if one is missing, extra or a changed copy."""
    copies: dict[tuple[bytes, int, tuple[int, ...]], set[bytes]] = {}
    for frame in deployment.frames():
        parts = dissect(frame)
        copies.setdefault((parts.session, parts.sequence, parts.labels), set()).add(frame)
    assert all(len(frames) == 1 for frames in copies.values())
    distinct = [frame for frames in copies.values() for frame in frames]
    outcome = deployment.outcome(specification, distinct)
    assert (outcome.missing, outcome.extra, outcome.duplicates) == (0, 0, 0)
    return outcome.received


def receipts(frames: Sequence[bytes]) -> dict[str, list[verification.Receipt]]:
    """Returns what each host gets, by the forwarding model."""
    hosts: dict[str, list[verification.Receipt]] = {h: [] for h in NETWORK.subscribers()}
    for frame in frames:
        parts = dissect(frame)
        receipt = verification.Receipt(parts.session, parts.sequence, parts.messages)
        for host, copies in MODEL.deliver(PUBLISHER, parts.labels).hosts.items():
            hosts[host] += [receipt] * copies
    return hosts


def expected(
    tables: Tables,
    topics: Topics,
    settings: Settings,
    specification: Specification,
    hosts: Collection[str],
    granted: Mapping[int, Collection[str]] | None = None,
) -> verification.Expectation:
    """By the rules that each batch of the ledger says it used; all records were processed.

    granted: by version of table `grants`, the rules that may be live; None: all.
    """

    @cache
    def rules_at(version: int, grants: int | None) -> Sequence[CheckedRule]:
        live = None if granted is None else granted[grants]
        rows = [
            Subscription(r["id"], r["subscriber"], r["filter"])
            for r in tables.rows("subscriptions", version)
            if r["enabled"] and (live is None or r["id"] in live)
        ]
        return check(rows, specification, set(hosts), settings.publisher)[0]

    batches = []
    for row in sorted(tables.rows("egress_ledger"), key=lambda row: row["started_at"]):
        versions = dict(row["versions"])
        rules = rules_at(versions["subscriptions"], versions.get("grants"))
        offsets = {p["partition"]: (p["from_offset"], p["until_offset"]) for p in row["partitions"]}
        batches.append(verification.Batch(row["batch_id"], offsets, rules))
    made = verification.expected(topics.read_all(), batches, specification, kafka_topic(settings))
    assert made.unprocessed == 0
    return made


def attribute_deployment(
    spark: SparkSession, servers: str, folder: Path, tables: Path, rules: Mapping[str, Any]
) -> Deployment:
    """Returns a stream of events of attributes, which registers their names.

    Args:
        spark: session of the stream.
        servers: addresses of the broker.
        folder: where the deployment is; also the name of its topic.
        tables: empty tables, which are copied.
        rules: host and filter of each subscription, by its id.
    """
    shutil.copytree(tables, folder / "tables")
    fill(open_tables(spark, str(folder / "tables")), rules, "attributes")
    deployment = Deployment(
        spark,
        servers,
        folder,
        format="attributes",
        attributes_unknown="register",
        rerequest_identify="name",
        given=frozenset({"topic", "deadLetter.topic", "checkpoint"}),
    )
    deployment.settings = formats.of_settings(deployment.settings, "attributes")
    return deployment
