"""One task of the stream of attribute/value events, against brute force over the rules."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pytest
from attribute_records import arrow_of
from delivery_cases import (
    ADDRESSING,
    HOSTS,
    NETWORK,
    TREES,
    VERSIONS,
    ListSink,
    Row,
    batches_of,
    handle,
    received,
)
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.delivery.deliver import deliver
from stackcast.udfs.delivery.plan import Compilation, Planner
from stackcast.udfs.errors import MessageError
from stackcast.udfs.filters.advertisements import Advertisement
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages.attributes.reference import read_event, write_event
from stackcast.udfs.messages.attributes.registry import Attribute, Registry
from stackcast.udfs.messages.readers import AttributeEvents, Encoding, Input
from stackcast.udfs.messages.sequence import Topic

pytestmark = pytest.mark.unit

TOPIC = Topic("itch.raw")
LONGEST = 300
REGISTRY = Registry(
    tuple(
        Attribute(number, name, "unsigned", Decimal(1), Decimal(0))
        for number, name in {0: "time", 1: "temp", 2: "hum", 7: "wind", 31: "last"}.items()
    )
)
SPECIFICATION = REGISTRY.specification()
IDS = {one.id: one.name for one in REGISTRY.attributes}
FILTERS = (
    "temp < 30 and hum > 15",
    "temp < 30",
    "not temp < 30",
    "not (temp < 30 and wind > 3)",
    "last == 4294967295 or time == 0",
    "hum in {1, 2, 3} and last >= 7",
    "wind between 2 and 5",
)
VALUES = (0, 1, 2, 3, 4, 5, 7, 15, 16, 29, 30, 31, (1 << 32) - 1)


def random_record(seed: random.Random, encoding: str) -> bytes | None:
    """An event; sometimes cut off, with an id that nobody knows, noise, or null."""
    chosen = seed.sample(sorted(IDS), seed.randint(1, len(IDS)))
    values = {number: seed.choice(VALUES) for number in chosen}
    payload = seed.randbytes(seed.choice([0, 0, 3, 40]))
    record = write_event(values, encoding, payload)
    match seed.choices(["sound", "cut", "unknown", "noise", "long", "null"], [12, 1, 1, 1, 1, 1])[
        0
    ]:
        case "cut":
            return record[: seed.randrange(len(record))]
        case "unknown":
            return write_event(values | {9: 1}, encoding)
        case "noise":
            return seed.randbytes(seed.randrange(60))
        case "long":
            return record + bytes(LONGEST)
        case "null":
            return None
    return record


def planned(
    subscriptions: Sequence[Subscription],
    source: Input,
    encoding: Encoding,
    advertisements: Sequence[Advertisement] = (),
) -> Compilation:
    form = AttributeEvents(REGISTRY, source, encoding, LONGEST)
    planner = Planner(form, ADDRESSING)
    return planner.plan(subscriptions, NETWORK, TREES, VERSIONS, advertisements=advertisements)


def run(
    compilation: Compilation, batches: Sequence[pa.RecordBatch]
) -> tuple[ListSink, list[dict[str, object]]]:
    sink = ListSink()
    task = deliver(
        handle(compilation.plan), handle(compilation.header_stacks), TOPIC, lambda: sink, 1000
    )
    return sink, [row for batch in task(iter(batches)) for row in batch.to_pylist()]


Owed = tuple[dict[str, Counter[tuple[int, int, bytes]]], Counter[str]]


def owed(
    subscriptions: Sequence[Subscription],
    rows: Sequence[Row],
    source: str,
    encoding: str,
    announced: str | None,
) -> Owed:
    """What every host must get, and dead letters, by brute force."""
    rules = [(s, parse_rule(s.filter, SPECIFICATION)) for s in subscriptions]
    gate = None if announced is None else parse_rule(announced, SPECIFICATION).condition
    hosts: dict[str, Counter[tuple[int, int, bytes]]] = {host: Counter() for host in HOSTS}
    dead: Counter[str] = Counter()
    for partition, offset, value in rows:
        try:
            values, payload = read_event(value or b"", source, REGISTRY.known, LONGEST)
            message = write_event(values, encoding, payload)
        except MessageError as error:
            dead[error.what.lower()] += 1
            continue
        if len(message) > LONGEST:
            dead["event_too_large"] += 1
            continue
        event = {IDS[number]: raw for number, raw in values.items()}
        if gate is not None and not matches(gate, event):
            dead["outside_advertisement"] += 1
            continue
        for host in {s.subscriber for s, rule in rules if matches(rule.condition, event)}:
            hosts[host][partition, offset, message] += 1
    return hosts, dead


@examples(60)
@given(
    st.lists(st.tuples(st.sampled_from(HOSTS), st.sampled_from(FILTERS)), max_size=8),
    st.integers(0, 1 << 30),
    st.sampled_from(["id_pairs", "bitmask"]),
    st.sampled_from(["id_pairs", "bitmask"]),
    st.sampled_from([None, "temp < 30", "time >= 0 or not hum < 3", "temp < 1 and temp > 1"]),
    st.lists(st.integers(0, 25), max_size=3),
)
def test_every_host_gets_exactly_the_events_that_it_subscribed_to(
    chosen: list[tuple[str, str]],
    number: int,
    source: Input,
    encoding: Encoding,
    announced: str | None,
    cuts: list[int],
):
    subscriptions = [Subscription(f"s{n}", host, text) for n, (host, text) in enumerate(chosen)]
    seed = random.Random(number)
    rows = [(seed.randrange(3), at, random_record(seed, source)) for at in range(25)]
    announcements = [] if announced is None else [Advertisement("feed1", announced, "a")]
    compilation = planned(subscriptions, source, encoding, announcements)
    assert not compilation.rejections
    sink, report = run(compilation, list(batches_of(rows, cuts, False)))
    hosts, dead = owed(subscriptions, rows, source, encoding, announced)
    assert received(sink.frames) == hosts
    assert Counter({r["reason"]: r["count"] for r in report if r["kind"] == "reason"}) == dead
    assert sum(r["kind"] == "sample" for r in report) == dead.total()


def test_json_from_the_topic_leaves_as_binary_events():
    lines = [b'{"temp": 25, "hum": 30}', b'{"temp": "warm"}', b"{}", b'{"hum": 16, "temp": 29}']
    compilation = planned([Subscription("a", "h1", FILTERS[0])], "json", "bitmask")
    sink, report = run(compilation, [arrow_of(lines)])
    assert received(sink.frames)["h1"] == Counter(
        {
            (0, 0, write_event({1: 25, 2: 30}, "bitmask")): 1,
            (0, 3, write_event({1: 29, 2: 16}, "bitmask")): 1,
        }
    )
    assert {r["reason"]: r["count"] for r in report if r["kind"] == "reason"} == {
        "not_a_number": 1,
        "empty_event": 1,
    }


def test_an_advertisement_that_does_not_compile_costs_no_event():
    rows = [Advertisement("feed1", "temp <", "bad"), Advertisement("feed1", "temp < 3", "good")]
    compilation = planned([Subscription("a", "h1", "temp < 30")], "bitmask", "bitmask", rows)
    assert [rejection.id for rejection in compilation.rejections] == ["bad"]
    events = [(0, 0, write_event({1: 2}, "bitmask")), (0, 1, write_event({1: 3}, "bitmask"))]
    sink, report = run(compilation, list(batches_of(events, [], False)))
    assert len(sink.frames) == 2
    assert not [r for r in report if r["kind"] in ("reason", "sample")]


def test_an_advertisement_of_nobody_is_rejected_and_binds_nobody():
    rows = [Advertisement("feed7", "temp < 0", "typo"), Advertisement("feed1", "temp < 3", "good")]
    compilation = planned([Subscription("a", "h1", "temp < 30")], "bitmask", "bitmask", rows)
    assert [(r.id, r.code) for r in compilation.rejections] == [
        ("typo", "SUBSCRIPTION.UNKNOWN_HOST")
    ]
    events = [(0, at, write_event({1: at}, "bitmask")) for at in range(5)]
    assert len(run(compilation, list(batches_of(events, [], False)))[0].frames) == 3


def test_rules_with_state_take_the_time_of_the_records():
    rule = Subscription("a", "h1", "count(1000000) >= 1 and temp > 0")
    compilation = planned([rule], "id_pairs", "id_pairs")
    assert not compilation.rejections
    record = write_event({1: 5}, "id_pairs")
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([0] * 4, pa.int32()),
            pa.array(range(4), pa.int64()),
            pa.array([record] * 4, pa.binary()),
            pa.array([0, 1, 2, 5_000_000], pa.timestamp("us", "UTC")),
        ],
        names=["partition", "offset", "value", "timestamp"],
    )
    sink, _ = run(compilation, [batch])
    assert [offset for _, offset, _ in received(sink.frames)["h1"]] == [1, 2]
