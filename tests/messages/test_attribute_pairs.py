"""JSON records to events: the standard library and plain arithmetic say what must come out."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from udfs.messages.attributes.events import REASONS, Events
from udfs.messages.attributes.pairs import FLAT_IN_JAVA, pairs_of_lines, read_pairs
from udfs.messages.attributes.registry import Attribute, Registry, attribute
from udfs.messages.attributes.times import read_times, seconds_of

pytestmark = pytest.mark.unit

LONGEST = 1000
REGISTRY = Registry(
    (
        attribute(0, "ts", "timestamp"),
        attribute(1, "temp", "decimal"),
        attribute(2, "hum", "unsigned"),
        attribute(9, "depth", "signed", "0.5", "-100"),
        attribute(31, "last", "signed"),
    )
)


def read(records: Iterable[bytes], longest: int = LONGEST) -> Events:
    return read_pairs(*pairs_of_lines(records), REGISTRY, longest)


def outcome(record: bytes, longest: int = LONGEST) -> str | dict[str, int]:
    """The reason, or raw values by name."""
    events = read([record], longest)
    if events.reason[0]:
        assert not events.mask.any() and not events.values.any()
        return REASONS[int(events.reason[0])]
    assert events.payload_start.tolist() == events.payload_end.tolist()
    return raw_values_of(events, 0)


def raw_values_of(events: Events, at: int) -> dict[str, int]:
    found = {one.name: int(events.values[one.id, at]) for one in REGISTRY.attributes}
    there = int(events.mask[at])
    assert not there & ~REGISTRY.known
    absent = [id for id in range(32) if not there >> id & 1]
    assert not events.values[absent, at].any()
    return {one.name: found[one.name] for one in REGISTRY.attributes if there >> one.id & 1}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (b'{"temp": 25.5, "hum": 30}', {"temp": (1 << 31) + 2550, "hum": 30}),
        (b'{"hum":30,"temp":25.5}', {"temp": (1 << 31) + 2550, "hum": 30}),
        (b'{"temp": -21474836.48}', {"temp": 0}),
        (b'{"temp": 21474836.47, "last": -2147483648}', {"temp": (1 << 32) - 1, "last": 0}),
        (b'{"depth": -100}', {"depth": 0}),
        (b'{"hum": 0.5, "last": 1.5}', {"hum": 0, "last": (1 << 31) + 2}),
        (b'{"hum": -0.5}', {"hum": 0}),
        (b'{"hum": 3e1}', {"hum": 30}),
        (b'{"ts": "1970-01-01T00:00:01Z"}', {"ts": 1}),
        (b'{"ts": 1767225600, "hum": null}', {"ts": 1767225600}),
        (b'{"ts": "2026-01-01"}', {"ts": 1767225600}),
        (b'{"ts": "2026-01-01 01:00:00.25+01:00"}', {"ts": 1767225600}),
        (b'{"what": null, "hum": 1}', {"hum": 1}),
        (b'{"h\\u0075m": 1}', {"hum": 1}),
    ],
)
def test_values_become_raw_values_of_their_attributes(
    record: bytes, expected: dict[str, int]
) -> None:
    assert outcome(record) == expected


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"", "malformed_json"),
        (b"[]", "malformed_json"),
        (b'{"hum": 1} {"hum": 2}', "malformed_json"),
        (b'{"hum": 1}x', "malformed_json"),
        (b'{"hum": 1', "malformed_json"),
        (b'{"hum": [1', "nested_json"),
        (b'{"hum" 1, "temp": {}}', "malformed_json"),
        (b'{"hum": ' + b"[" * 900, "nested_json"),
        (b'{"h\xff": 1}', "malformed_json"),
        (b'{"hum": 1' + b" " * 1000 + b"}", "event_too_large"),
        (b"x" * 1001, "event_too_large"),
        (b'{"hum": {' + b" " * 1000, "event_too_large"),
        (b"{}", "empty_event"),
        (b'{"hum": null}', "empty_event"),
        (b'{"what": 1, "hum": 1, "hum": 1, "temp": "x", "last": 1e20}', "unknown_attribute"),
        (b'{"temp": "x", "last": 1e20, "hum": 1, "hum": 1}', "id_twice"),
        (b'{"temp": "x", "last": 1e20}', "value_out_of_range"),
        (b'{"temp": "x", "last": 1}', "not_a_number"),
        (b'{"hum": 4294967295.5}', "value_out_of_range"),
        (b'{"hum": -0.51}', "value_out_of_range"),
        (b'{"ts": "1969-12-31T23:59:58Z"}', "value_out_of_range"),
        (b'{"ts": "0000-01-01"}', "not_a_number"),
        (b'{"ts": "2025-02-29"}', "not_a_number"),
        (b'{"ts": "2026-01-01T24:00"}', "not_a_number"),
        (b'{"ts": ""}', "not_a_number"),
        (b'{"hum": "2026-01-01"}', "not_a_number"),
        (b'{"hum": "1"}', "not_a_number"),
        (b'{"hum": false}', "not_a_number"),
        (b'{"hum": NaN}', "not_a_number"),
        (b'{"hum": -Infinity}', "not_a_number"),
    ],
)
def test_what_is_no_event_has_the_reason_that_wins(record: bytes, reason: str) -> None:
    assert outcome(record) == reason


def test_no_records_are_no_events() -> None:
    assert len(read([])) == 0
    nothing = read_pairs(*pairs_of_lines([b'{"hum": 1}']), Registry(()), LONGEST)
    assert [REASONS[code] for code in nothing.reason.tolist()] == ["unknown_attribute"]


def test_a_record_that_is_null_is_malformed() -> None:
    _, pairs = pairs_of_lines([b"", b'{"hum": 1}'])
    records = pa.array([None, b'{"hum": 1}'], pa.binary())
    events = read_pairs(records, pairs, REGISTRY, LONGEST)
    assert [REASONS.get(code, "") for code in events.reason.tolist()] == ["malformed_json", ""]


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.integers(-10, 10),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["25.5", "2026-01-01T00:00:00Z", "NaN", "null", "Infinity"]),
)
some_names = st.sampled_from(["ts", "temp", "hum", "depth", "last", "what", ""])
members = st.lists(st.tuples(some_names, scalars), max_size=6)


def written(pairs: list[tuple[str, Any]], ascii_only: bool) -> bytes:
    parts = [
        f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=ascii_only)}" for name, value in pairs
    ]
    return f"{{{', '.join(parts)}}}".encode()


def by_hand(pairs: list[tuple[str, Any]]) -> str | dict[str, int]:
    """What the contract says, pair by pair."""
    faults: set[str] = set()
    raw: dict[str, int] = {}
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        faults.add("id_twice")
    for name, value in pairs:
        one = REGISTRY.by_name.get(name)
        if value is None:
            continue
        if one is None:
            faults.add("unknown_attribute")
            continue
        found = raw_by_hand(one, value)
        if isinstance(found, str):
            faults.add(found)
        else:
            raw[name] = found
    for fault in ("unknown_attribute", "id_twice", "value_out_of_range", "not_a_number"):
        if fault in faults:
            return fault
    return raw or "empty_event"


def raw_by_hand(one: Attribute, value: Any) -> str | int:
    if value == "2026-01-01T00:00:00Z" and one.type == "timestamp":
        value = 1767225600
    if isinstance(value, bool | str) or not math.isfinite(value):
        return "not_a_number"
    # Near the largest float there is, it may leave the floats.
    scaled = (float(value) - float(one.offset)) / float(one.scale)
    raw = round(scaled) if math.isfinite(scaled) else 1 << 64
    return raw if 0 <= raw < 1 << 32 else "value_out_of_range"


@example([([("temp", 1.797693134862316e306)], False)], 0)
@given(st.lists(st.tuples(members, st.booleans()), max_size=8), st.integers(0, 8))
def test_any_objects_are_read_as_by_hand_and_each_as_if_alone(
    objects: list[tuple[list[tuple[str, Any]], bool]], cut: int
) -> None:
    records, pairs = pairs_of_lines(written(*each) for each in objects)
    events = read_pairs(records, pairs, REGISTRY, LONGEST)
    found = [
        REASONS[code] if code else raw_values_of(events, at)
        for at, code in enumerate(events.reason.tolist())
    ]
    assert found == [by_hand(each) for each, _ in objects]
    # A part of a batch is read as the part is, although Arrow keeps the whole behind it.
    part = read_pairs(records[cut:], pairs[cut:], REGISTRY, LONGEST)
    assert part.reason.tolist() == events.reason[cut:].tolist()
    assert np.array_equal(part.values, events.values[:, cut:])


signs = [b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b"-", b" ", b"\n", b"\x00"]
words = [b'"hum"', b'"a":1', b"1", b"0.5", b"e9", b"true", b"null", b"NaN", b"-Infinity"]
letters = [b"\\u00e9", b"\\ud83d\\ude00", b"\\ud800", b"\\n", b"\\x", "é😀\x7f".encode()]
broken = [b"\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xe9"]
pieces = st.sampled_from([*signs, *words, *letters, *broken])
bytes_like_json = st.one_of(
    st.lists(pieces, max_size=8).map(b"".join),
    st.lists(pieces, max_size=4).map(lambda p: b'{"a": ' + b"".join(p) + b"}"),
    st.lists(pieces, max_size=4).map(lambda p: b'{"' + b"".join(p) + b'": 1}'),
)


@given(bytes_like_json)
def test_the_grammar_that_spark_asks_knows_flat_objects(record: bytes) -> None:
    """Python's expressions mean the same as Java's here, but for the name of the end."""
    try:
        text = record.decode()
    except UnicodeDecodeError:
        return
    flat = re.match(FLAT_IN_JAVA.replace(r"\z", r"\Z"), text) is not None
    assert flat == (pairs_of_lines([record])[1][0].as_py() is not None)


@given(bytes_like_json)
def test_bytes_alone_say_what_the_standard_library_says(record: bytes) -> None:
    """Where Spark gives no pairs, the reason comes from the bytes."""
    records = pa.array([record], pa.binary())
    nothing = pa.array([None], pa.map_(pa.string(), pa.string()))
    events = read_pairs(records, nothing, REGISTRY, LONGEST)
    reason = REASONS[int(events.reason[0])]
    try:
        found = json.loads(record.decode())
    except ValueError:
        found = None
    if isinstance(found, dict):
        nested = any(isinstance(value, dict | list) for value in found.values())
        # A value that is hidden by another of its name may be nested, too.
        assert reason == "nested_json" if nested else reason in ("malformed_json", "nested_json")
    elif found is not None:
        assert reason == "malformed_json"
    plain = pairs_of_lines([record])[1]
    if reason == "nested_json":
        assert plain[0].as_py() is None


times = st.builds(
    lambda time, places, zone, separator: (time, places, zone, separator),
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)),
    st.sampled_from(["minutes", "seconds", "milliseconds", "microseconds"]),
    st.one_of(st.none(), st.integers(-1439, 1439)),
    st.sampled_from("T "),
)


@given(st.lists(times, min_size=1))
def test_times_are_what_the_standard_library_reads(
    drawn: list[tuple[datetime, Any, int | None, str]],
) -> None:
    texts, expected = [], []
    for time, places, zone, separator in drawn:
        offset = UTC if zone is None else timezone(timedelta(minutes=zone))
        text = time.replace(tzinfo=offset).isoformat(separator, places)
        texts.append(text.removesuffix("+00:00") + ("Z" if len(text) % 2 else ""))
        if zone:
            texts[-1] = text
        since = datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)
        expected.append(Decimal(since // timedelta(microseconds=1)) / 1_000_000)
    assert [seconds_of(text) for text in texts] == expected
    seconds, valid = read_times(pa.array(texts))
    assert valid.all()
    assert seconds.tolist() == [float(each) for each in expected]


@given(st.text("0123456789-+:TZ. ", max_size=30), st.integers(0, 99), st.integers(0, 99))
def test_what_is_no_time_is_none_for_one_and_for_many(text: str, month: int, day: int) -> None:
    texts = [text, f"2024-{month:02d}-{day:02d}", f"2024-{month:02d}-{day:02d}T00:00\n"]
    _, valid = read_times(pa.array([*texts, None]))
    assert valid.tolist() == [*(seconds_of(each) is not None for each in texts), False]
    assert valid[1] == (is_day(month, day))


def is_day(month: int, day: int) -> bool:
    try:
        datetime(2024, month, day)
    except ValueError:
        return False
    return True
