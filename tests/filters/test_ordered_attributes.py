"""Attributes of floats and of texts: plain Python says how values compare, and what is none."""

from __future__ import annotations

import json
import math
import operator
import struct
from fractions import Fraction

import numpy as np
import pytest
from attribute_passes import Table, keys_of
from attribute_records import read_records
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st

from stackcast.lab.proof.attribute_reader import read_json
from stackcast.udfs.errors import (
    AttributeTableError,
    MessageError,
    SpecificationError,
    SubscriptionError,
)
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.subscriptions import CheckedRule
from stackcast.udfs.messages.attributes.events import REASONS
from stackcast.udfs.messages.attributes.registry import Registry, attribute
from stackcast.udfs.network_match.generic.boxes import boxes_of
from stackcast.udfs.network_match.generic.entries import event_entries
from stackcast.udfs.network_match.generic.passes import Limits, passes_of

pytestmark = pytest.mark.unit

REGISTRY = Registry(
    (attribute(1, "level", "float"), attribute(2, "place", "text"), attribute(3, "n", "unsigned"))
)
FORMAT = REGISTRY.specification()
LEVEL, PLACE = FORMAT.field("level"), FORMAT.field("place")
ZERO, LARGEST = 1 << 31, 3.4028234663852886e38
COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
WORDS = ["", "A", "AB", "ABC", "ABCD", "ABD", "B", "a", "~", "A B", "EDDF", "0"]
floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
texts = st.one_of(st.sampled_from(WORDS), st.text("AB z~0", max_size=4))


def raw_of(value: float | str) -> int:
    """By the bits of IEEE 754, or the bytes of ASCII."""
    if isinstance(value, str):
        return int.from_bytes(value.encode().ljust(4))
    (bits,) = struct.unpack(">I", struct.pack(">f", value))
    return ZERO - (bits & 0x7FFF_FFFF) if bits >> 31 else ZERO + bits


@given(floats, floats)
@example(0.0, -0.0)
@example(math.inf, LARGEST)
@example(-math.inf, -LARGEST)
def test_raw_values_sort_as_floats_do_and_zero_is_one(left: float, right: float) -> None:
    for compare in COMPARE.values():
        assert compare(raw_of(left), raw_of(right)) == compare(left, right)
    assert np.float32(LEVEL.render(raw_of(left))) == np.float32(left)


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(LARGEST * (1 + 2**-25))
@example(1e-46)
def test_a_constant_is_the_nearest_float_as_an_event_is(value: float) -> None:
    record = json.dumps({"level": value}).encode()
    try:
        raw = read_json(record, REGISTRY)[1]
    except MessageError as error:
        assert error.what == "VALUE_OUT_OF_RANGE" and abs(value) > LARGEST
        with pytest.raises(SpecificationError, match="range of a 32-bit float"):
            LEVEL.from_raw(value)
        events = read_records([record], REGISTRY)
        assert REASONS[int(events.reason[0])] == "value_out_of_range"
        return
    near = Fraction(float(LEVEL.render(raw)))
    for other in (raw - 1, raw + 1):
        if abs(other - ZERO) < 0x7F80_0000:
            away = Fraction(float(np.float32(LEVEL.render(other))))
            exact = Fraction(float(np.float32(float(near))))
            assert abs(exact - Fraction(value)) <= abs(away - Fraction(value))
    assert LEVEL.from_raw(value) == raw
    assert LEVEL.parse(repr(value)) == (raw, raw)
    assert int(read_records([record], REGISTRY).values[1, 0]) == raw


values = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 70), 1 << 70), st.floats(), st.text(max_size=6)
)


@examples(100)
@given(st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(REGISTRY.by_name, values))))
@example([{"place": "\u00e9"}, {"place": "A\n"}, {"place": "ABCDE"}, {"place": 5}, {"place": ""}])
def test_json_means_the_same_to_the_stream_and_to_the_plain_reader(objects) -> None:
    records = [
        json.dumps(one, ensure_ascii=at % 2 == 0).encode("utf-8", "surrogatepass")
        for at, one in enumerate(objects)
    ]
    events = read_records(records, REGISTRY)
    for at, record in enumerate(records):
        try:
            expected, reason = read_json(record, REGISTRY), ""
        except MessageError as error:
            expected, reason = {}, error.what.lower()
        assert REASONS.get(int(events.reason[at]), "") == reason, record
        there = int(events.mask[at])
        assert expected == {i: int(events.values[i, at]) for i in range(32) if there >> i & 1}


@st.composite
def comparisons(draw: st.DrawFn):
    """A rule's text, and whether it holds of (level, place)."""
    sign = draw(st.sampled_from(sorted(COMPARE)))
    if draw(st.booleans()):
        value = draw(st.one_of(floats, st.sampled_from([0.0, -0.0, LARGEST, 1e-45])))
        # Constants are rounded as events are.
        near = float(np.float32(value))
        return f"level {sign} {value!r}", lambda level, _: COMPARE[sign](level, near)
    word = draw(texts)
    return (
        f"place {sign} '{word}'",
        lambda _, place: COMPARE[sign](f"{place:4}", f"{word:4}"),
    )


@examples(60)
@given(
    st.lists(
        st.tuples(comparisons(), comparisons(), st.sampled_from(["1", "2", "10"])), max_size=4
    ),
    st.lists(st.tuples(st.one_of(floats, st.sampled_from([math.inf, -math.inf])), texts)),
    st.sampled_from([Limits(), Limits(rows=0, words=2, passes=16)]),
)
def test_rules_mean_what_python_says_in_the_stream_and_in_a_switch(drawn, events, limits) -> None:
    """The values of one rule are those of another's event, so that ends are met."""
    rules, told = [], []
    for number, ((one, first), (other, second), port) in enumerate(drawn):
        text = f"{one} and not ({other})"
        rules.append(CheckedRule(f"r{number}", parse_rule(text, FORMAT).condition, (port,)))
        told.append((port, lambda *event, a=first, b=second: a(*event) and not b(*event)))
        events += [(level, place) for level, place in ends(one) + ends(other)]
    passes = passes_of(boxes_of(rules, REGISTRY), limits)
    assert not passes.refused
    table = Table(event_entries("s1", passes.passes, ()))
    for level, place in events:
        raw = {"level": raw_of(level), "place": int.from_bytes(f"{place:4}".encode())}
        expected = {port for port, holds in told if holds(level, place)}
        assert {p for rule in rules if matches(rule.condition, raw) for p in rule.receivers} == (
            expected
        )
        (ports,) = table.outcomes(keys_of({1: raw["level"], 2: raw["place"]}))
        assert set(map(str, ports)) == expected


def ends(text: str) -> list[tuple[float, str]]:
    """Events at a constant and beside it."""
    name, _, constant = text.split(" ", 2)
    if name == "place":
        return [(0.0, constant.strip("'"))]
    value = np.float32(constant)
    near = [value, np.nextafter(value, np.float32(9)), np.nextafter(value, np.float32(-9))]
    return [(float(one), "A") for one in near]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("level > warm", "with a number, such as 50.25"),
        ("level > 1e39", "beyond the range of a 32-bit float"),
        ("level > 0x10", "not a number"),
        ("place == ABCDE", "longer than the 4 characters"),
        ("place == '\u00e9'", "ASCII"),
        ("avg(level) > 3", "not evenly spaced; use min or max"),
        ("sum(level) > 3", "not evenly spaced"),
        ("avg(place) > 3", "contains text"),
        ("moved(level, 0.5)", "cannot measure a distance; write changed"),
        ("moved(place, 1)", "contains text, and moved compares only numbers"),
    ],
)
def test_what_no_float_and_no_text_is_is_refused_with_the_reason(text: str, words: str) -> None:
    with pytest.raises(SubscriptionError, match=words):
        parse_rule(text, FORMAT)


@pytest.mark.parametrize("kind", ["float", "text"])
@pytest.mark.parametrize("usual", [{"scale": "0.1"}, {"offset": 1}])
def test_floats_and_texts_have_no_scale_of_their_own(kind, usual) -> None:
    with pytest.raises(AttributeTableError, match="scale must be 1 and whose offset must be 0"):
        attribute(0, "x", kind, **usual)


def test_values_are_shown_as_people_write_them() -> None:
    for value in (0.1, -2.5, 1e20, 1e-45):
        assert LEVEL.render(raw_of(value)) == str(np.float32(value))
    assert LEVEL.render(raw_of(math.inf)) == "inf" and LEVEL.render(1) == "nan"
    assert [PLACE.render(raw_of(f"{word:4}")) for word in WORDS] == WORDS
    assert PLACE.render(0x41000000) == "#41000000"
