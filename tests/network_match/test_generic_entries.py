"""Rows of the generic table as entries and groups: what an entry says, which number it names."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from udfs.errors import FilterError
from udfs.network.programs import EVENT
from udfs.network_match.generic import entries as module
from udfs.network_match.generic.entries import (
    DROP,
    MOST_GROUPS,
    SEND,
    event_entries,
    group_numbers,
)
from udfs.network_match.generic.table import GenericRow
from udfs.switches.entry import GROUPS, SwitchEntry, canonical, group_entry, group_id, replicas
from udfs.switches.match import Match

pytestmark = pytest.mark.unit

ALL = (1 << 32) - 1
#: Sets of ports, one for each number that a set has to begin with: two in 32,767 may share it.
POOL = list(
    {
        group_numbers("s1", [ports], [])[ports]: ports
        for size in (1, 2, 3)
        for ports in combinations(range(1, 17), size)
    }.values()
)
sets = st.sampled_from(POOL)


def groups_of(entries):
    return {group_id(e): tuple(p for p, _ in replicas(e)) for e in entries if e.table == GROUPS}


def of(ports):
    """A row with nothing but receivers that matters."""
    return GenericRow(1, 1, ((0, ports[0] << 24, 8),), tuple(map(str, ports)))


def test_an_entry_has_the_fields_that_its_row_asks_for_and_no_other():
    row = GenericRow(0b101, 0b111, ((0, 16, 28), (2, 0x80000000, 1)), ("3", "12"))
    group, entry = event_entries("s1", [row], [])
    assert (entry.switch, entry.table, entry.action) == ("s1", EVENT, SEND)
    assert [name for name, _, _ in entry.match] == ["bitmask", "value_0", "value_2"]
    parts = [Match.parted(*field) for field in entry.match]
    assert {m.kind for m in parts} == {"ternary"}
    numbers = [tuple(int.from_bytes(x, "big") for x in (m.value, m.other)) for m in parts]
    assert numbers == [(0b101, 0b111), (16, ALL - 15), (0x80000000, 0x80000000)]
    assert entry.priority == row.priority
    assert replicas(group) == [(3, 0), (12, 0)]
    assert entry.params == (("group", canonical(group_id(group))),)


def test_a_row_for_any_value_or_for_any_event_leaves_the_field_out():
    whole = GenericRow(1, 1, ((0, 0, 0),), ("1",))
    (_, entry) = event_entries("s1", [whole], [])
    assert [name for name, _, _ in entry.match] == ["bitmask"]
    (_, entry) = event_entries("s1", [GenericRow(0, 0, (), ("1",))], [])
    assert entry.match == ()
    assert entry.key.startswith(f"{EVENT}||priority=")


def test_a_row_that_leads_to_nobody_drops_and_needs_no_group():
    (entry,) = event_entries("s1", [GenericRow(3, 3, (), ())], [])
    assert (entry.action, entry.params) == (DROP, ())


def test_ports_are_numbers_and_each_set_of_them_is_one_group():
    rows = [
        GenericRow(n, n, (), receivers)
        for n, receivers in enumerate([("10", "9"), ("9", "10"), ("9",), ()], 1)
    ]
    made = event_entries("s1", rows, [])
    assert sorted(groups_of(made).values()) == [(9,), (9, 10)]
    assert made[2].params == made[3].params != made[4].params


@given(st.sets(sets, max_size=12), st.sets(sets, max_size=12), st.sets(sets, max_size=12))
def test_a_set_of_ports_keeps_its_number_and_no_number_ever_gets_other_ports(first, second, third):
    held: list[SwitchEntry] = []
    names: dict[int, tuple[int, ...]] = {}
    for wanted in (first, second, third, first):
        before = groups_of(held)
        made = event_entries("s1", [of(ports) for ports in sorted(wanted)], held)
        now = groups_of(made)
        assert sorted(now.values()) == sorted(wanted)
        assert all(now[n] == before[n] for n in now.keys() & before.keys())
        kept = {ports: n for n, ports in before.items() if ports in wanted}
        assert all(now[n] == ports for ports, n in kept.items())
        assert all(1 <= n <= MOST_GROUPS for n in now)
        # All along, a number means one set: a switch that was away for an edit sees no other.
        assert all(names.setdefault(n, ports) == ports for n, ports in now.items())
        # Without anything held, and in any order, the numbers are the same.
        anew = event_entries("s1", [of(ports) for ports in sorted(wanted, reverse=True)], [])
        assert groups_of(anew) == now
        held = made


def test_numbers_of_groups_that_go_are_given_out_only_where_there_is_no_other(monkeypatch):
    monkeypatch.setattr(module, "MOST_GROUPS", 4)
    held = [group_entry("s1", n, [(n, 0)]) for n in (1, 2, 3)]
    found = group_numbers("s1", [(2,), (9,)], held)
    assert found == {(2,): 2, (9,): 4}
    found = group_numbers("s1", [(2,), (7,), (8,), (9,)], held)
    assert found[(2,)] == 2 and sorted(found.values()) == [1, 2, 3, 4]
    with pytest.raises(FilterError) as refused:
        group_numbers("s1", [(n,) for n in range(1, 6)], held)
    assert refused.value.code == "FILTER.TOO_LARGE" and "'s1'" in refused.value.message


def test_groups_that_were_made_otherwise_are_left_alone_or_taken_for_what_they_send_to():
    fan_out = group_entry("s1", 7, [(1, 1), (9, 2)])
    plain = group_entry("s1", 255, [(1, 0), (9, 0)])
    assert group_numbers("s1", [(1, 9)], [fan_out, plain]) == {(1, 9): 255}
    (number,) = group_numbers("s1", [(1, 9)], [fan_out]).values()
    assert number != 7


def test_sets_that_begin_with_one_number_get_different_ones():
    by_number = defaultdict(list)
    for size in (1, 2, 3):
        for ports in combinations(range(1, 33), size):
            by_number[group_numbers("s1", [ports], [])[ports]].append(ports)
    one, other = next(sets for sets in by_number.values() if len(sets) > 1)[:2]
    both = group_numbers("s1", [one, other], [])
    assert len(set(both.values())) == 2
    held = event_entries("s1", [of(one)], [])
    assert group_id(held[0]) not in group_numbers("s1", [other], held).values()
