"""The generic table's rows send each event where the rules, one by one, say it goes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from itertools import product

import pytest
from examples import examples
from generic_rows import (
    LAST,
    SENSORS,
    all_outcomes,
    generic_table,
    outcomes,
    registry,
    rule,
    rule_sets,
    wanted,
)
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT, SUPPORT

from benchmarks.attributes.entries import entries_of_per_field_tables
from stackcast.udfs.errors import FilterError
from stackcast.udfs.filters.meaning.evaluate import fields_of
from stackcast.udfs.filters.nodes import Call
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.network_match.generic.table import WAYS, GenericRow, refused

pytestmark = pytest.mark.unit

EDGES = (0, 2, 5, 1 << 31, LAST)
SETS = rule_sets(st.sampled_from(EDGES))
EACH = [*((way,) for way in WAYS), WAYS]


def events():
    """All subsets of the attributes, with the values around all edges."""
    values = (None, *sorted({v for e in EDGES for v in (e - 1, e, e + 1) if 0 <= v <= LAST}))
    for chosen in product(values, repeat=len(SENSORS.attributes)):
        yield {
            one.id: value
            for one, value in zip(SENSORS.attributes, chosen, strict=True)
            if value is not None
        }


EVENTS = list(events())


@pytest.mark.parametrize("ways", EACH, ids="+".join)
@examples(12)
@given(rules=SETS, data=st.data())
def test_rows_send_every_event_where_its_rules_send_it(ways, rules, data):
    rows = generic_table(rules, SENSORS, ways=ways).rows
    start = data.draw(st.integers(0, 16))
    assert all_outcomes(rows, EVENTS[start::17]) == [{wanted(rules, e)} for e in EVENTS[start::17]]


@pytest.mark.parametrize("ways", EACH, ids="+".join)
def test_rows_send_all_events_of_interest_where_a_set_of_many_overlaps_sends_them(ways):
    rules = [
        rule("temp < 6 and hum <= 1", "1"),
        rule(f"temp < 7 and not (gas == {LAST})", "2"),
        rule("not (temp < 2 or hum >= 2147483648) and gas == 5", "10", "1"),
        rule(f"gas >= {LAST - 1} or temp == 0", "3"),
    ]
    rows = generic_table(rules, SENSORS, ways=ways).rows
    assert all_outcomes(rows, EVENTS) == [{wanted(rules, event)} for event in EVENTS]


@examples(15)
@given(SETS)
def test_whatever_needs_fewest_rows_is_taken(rules):
    table = generic_table(rules, SENSORS)
    counts = (table.by_priorities, table.holes)
    assert len(table.rows) <= min(counts)
    if table.method != "mixed":
        chosen = dict(zip(WAYS, counts, strict=True))[table.method]
        assert len(table.rows) == chosen == min(counts)
    for way, count in zip(WAYS, counts, strict=True):
        assert len(generic_table(rules, SENSORS, ways=(way,)).rows) == count


@examples(12)
@given(SETS, st.randoms(use_true_random=False))
def test_rows_are_in_one_form_and_the_same_for_any_order_of_the_rules(rules, chance):
    for ways in EACH:
        rows = generic_table(rules, SENSORS, ways=ways).rows
        shuffled = chance.sample(rules, len(rules))
        assert generic_table(shuffled, SENSORS, ways=ways).rows == rows
        assert [row.priority for row in rows] == sorted((r.priority for r in rows), reverse=True)
        assert len({row.match for row in rows}) == len(rows)
        for row in rows:
            assert row.bits & ~row.care == 0
            assert list(row.prefixes) == sorted(row.prefixes)
            assert list(row.receivers) == sorted(row.receivers, key=int)
            for attribute, value, length in row.prefixes:
                assert row.bits >> attribute & 1
                assert 1 <= length <= 32 and value % (1 << 32 - length) == 0


@examples(12)
@given(SETS)
def test_rows_do_not_change_when_attributes_are_registered_that_no_rule_reads(rules):
    more = registry(temp=0, more=1, hum=3, other=7, gas=31)
    again = [rule(one.id, *one.receivers, known=more) for one in rules]
    for ways in EACH:
        assert generic_table(again, more, ways=ways) == generic_table(rules, SENSORS, ways=ways)


def test_a_rule_that_any_value_satisfies_demands_its_attribute_even_if_there_is_no_other():
    only = registry(temp=0)
    rows = generic_table([rule("temp >= 0", "1", known=only)], only).rows
    assert rows == (GenericRow(1, 1, (), ("1",)),)


@pytest.mark.parametrize("way", ["priorities", "holes"])
@examples(12)
@given(rules=rule_sets(st.sampled_from(EDGES), ("temp", "hum")), edge=st.sampled_from(EDGES))
def test_a_rule_on_a_new_attribute_leaves_rows_by_priorities_as_they_are(way, rules, edge):
    before = set(generic_table(rules, SENSORS, ways=(way,)).rows)
    for text in (f"gas == {edge}", f"gas == {edge} and temp < 5"):
        after = generic_table([*rules, rule(text, "7")], SENSORS, ways=(way,)).rows
        assert before <= set(after)
        assert all(row.bits >> 31 for row in set(after) - before)


def test_the_range_16_to_47_is_two_rows():
    rules = [rule("temp >= 16 and temp <= 47", "4")]
    for ways in EACH:
        assert generic_table(rules, SENSORS, ways=ways).rows == (
            GenericRow(1, 1, ((0, 16, 28),), ("4",)),
            GenericRow(1, 1, ((0, 32, 28),), ("4",)),
        )


def test_temp_below_30_and_hum_above_15_is_prefixes_of_both_or_one_box_with_two_holes():
    rules = [rule("temp < 30 and hum > 15", "2")]
    plain = generic_table(rules, SENSORS, ways=("priorities",))
    assert (plain.by_priorities, len(plain.rows)) == (4 * 28, 4 * 28)
    assert {length for row in plain.rows for i, _, length in row.prefixes if i == 3} == {
        *range(1, 29)
    }
    table = generic_table(rules, SENSORS)
    assert (table.method, table.holes) == ("holes", 3)
    assert table.rows == (
        GenericRow(9, 9, ((0, 0, 27), (3, 0, 28)), ()),
        GenericRow(9, 9, ((0, 30, 31),), ()),
        GenericRow(9, 9, ((0, 0, 27),), ("2",)),
    )


def test_groups_of_rules_that_do_not_overlap_choose_for_themselves():
    holed = [rule("hum == 1 and temp != 5", "1")]
    alone = [rule("hum == 2 and gas >= 16 and gas <= 47", "2")]
    first = generic_table(holed, SENSORS)
    second = generic_table(alone, SENSORS)
    both = generic_table(holed + alone, SENSORS)
    assert set(both.rows) == set(first.rows) | set(second.rows)
    assert (len(first.rows), first.method) == (2, "holes")
    assert (len(second.rows), second.method) == (2, "priorities")
    assert both.method == "mixed"


def test_no_rules_are_no_rows_and_a_rule_that_nothing_satisfies_neither():
    assert generic_table([], SENSORS).rows == ()
    assert generic_table([rule("temp < 0", "1"), rule("temp > 5")], SENSORS).rows == ()


@pytest.mark.integration
def test_rows_are_the_same_whatever_the_hash_seed(tmp_path):
    script = tmp_path / "rows.py"
    script.write_text(
        "from generic_rows import SENSORS, generic_table, rule\n"
        "from stackcast.udfs.network_match.generic.table import WAYS\n"
        "rules = [rule(f'temp > {i} and hum != {i} or gas < {9 * i}', f'h{i}', 'x')"
        " for i in range(3)]\n"
        "for ways in (*((way,) for way in WAYS), WAYS):\n"
        "    try:\n"
        "        print(generic_table(rules, SENSORS, ways=ways))\n"
        "    except Exception as error:\n"
        "        print(error)\n"
    )
    said = set()
    for seed in ("0", "77"):
        path = os.pathsep.join((str(ROOT), str(SUPPORT)))
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, str(script)], env=environment, capture_output=True, check=True
        )
        said.add(done.stdout)
    assert len(said) == 1 and said.pop()


@pytest.mark.integration
def test_a_thousand_rules_apart_and_two_hundred_that_overlap_fit():
    apart = [rule(f"temp >= {100 * i} and temp <= {100 * i + 99}", str(i % 9)) for i in range(1000)]
    over = [rule(f"temp > {37 * i} and temp < {37 * i + 900}", str(i % 9)) for i in range(200)]
    chance = random.Random(1)
    for rules in (apart, over):
        table = generic_table(rules, SENSORS)
        counts = (table.by_priorities, table.holes)
        assert len(table.rows) <= min(count for count in counts if count is not None)
        for _ in range(15):
            event = {0: chance.randrange(8000), 3: 1}
            assert outcomes(table.rows, event) == {wanted(rules, event)}


def test_too_many_rows_are_refused_with_what_to_do():
    rules = [rule(f"temp > {37 * i} and hum < {7919 * i % 1000}", str(i)) for i in range(20)]
    for ways in EACH:
        with pytest.raises(FilterError, match="fewer distinct constants") as caught:
            generic_table(rules, SENSORS, max_rows=100, ways=ways)
        assert (caught.value.code, caught.value.max_rows) == ("FILTER.TOO_LARGE", 100)


def test_rules_with_state_or_named_actions_are_refused_alone_and_by_id():
    rows = [
        Subscription("1", "h1", "temp > 5"),
        Subscription("2", "h1", "avg(temp, 100) > 5 and max(gas, 100) < 3"),
        Subscription("4", "h1", "avg(temp, 100) > 5"),
    ]
    rules, wrong = check(rows, SENSORS.specification(), {"h1"}, publisher="p")
    assert not wrong
    named = rule("hum > 1", "h1")
    named = type(named)("3", named.condition, ("h1",), (Call("mark", ("7",)),))
    found = refused([*rules, named], SENSORS)
    assert [(one.id, one.code) for one in found] == [
        ("2", "SUBSCRIPTION.NOT_ON_SWITCHES"),
        ("3", "SUBSCRIPTION.NOT_ON_SWITCHES"),
    ]
    assert "evaluates one function per pass" in found[0].message and "mark" in found[1].message
    assert "spark.stackcast.match=spark" in found[0].message


def test_entries_of_one_field_tables_are_counted_as_prefixes():
    specification = SENSORS.specification()
    # 16..31, 32..47, otherwise; and the leaf. Absent goes where otherwise goes.
    assert entries_of_per_field_tables([rule("temp >= 16 and temp <= 47", "1")], specification) == 4
    # 0..31, 30..31, otherwise; 0..15, otherwise and absent; the leaf.
    both = [rule("temp < 30 and hum > 15", "1")]
    assert fields_of(both[0].condition) == ("hum", "temp")
    assert entries_of_per_field_tables(both, specification) == 3 + 3 + 1
