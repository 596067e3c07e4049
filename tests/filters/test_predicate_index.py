"""Rules matched predicate by predicate mean what each of them means alone."""

from __future__ import annotations

import pickle
import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from examples import examples
from filter_cases import batches, cases, lanes_of, rules
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.compiler.compile import table_of_texts
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.language.shapes import read_table
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.nodes import Rule
from stackcast.udfs.filters.predicate_index.predicate_index import PredicateIndex
from stackcast.udfs.filters.predicate_index.terms import FlatTerms
from stackcast.udfs.messages.specification import Specification, parse_specification

pytestmark = pytest.mark.unit

Event = tuple[int, Mapping[str, int]]
patient = settings(
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def index_of(
    texts: Sequence[str], specification: Specification, optional: bool | None = None, **how: float
) -> PredicateIndex:
    try:
        read = read_table(texts, specification)
        assert not read.errors
        table = table_of_texts(texts, read, specification, optional)
        return PredicateIndex(FlatTerms.of(table), specification, **how)
    except SubscriptionError as error:
        assert error.what == "TOO_COMPLEX", error
        assume(False)
        raise


def receivers(index: PredicateIndex, batch: Sequence[Event], rubbish: int) -> list[set[str]]:
    kinds = np.array([kind for kind, _ in batch], np.uint8)
    found = [[event.get(name) for _, event in batch] for name in index.fields]
    shape = (len(index.fields), len(batch))
    values = np.array([[rubbish if v is None else v for v in row] for row in found], np.uint64)
    present = np.array([[v is not None for v in row] for row in found], np.bool_)
    bits = index.match(kinds, values.reshape(shape), present.reshape(shape))
    found = [
        {host for at, host in enumerate(index.hosts) if int(row[at // 64]) >> (at % 64) & 1}
        for row in bits
    ]
    # The same event by event and outcome by outcome.
    said: list[set[str]] = [set() for _ in batch]
    pairs = list(
        zip(*index.pairs(kinds, values.reshape(shape), present.reshape(shape)), strict=True)
    )
    for event, outcome in pairs:
        said[event].update(each for each in index._outcomes[outcome] if isinstance(each, str))
    assert said == found and pairs == sorted(set(pairs))
    return found


def one_by_one(read: Sequence[Rule], event: Mapping[str, int]) -> set[str]:
    return {host for rule in read if matches(rule.condition, event) for host in rule.receivers}


@examples(150, patient)
@given(st.data())
def test_it_agrees_with_each_rule_alone_on_any_rules_over_any_format(data: st.DataObject) -> None:
    case = data.draw(cases())
    texts = data.draw(rules(case, 12))
    read = [parse_rule(text, case.specification) for text in texts]
    by_field = data.draw(st.booleans())
    optional = True if by_field else None
    batch = data.draw(batches(case, 40, by_field))
    cut = [(kind, lanes_of(case.specification, event)) for kind, event in batch]
    expected = [one_by_one(read, event) for _, event in batch]
    rubbish = data.draw(st.integers(0, 1))
    # All by slices, and by values wherever a rule asks for any.
    for cost in (1e9, 0):
        index = index_of(texts, case.specification, optional, candidate=cost)
        assert receivers(pickle.loads(pickle.dumps(index)), cut, rubbish) == expected


@pytest.mark.integration
def test_many_rules_and_receivers_over_many_blocks_of_events() -> None:
    draw = random.Random(5)
    names = [f"f{at}" for at in range(6)]
    fields = " ".join(f"{name}: 64;" for name in names)
    asked = " ".join(f"@query_field(e.{name})" for name in names)
    text = f"header_type e_t {{ fields {{ {fields} }} }} header e_t e; {asked}"
    specification = parse_specification(text, "text")
    top = (1 << 64) - 1

    def predicate() -> str:
        return f"{draw.choice(names)} {draw.choice(['==', '<', '>', '!='])} {draw.randrange(200)}"

    texts = [
        f"{' and '.join(predicate() for _ in range(draw.randint(1, 3)))} : fwd({number % 150})"
        for number in range(600)
    ]
    texts += [f"f0 == {top} : fwd(150)", f"f1 >= {top - 1} : fwd(151)", f"f2 < {top} : fwd(152)"]
    read = [parse_rule(each, specification) for each in texts]
    edges = [*range(200), top - 1, top]
    batch = [(0, {f"e.{name}": draw.choice(edges) for name in names}) for _ in range(1_100)]
    expected = [one_by_one(read, event) for _, event in batch]
    index = index_of(texts, specification)
    # Some ask for what cannot be.
    assert 530 < index.terms < len(texts) and len(index.hosts) == 153
    assert index._postings is not None and index._slices is not None
    assert receivers(index, batch, 0) == expected


def test_many_rules_that_ask_for_one_value_of_a_field() -> None:
    text = "header_type e_t { fields { f0: 32; f1: 32; } } header e_t e; "
    specification = parse_specification(f"{text} @query_field(e.f0) @query_field(e.f1)", "text")
    # More than one list of candidates holds, for every event.
    texts = [f"f0 == 7 and f1 > {at} : fwd({at % 90})" for at in range(5_000)]
    texts += ["f0 == 8 and f1 != 3 and f1 != 5 : fwd(90)", "f0 == 8 and f1 < 4 : fwd(91)"]
    limits = [0, 1, 2, 3, 4, 5, 60, 4_999, 5_000]
    batch = [(0, {"e.f0": first, "e.f1": at}) for first in (6, 7, 8) for at in limits]
    index = index_of(texts, specification, candidate=0)
    assert index._slices is None

    def expected(first: int, value: int) -> set[str]:
        if first == 7:
            return {str(at) for at in range(90) if at < value}
        true = {"90": first == 8 and value not in (3, 5), "91": first == 8 and value < 4}
        return {host for host, held in true.items() if held}

    assert receivers(index, batch, 0) == [expected(*event.values()) for _, event in batch]


def test_ranges_that_lie_in_others_of_their_receiver_cost_nothing() -> None:
    text = "header_type e_t { fields { f0: 32; f1: 32; } } header e_t e; "
    specification = parse_specification(f"{text} @query_field(e.f0) @query_field(e.f1)", "text")
    draw = random.Random(3)
    ranges = [
        (draw.randrange(2), *sorted(draw.choices(range(64), k=2)), draw.randrange(3))
        for _ in range(300)
    ]
    texts = [f"f{field} between {a} and {b} : fwd({host})" for field, a, b, host in ranges]
    index = index_of(texts, specification, candidate=1e9)
    batch = [(0, {"e.f0": first, "e.f1": last}) for first in range(65) for last in range(65)]
    said = receivers(index, batch, 0)
    read = [parse_rule(each, specification) for each in texts]
    assert said[::37] == [one_by_one(read, event) for _, event in batch[::37]]

    def covered(a: int, b: int, rest: list[tuple[int, int]]) -> bool:
        return any(low <= a and b <= high for low, high in rest)

    expected = 0
    for of in {(field, host) for field, _, _, host in ranges}:
        mine = list(dict.fromkeys((a, b) for field, a, b, host in ranges if (field, host) == of))
        expected += sum(not covered(*each, [o for o in mine if o != each]) for each in mine)
    assert index._slices is not None
    assert len(index._slices[9]) == expected < 60
