"""Conjunctions of single values in switch tables: a row a key, and events go where rules say."""

from __future__ import annotations

import random

import pytest
from examples import examples
from filter_cases import PORTS, Case, batches, can_be_sent, cases, lanes_of, rules
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from p4_tables import Switch, by_brute_force, entries_of, grouped

from stackcast.udfs.errors import FilterError
from stackcast.udfs.filters.compiler.compile import table_of_texts
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.language.shapes import read_table
from stackcast.udfs.messages.specification import Specification, parse_specification
from stackcast.udfs.network_match.fitting import fit
from stackcast.udfs.network_match.layout import ProgramOptions, program_layout

pytestmark = pytest.mark.unit

patient = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def two_headers(count: int) -> Specification:
    """So many fields, every other one in a second header that an event may lack."""
    lines = []
    for header in ("a", "b"):
        names = [f"f{n}" for n in range(count) if "ab"[n % 2] == header]
        if names:
            listed = " ".join(f"{name}: 32;" for name in names)
            lines.append(f"header_type {header}_t {{ fields {{ {listed} }} }}")
            lines.append(f"header {header}_t {header};")
            lines += [f"@query_field({header}.{name})" for name in names]
    return parse_specification("\n".join(lines), "two")


def condition(key: dict[str, int]) -> str:
    return " and ".join(f"{name} == {value}" for name, value in key.items())


def key_rows(switch: Switch) -> int:
    return sum(len(rows) for (table, _), rows in switch.rows.items() if table.endswith(".keys"))


@pytest.mark.integration
@pytest.mark.parametrize("count", [1, 2, 5, 11, 25, 50])
@examples(10)
@given(chance=st.randoms(use_true_random=False), values=st.sampled_from([2, 40]))
def test_a_key_costs_one_row_whatever_else_there_is(count, chance, values):
    specification = two_headers(count)
    names = list(specification.fields)
    keys = [
        {name: chance.randrange(values) for name in chance.sample(names, min(some, count))}
        for some in chance.choices([1, 2, 2, 3, 4], k=60)
    ]
    texts = [f"{condition(key)} : fwd({chance.randrange(64) + 1})" for key in keys]
    expected = by_brute_force(texts, specification)
    held = entries_of([], specification, keyed=texts)
    switch = Switch(program_layout(specification), held)
    assert key_rows(switch) == len({frozenset(key.items()) for key in keys})
    for key in chance.sample(keys, 20):
        event = {name: chance.randrange(values + 1) for name in names} | key
        if chance.random() < 0.3:
            event = {name: value for name, value in event.items() if name.startswith("a.")}
        assert switch.event(event)[0] == expected(event)
    sets = len({frozenset(key) for key in keys})
    assert switch.passes == -(-sets // ProgramOptions().conjunctions)


@examples(100, patient)
@given(st.data())
def test_any_rules_over_any_format_with_keys_go_where_brute_force_says(data: st.DataObject):
    case: Case = data.draw(cases())
    specification = case.specification
    texts = [text for text in data.draw(rules(case)) if parse_rule(text, specification).receivers]
    options = ProgramOptions(
        passes=5_000,
        conjunctions=data.draw(st.sampled_from([1, 3])),
        key_fields=data.draw(st.sampled_from([1, 2, 4])),
    )
    cut = data.draw(st.integers(0, len(texts))) if data.draw(st.booleans()) else 0
    try:
        held = entries_of(texts[:cut], specification, options, PORTS, keyed=texts[cut:])
    except FilterError as error:
        # As of a diagram: what its tables have no room for.
        assert error.what in ("NO_TABLE", "TOO_MANY_CODES", "UNKNOWN_ACTION")
        return
    switch = Switch(program_layout(specification, options), held)
    expected = by_brute_force(texts, specification, PORTS)
    for kind, event in data.draw(batches(case, 40)):
        if can_be_sent(case, event):
            ports, _ = switch.event(lanes_of(specification, event), kind)
            assert ports == expected(event)


def test_rules_of_the_same_values_are_one_key_with_all_their_ports():
    texts = [f"a.f0 == 1 and b.f1 == 2 : fwd({port})" for port in (1, 5, 64)]
    ((keys,),) = grouped([], two_headers(2), keyed=texts).conjunctions
    assert keys.ports == {(1, 2): 1 | 1 << 4 | 1 << 63}


def test_what_is_no_conjunction_of_single_values_is_left_to_bit_vectors():
    texts = [
        "a.f0 > 5 : fwd(1)",
        "not a.f0 == 7 : fwd(2)",
        "a.f0 == 1 and a.f2 == 1 and a.f4 == 1 and b.f1 == 1 and b.f3 == 1 : fwd(3)",
        "a.f0 == 1 or b.f1 > 3 : fwd(4)",
    ]
    found = grouped([], two_headers(5), keyed=texts)
    assert [(keys.fields, keys.ports) for (keys,) in found.conjunctions] == [(("a.f0",), {(1,): 8})]
    assert [group.terms.bit_count() for group in found.vectors] == [4]


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_thousands_of_conjunctions_over_eleven_fields_all_have_room_in_seven_passes(count):
    chance = random.Random(1)
    specification = two_headers(11)
    names = list(specification.fields)
    keys = [{n: chance.randrange(1_000) for n in chance.sample(names, 2)} for _ in range(count)]
    texts = [f"{condition(key)} : fwd({n % 5 * 12 + 1})" for n, key in enumerate(keys)]
    table = table_of_texts(texts, read_table(texts, specification), specification)
    program = program_layout(specification)
    fitted = fit(table, len(texts), specification, program, {})
    assert not fitted.refused and fitted.groups.passes == 7
    switch = Switch(program, fitted.entries)
    assert key_rows(switch) == len({frozenset(key.items()) for key in keys})
    # Beside them: the fields of 55 sets, the next pass six times, and the row that begins.
    assert len(fitted.entries.entries) == key_rows(switch) + 2 * 55 + 6 + 1
    for key in keys[:10]:
        event = {name: chance.randrange(1_000) for name in names} | key
        sent = {n % 5 * 12 + 1 for n, one in enumerate(keys) if one.items() <= event.items()}
        assert switch.event(event)[0] == tuple(sorted(sent))
