"""Bit vectors: what rules add to a switch is what they cost, and events go where the rules say."""

from __future__ import annotations

import random

import pytest
from examples import examples
from filter_cases import PORTS, Case, batches, can_be_sent, cases, lanes_of, rules
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from p4_tables import Switch, by_brute_force, entries_of

from stackcast.udfs.errors import FilterError
from stackcast.udfs.filters.compiler.compile import table_of_texts
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.language.shapes import read_table
from stackcast.udfs.messages.specification import Specification, parse_specification
from stackcast.udfs.network_match.bit_vectors import BitVectors, bit_vectors, merged
from stackcast.udfs.network_match.layout import ProgramOptions, program_layout
from stackcast.udfs.network_match.port_terms import port_terms

pytestmark = pytest.mark.unit

patient = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
NAMES = [f"f{n}" for n in range(11)]
ELEVEN = parse_specification(
    "header_type h_t { fields { "
    + " ".join(f"{name}: 32;" for name in NAMES)
    + " } } header h_t h;\n"
    + "\n".join(f"@query_field(h.{name})" for name in NAMES),
    "eleven",
)


def vectors_of(texts: list[str], options: ProgramOptions) -> tuple[list[BitVectors], set[int]]:
    table = table_of_texts(texts, read_table(texts, ELEVEN), ELEVEN)
    terms = merged(port_terms(table, int))
    return bit_vectors(terms, options.passes, program_layout(ELEVEN, options))


def switch_with(
    texts: list[str], specification: Specification, options: ProgramOptions, *diagram: str
) -> Switch:
    """All of ``texts`` as bit vectors, beside the rules of ``diagram``."""
    held = entries_of(diagram, specification, options, PORTS, apart=texts)
    return Switch(program_layout(specification, options), held)


def test_a_wide_range_of_a_field_that_is_matched_exactly_is_refused_before_it_is_listed():
    text = "header_type h_t { fields { f: 32; } } header h_t h; @query_field_exact(h.f)"
    specification = parse_specification(text, "exact")
    with pytest.raises(FilterError) as failure:
        switch_with(["f between 5 and 2000000000 : fwd(1)"], specification, ProgramOptions())
    assert failure.value.code == "FILTER.NO_TABLE"
    few = switch_with(["f between 5 and 7 : fwd(1)"], specification, ProgramOptions())
    assert [few.event({"h.f": value})[0] for value in (4, 5, 7, 8)] == [(), (1,), (1,), ()]


@examples(150, patient)
@given(st.data())
def test_any_rules_over_any_format_go_where_brute_force_says(data: st.DataObject):
    case: Case = data.draw(cases())
    specification = case.specification
    texts = [text for text in data.draw(rules(case)) if parse_rule(text, specification).receivers]
    options = ProgramOptions(words=data.draw(st.sampled_from([1, 2, 4])), passes=5_000)
    cut = data.draw(st.integers(0, len(texts))) if data.draw(st.booleans()) else 0
    try:
        switch = switch_with(texts[cut:], specification, options, *texts[:cut])
    except FilterError as error:
        # As of a diagram: what its tables have no room for.
        assert error.what in ("NO_TABLE", "TOO_MANY_CODES", "UNKNOWN_ACTION")
        return
    expected = by_brute_force(texts, specification, PORTS)
    for kind, event in data.draw(batches(case, 40)):
        if can_be_sent(case, event):
            ports, _ = switch.event(lanes_of(specification, event), kind)
            assert ports == expected(event)


OPERATORS = ("==", ">", "<", "!=")


def random_rules(chance: random.Random, count: int, form: int, fields: int, ports: int = 64):
    names, found = NAMES[:fields], []
    for number in range(count):
        some = chance.sample(names, min(form, fields))
        parts = [f"{n} {chance.choice(OPERATORS)} {chance.randrange(60)}" for n in some]
        found.append(f"{' and '.join(parts)} : fwd({number % ports + 1})")
    return found


@examples(40)
@given(st.randoms(), st.integers(1, 60), st.integers(1, 4), st.integers(1, 11))
def test_rows_add_up_over_rules_and_fields(chance, count, form, fields):
    texts = random_rules(chance, count, form, fields)
    switch = switch_with(texts, ELEVEN, ProgramOptions())
    predicates = sum(text.count(" and ") + 1 for text in texts)
    rows = sum(map(len, switch.rows.values()))
    # An interval begins or ends at each constant; a field has two rows for all other values.
    assert rows <= 2 * predicates + 3 * fields * switch_passes(switch) + 2 * switch_passes(switch)
    expected = by_brute_force(texts, ELEVEN)
    for _ in range(40):
        event = {f"h.{name}": chance.randrange(61) for name in NAMES}
        assert switch.event(event)[0] == expected(event)


def switch_passes(switch: Switch) -> int:
    switch.event(dict.fromkeys((f"h.{name}" for name in NAMES), 0))
    return switch.passes


@pytest.mark.parametrize(
    ("texts", "most"),
    [
        ([f"{NAMES[n % 11]} == {n} : fwd({n + 1})" for n in range(40)], 40),
        ([f"{NAMES[n % 11]} > {n} : fwd({n + 1})" for n in range(40)], 40),
        (
            [f"{NAMES[n % 11]} > {n} and {NAMES[(n + 3) % 11]} > {n} : fwd({n + 1})"
             for n in range(64)],
            128,
        ),
    ],
    ids=["==", ">", "> and >"],
)  # fmt: skip
def test_rules_of_their_own_ports_on_eleven_fields_need_a_row_a_predicate_and_one_pass(texts, most):
    switch = switch_with(texts, ELEVEN, ProgramOptions())
    # Beside them: a row for other values a field, the leaf, and the one that begins.
    assert sum(map(len, switch.rows.values())) <= most + 11 + 2
    assert switch_passes(switch) == 1


def test_rules_to_one_port_that_differ_in_one_field_are_one_term():
    texts = [f"f0 == {n} and f1 == 1 : fwd(5)" for n in range(1_000)]
    vectors, refused = vectors_of(texts, ProgramOptions(words=1, passes=1))
    assert not refused
    assert [group.terms for group in vectors] == [1 << 4]
    assert vectors[0].fields["h.f0"].rows == ((0, 999, 1 << 4),)


def test_a_rule_that_another_holds_needs_nothing():
    texts = ["f0 == 1 and f1 == 1 : fwd(5)", "f0 == 1 : fwd(5)", "f0 == 1 and f2 > 7 : fwd(5)"]
    vectors, refused = vectors_of(texts, ProgramOptions(words=1, passes=1))
    assert not refused and set(vectors[0].fields) == {"h.f0"}


def test_where_a_port_has_no_room_the_terms_that_fewest_rules_share_are_refused():
    apart = [f"f0 == {n} and f1 == {n} : fwd(1)" for n in range(9)]
    shared = [f"f2 == {n} : fwd(1)" for n in range(3)]
    other = [f"f0 == {n} and f1 == {n} : fwd(2)" for n in range(5)]
    texts = [*apart, *shared, *other]
    vectors, refused = vectors_of(texts, ProgramOptions(words=2, passes=3))
    # Room for six terms: the three of f2 are one, and five of the others come first.
    assert refused == {5, 6, 7, 8} and len(vectors) == 3
