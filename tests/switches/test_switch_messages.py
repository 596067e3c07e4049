"""Entries keep their meaning on the way to P4Runtime's messages and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackcast.jobs.adapters.switches.messages import Names
from stackcast.schemas.p4runtime import p4info_pb2, p4runtime_pb2
from stackcast.udfs.switches.entry import SwitchEntry, canonical
from stackcast.udfs.switches.match import Match

pytestmark = pytest.mark.unit

BITS = 12
FULL = (1 << BITS) - 1
KINDS = ("exact", "lpm", "ternary", "range", "optional")


def program() -> p4info_pb2.P4Info:
    """A program with one table, which has a field of each kind of match."""
    info = p4info_pb2.P4Info()
    action = info.actions.add()
    action.preamble.id, action.preamble.name = 7, "ingress.send"
    action.params.add(id=1, name="port", bitwidth=9)
    table = info.tables.add(size=100)
    table.preamble.id, table.preamble.name = 5, "ingress.all_kinds"
    for number, kind in enumerate(KINDS, 1):
        match_type = p4info_pb2.MatchField.MatchType.Value(kind.upper())
        table.match_fields.add(id=number, name=kind, bitwidth=BITS, match_type=match_type)
    return info


NAMES = Names(program())
numbers = st.integers(0, FULL)


@st.composite
def matches(draw: st.DrawFn) -> tuple[tuple[str, str, bytes], ...]:
    """Draw the matches of an entry, without those that accept every value."""
    fields: list[Match] = [Match("exact", "exact", canonical(draw(numbers)))]
    if length := draw(st.integers(0, BITS)):
        mask = FULL ^ ((1 << (BITS - length)) - 1)
        fields.append(Match("lpm", "lpm", canonical(draw(numbers) & mask), b"", length))
    if mask := draw(numbers):
        fields.append(Match("ternary", "ternary", canonical(draw(numbers) & mask), canonical(mask)))
    low, high = sorted((draw(numbers), draw(numbers)))
    if draw(st.booleans()) and (low, high) != (0, FULL):
        fields.append(Match("range", "range", canonical(low), canonical(high)))
    if draw(st.booleans()):
        fields.append(Match("optional", "optional", canonical(draw(numbers))))
    return tuple((field.name, field.kind, field.joined()) for field in fields)


def entry(fields: tuple[tuple[str, str, bytes], ...]) -> SwitchEntry:
    return SwitchEntry("s", "ingress.all_kinds", fields, "ingress.send", (("port", b"\x03"),), 4)


def add_matches_that_accept_all(message: Any) -> None:
    """Add the fields that an entry does not match, as switches do that return them explicitly."""
    present = {field.field_id for field in message.table_entry.match}
    number = {kind: number for number, kind in enumerate(KINDS, 1)}
    if number["lpm"] not in present:
        message.table_entry.match.add(field_id=number["lpm"]).lpm.value = b"\0"
    if number["ternary"] not in present:
        ternary = message.table_entry.match.add(field_id=number["ternary"]).ternary
        ternary.value = ternary.mask = b"\0\0"
    if number["range"] not in present:
        interval = message.table_entry.match.add(field_id=number["range"]).range
        interval.low, interval.high = b"\0", canonical(FULL)


@given(matches())
def test_an_entry_is_read_back_as_it_was_written(
    fields: tuple[tuple[str, str, bytes], ...],
) -> None:
    assert list(NAMES.from_wire("s", NAMES.to_wire(entry(fields)))) == [entry(fields)]


@given(matches())
def test_matches_that_accept_every_value_are_left_out_however_a_switch_returns_them(
    fields: tuple[tuple[str, str, bytes], ...],
) -> None:
    message = NAMES.to_wire(entry(fields))
    add_matches_that_accept_all(message)
    assert len(message.table_entry.match) >= 4
    assert list(NAMES.from_wire("s", message)) == [entry(fields)]


def test_leading_zeros_of_values_make_no_difference() -> None:
    message = p4runtime_pb2.Entity()
    message.CopyFrom(NAMES.to_wire(entry((("exact", "exact", b"\x05"),))))
    message.table_entry.match[0].exact.value = b"\0\x05"
    message.table_entry.action.action.params[0].value = b"\0\x03"
    assert list(NAMES.from_wire("s", message)) == [entry((("exact", "exact", b"\x05"),))]
