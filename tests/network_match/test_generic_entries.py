"""Passes as entries: what an entry says, and which numbers it has."""

from __future__ import annotations

import pytest

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.programs import EVENT, PASSES, VALUES
from stackcast.udfs.network_match.bit_vectors import BitVectors, FieldVectors
from stackcast.udfs.network_match.generic.entries import REQUIRE, SEND, event_entries
from stackcast.udfs.network_match.generic.passes import Pass
from stackcast.udfs.network_match.generic.table import GenericRow
from stackcast.udfs.switches.match import Match

pytestmark = pytest.mark.unit

ALL = (1 << 32) - 1
ANY = GenericRow(1, 1, (), ("1",))
TEMP = FieldVectors(((0, 29, 3), (40, 40, 0)), 1, 2)


def number(entry):
    name, kind, value = entry.match[0]
    assert kind == "exact"
    return name, int.from_bytes(value, "big")


def numbers(entry):
    return {name: int.from_bytes(value, "big") for name, value in entry.params}


def of_table(entries, table):
    return [entry for entry in entries if entry.table == table]


def test_an_entry_has_the_fields_that_its_row_asks_for_and_no_other():
    row = GenericRow(0b101, 0b111, ((0, 16, 28), (2, 0x80000000, 1)), ("3", "12"))
    entry, first = event_entries("s1", [Pass((row,))], [])
    assert (entry.switch, entry.table, entry.action) == ("s1", EVENT, SEND)
    assert [name for name, _, _ in entry.match] == ["rows", "bitmask", "value_0", "value_2"]
    parts = [Match.parted(*field) for field in entry.match[1:]]
    assert {m.kind for m in parts} == {"ternary"}
    found = [tuple(int.from_bytes(x, "big") for x in (m.value, m.other)) for m in parts]
    assert found == [(0b101, 0b111), (16, ALL - 15), (0x80000000, 0x80000000)]
    assert entry.priority == row.priority
    assert numbers(entry) == {"ports": 1 << 2 | 1 << 11}
    assert first.table == PASSES and number(first) == ("pass", 0)
    rows = number(entry)[1]
    none = dict.fromkeys(("vectors", "terms", "subset", "next", "timed"), 0)
    assert numbers(first) == none | {"rows": rows}


def test_a_row_for_any_value_or_for_any_event_leaves_the_field_out():
    entry, _ = event_entries("s1", [Pass((GenericRow(1, 1, ((0, 0, 0),), ("1",)),))], [])
    assert [name for name, _, _ in entry.match] == ["rows", "bitmask"]
    entry, _ = event_entries("s1", [Pass((GenericRow(0, 0, (), ("1",)),))], [])
    assert [name for name, _, _ in entry.match] == ["rows"]


def test_a_row_that_leads_to_nobody_sends_to_no_port():
    entry, _ = event_entries("s1", [Pass((GenericRow(3, 3, (), ()),))], [])
    assert numbers(entry) == {"ports": 0}


def test_vectors_are_a_row_a_range_one_for_all_other_values_and_one_for_the_absent_attribute():
    entries = event_entries("s1", [Pass((), BitVectors(3, {"01": TEMP}), 2)], [])
    *rows, first = entries
    assert {(entry.table, entry.action) for entry in rows} == {(f"{VALUES}1", REQUIRE)}
    found = []
    for entry in rows:
        present = int.from_bytes(entry.match[1][2], "big")
        span = None
        if len(entry.match) == 3:
            match = Match.parted(*entry.match[2])
            span = tuple(int.from_bytes(x, "big") for x in (match.value, match.other))
        found.append((present, span, numbers(entry)["terms"], entry.priority))
    assert found == [(1, (0, 29), 3, 2), (1, (40, 40), 0, 2), (1, None, 1, 1), (0, None, 2, 1)]
    (vectors,) = {number(entry)[1] for entry in rows}
    none = dict.fromkeys(("rows", "next", "timed"), 0)
    assert numbers(first) == none | {"vectors": vectors, "terms": 3, "subset": 2}


def test_passes_are_a_chain_from_pass_0():
    passes = [Pass((ANY,)), Pass((), BitVectors(3, {"01": TEMP})), Pass((ANY._replace(bits=0),))]
    entries = of_table(event_entries("s1", passes, []), PASSES)
    by_number = {number(entry)[1]: numbers(entry) for entry in entries}
    chain, at = [], 0
    while True:
        chain.append(by_number[at])
        if not (at := by_number[at]["next"]):
            break
    assert [(bool(one["rows"]), bool(one["vectors"])) for one in chain] == [
        (True, False),
        (False, True),
        (True, False),
    ]
    assert len(entries) == 3


def test_without_passes_there_is_nothing():
    assert event_entries("s1", [], []) == []


def test_rows_keep_their_number_where_nothing_else_changes_and_take_another_where_more_does():
    vectors = BitVectors(3, {"01": TEMP})
    held = event_entries("s1", [Pass((ANY,))], [])
    other = ANY._replace(receivers=("2",))
    same = event_entries("s1", [Pass((other,))], held)
    assert number(same[0]) == number(held[0]) and same[-1] == held[-1]
    both = event_entries("s1", [Pass((other,), vectors)], held)
    assert number(both[0]) != number(held[0])
    # What the number stands for now is what it stood for: nothing else may have it.
    back = event_entries("s1", [Pass((ANY,), vectors)], same)
    assert number(back[0]) != number(same[0])
    kept = event_entries("s1", [Pass((ANY,), vectors)], held)
    assert number(kept[0]) == number(held[0])


def test_numbers_follow_from_what_they_stand_for():
    passes = [Pass((ANY,), BitVectors(3, {"01": TEMP}))]
    once = event_entries("s1", passes, [])
    held = event_entries("s1", [Pass((ANY._replace(bits=0),))], [])
    assert event_entries("s1", passes, held) == event_entries("s1", passes, once) == once


def test_ports_that_no_group_can_send_to_are_refused():
    with pytest.raises(NetworkError) as refused:
        event_entries("s1", [Pass((ANY._replace(receivers=("65",)),))], [])
    assert refused.value.code == "NETWORK.TOO_MANY_PORTS"
