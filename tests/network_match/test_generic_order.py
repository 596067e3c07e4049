"""A generic table goes over into another while events pass: each meets its old or its new outcome.

All that is asked of two tables is that rows which win together in one of them agree, and that the
priority of a row follows from its match.
"""

from __future__ import annotations

from itertools import product

import pytest
from examples import examples
from generic_rows import SENSORS, generic_table, holds, outcomes, rule, rule_sets, wanted
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.network_match.generic.table import WAYS, GenericRow

pytestmark = pytest.mark.unit

SMALL = (0, 3, 4, 7)
SETS = rule_sets(st.sampled_from(SMALL), ("temp", "hum"), most=2)
EACH = [*((way,) for way in WAYS), WAYS]
EVENTS = [
    {name: value for name, value in ((0, temp), (3, hum)) if value is not None}
    for temp, hum in product((None, 0, 3, 4, 7, 8, 1 << 31), repeat=2)
]


def steps(
    old: tuple[GenericRow, ...], new: tuple[GenericRow, ...], chance
) -> list[tuple[str, GenericRow]]:
    """Insert by descending priority, modify, delete by ascending priority; ties in any order."""
    held = {row.match: row for row in old}
    wished = {row.match: row for row in new}
    inserts = [row for row in new if row.match not in held]
    modifies = [row for row in new if row.match in held and held[row.match] != row]
    deletes = [row for row in old if row.match not in wished]
    for part in (inserts, modifies, deletes):
        chance.shuffle(part)
    inserts.sort(key=lambda row: -row.priority)
    deletes.sort(key=lambda row: row.priority)
    return [
        *(("put", row) for row in inserts + modifies),
        *(("delete", row) for row in deletes),
    ]


def wrong_on_the_way(old, new, order) -> int:
    """Events at steps that may meet neither their old nor their new outcome."""
    held = {row.match: row for row in old}
    at = [{row for row in old if holds(row, event)} for event in EVENTS]
    before = [outcomes(old, event) for event in EVENTS]
    after = [outcomes(new, event) for event in EVENTS]
    assert all(len(one) == 1 for one in before + after)
    wrong = 0
    for what, row in order:
        gone = held.pop(row.match, None)
        if what == "put":
            held[row.match] = row
        for event, here, first, last in zip(EVENTS, at, before, after, strict=True):
            if holds(row, event):
                here.discard(gone)
                if what == "put":
                    here.add(row)
                wrong += not outcomes(here, event) <= first | last
    assert set(held.values()) == set(new)
    return wrong


@examples(20)
@given(
    SETS,
    SETS,
    st.sampled_from(EACH),
    st.sampled_from(EACH),
    st.randoms(use_true_random=False),
)
def test_every_event_meets_its_old_or_its_new_outcome_at_every_step(
    rules, others, first, second, chance
):
    old = generic_table(rules, SENSORS, ways=first).rows
    new = generic_table(others, SENSORS, ways=second).rows
    assert wrong_on_the_way(old, new, steps(old, new, chance)) == 0


@examples(10)
@given(SETS, SETS, SETS, st.sampled_from(EACH), st.randoms(use_true_random=False))
def test_nothing_is_lost_or_led_astray_when_a_few_rules_come_and_go(
    common, leaving, coming, ways, chance
):
    old = generic_table(common + leaving, SENSORS, ways=ways).rows
    new = generic_table(common + coming, SENSORS, ways=ways).rows
    assert wrong_on_the_way(old, new, steps(old, new, chance)) == 0
    for event in EVENTS:
        assert outcomes(new, event) == {wanted(common + coming, event)}


def test_the_other_way_round_events_are_lost_or_led_astray():
    old = generic_table([rule("temp > 4", "1")], SENSORS, ways=("priorities",)).rows
    new = generic_table(
        [rule("temp > 4", "1"), rule("hum > 4", "2")], SENSORS, ways=("priorities",)
    ).rows
    put = sorted((row for row in new if row not in old), key=lambda row: -row.priority)
    good = [("put", row) for row in put]
    assert wrong_on_the_way(old, new, good) == 0
    assert wrong_on_the_way(new, old, [("delete", row) for _, row in reversed(good)]) == 0
    holes = generic_table([rule("temp > 4", "1")], SENSORS, ways=("holes",)).rows
    assert () in {row.receivers for row in holes}
    put = sorted(holes, key=lambda row: row.priority)
    assert wrong_on_the_way((), holes, [("put", row) for row in put]) > 0
