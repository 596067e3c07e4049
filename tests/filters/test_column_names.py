"""Columns of any name pass `RowMatcher`, and rules compare those whose names they can contain."""

from __future__ import annotations

import operator
from typing import Any

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.row_matcher import RowMatcher, read_rules
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages.attributes.registry import RESERVED

pytestmark = pytest.mark.unit

OPERATORS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, ">=": operator.ge}
KEYWORDS = sorted({*RESERVED, "all", "changed", "moved", "avg", "count", "AND", "x"})

words = st.sampled_from(KEYWORDS) | st.from_regex("[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True)
#: Names that a rule can contain: words of rules are names only as a part of a longer one.
asked_names = st.lists(words, min_size=2, max_size=3).map(".".join) | words.filter(
    lambda name: name.lower() not in RESERVED
)
other_names = st.text(max_size=6) | st.sampled_from(["", ".", "`", "a.b", "A.B", "a`.b", "x y"])


@st.composite
def tables(draw: Any) -> tuple[list[str], list[str], list[list[int | None]]]:
    """Draw the names that rules ask for, the names of all columns in their order, and rows."""
    compared = draw(st.lists(asked_names, min_size=1, max_size=3, unique=True))
    similar = st.sampled_from(compared).map(str.swapcase)
    unused = draw(st.lists(other_names | similar, max_size=4))
    unused = [name for name in unused if name not in compared]
    names = draw(st.permutations([*compared, *unused]))
    row = st.lists(st.none() | st.integers(-3, 3), min_size=len(names), max_size=len(names))
    return compared, names, draw(st.lists(row, max_size=8))


@examples(200)
@given(tables(), st.lists(st.tuples(st.integers(0, 2), st.sampled_from(sorted(OPERATORS)))))
@example((["all"], ["all"], [[1], [None]]), [(0, "=="), (0, "!=")])
@example((["not.in"], ["not.in", "", "", "NOT.IN"], [[1, 2, 2, 3]]), [(0, ">=")])
def test_rules_match_by_the_columns_that_they_compare_whatever_others_are_called(
    table: tuple[list[str], list[str], list[list[int | None]]], tests: list[tuple[int, str]]
) -> None:
    compared, names, rows = table
    conditions = [(compared[which % len(compared)], sign) for which, sign in tests]
    # Many rules of one shape are read as columns, and few of them one by one.
    for copies in (1, 12):
        rules = [
            Subscription(f"{copy}.{number}", "h1", f"{name} {sign} {copy % 3}")
            for copy in range(copies)
            for number, (name, sign) in enumerate(conditions)
        ]
        columns = [pa.array([row[n] for row in rows], pa.int64()) for n in range(len(names))]
        schema = pa.schema([(name, pa.int64()) for name in names])
        matched, _ = RowMatcher(schema, rules).match(pa.RecordBatch.from_arrays(columns, names))
        for row, ids in zip(rows, matched.to_pylist(), strict=True):
            values = {name: row[names.index(name)] for name in compared}
            assert ids == [
                f"{copy}.{number}"
                for copy in range(copies)
                for number, (name, sign) in enumerate(conditions)
                if values[name] is not None and OPERATORS[sign](values[name], copy % 3)
            ]


NESTED = pa.schema(
    [
        ("customer", pa.struct([("tier", pa.string()), ("id", pa.int64())])),
        ("tags", pa.list_(pa.string())),
        ("labels", pa.map_(pa.string(), pa.string())),
        ("amount", pa.decimal128(38, 2)),
        ("id", pa.int64()),
        ("id", pa.int64()),
        ("order.id", pa.int64()),
        ("at", pa.string()),
    ]
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "customer.tier == gold",
            ["'customer' is a struct", 'select("*", "customer.*")', "'tier'"],
        ),
        ("customer == gold", ["'customer' is a struct", 'select("*", "customer.*")']),
        ("tags == promo", ["column 'tags' is an array", "explode"]),
        ("labels.color == red", ["column 'labels' is a map", 'col("labels")']),
        ("amount > 5", ["type decimal128(38, 2)", "cast"]),
        ("id > 5", ["2 columns have this name"]),
        ("order.i > 5", ["did you mean 'order.id'"]),
    ],
)
def test_an_error_says_how_to_compare_a_column_that_rules_cannot_compare(
    text: str, words: list[str]
) -> None:
    with pytest.raises(SubscriptionError) as caught:
        RowMatcher(NESTED, [Subscription("1", "h1", text)])
    assert caught.value.code == "SUBSCRIPTION.UNKNOWN_FIELD"
    for word in words:
        assert word in caught.value.message


@pytest.mark.parametrize("copies", [1, 40])
@pytest.mark.parametrize("time", ['"2026-03-01T09:30:00Z"', "2026-03-01", '"2026-03-01 09:30"'])
def test_a_text_that_is_compared_with_a_time_has_a_warning(time: str, copies: int) -> None:
    rules = [Subscription(str(n), "h1", f"at >= {time} and order.id > {n}") for n in range(copies)]
    rules.append(Subscription("fine", "h1", "at >= morning"))
    warned: list[SubscriptionError] = []
    RowMatcher(NESTED, rules, warned.append)
    assert [warning.code for warning in warned] == ["SUBSCRIPTION.TIME_AS_TEXT"] * copies
    assert "rule '0'" in warned[0].message and "compared as a string" in warned[0].message


def test_a_time_that_is_compared_with_a_time_has_no_warning() -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("day", pa.date32())])
    warned: list[SubscriptionError] = []
    text = 'at >= "2026-03-01T09:30:00Z" and day > "2026-03-01"'
    RowMatcher(schema, [Subscription("1", "h1", text)], warned.append)
    assert warned == []


RULE = Subscription("1", "h1", "price > 5")


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ([("1", "h1", "price > 5")], ["rules[0] is a tuple"]),
        ([RULE, "price > 5"], ["rules[1] is a str"]),
        ([RULE._replace(filter=None)], ["rules[0] has filter of type NoneType"]),
        ([RULE._replace(id=1)], ["rules[0] has id of type int"]),
        ([{"id": "1", "filter": "price > 5"}], ["rules[0] has the columns id, filter"]),
        (RULE, ["not a Subscription", "a list of rules"]),
        ("price > 5", ["not a str", "a list of rules"]),
        (None, ["not a NoneType", "a list of rules"]),
    ],
)
def test_what_is_not_a_rule_is_refused_with_what_to_pass(rules: Any, words: list[str]) -> None:
    with pytest.raises(SubscriptionError) as caught:
        read_rules(rules)
    assert caught.value.code == "SUBSCRIPTION.NOT_A_RULE"
    for word in (*words, "Subscription("):
        assert word in caught.value.message


def test_mappings_with_the_columns_of_the_table_are_rules_if_they_are_enabled() -> None:
    row = {**RULE._asdict(), "format": "itch", "enabled": True}
    rows = [row, {**row, "id": "2", "enabled": False}, RULE._replace(id="3")]
    assert read_rules(rows) == [RULE, RULE._replace(id="3")]
