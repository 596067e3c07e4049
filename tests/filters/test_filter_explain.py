"""Explanations agree with the matcher and with the rules as they are written."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.compiler.compile import compile_texts
from stackcast.udfs.filters.explanation.events import EventReader
from stackcast.udfs.filters.explanation.explain import Explainer, evaluate_rule
from stackcast.udfs.filters.grouped import Grouped
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.matching.matcher import Matcher
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.meaning.interpreter import Interpreter
from stackcast.udfs.messages.specification import Specification, parse_specification

pytestmark = pytest.mark.unit

LOOSE = parse_specification(
    """header_type t { fields { a: 8; b: 16; @string(zero) s: 24; wide: 104; net: 32; at: 32; } }
    header t h;
    @query_field(h.a)
    @query_field_exact(h.s)
    @query_field(h.wide)
    @query_field_lpm(h.net)
    @query_counter(seen, 10, 4)
    """,
    "loose",
)
TYPED = parse_specification(
    """header_type x_t { fields { @string kind: 8; a: 8; @decimals(2) p: 16; } }
    header_type y_t { fields { @string kind: 8; b: 8; @clock(2) at: 32; } }
    header_type z_t { fields { ttl: 8; } }
    @message_type("X") header x_t x;
    @message_type("Y") header y_t y;
    @query_field(x.p)
    @query_counter(seen, 10)
    """,
    "typed",
)
VALUES: dict[str, list[Any]] = {
    "h.a": [0, 1, 7, 8, 255],
    "h.b": [0, 5, 300, 65535],
    "h.s": ["", "A", "AB", "zzz"],
    "h.wide": [0, 1, 1 << 36, (1 << 64) - 1, 1 << 64, (1 << 104) - 1],
    "h.net": [0, 0x0A000001, 0x0A010000, 0xFFFFFFFF],
    "x.a": [0, 1, 2, 255],
    "x.p": [0, 49, 50, 65535],
    "y.b": [0, 1, 255],
}
CONSTANTS = {
    "h.s": ["A", "AB", '"zzz"'],
    "h.net": ["10.0.0.1", "10.1.0.0", "255.255.255.255"],
    "x.p": ["0", "0.49", "0.5", "655.35"],
}


def rules(specification: Specification, stateful: bool = False) -> st.SearchStrategy[list[str]]:
    """A few rules."""
    tests = [
        st.builds(
            lambda n, o, v: f"{n} {o} {v}",
            st.just(name),
            st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
            st.sampled_from(CONSTANTS.get(name, [str(v) for v in VALUES[name]])),
        )
        for name in VALUES
        if name in specification.fields
    ]
    if "h.net" in specification.fields:
        tests.append(st.sampled_from(["h.net == 10.0.0.0/8", "h.net == 10.1.0.0/16"]))
    if stateful:
        field = "h.a" if "h.a" in specification.fields else "x.a"
        tests.append(
            st.sampled_from(
                [
                    *(f"avg({field}) > 1", "count() < 3", f"max({field}, 4) == 7", "seen >= 2"),
                    *(f"changed({field})", f"moved({field}, 2)"),
                ]
            )
        )
    conditions = st.recursive(
        st.one_of(*tests),
        lambda inner: st.one_of(
            st.builds(lambda a, b: f"({a} and {b})", inner, inner),
            st.builds(lambda a, b: f"({a} or {b})", inner, inner),
            st.builds(lambda a: f"not ({a})", inner),
        ),
        max_leaves=4,
    )
    actions = ["fwd(1)", "fwd(2, 30)", "fwd(h1)", "log(7, x)", "fwd(1); log(7, x)"]
    if stateful:
        actions.append("fwd(9); seen <- count()")
    braced = [f"{{{text}}}" if ";" in text else text for text in actions]
    rule = st.builds(lambda c, a: f"{c} : {a}", conditions, st.sampled_from(braced))
    return st.lists(rule, min_size=1, max_size=4)


def events(specification: Specification) -> st.SearchStrategy[dict[str, Any]]:
    """An event with some of the fields of one message."""
    names = [name for name in VALUES if name in specification.fields]
    headers = sorted({name.split(".")[0] for name in names})
    return st.sampled_from(headers).flatmap(
        lambda header: st.fixed_dictionaries(
            {},
            optional={n: st.sampled_from(VALUES[n]) for n in names if n.split(".")[0] == header},
        )
    )


FORMATS = st.sampled_from([LOOSE, TYPED])


@examples(120)
@given(data=st.data(), specification=FORMATS)
def test_the_way_that_is_told_ends_where_the_matcher_says(data, specification):
    compiled = compile_texts(data.draw(rules(specification)), specification, optional=True)
    matcher = Matcher(compiled)
    explainer = Explainer(Grouped(compiled), specification)
    reader = EventReader(specification, matcher.fields)
    for one in data.draw(st.lists(events(specification), min_size=1, max_size=4)):
        event = reader.read_object(one)
        way = explainer.path(event.values, event.message_type)
        columns = reader.read([json.dumps(one)])
        leaf = matcher.match(columns.message_type, *columns.stacked(matcher.fields))
        assert way.outcome == matcher.outcomes[int(leaf[0])]
        assert way.leaf == int(matcher.states[leaf[0]])
        state = compiled.root
        for step in way.steps:
            assert step.state == state
            state = state if step.row is None else step.row.next
        assert state == way.leaf


@examples(150)
@given(data=st.data(), specification=FORMATS)
def test_a_rule_matches_where_its_explanation_says_so_and_its_predicates_decide(
    data, specification
):
    event = EventReader(specification).read_object(data.draw(events(specification))).values
    for text in data.draw(rules(specification)):
        rule = parse_rule(text, specification)
        found = evaluate_rule(rule, event, specification)
        assert found.matches == matches(rule.condition, event)
        assert any(decision.decided for decision in found.predicates)


@examples(100)
@given(data=st.data(), specification=FORMATS)
def test_with_state_rules_and_leaf_are_those_of_the_interpreter(data, specification):
    texts = data.draw(rules(specification, stateful=True))
    parsed = [parse_rule(text, specification) for text in texts]
    try:
        compiled = compile_texts(texts, specification, optional=True)
    except SubscriptionError:
        return
    interpreter = Interpreter(parsed, specification)
    explainer = Explainer(Grouped(compiled), specification)
    reader = EventReader(specification)
    for one in data.draw(st.lists(events(specification), min_size=1, max_size=6)):
        event = reader.read_object(one)
        now = reader.time_of(event)
        cells = {c.name: interpreter.finds(c.name, now, event.values) for c in interpreter.cells}
        state = {counter: cells[counter.name] for counter in specification.counters}
        verdicts = [evaluate_rule(r, event.values, specification, state, cells) for r in parsed]
        way = explainer.path(event.values, event.message_type, cells)
        step = interpreter.step(event.values, event.time_us)
        assert tuple(i for i, v in enumerate(verdicts) if v.matches) == step.rules
        assert way.outcome.receivers == step.receivers
        assert way.outcome.calls == step.calls


@examples(100)
@given(data=st.data(), specification=FORMATS)
def test_events_that_a_rule_wants_take_the_rows_told_of_it(data, specification):
    texts = data.draw(rules(specification))
    compiled = compile_texts(texts, specification, optional=True)
    explainer = Explainer(Grouped(compiled), specification)
    event = EventReader(specification).read_object(data.draw(events(specification)))
    way = explainer.path(event.values, event.message_type)
    for text in texts:
        rule = parse_rule(text, specification)
        if not matches(rule.condition, event.values):
            continue
        terms = explainer.rule(rule, optional=True)
        taken = {step.row for step in way.steps if step.row is not None}
        assert any(way.leaf in term.leaves and taken <= set(term.rows) for term in terms)
        wanted = set(rule.receivers)
        for term in terms:
            for leaf in term.leaves:
                assert wanted <= set(compiled.outcomes[leaf].receivers)


@examples(60)
@given(data=st.data(), specification=FORMATS)
def test_segments_take_each_value_once_and_by_the_row_that_wins(data, specification):
    compiled = compile_texts(data.draw(rules(specification)), specification, optional=True)
    explainer = Explainer(Grouped(compiled), specification)
    for at, state in {(int(e["field"]), int(e["state"])) for e in compiled.entries}:
        bits = 8 if at == 0 else compiled.definitions[at - 1].bits
        segments = explainer.segments(at, state)
        assert segments[0][0] == 0 and segments[-1][1] == (1 << bits) - 1
        for (_, high, _), (low, _, _) in pairwise(segments):
            assert low == high + 1
        for low, high, row in segments:
            for value in (low, high):
                assert explainer._taken(at, state, value) == row


def test_columns_of_a_batch_are_those_of_its_events():
    reader = EventReader(LOOSE, ["h.wide[103:64]", "h.wide[63:0]", "h.s"])
    read = reader.read(['{"wide": 18446744073709551619}', "nonsense", '{"s": "A"}'])
    assert [at for at, _ in read.faults] == [1]
    values, present = read.stacked(["h.wide[103:64]", "h.wide[63:0]", "h.s"])
    assert values[:, 0].tolist() == [1, 3, 0] and present[:, 0].tolist() == [True, True, False]
    assert values[2, 1] == np.uint64(0x410000) and present[:, 1].tolist() == [False, False, True]
