"""The order of a switch's updates, limits before any, and which of two refreshers writes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import COMPILED_P4
from program_switches import group_of

from stackcast.jobs.adapters.switches.program import P4Program
from stackcast.udfs.network.programs import EVENT, PASSES, VALUES
from stackcast.udfs.switches.election import describe_id, election_id, rank
from stackcast.udfs.switches.entry import (
    GROUPS,
    Difference,
    SwitchEntry,
    canonical,
    difference,
    group_entry,
    group_id,
)
from stackcast.udfs.switches.ordering import (
    WriteStep,
    check_limits,
    full_tables,
    withheld,
    write_steps,
)
from stackcast.udfs.switches.ports import FAN_OUT, port_groups, port_mask

pytestmark = pytest.mark.unit

#: The largest election id: 128 bits.
MOST = (1 << 128) - 1

SUBSCRIPTIONS = list(P4Program.read(COMPILED_P4, "packet_subscriptions").sizes)
LABELS = list(P4Program.read(COMPILED_P4, "virtual_trees").sizes)
ATTRIBUTES = list(P4Program.read(COMPILED_P4, "attribute_value").sizes)
STAGE = "ingress.subscriptions"


def entry(table: str, value: int = 1, action: str = "act", param: int = 1) -> SwitchEntry:
    match = (("key", "exact", canonical(value)),)
    return SwitchEntry("s1", table, match, action, (("p", canonical(param)),))


def label(position: int, number: int, action: str) -> SwitchEntry:
    control = f"ingress.label_{position}"
    return entry(f"{control}.look_up", number, f"{control}.{action}")


def group(number: int, port: int = 1) -> SwitchEntry:
    return group_entry("s1", number, [(port, 0)])


def event(priority: int, value: int = 1, param: int = 1) -> SwitchEntry:
    found = entry(EVENT, value, f"{STAGE}.send_to_ports", param)
    return SwitchEntry("s1", EVENT, found.match, found.action, found.params, priority)


def insert(*entries: SwitchEntry) -> Difference:
    return Difference(entries, (), ())


def order(found: list[WriteStep]) -> list[tuple[str, set[str]]]:
    return [(step.kind, {each.table for each in step.entries}) for step in found]


def test_groups_come_first_then_hosts_then_stops_then_what_sends() -> None:
    every = [
        label(1, 1, "tree"),
        label(2, 1, "tree"),
        label(1, 2, "hop"),
        label(8, 3, "stop"),
        entry("egress.host_port"),
        entry("ingress.route.ipv4"),
        group(3),
    ]
    found = write_steps(insert(*every), LABELS)
    assert [set(step.entries) for step in found] == [
        {every[6]},
        {every[4], every[5]},
        {every[3]},
        {every[0], every[1], every[2]},
    ]
    backwards = write_steps(Difference((), (), tuple(every)), LABELS)
    assert [set(step.entries) for step in backwards] == [set(s.entries) for s in found[::-1]]


def test_the_states_of_a_filter_are_written_from_the_leaves_to_the_start() -> None:
    named = {
        table.rpartition(".")[0]
        for table in SUBSCRIPTIONS
        if table.startswith(f"{STAGE}.") and table.endswith(".exact")
    }
    first = next(t for t in SUBSCRIPTIONS if t.rpartition(".")[0] in named)
    stages = [t for t in SUBSCRIPTIONS if t.rpartition(".")[0] in named]
    leaf, start = f"{STAGE}.delivery.leaf", f"{STAGE}.start"
    found = order(write_steps(insert(*map(entry, [start, *stages, leaf])), SUBSCRIPTIONS))
    assert found[0] == ("insert", {leaf})
    assert found[-1] == ("insert", {start})
    assert first in found[-2][1]
    # One step a stage, all of its tables in it.
    assert [len({t.rpartition(".")[0] for t in tables}) for _, tables in found] == [1] * len(found)
    assert len(found) == len(named) + 2
    places = [min(map(stages.index, tables)) for _, tables in found[1:-1]]
    assert places == sorted(places, reverse=True)


def test_entries_of_events_are_written_from_the_highest_priority_and_removed_from_the_lowest():
    every = [group(3), *(event(priority, value) for priority in (9, 2, 40) for value in (1, 2))]
    route = entry("ingress.route.ipv4")
    written = write_steps(insert(*every, route), ATTRIBUTES)
    assert [set(step.entries) for step in written] == [
        {every[0]},
        {route},
        {every[5], every[6]},
        {every[1], every[2]},
        {every[3], every[4]},
    ]
    removed = write_steps(Difference((), (), (*every, route)), ATTRIBUTES)
    assert [set(step.entries) for step in removed] == [set(s.entries) for s in written[::-1]]


def test_entries_of_events_that_only_lead_elsewhere_are_one_step() -> None:
    held = [group(1), *(event(priority, 1, 1) for priority in range(1, 100))]
    desired = [group(2), *(event(priority, 1, 2) for priority in range(1, 100))]
    found = write_steps(difference(desired, held), ATTRIBUTES)
    assert [(step.kind, len(step.entries)) for step in found] == [
        ("insert", 1),
        ("modify", 99),
        ("delete", 1),
    ]


@given(st.lists(st.integers(1, 1057), max_size=1000))
def test_there_are_as_many_steps_as_priorities_however_many_entries(priorities: list[int]) -> None:
    entries = [event(priority, value) for value, priority in enumerate(priorities)]
    found = write_steps(insert(*entries), ATTRIBUTES)
    assert len(found) == len(set(priorities))
    assert all(len({each.priority for each in step.entries}) == 1 for step in found)


tables = st.sampled_from([*SUBSCRIPTIONS, *LABELS, GROUPS])
entries = st.builds(
    lambda table, value, param: (
        group(value, param) if table == GROUPS else entry(table, value, "act", param)
    ),
    tables,
    st.integers(1, 4),
    st.integers(1, 2),
)


@given(st.lists(entries), st.lists(entries), st.booleans())
def test_every_update_is_in_one_step_and_new_before_changed_before_old(
    desired: list[SwitchEntry], held: list[SwitchEntry], full: bool
) -> None:
    change = difference(desired, held)
    no_room = {each.table for each in change.delete[:1]} if full else set()
    found = write_steps(change, SUBSCRIPTIONS + LABELS, no_room)
    for kind in ("insert", "modify", "delete"):
        written = [each for step in found if step.kind == kind for each in step.entries]
        assert sorted(map(repr, written)) == sorted(map(repr, getattr(change, kind)))
    kinds = [step.kind for step in found]
    while full and kinds[:1] == ["delete"]:
        kinds.pop(0)
    assert kinds == sorted(kinds, key=["insert", "modify", "delete"].index)
    # Playing the steps turns one into the other.
    state = {each.key: each for each in held}
    for step in found:
        for each in step.entries:
            assert (each.key in state) == (step.kind != "insert")
            state.pop(each.key, None)
            if step.kind != "delete":
                state[each.key] = each
    assert not difference(desired, state.values())


def test_limits_name_the_switch_the_table_what_is_wanted_and_what_is_allowed() -> None:
    wanted = [*(entry("ingress.a", n) for n in range(5)), entry("ingress.b"), group(1), group(2)]
    assert check_limits("s1", wanted, {"ingress.a": 5}, 6, 2) == []
    assert check_limits("s1", wanted, {}) == []
    table, rules, groups = check_limits("s1", wanted, {"ingress.a": 4, "ingress.b": 1}, 5, 1)
    assert "'s1'" in table and "'ingress.a'" in table and "5 entries" in table and "4" in table
    assert "6 entries" in rules and "max_rules" in rules and "allows 5" in rules
    assert "2 multicast groups" in groups and "max_groups" in groups and "allows 1" in groups


def test_a_table_that_cannot_hold_old_and_new_is_cleared_of_the_old_first() -> None:
    held = [entry("ingress.a", n) for n in range(4)] + [entry("ingress.b", n) for n in range(4)]
    desired = [entry("ingress.a", n + 2) for n in range(4)] + [entry("ingress.b", 9)]
    change = difference(desired, held)
    assert full_tables(change, held, {"ingress.a": 6, "ingress.b": 5}) == frozenset()
    assert full_tables(change, held, {"ingress.a": 5, "ingress.b": 5}) == {"ingress.a"}
    assert full_tables(change, held, {}, max_rules=11) == frozenset()
    assert full_tables(change, held, {}, max_rules=10) == {"ingress.a", "ingress.b"}
    more = difference([group(2)], [group(1)])
    assert full_tables(more, [group(1)], {}, max_groups=1) == {GROUPS}
    found = write_steps(change, ["ingress.a", "ingress.b"], {"ingress.a"})
    assert order(found)[0] == ("delete", {"ingress.a"})
    assert order(found)[-1] == ("delete", {"ingress.b"})


def test_after_a_failure_nothing_is_removed_that_may_still_be_pointed_at() -> None:
    leaf, cell = entry(f"{STAGE}.delivery.leaf"), entry(f"{STAGE}.add_order_price.exact")
    old = WriteStep("delete", (leaf, label(1, 1, "tree")))
    assert withheld(old, []) == ()
    assert withheld(old, [cell]) == (leaf,)
    assert withheld(old, [label(1, 2, "tree")]) == ()
    groups = WriteStep("delete", (group(1),))
    assert withheld(groups, [group(2)]) == ()
    assert withheld(groups, [label(1, 2, "tree")]) == groups.entries
    assert withheld(WriteStep("insert", (leaf,)), [cell]) == ()


@pytest.mark.parametrize("kind", ["insert", "modify", "delete"])
def test_after_a_failure_no_more_entries_of_events_are_written(kind) -> None:
    failed = event(9)
    route = entry("ingress.route.ipv4")
    step = WriteStep(kind, (event(3), route))
    assert withheld(step, [failed]) == (event(3),)
    assert withheld(step, [route]) == withheld(step, []) == ()
    # Removed last, and entries that stay may send to it.
    assert withheld(WriteStep("delete", (group(2),)), [event(9)]) == (group(2),)


@pytest.mark.parametrize("kind", ["insert", "modify"])
def test_after_a_failure_no_event_is_moved_to_what_is_not_whole(kind) -> None:
    start = entry(f"{STAGE}.start")
    first, later = (pass_entry(number) for number in (0, 7))
    for failed in (entry(f"{STAGE}.value_3"), pass_entry(9), entry(f"{STAGE}.price.exact")):
        assert withheld(WriteStep(kind, (start, first, later)), [failed]) == (start, first)
    assert withheld(WriteStep(kind, (start, first)), [group(1)]) == ()


def label_entry(action: str, ports: Collection[int]) -> SwitchEntry:
    params = (("ports", canonical(port_mask(ports))),)
    return replace(label(1, 1, action), params=params)


@pytest.mark.parametrize("kind", ["insert", "modify"])
@given(ports=st.sets(st.integers(1, 20), min_size=1, max_size=6), failed=st.data())
def test_an_entry_is_withheld_exactly_if_a_group_that_it_sends_to_could_not_be_written(
    kind, ports, failed
) -> None:
    written = port_groups("s1", range(1, 21))
    refused = failed.draw(st.lists(st.sampled_from(written), max_size=40))
    tree = label_entry("tree", ports)
    subsets = [{p for p in ports if (p - 1) // 8 == subset} for subset in range(3)]
    sends_to = {group_of(port_mask(subset)) for subset in subsets if subset}
    if len(sends_to) > 1:
        sends_to.add(FAN_OUT)
    expected = (tree,) if sends_to & {group_id(entry) for entry in refused} else ()
    assert withheld(WriteStep(kind, (tree,)), refused) == expected
    assert withheld(WriteStep("delete", (tree,)), refused) == ()


def test_an_entry_is_withheld_if_a_port_that_it_sends_to_has_no_stop() -> None:
    trees = tuple(label_entry("tree", ports) for ports in ({1, 2}, {2, 3}, {3, 4}))
    stops = label_entry("stop", {2}), label_entry("stop", {5})
    assert withheld(WriteStep("insert", trees), [stops[0]]) == trees[:2]
    assert withheld(WriteStep("insert", stops), [group(2, port=2), stops[0]]) == ()


def pass_entry(number: int) -> SwitchEntry:
    match = (("pass", "exact", canonical(number)),)
    return SwitchEntry("s1", PASSES, match, "take", (("next", canonical(0)),))


def test_passes_come_after_what_they_take_and_the_first_of_them_last() -> None:
    rows = [entry(f"{VALUES}{number}") for number in (0, 31)]
    every = [pass_entry(0), pass_entry(7), event(3), *rows, group(1)]
    steps = write_steps(insert(*every), ATTRIBUTES)
    assert [step.entries for step in steps] == [
        (group(1),),
        tuple(rows),
        (event(3),),
        (pass_entry(7),),
        (pass_entry(0),),
    ]


own = st.integers(1, (1 << 64) - 1)


@given(own, own, own)
def test_of_refreshers_that_live_the_highest_id_wins_whatever_happened_before(
    low: int, middle: int, high: int
) -> None:
    low, middle, high = sorted({low, middle, high} | {1, 2, 3})[-3:]
    # The highest dies, the lowest stands in for it, and both others come back after that.
    stand_in = election_id(low, high, taken=False)
    assert stand_in is not None and high < stand_in <= MOST and rank(stand_in) == low
    second = election_id(middle, stand_in, taken=True)
    assert second is not None and second > stand_in
    first = election_id(high, second, taken=True)
    assert first is not None and first > second and rank(first) == high
    for waits in (low, middle, high):
        assert election_id(waits, first, taken=True) is None
    # And again.
    again = election_id(low, first, taken=False)
    assert again is not None and first < again and rank(again) == low


@given(own, st.integers(0, MOST))
def test_an_id_asked_for_is_high_enough_and_nobody_of_the_same_rank_is_pushed_out(
    ours: int, highest: int
) -> None:
    for taken in (False, True):
        wanted = election_id(ours, highest, taken)
        assert wanted is None or highest <= wanted <= MOST
    assert rank(highest) != ours or election_id(ours, highest, taken=True) is None
    if highest <= ours:
        assert election_id(ours, highest, taken=False) == ours


def test_an_election_id_is_told_by_whose_it_is() -> None:
    assert describe_id(7) == "7"
    raised = election_id(5, 7, taken=False)
    assert raised is not None and describe_id(raised) == f"5 (raised to {raised:#x})"
