"""JSON records to events: the standard library and plain arithmetic say what must come out."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from attribute_records import arrow_of, columns_of, read_records
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st

from stackcast.lab.proof.attribute_reader import read_json
from stackcast.udfs.errors import MessageError
from stackcast.udfs.messages.attributes.events import REASONS, Events, Widths
from stackcast.udfs.messages.attributes.json_events import JsonReader
from stackcast.udfs.messages.attributes.registry import Attribute, Registry, attribute
from stackcast.udfs.messages.attributes.time_kernels import time_at
from stackcast.udfs.messages.attributes.times import seconds_of
from stackcast.udfs.messages.attributes.unknown_names import MOST_NAMES, count_names, new_names
from stackcast.udfs.messages.buffers import Batch

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


def outcome(record: bytes, longest: int = LONGEST) -> str | dict[str, int]:
    """The reason, or raw values by name."""
    events = read_records([record], REGISTRY, longest)
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
        (b'{"ts": "2026\\u002d01-01"}', {"ts": 1767225600}),
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
    assert len(read_records([], REGISTRY)) == 0
    nothing = read_records([b'{"hum": 1}'], Registry(()))
    assert [REASONS[code] for code in nothing.reason.tolist()] == ["unknown_attribute"]


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
    offsets, data = columns_of(written(*each) for each in objects)
    events = JsonReader(REGISTRY).read(offsets, data)
    found = [
        REASONS[code] if code else raw_values_of(events, at)
        for at, code in enumerate(events.reason.tolist())
    ]
    assert found == [by_hand(each) for each, _ in objects]
    # A part of a batch is read as the part is, although Arrow keeps the whole behind it.
    cut = min(cut, len(objects))
    part = JsonReader(REGISTRY).read(offsets[cut:], data)
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


#: RFC 8259 as expressions over bytes: one character of UTF-8, a flat object, and an object up to
#: its first nested value.
CHARACTER = (
    rb"[\x20\x21\x23-\x5b\x5d-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]"
    rb"|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}"
    rb"|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
)
HEX = rb"[0-9a-fA-F]"
ESCAPE = (
    rb'\\(?:["\\/bfnrt]|u(?:[0-9a-cA-CefEF]%b{3}|[dD][0-7]%b{2}'
    rb"|[dD][89abAB]%b{2}\\u[dD][c-fC-F]%b{2}))" % ((HEX,) * 4)
)
TEXT = rb'"(?:%b|%b)*"' % (CHARACTER, ESCAPE)
NUMBER = rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
BLANK = rb"[ \t\n\r]*"
NAME = rb"%b%b:%b" % (TEXT, BLANK, BLANK)
MEMBER = rb"%b(?:%b|%b|true|false|null|NaN|-?Infinity)%b" % (NAME, TEXT, NUMBER, BLANK)
FLAT = re.compile(
    rb"%b\{%b(?:%b(?:,%b%b)*)?\}%b" % (BLANK, BLANK, MEMBER, BLANK, MEMBER, BLANK), re.DOTALL
)
NESTED = re.compile(rb"%b\{%b(?:%b,%b)*%b[\[{]" % (BLANK, BLANK, MEMBER, BLANK, NAME), re.DOTALL)


@examples(300)
@given(st.lists(bytes_like_json, min_size=1, max_size=20))
def test_any_bytes_are_flat_nested_or_malformed_as_the_grammar_has_it(records: list[bytes]) -> None:
    for record, code in zip(records, read_records(records, REGISTRY).reason.tolist(), strict=True):
        reason = REASONS.get(code, "")
        assert (reason == "nested_json") == bool(NESTED.match(record)), record
        bad = reason in ("nested_json", "malformed_json")
        assert bad == (FLAT.fullmatch(record) is None), record


#: Numbers at every border of doubles, of 32 bits and of rounding.
digits = st.text("0123456789", min_size=1, max_size=25)
numerals = st.one_of(
    st.integers(-(1 << 70), 1 << 70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.builds(
        lambda minus, whole, part, power: f"{minus}{whole.lstrip('0') or '0'}.{part}e{power}",
        st.sampled_from(["", "-"]),
        digits,
        digits,
        st.integers(-400, 400),
    ),
    st.sampled_from(["18446744073709551616", "9007199254740993", "-0", "1e22", "1e23", "0e999"]),
)
UNITS = Registry(
    (
        attribute(0, "temp", "decimal"),
        attribute(3, "tiny", "decimal", "0.000000001", "-2"),
        attribute(5, "level", "float"),
        attribute(63, "far", "signed", "1000000", "-2147483648000000", Widths(8, 64)),
    ),
    Widths(8, 64),
)


@examples(300)
@given(st.lists(st.tuples(st.sampled_from(sorted(UNITS.by_name)), numerals), min_size=1))
def test_every_number_is_rounded_as_the_plain_reader_rounds_it(
    drawn: list[tuple[str, str]],
) -> None:
    records = [f'{{"{name}": {numeral}}}'.encode() for name, numeral in drawn]
    events = read_records(records, UNITS)
    for at, ((name, _), record) in enumerate(zip(drawn, records, strict=True)):
        try:
            raw, reason = read_json(record, UNITS)[UNITS.by_name[name].id], ""
        except MessageError as error:
            raw, reason = 0, error.what.lower()
        assert REASONS.get(int(events.reason[at]), "") == reason, record
        assert int(events.values[UNITS.by_name[name].id, at]) == raw, record


#: Records of up to 200,000 bytes, and why they are no events; "" where they are.
CASES: list[tuple[bytes, str]] = [
    (b'{"temp": 25.5, "hum": 30}', ""),
    (b' {\t"hum"\r\n:\n1e1 } ', ""),
    (b'{"ts": "2026-01-01T00:00:00Z", "temp": -0.01}', ""),
    (b'{"ts": 1767225600.4, "hum": 0.5}', ""),
    (b'{"temp": 12345.6789012345678901234567890123456789012345}', ""),
    (b'{"temp": 1e-400}', ""),
    (b'{"\\u0074emp": 1, "hum": null}', ""),
    (b'{"what": null, "hum": 1}', ""),
    (b'{"hum": 4294967295}', ""),
    (b'{"hum": 4294967296}', "value_out_of_range"),
    (b'{"hum": -1}', "value_out_of_range"),
    (b'{"hum": 1000000000000000000000000000000000000000000000000000}', "value_out_of_range"),
    (b'{"hum": 1e400}', "not_a_number"),
    (b'{"hum": NaN}', "not_a_number"),
    (b'{"hum": Infinity}', "not_a_number"),
    (b'{"hum": -Infinity}', "not_a_number"),
    (b'{"temp": "25.5"}', "not_a_number"),
    (b'{"temp": "\\"25.5"}', "not_a_number"),
    (b'{"temp": "a\\u00e9\xc3\xa9\xf0\x9f\x98\x80\\ud83d\\ude00"}', "not_a_number"),
    (b'{"ts": "1767225600"}', "not_a_number"),
    (b'{"ts": "2026-02-30"}', "not_a_number"),
    (b'{"hum": true}', "not_a_number"),
    (b'{"hum": ""}', "not_a_number"),
    (b'{"temp": 1, "temp": 2}', "id_twice"),
    (b'{"temp": 1, "temp": null}', "id_twice"),
    (b'{"temp": 1, "\\u0074emp": 1}', "id_twice"),
    (b'{"what": 1}', "unknown_attribute"),
    (b'{"": 1}', "unknown_attribute"),
    (b'{"TEMP": 1}', "unknown_attribute"),
    (b"{}", "empty_event"),
    (b'{"temp": null}', "empty_event"),
    (b"", "malformed_json"),
    (b" ", "malformed_json"),
    (b"1", "malformed_json"),
    (b"null", "malformed_json"),
    (b"[]", "malformed_json"),
    (b'[{"hum": 1}]', "malformed_json"),
    (b'{"hum": 1', "malformed_json"),
    (b'{"hum": 1} x', "malformed_json"),
    (b'{"hum": 1}{"hum": 2}', "malformed_json"),
    (b'{"hum": 1}\n{"hum": 2}', "malformed_json"),
    (b'{"hum": 1,}', "malformed_json"),
    (b'{"hum": }', "malformed_json"),
    (b'{"hum": 01}', "malformed_json"),
    (b'{"hum": +1}', "malformed_json"),
    (b'{"hum": .5}', "malformed_json"),
    (b'{"hum": 1.}', "malformed_json"),
    (b'{"hum": 0x10}', "malformed_json"),
    (b"{'hum': 1}", "malformed_json"),
    (b"{hum: 1}", "malformed_json"),
    (b'{"hum": 1 /* one */}', "malformed_json"),
    (b'{"hum": nan}', "malformed_json"),
    (b'{"temp": 1, "hum": tru}', "malformed_json"),
    (b'{"te\nmp": 1}', "malformed_json"),
    (b'{"temp": "\\x"}', "malformed_json"),
    (b'{"temp": "\\ud800"}', "malformed_json"),
    (b'{"hum": 1\x00}', "malformed_json"),
    (b'{"h\xff": 1}', "malformed_json"),
    (b'{"h\xed\xa0\x80": 1}', "malformed_json"),
    (b"\xef\xbb\xbf" + b'{"hum": 1}', "malformed_json"),
    ('{"hum": 1}'.encode("utf-16"), "malformed_json"),
    (b'{"hum": ' + b"9" * 1001 + b"}", "malformed_json"),
    (b'{"hum": ' + b"9" * 1000 + b"}", "not_a_number"),
    (b'{"hum": [1]}', "nested_json"),
    (b'{"hum": 1, "of": {"temp": 1}}', "nested_json"),
    (b'{"hum": ' + b"[" * 100_000 + b"]" * 50_000 + b"}", "nested_json"),
    (b'{"temp": "' + b"x" * 150_000 + b'"}', "not_a_number"),
    (b'{"temp": "' + b"\\n" * 70_000 + b'"}', "not_a_number"),
    (b'{"' + b"x" * 50_000 + b'": 1}', "unknown_attribute"),
    (b'{"' + b"x" * 50_001 + b'": 1}', "malformed_json"),
    (b'{"hum": 1' + b" " * 150_000 + b"}", ""),
    (b"{" + b",".join(b'"a%d": 1' % i for i in range(10_000)) + b"}", "unknown_attribute"),
    (b'{"hum": 1' + b" " * 10_000_000 + b"}", "event_too_large"),
    (b"x" * 10_000_000, "event_too_large"),
]


def test_every_fault_of_a_record_has_its_reason_and_leaves_its_neighbours_alone() -> None:
    records = [record for record, _ in CASES]
    events = read_records(records, REGISTRY, 200_000)
    found = [REASONS.get(code, "") for code in events.reason.tolist()]
    assert [*zip((r[:40] for r in records), found, strict=True)] == [(r[:40], w) for r, w in CASES]
    for at, record in enumerate(records):
        alone = read_records([record], REGISTRY, 200_000)
        assert alone.reason[0] == events.reason[at]
        assert alone.mask[0] == events.mask[at]
        assert np.array_equal(alone.values[:, 0], events.values[:, at])


def test_a_name_without_an_attribute_may_be_null_but_only_once() -> None:
    assert outcome(b'{"what": null, "who": null, "hum": 1}') == {"hum": 1}
    assert outcome(b'{"what": null, "hum": 1, "what": null}') == "id_twice"
    assert outcome(b'{"what": null, "hum": 1, "wh\\u0061t": null}') == "id_twice"
    assert outcome(b'{"what": null, "hum": 1, "what": 1}') == "unknown_attribute"


times = st.builds(
    lambda time, places, zone, separator: (time, places, zone, separator),
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)),
    st.sampled_from(["minutes", "seconds", "milliseconds", "microseconds"]),
    st.one_of(st.none(), st.integers(-1439, 1439)),
    st.sampled_from("T "),
)


@given(st.lists(times, min_size=1))
@example([(datetime(1969, 12, 31, 23, 59, 58, 999_996), "microseconds", None, "T")])
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
    for text, seconds in zip(texts, expected, strict=True):
        assert read_time(text) == (True, float(seconds))


@examples(300)
@given(
    st.one_of(
        st.text("0123456789-+:TZ. ", max_size=30),
        st.from_regex(
            r"[0-9]{4}-[0-3][0-9]-[0-3][0-9][Tt ][0-2][0-9]:[0-6][0-9]"
            r"(:[0-6][0-9](\.[0-9]{0,20})?)?([zZ]|[+-][0-2][0-9]:?[0-6][0-9])?.?",
            fullmatch=True,
            alphabet=st.characters(max_codepoint=127),
        ),
    ),
    st.integers(0, 99),
    st.integers(0, 99),
)
def test_what_is_no_time_is_none_for_rules_and_for_events(text: str, month: int, day: int) -> None:
    date = f"2024-{month:02d}-{day:02d}"
    for each in (text, date, f"{date}T00:00\n"):
        assert read_time(each)[0] == (seconds_of(each) is not None)
    assert read_time(date)[0] == is_day(month, day)


def read_time(text: str) -> tuple[bool, float]:
    content = np.frombuffer(text.encode(), np.uint8)
    valid, seconds = time_at(content, 0, content.size)
    return valid, seconds


def is_day(month: int, day: int) -> bool:
    try:
        datetime(2024, month, day)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("tasks", [1, 3])
def test_only_names_that_events_bring_and_that_are_words_can_be_registered(tasks: int) -> None:
    records = [
        b'{"temp": 1, "wind": 2}',
        b'{"wind": 2.5, "Rain_1": "text", "ok": true, "bad": NaN}',
        b'{"seen": "2026-03-01T00:00:00Z", "started": 1772323200, "mask": 4294967295, "far": 1e12}',
        b'{"absent": null, "w\\u0069nd": 1e400}',
        b'{"two words": 1, "not": 1, "9": 1, "": 1}',
        b'{"cut": 1',
        b'{"nested": {"inner": 1}}',
        b'{"large": 1' + b" " * 70_000 + b"}",
        b'{"seen": "2026\\u002d03-01"}',
    ]
    assert new_types(records, tasks) == {
        "far": None,
        "mask": "unsigned",
        "seen": "timestamp",
        "started": "signed",
        "wind": "decimal",
    }


def test_of_many_new_names_those_that_are_seldom_are_left_out() -> None:
    many = b"{" + b",".join(b'"a%d": 1' % i for i in range(3000)) + b"}"
    for tasks in (1, 2):
        found = new_types([b'{"a2999": 1, "a2999": 2}', many], tasks)
        assert len(found) == MOST_NAMES and "a2999" in found


def new_types(records: list[bytes], tasks: int) -> dict[str, str | None]:
    """By name, of records that so many tasks look at; every other one fetches them itself."""
    rows = []
    for task in range(tasks):
        fetches = (lambda batches: map(Batch.of_arrow, batches)) if task % 2 else iter
        run = count_names(JsonReader(REGISTRY), fetches)
        halves = records[task::tasks][::2], records[task::tasks][1::2]
        rows += run(map(arrow_of, halves))
    return {name: found.type for name, found in new_names(pa.Table.from_batches(rows)).items()}
