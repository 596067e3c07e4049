"""Warnings of variables: a rule that reads what no rule of its owner updates, and so reads 0."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.filters.meaning.state import subjects
from stackcast.udfs.filters.rule_warnings import SubscriptionWarnings
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.filters.variable_warnings import VariableWarnings
from stackcast.udfs.messages.formats import Counter
from stackcast.udfs.messages.specification import parse_specification

pytestmark = pytest.mark.unit

HEADER = """
    header_type add_t { fields { @string stock: 64; price: 32; shares: 32; } }
    header add_t add;
    @query_field(add.stock)
"""
SPEC = parse_specification(
    f"{HEADER} @query_counter(seen, 100) @query_counter(traded, 1000)", "market"
)


def warned(*rules: tuple[str, str]) -> list[tuple[int, str]]:
    """Returns rule and first line of each warning."""
    warnings = VariableWarnings(SPEC).of(rules)
    return [(index, error.message.splitlines()[0]) for index, error in warnings]


def test_a_variable_that_only_another_subscriber_updates_is_remarked_at_its_place():
    reading = "price > 5 and seen > 3"
    rules = [("h1", reading), ("h2", "all : seen <- count()"), ("h2", reading)]
    ((index, line),) = warned(*rules)
    assert index == 0 and line.startswith("line 1, column 15: no rule of subscriber 'h1' updates")
    assert "'seen'" in line and "seen <- count()" in line
    assert warned(*rules, ("h1", "price > 9 : { fwd(h3); seen <- sum(shares) }")) == []


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("seen > 3 or not (traded < 2 and seen < 9)", ["seen", "traded"]),
        ("seen > 3 : traded <- count()", ["seen"]),
        ("seen > 3 : seen <- count()", []),
        ("stock == seen and price > 1", []),
        ("avg(price, 100) > 3", []),
        ("seen > > 3", []),
        ("all : seen <- count()", []),
    ],
)
def test_each_variable_is_remarked_once_in_a_rule(text: str, variables: list[str]):
    lines = [line for _, line in warned(("h1", text))]
    assert len(lines) == len(variables)
    assert all(f"'{name}'" in line for name, line in zip(variables, lines, strict=True))


def test_rules_without_subscribers_have_one_owner():
    assert warned(("", "seen > 3"), ("", "all : seen <- count()")) == []
    ((_, line),) = warned(("", "seen > 3"))
    assert "no rule updates variable 'seen'" in line


def test_a_specification_without_variables_needs_no_parser():
    warnings = VariableWarnings(parse_specification(HEADER, "market"))
    assert not warnings.may_name("seen > 3") and list(warnings.of([("h1", "seen > 3")])) == []


def test_rows_lose_a_warning_with_the_first_update_and_get_it_back_with_the_last():
    warnings = SubscriptionWarnings()
    reading = Subscription("a", "h1", "seen > 3 and stock == NULL")
    updating = Subscription("b", "h1", "all : seen <- count()")
    for rows, codes in (
        ([reading, updating._replace(subscriber="h2")], ["NULL_CONSTANT", "NEVER_UPDATED"]),
        ([reading, updating], ["NULL_CONSTANT"]),
        ([reading], ["NULL_CONSTANT", "NEVER_UPDATED"]),
    ):
        remarks = warnings.of(rows, SPEC)
        assert [row.code for row in remarks] == [f"SUBSCRIPTION.{code}" for code in codes]
        assert {row.id for row in remarks} == {"a"}


RULES = (
    *("price > 5", "seen > 3", "seen > 3 and traded < 2", "not seen > 1 : seen <- count()"),
    *("all : seen <- count()", "all : { seen <- count(); traded <- sum(price) }"),
)


@examples(200)
@given(st.lists(st.tuples(st.sampled_from(["h1", "h2"]), st.sampled_from(RULES)), max_size=6))
def test_warnings_are_those_of_the_compiled_rules(rules: list[tuple[str, str]]):
    rows = [Subscription(str(n), owner, text) for n, (owner, text) in enumerate(rules)]
    checked, rejections = check(rows, SPEC, {"h1", "h2"}, "feed1")
    assert rejections == []
    updated = {update.variable for rule in checked for update in rule.updates}
    unwritten = {
        int(rule.id)
        for rule in checked
        for subject in subjects(rule.condition)
        if isinstance(subject, Counter) and subject not in updated
    }
    assert {index for index, _ in warned(*rules)} == unwritten
