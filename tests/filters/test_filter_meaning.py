"""What conditions mean: three-valued logic, absence, wide fields; normal form = brute force."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.intervals import Intervals
from stackcast.udfs.filters.meaning.evaluate import fields_of, matches, matches_columns
from stackcast.udfs.filters.meaning.normal_form import Term, lane_terms, normal_form, subject_name
from stackcast.udfs.filters.nodes import (
    Aggregate,
    And,
    Node,
    Not,
    Operator,
    Or,
    Predicate,
    StatePredicate,
)
from stackcast.udfs.messages.specification import parse_specification

pytestmark = pytest.mark.unit

SPEC = parse_specification(
    """
    header_type quote_t { fields { price: 8; size: 4; rest: 4; dst: 128; stock: 64; } }
    header quote_t quote;
    @query_counter(seen, 10)
    """,
    "attributes",
)
TYPED = parse_specification(
    """
    header_type add_t { fields { message_type: 8; price: 8; } }
    @message_type("A") header add_t add;
    header_type cancel_t { fields { message_type: 8; price: 8; } }
    @message_type("X") header cancel_t cancel;
    """,
    "typed",
)
PRICE, SIZE, DST = (SPEC.fields[f"quote.{name}"] for name in ("price", "size", "dst"))
AVERAGE = Aggregate("avg", PRICE, 10)
SEEN = SPEC.counters[0]
SUBJECTS = (AVERAGE, SEEN)
COMPARISONS: tuple[Operator, ...] = ("==", "!=", "<", "<=", ">", ">=")

# Few values, so that they collide; for the wide field on both sides of what a lane holds.
VALUES = {
    "quote.price": [0, 1, 2, 3, 128, 254, 255],
    "quote.size": [0, 1, 2, 14, 15],
    "quote.dst": [0, 1, (1 << 64) - 1, 1 << 64, (1 << 64) + 1, 5 << 64, (1 << 128) - 1],
}


def predicate(field, operator: Operator, *spans: tuple[int, int] | int) -> Predicate:
    constants = tuple(span if isinstance(span, tuple) else (span, span) for span in spans)
    return Predicate(field, operator, constants, "", 1, 1)


@st.composite
def predicates(draw) -> Predicate:
    field = draw(st.sampled_from([PRICE, SIZE, DST]))
    one = st.sampled_from(VALUES[field.qualified])
    span = st.tuples(one, one).map(lambda pair: (min(pair), max(pair)))
    if draw(st.booleans()):
        operator = draw(st.sampled_from(COMPARISONS))
        return predicate(field, operator, draw(one))
    operator = draw(st.sampled_from(["in", "not in"]))
    return predicate(field, operator, *draw(st.lists(span, min_size=1, max_size=3)))


state_predicates = st.builds(
    StatePredicate,
    st.sampled_from(SUBJECTS),
    st.sampled_from(COMPARISONS),
    st.sampled_from([0, 1, 2, (1 << 64) - 1]),
    st.just(""),
    st.just(1),
    st.just(1),
)


def _wider(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(children, min_size=2, max_size=3).map(tuple)
    return several.map(And) | several.map(Or) | children.map(Not)


stateless = st.recursive(predicates(), _wider, max_leaves=8)
conditions = st.recursive(predicates() | state_predicates, _wider, max_leaves=8)
events = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(values) for name, values in VALUES.items()}
)
states = st.fixed_dictionaries(
    {subject: st.none() | st.sampled_from([0, 1, 2, 3, (1 << 64) - 1]) for subject in SUBJECTS}
)


def unknown(node: Node, event: Mapping[str, int], state) -> bool:
    return not matches(node, event, state) and not matches(Not(node), event, state)


@given(st.lists(conditions, min_size=2, max_size=3).map(tuple), events, states)
def test_de_morgan_and_double_negation_hold_for_the_unknown_too(children, event, state):
    negations = tuple(Not(child) for child in children)
    pairs = [
        (Not(And(children)), Or(negations)),
        (Not(Or(children)), And(negations)),
        (Not(Not(children[0])), children[0]),
    ]
    for left, right in pairs:
        assert matches(left, event, state) == matches(right, event, state)
        assert unknown(left, event, state) == unknown(right, event, state)


@given(conditions, events, states)
def test_what_an_event_lacks_is_never_held_against_or_for_it(condition, event, state):
    """What matches without knowing a field matches whatever the field might have been."""
    if matches(condition, event, state):
        for name, values in VALUES.items():
            for value in values:
                assert matches(condition, {name: value} | event, state)
    assert matches(Or((condition, Not(condition))), event, state) != unknown(
        condition, event, state
    )
    assert not matches(And((condition, Not(condition))), event, state)


@given(events, st.sampled_from([PRICE, SIZE, DST]), st.data())
def test_sets_bands_and_prefixes_are_comparisons_put_together(event, field, data):
    one = st.sampled_from(VALUES[field.qualified])
    low, high = sorted((data.draw(one), data.draw(one)))
    members = data.draw(st.lists(one, min_size=2, max_size=4))
    between = And((predicate(field, ">=", low), predicate(field, "<=", high)))
    among = Or(tuple(predicate(field, "==", value) for value in members))
    for spans, meaning in [(((low, high),), between), (members, among)]:
        assert matches(predicate(field, "in", *spans), event) == matches(meaning, event)
        assert matches(predicate(field, "not in", *spans), event) == matches(Not(meaning), event)


def allows(term: Term, values: Mapping[str, int | None]) -> bool:
    return all(within(values.get(name), allowed) for name, allowed in term)


def within(value: int | None, allowed: Intervals) -> bool:
    return value is not None and any(low <= value <= high for low, high in allowed)


def in_lanes(event: Mapping[str, int]) -> dict[str, int]:
    """The event with ``quote.dst`` in two halves."""
    halves = dict(event)
    if "quote.dst" in halves:
        high, low = divmod(halves.pop("quote.dst"), 1 << 64)
        halves |= {"quote.dst[127:64]": high, "quote.dst[63:0]": low}
    return halves


@given(conditions, events, states)
def test_some_term_is_true_of_an_event_exactly_if_the_condition_is(condition, event, state):
    named = {subject_name(subject): value for subject, value in state.items()}
    terms = normal_form(condition, SPEC, optional=True)
    wanted = matches(condition, event, state)
    assert any(allows(term, {**event, **named}) for term in terms) == wanted
    boxes = [box for term in terms for box in lane_terms(term, SPEC)]
    assert any(allows(box, {**in_lanes(event), **named}) for box in boxes) == wanted


@given(conditions)
def test_terms_are_in_one_form(condition):
    for term in normal_form(condition, SPEC, optional=True):
        assert list(term) == sorted(term)
        for _, allowed in term:
            assert allowed
            assert all(low <= high for low, high in allowed)
            assert all(a[1] + 1 < b[0] for a, b in pairwise(allowed))


@given(stateless, st.lists(events, min_size=1, max_size=5), st.booleans())
def test_columns_mean_what_single_events_mean(condition, batch, by_lanes):
    fields = [SPEC.fields[name] for name in fields_of(condition)]
    columns, present = {}, {}
    for field in fields:
        name = field.qualified
        present[name] = np.array([name in event for event in batch])
        raw = [event.get(name, 0) for event in batch]
        if field.bits <= 64:
            columns[name] = np.array(raw, np.uint64)
        elif by_lanes:
            low = (1 << 64) - 1
            columns[f"{name}[127:64]"] = np.array([value >> 64 for value in raw], np.uint64)
            columns[f"{name}[63:0]"] = np.array([value & low for value in raw], np.uint64)
        else:
            columns[name] = np.array(raw, object)
    found = matches_columns(condition, columns, present)
    assert found.dtype == np.bool_
    assert found.tolist() == [matches(condition, event) for event in batch]


@given(conditions, st.lists(st.tuples(events, states), min_size=1, max_size=5))
def test_columns_of_state_mean_what_single_values_mean(condition, batch):
    present = {name: np.array([name in event for event, _ in batch]) for name in VALUES}
    columns = {
        name: np.array([event.get(name, 0) for event, _ in batch], object) for name in VALUES
    }
    state = {
        subject: (
            np.array([found[subject] or 0 for _, found in batch], np.uint64),
            np.array([found[subject] is not None for _, found in batch]),
        )
        for subject in SUBJECTS
    }
    found = matches_columns(condition, columns, present, state)
    assert found.tolist() == [matches(condition, event, values) for event, values in batch]


def test_presence_may_be_said_of_a_header_as_a_whole():
    columns = {"quote.price": np.array([9, 9], np.uint64)}
    there = {"quote": np.array([True, False])}
    assert matches_columns(predicate(PRICE, ">", 5), columns, there).tolist() == [True, False]
    assert matches_columns(predicate(PRICE, "<", 5), columns, there).tolist() == [False, False]


@pytest.mark.parametrize(
    "condition",
    [
        predicate(PRICE, ">=", 0),
        predicate(PRICE, "in", (0, 255)),
        Or((predicate(PRICE, ">", 5), predicate(PRICE, "<=", 5))),
        Not(And((predicate(PRICE, ">", 5), predicate(PRICE, "<=", 5)))),
    ],
)
def test_a_condition_that_any_value_satisfies_still_asks_that_there_is_one(condition):
    assert matches(condition, {"quote.price": 7})
    assert not matches(condition, {"quote.size": 7})
    assert normal_form(condition, SPEC, optional=True) == ((("quote.price", ((0, 255),)),),)
    # Where header and fields come and go together, nothing is left to ask.
    assert normal_form(condition, SPEC, optional=False) == ((),)


def test_a_message_type_vouches_for_its_fields_unless_any_may_be_absent():
    condition = predicate(TYPED.fields["add.price"], ">=", 0)
    typed = ("message_type", ((65, 65),))
    assert normal_form(condition, TYPED) == ((typed,),)
    assert normal_form(condition, TYPED, optional=True) == ((("add.price", ((0, 255),)), typed),)


def test_no_event_has_two_message_types():
    prices = [TYPED.fields[f"{name}.price"] for name in ("add", "cancel")]
    both = And(tuple(predicate(price, ">", 5) for price in prices))
    assert normal_form(both, TYPED) == ()


@st.composite
def wide_sets(draw) -> tuple[int, Intervals, list[int]]:
    """(bits, intervals, probes): the probes are what lies on and beside the intervals' ends."""
    bits = draw(st.integers(65, 200) | st.sampled_from([256, 1024, 2047, 2048]))
    top = (1 << bits) - 1
    # Ends near the edges of lanes, where a carry could be lost.
    near = [k << shift for shift in range(0, bits, 64) for k in (1, 2)] + [0, top]
    one = st.sampled_from(near).flatmap(
        lambda value: st.integers(-2, 2).map(lambda d: min(max(value + d, 0), top))
    ) | st.integers(0, top)
    spans = draw(st.lists(st.tuples(one, one), min_size=1, max_size=3))
    spans = [(min(span), max(span)) for span in spans]
    ends = [end for span in spans for end in span]
    return bits, tuple(spans), [end + d for end in ends for d in (-1, 0, 1) if 0 <= end + d <= top]


@given(wide_sets(), st.sampled_from(["in", "not in"]))
def test_lanes_together_compare_like_the_whole_number(wide, operator):
    bits, spans, probes = wide
    pad = -bits % 8
    rest = f"rest: {pad};" if pad else ""
    spec = parse_specification(
        f"header_type t {{ fields {{ x: {bits}; {rest} }} }} header t h;", "wide"
    )
    field = spec.fields["h.x"]
    lanes = field.lanes()
    assert sum(lane.bits for lane in lanes) == bits
    condition = predicate(field, operator, *spans)
    boxes = [
        box
        for term in normal_form(condition, spec, optional=True)
        for box in lane_terms(term, spec)
    ]
    for value in probes:
        event, left = {}, value
        for lane in reversed(lanes):
            event[lane.qualified] = left & ((1 << lane.bits) - 1)
            left >>= lane.bits
        hits = sum(allows(box, event) for box in boxes)
        assert hits <= 1, "boxes overlap"
        assert bool(hits) == (any(a <= value <= b for a, b in spans) is (operator == "in"))
    assert not any(allows(box, {}) for box in boxes)


def test_a_prefix_of_a_wide_field_is_one_term():
    network = 0x20010DB8 << 96
    (term,) = normal_form(predicate(DST, "in", (network, network | (1 << 96) - 1)), SPEC)
    first = 0x20010DB8 << 32
    assert lane_terms(term, SPEC) == [(("quote.dst[127:64]", ((first, first | (1 << 32) - 1),)),)]


def test_values_that_share_their_other_lanes_are_one_term():
    values = [k << 64 | 7 for k in (1, 2, 3, 9)]
    (term,) = normal_form(predicate(DST, "in", *values), SPEC)
    assert lane_terms(term, SPEC) == [
        (("quote.dst[127:64]", ((1, 3), (9, 9))), ("quote.dst[63:0]", ((7, 7),)))
    ]


def test_too_many_alternatives_are_refused():
    spec = parse_specification(
        "header_type t { fields { a: 128; b: 128; } } header t h;", "two wide fields"
    )
    many = [(k << 64) | k for k in range(100)]
    (term,) = normal_form(
        And(tuple(predicate(spec.fields[f"h.{name}"], "in", *many) for name in "ab")), spec
    )
    with pytest.raises(SubscriptionError, match="split it") as caught:
        lane_terms(term, spec)
    assert caught.value.code == "SUBSCRIPTION.TOO_COMPLEX"
