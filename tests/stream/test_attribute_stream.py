"""Attribute/value events through the stream: real broker, Spark, Delta, switches and hosts."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pytest
from following import drain, polled
from kafka import KafkaAdminClient, KafkaProducer
from kafka_topics import kafka_topic
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from table_edits import change
from waiting import until

from stackcast.jobs import run_sql
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.planning import formats
from stackcast.jobs.adapters.planning.specifications import registry_of
from stackcast.jobs.adapters.switches.lead import Refresher
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.embedded import stream
from stackcast.jobs.embedded.kinds import SensorRun
from stackcast.jobs.embedded.progress import Parts
from stackcast.lab.proof import verification
from stackcast.lab.proof.attribute_reader import event_reader
from stackcast.lab.proof.receipts import Receipt, receipt_bytes, receipts
from stackcast.lab.traffic.publisher import Published
from stackcast.lab.up.lab import Lab
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.selection import select
from stackcast.udfs.filters.subscriptions import check
from stackcast.udfs.messages.attributes.reference import write_event
from stackcast.udfs.messages.attributes.registry import Registry, attribute
from stackcast.udfs.messages.sequence import session_id, split_sequence
from stackcast.udfs.network.rows import network_to_rows, tree_to_row
from stackcast.udfs.network.topology import line
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.integration

NETWORK = line(3, 2)
PUBLISHER = "feed1"
TEN_MB = 10_000_000
REGISTRY = Registry(
    (
        attribute(0, "ts", "timestamp"),
        attribute(1, "temp", "decimal"),
        attribute(2, "hum", "unsigned"),
        attribute(31, "last", "signed"),
    )
)
RULES = {
    "both": ("h1", "attributes", "temp < 30 and hum > 15"),
    "hot": ("h2", "attributes", "not temp < 30 and hum >= 0"),
    "early": ("h3", "attributes", "ts < '2026-01-01T00:02:00Z' or last == -1"),
    "windy": ("h4", "attributes", "wind > 3.5"),
    "other": ("h5", "itch", "price > 3"),
    "any": ("h6", "attributes", "temp < 100000"),
}
#: Records of JSON that are not events, and the reason of their dead letters.
BAD_JSON: list[tuple[bytes | None, str]] = [
    (b'{"temp": NaN, "hum": 3}', "not_a_number"),
    (b'{"hum": 3, "of": {"temp": 25.5}}', "nested_json"),
    (b'{"hum": 4294967296}', "value_out_of_range"),
    (b'{"temp": -21474836.49}', "value_out_of_range"),
    (b'{"temp": 1, "temp": 1}', "id_twice"),
    (b'{"temp": 1, "unheard": 1}', "unknown_attribute"),
    (b'{"temp": 1', "malformed_json"),
    (b'{"temp": ' + b"1" * (TEN_MB - 10) + b"}", "event_too_large"),
    (b"{}", "empty_event"),
    (b"", "malformed_json"),
    (None, "malformed_json"),
]
#: The same for each binary encoding.
BAD_BINARY: dict[str, list[tuple[bytes | None, str]]] = {
    "id_pairs": [
        (bytes.fromhex("02 00000001 01 00000001 02 00000001 00"), "id_twice"),
        (bytes.fromhex("01 00000001 01 00000001 00"), "id_twice"),
        (bytes.fromhex("01 00000001 02 0000"), "truncated_event"),
        (bytes.fromhex("01 00000001 02 00000001"), "truncated_event"),
        (bytes.fromhex("09 00000001 00"), "unknown_attribute"),
        (bytes.fromhex("ff 00000001 00"), "unknown_attribute"),
        (bytes.fromhex("01 00000001 00") + bytes(TEN_MB - 6), "event_too_large"),
        (b"", "empty_event"),
        (None, "empty_event"),
    ],
    "bitmask": [
        (bytes.fromhex("00000006 00000001"), "truncated_event"),
        (bytes.fromhex("80000000"), "truncated_event"),
        (bytes.fromhex("0000"), "truncated_event"),
        (bytes.fromhex("00000000 00000001"), "empty_event"),
        (bytes.fromhex("00000202 00000001 00000001"), "unknown_attribute"),
        (bytes.fromhex("00000002 00000001") + bytes(TEN_MB - 8), "event_too_large"),
        (b"", "empty_event"),
        (None, "empty_event"),
    ],
}


def json_events(seed: int, count: int, **more: Callable[[random.Random], str]) -> list[bytes]:
    """Return valid records.

    Args:
        seed: seed of the values.
        count: number of records.
        more: text of the values of further attributes, by name.
    """
    draw = random.Random(seed)
    texts: dict[str, Callable[[random.Random], str]] = {
        "ts": lambda draw: draw.choice(
            ['"2026-01-01T00:01:00Z"', "1767225600", '"2026-01-01T00:03:00+00:00"', "null"]
        ),
        "temp": lambda draw: f"{draw.randint(2000, 4000) / 100}",
        "hum": lambda draw: str(draw.randint(0, 40)),
        "last": lambda draw: str(draw.randint(-2, 2)),
        **more,
    }
    events = []
    for _ in range(count):
        names = draw.sample(sorted(texts), draw.randint(1, len(texts)))
        # An attribute that can be null has another one next to it.
        names = names if names != ["ts"] else ["ts", "hum"]
        events.append(("{" + ", ".join(f'"{n}": {texts[n](draw)}' for n in names) + "}").encode())
    return events


def binary_events(seed: int, count: int, encoding: str) -> list[bytes]:
    draw = random.Random(seed)
    low = 2_147_483_648 + 2_000  # 20.00
    values: Mapping[int, Callable[[], int]] = {
        0: lambda: draw.randint(1_767_225_600, 1_767_225_900),
        1: lambda: low + draw.randint(0, 2_000),
        2: lambda: draw.randint(0, 40),
        31: lambda: (1 << 31) + draw.randint(-2, 2),
    }
    return [
        write_event(
            {i: values[i]() for i in draw.sample(sorted(values), draw.randint(1, 4))},
            encoding,
            draw.randbytes(draw.choice([0, 0, 1, 40, 700])),
        )
        for _ in range(count)
    ]


def among(
    good: Sequence[bytes], bad: Sequence[tuple[bytes | None, str]], every: int = 13
) -> list[bytes | None]:
    """Return the good records with a bad one after every few."""
    records: list[bytes | None] = list(good)
    for number, (record, _) in enumerate(bad):
        records.insert((number + 1) * every, record)
    return records


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("lab"), NETWORK) as started:
        started.up()
        yield started


def settings_of(lab: Lab, tables: str, **own: object) -> Settings:
    names = {"topic": "topic", "dead_letter_topic": "deadLetter.topic", "checkpoint": "checkpoint"}
    settings = Settings(
        tables=tables,
        publisher=PUBLISHER,
        udp_endpoint=lab.ingress[PUBLISHER],
        udp_window=64,
        wait_seconds=60,
        # All published records are one batch, also the first one after a start.
        latency="microbatch",
        max_bytes_per_trigger=0,
        kafka={"bootstrap.servers": lab.bootstrap_servers},
        given=frozenset(names[name] for name in own if name in names),
        **own,
    )
    return formats.of_settings(settings, "attributes")


@pytest.fixture(scope="module")
def filled(
    spark: SparkSession, empty_tables: Path, lab: Lab, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return tables with the network, REGISTRY and RULES; the switches are in step with them."""
    folder = tmp_path_factory.mktemp("filled") / "tables"
    shutil.copytree(empty_tables, folder)
    tables = open_tables(spark, str(folder))
    updated_at = dt.datetime.now(dt.UTC)
    editor = {"updated_by": "test", "updated_at": updated_at}
    contents = {
        **network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, lab.p4runtime)),
        "virtual_trees": [tree_to_row(tree) for tree in broadcast_trees(NETWORK)],
        "attributes": [
            dataclasses.asdict(row) | {"registered_by": "test", "registered_at": updated_at}
            for row in REGISTRY.attributes
        ],
        "subscriptions": [
            {
                "id": name,
                "subscriber": host,
                "format": form,
                "filter": text,
                "enabled": True,
                **editor,
            }
            for name, (host, form, text) in RULES.items()
        ],
    }
    for name, rows in contents.items():
        tables.append(name, list(rows))
    with Refresher(tables, settings_of(lab, tables.location)) as refresher:
        assert refresher.once() == {}
    return folder


class Deployment:
    """Tables, topics and stream of one test, on the lab of all tests."""

    numbers = itertools.count()

    def __init__(
        self, spark: SparkSession, lab: Lab, filled: Path, folder: Path, **attributes: str
    ) -> None:
        number = next(self.numbers)
        shutil.copytree(filled, folder / "tables")
        self.spark, self.lab = spark, lab
        self.tables = open_tables(spark, str(folder / "tables"))
        self.settings = settings_of(
            lab,
            self.tables.location,
            topic=f"attributes.test{number}",
            dead_letter_topic=f"attributes.dead{number}",
            checkpoint=str(folder / "checkpoint"),
            **{f"attributes_{name}": value for name, value in attributes.items()},
        )
        admin = KafkaAdminClient(bootstrap_servers=lab.bootstrap_servers)
        large = {"max.message.bytes": str(2 * TEN_MB)}
        topic = {"num_partitions": 2, "replication_factor": 1, "configs": large}
        admin.create_topics(
            {
                self.settings.topic: topic,
                self.settings.dead_letter_topic: {"num_partitions": 1, "replication_factor": 1},
            },
            wait_for_metadata=True,
        )
        admin.close()

    def sql(self, text: str) -> list[Row]:
        """Run SQL; ``{subscriptions}`` is the name of that table."""
        self.tables.attach()
        names = ("attributes", "subscriptions", "advertisements")
        return self.spark.sql(
            text.format_map({name: self.tables.sql_name(name) for name in names})
        ).collect()

    def publish(self, records: Sequence[bytes | None]) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.lab.bootstrap_servers, acks="all", max_request_size=2 * TEN_MB
        )
        for number, record in enumerate(records):
            producer.send(self.settings.topic, record, key=b"any", partition=number % 2)
        producer.flush()
        producer.close()

    def run(self, *steps: Callable[[], None]) -> None:
        """Run the stream: drain, then each step and drain again, then stop."""
        drain(self.spark, self.settings, *steps)

    @property
    def ledger(self) -> list[dict]:
        return sorted(self.tables.rows("egress_ledger"), key=lambda row: row["batch_id"])

    def rejected(self) -> dict[str, str]:
        rows = polled(self.tables, "rejected_subscriptions")
        return {row["id"]: row["code"] for row in rows}

    def letters(self) -> list[dict]:
        """Return the dead letters of the topic."""
        rows = (
            self.spark.read.format("kafka")
            .option("kafka.bootstrap.servers", self.lab.bootstrap_servers)
            .option("subscribe", self.settings.dead_letter_topic)
            .load()
            .collect()
        )
        return [json.loads(row.value) for row in rows]

    def receipts(self) -> dict[str, list[Receipt]]:
        """Return the notifications that the hosts received from this topic, without summaries."""
        self.lab.settle()
        topic = kafka_topic(self.settings)
        sessions = {session_id(topic, p) for p in range(2)}
        return {
            host: [r for r in received if r.session in sessions and r.messages]
            for host, received in receipts(self.lab.folder).items()
        }

    def expected(self) -> verification.Expectation:
        """Return a brute force over the rules, attributes and advertisements of each batch."""
        batches, readers = [], {}
        specification = REGISTRY.specification()
        for row in self.ledger:
            versions = dict(row["versions"])
            registry = registry_of(self.tables, self.settings.widths, versions["attributes"])
            specification = registry.specification()
            rows, _ = select(
                self.tables.rows("subscriptions", versions["subscriptions"]),
                "attributes",
                ["attributes", "itch"],
                specification,
                partial(
                    self.tables.rows,
                    "subscription_seniority",
                    versions["subscription_seniority"],
                ),
            )
            rules, _ = check(rows, specification, set(NETWORK.subscribers()), PUBLISHER)
            offsets = {
                p["partition"]: (p["from_offset"], p["until_offset"]) for p in row["partitions"]
            }
            announced = self.tables.rows("advertisements", versions["advertisements"])
            assert len(announced) < 2
            nodes = [parse_rule(each["filter"], specification).condition for each in announced]
            readers[row["batch_id"]] = event_reader(
                self.settings.attributes_input,
                self.settings.attributes_encoding,
                formats.longest_event(self.settings),
                nodes[0] if nodes else None,
            )
            batches.append(verification.Batch(row["batch_id"], offsets, rules, registry))
        expectation = verification.expected(
            Topics(self.spark, self.settings).read_all(),
            batches,
            specification,
            kafka_topic(self.settings),
            read=lambda record, batch: readers[batch.batch_id](record, batch),
        )
        assert expectation.unprocessed == 0
        return expectation

    def outcome(self) -> verification.Tallies:
        """Compare the hosts' receipts, and the counts of the ledger, with `expected`."""
        expected, ledger = self.expected(), self.ledger
        dead = sum(row["dead_letters"] for row in ledger)
        assert sum(row["matched"] for row in ledger) == expected.messages_matched
        assert dead == expected.dead_letters.total()
        return verification.compare(expected, self.receipts())


def buried(records: Sequence[tuple[bytes | None, str]]) -> list[tuple[str, int, str]]:
    """Return reason, length and sample of the dead letter of each record that is not an event."""
    return sorted((why, len(r or b""), (r or b"")[:256].hex()) for r, why in records)


def read(letters: Sequence[dict]) -> list[tuple[str, int, str]]:
    return sorted((x["reason"], x["length"], x["sample"]) for x in letters)


# One run of JSON in three parts: damage; a new attribute and an edited rule; an advertisement.

FIRST = json_events(1, 300)
WINDY = json_events(2, 200, wind=lambda draw: str(draw.randint(0, 8)))
LAST = json_events(3, 200)


@dataclass
class Story:
    deployment: Deployment
    rejected: list[dict[str, str]] = field(default_factory=list)
    letters: list[list[dict]] = field(default_factory=list)

    @cached_property
    def outcome(self) -> verification.Tallies:
        return self.deployment.outcome()


@pytest.fixture(scope="module")
def story(
    spark: SparkSession, lab: Lab, filled: Path, tmp_path_factory: pytest.TempPathFactory
) -> Story:
    deployment = Deployment(spark, lab, filled, tmp_path_factory.mktemp("json"), encoding="bitmask")
    result = Story(deployment)

    def register() -> None:
        # A thread next to the stream writes the table.
        until(deployment.rejected)
        result.rejected.append(deployment.rejected())
        result.letters.append(deployment.letters())
        change(deployment.tables, "subscriptions", {"id": "hot"}, filter="hum >= 38")
        deployment.sql(
            "INSERT INTO {attributes} (id, name, type, scale, offset) "
            "VALUES (7, 'wind', 'decimal', 0.1, 0)"
        )
        deployment.publish(WINDY)

    def advertise() -> None:
        change(deployment.tables, "subscriptions", {"id": "hot"}, filter="not temp < 35")
        advertisement = {"id": "a", "publisher": PUBLISHER, "format": "attributes", "enabled": True}
        deployment.tables.append(
            "advertisements", [advertisement | {"filter": "temp < 35 and hum >= 0"}]
        )
        deployment.publish(LAST)

    deployment.publish(among(FIRST, BAD_JSON))
    deployment.run(register, advertise)
    result.rejected.append(deployment.rejected())
    result.letters.append(deployment.letters())
    return result


def test_every_kind_of_bad_json_has_its_reason_and_sample_and_its_neighbours_arrive(story: Story):
    first = story.deployment.ledger[0]
    assert first["packets"] == len(FIRST) + len(BAD_JSON)
    assert first["messages"] == len(FIRST)
    assert first["dead_letters"] == len(BAD_JSON)
    letters = story.letters[0]
    assert read(letters) == buried(BAD_JSON)
    records = among(FIRST, BAD_JSON)
    for letter in letters:
        record = records[2 * letter["offset"] + letter["partition"]]
        assert letter["sample"] == (record or b"")[:256].hex()
    assert story.outcome.exact


def test_all_events_reach_exactly_the_hosts_with_matching_rules(story: Story):
    outcome = story.outcome
    assert outcome.exact
    assert {host: tally.received > 20 for host, tally in outcome.hosts.items()} == {
        host: host != "h5" for host in NETWORK.subscribers()
    }


def test_an_edited_rule_is_live_in_the_next_batch(story: Story):
    versions = [dict(row["versions"])["subscriptions"] for row in story.deployment.ledger]
    assert versions == sorted(versions) and len(set(versions)) == 3


def test_a_rule_is_live_once_its_attribute_is_registered(story: Story):
    assert story.rejected == [{"windy": "SUBSCRIPTION.UNKNOWN_FIELD"}, {}]
    ledger = story.deployment.ledger
    assert [dict(row["versions"])["attributes"] for row in ledger][:2] == [1, 2]
    windy = story.deployment.receipts()["h4"]
    matching = [event for event in map(json.loads, WINDY) if event.get("wind", 0) > 3.5]
    assert sum(len(r.messages) for r in windy) == len(matching)
    # The bitmask has attribute 7, wind in tenths.
    assert {m[3] & 0x80 for r in windy for m in r.messages} == {0x80}


def test_events_outside_what_a_publisher_advertises_are_dead_letters(story: Story):
    outside = [
        event
        for event in map(json.loads, LAST)
        if not (event.get("temp", 99) < 35 and "hum" in event)
    ]
    assert 20 < len(outside) < len(LAST) - 20
    reasons = Counter(letter["reason"] for letter in story.letters[1])
    reasons.subtract(letter["reason"] for letter in story.letters[0])
    assert +reasons == {"outside_advertisement": len(outside)}
    assert sum(row["dead_letters"] for row in story.deployment.ledger[2:]) == len(outside)


def test_matches_lists_which_rules_an_advertisement_covers(story: Story):
    rows = story.deployment.tables.rows("matches")
    assert {row["subscriber"]: row["match"] for row in rows} == {
        "h1": "potential",
        "h2": "none",
        "h3": "potential",
        "h4": "potential",
        "h6": "permanent",
    }
    assert {row["publisher"] for row in rows} == {PUBLISHER}


@pytest.mark.long
def test_sql_lists_the_receivers_of_an_event_and_refuses_to_change_an_attribute(
    story: Story, capsys
):
    deployment = story.deployment
    statements = ["SELECT receivers FROM who_gets(temp => '25', hum => '30', wind => '3.6')"]
    run_sql.show(statements, deployment.settings, Lifecycle())
    assert "|[h1, h4, h6]|" in capsys.readouterr().out
    before = deployment.tables.version("attributes")
    for statement in (
        "DELETE FROM {attributes} WHERE name = 'wind'",
        "UPDATE {attributes} SET id = 8 WHERE name = 'wind'",
    ):
        with pytest.raises(PySparkException, match="DELTA_CANNOT_MODIFY_APPEND_ONLY"):
            deployment.sql(statement)
    assert deployment.tables.version("attributes") == before


# Unknown attributes, and a crash.


@pytest.mark.long
def test_new_attributes_get_ids_and_a_batch_that_runs_again_uses_those_of_its_first_try(
    spark: SparkSession, lab: Lab, filled: Path, tmp_path: Path
):
    deployment = Deployment(spark, lab, filled, tmp_path, unknown="register")
    bad = [(b'{"two words": 1}', "unknown_attribute"), (b'{"rain": "wet"}', "unknown_attribute")]
    new = {
        "wind": lambda draw: str(draw.randint(0, 8) + 0.25),
        "seen": lambda draw: f'"2026-01-01T00:{draw.randint(10, 59)}:00Z"',
    }
    deployment.publish(among(json_events(4, 200, **new), bad))
    deployment.run()
    rows = deployment.tables.rows("attributes")
    assert {row["name"]: (row["id"], row["type"]) for row in rows} == {
        **{row.name: (row.id, row.type) for row in REGISTRY.attributes},
        "seen": (3, "timestamp"),
        "wind": (4, "decimal"),
    }
    assert read(deployment.letters()) == buried(bad)
    before = deployment.receipts()
    assert deployment.outcome().exact
    assert sum(len(r.messages) for r in before["h4"]) > 30
    (first,) = deployment.ledger
    # The stream crashed before the commit; since then a rule was edited, and records with another
    # attribute were published.
    commits = Path(deployment.settings.checkpoint) / "commits"
    for path in (commits / "0", commits / ".0.crc"):
        path.unlink(missing_ok=True)
    change(deployment.tables, "subscriptions", {"id": "windy"}, filter="snow > 4 or wind > 7")
    deployment.publish(json_events(5, 200, snow=lambda draw: str(draw.randint(0, 8))))
    deployment.run()
    again, *later = deployment.ledger
    assert again["versions"] == first["versions"]
    assert {dict(row["versions"])["attributes"] for row in later} == {
        dict(first["versions"])["attributes"] + 1
    }
    assert next(r["id"] for r in deployment.tables.rows("attributes") if r["name"] == "snow") == 5
    ends = {
        session_id(kafka_topic(deployment.settings), p["partition"]): p["until_offset"]
        for p in first["partitions"]
    }
    after = deployment.receipts()
    for host, received in after.items():
        old = [r for r in received if split_sequence(r.sequence)[0] < ends[r.session]]
        assert sorted(old) == sorted(2 * before[host])
    outcome = deployment.outcome()
    assert (outcome.missing, outcome.extra, outcome.misnumbered) == (0, 0, 0)
    assert outcome.duplicates == sum(len(r.messages) for h in before.values() for r in h)
    assert outcome.hosts["h4"].received > 2 * outcome.hosts["h4"].duplicates


# Binary input.


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "encoding"),
    [("id_pairs", "bitmask"), ("bitmask", "id_pairs")],
)
def test_binary_events_arrive_with_their_payload_next_to_damaged_records(
    spark: SparkSession,
    lab: Lab,
    filled: Path,
    tmp_path: Path,
    capsys,
    source: str,
    encoding: str,
):
    deployment = Deployment(spark, lab, filled, tmp_path, input=source, encoding=encoding)
    good, bad = binary_events(6, 300, source), BAD_BINARY[source]
    deployment.publish(among(good, bad))
    deployment.run()
    assert deployment.outcome().exact
    assert read(deployment.letters()) == buried(bad)
    (row,) = deployment.ledger
    assert (row["packets"], row["messages"]) == (len(good) + len(bad), len(good))
    received = deployment.receipts()
    assert all(len(received[host]) > 20 for host in ("h1", "h2", "h3", "h6"))
    assert max(len(m) for r in received["h6"] for m in r.messages) > 700
    assert not received["h4"] and not received["h5"]

    # The report of the embedded default, with all receipts and after the loss of one.
    folder = tmp_path / "run"
    (folder / "receipts").mkdir(parents=True)
    for losses in (0, 1):
        for host, host_receipts in received.items():
            remaining = host_receipts[losses if host == "h6" else 0 :]
            content = b"".join(map(receipt_bytes, remaining))
            (folder / "receipts" / f"{host}.mold").write_bytes(content)
            np.zeros(len(remaining), ">i8").tofile(folder / "receipts" / f"{host}.times")
        run = stream.StreamProof(
            spark,
            deployment.settings,
            SensorRun(),
            deployment.tables,
            NETWORK,
            Published(len(good), len(good), 0, 0.0),
            "microbatch",
            folder,
            lab.status(),
        )
        summary = run.write(Parts())
        assert run.exact is (not losses)
        assert (summary["missing"], summary["dead_letters"]) == (losses, len(bad))
