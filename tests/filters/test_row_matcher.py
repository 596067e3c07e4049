"""Rules over rows of a table, held against trying each rule on each row in Python."""

from __future__ import annotations

import datetime as dt
import math
import operator
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.row_matcher import RowMatcher
from stackcast.udfs.filters.subscriptions import Subscription

pytestmark = pytest.mark.unit

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("small", pa.int8()),
        ("large", pa.int64()),
        ("price", pa.decimal128(9, 2)),
        ("ratio", pa.float64()),
        ("single", pa.float32()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("open", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("two words", pa.int32()),
    ]
)
UTC = dt.UTC
TEXTS = ["", "a", "A B", "GOOGL", "GOOGLGOO", "GOOGLGOOG", "ä", "日本語です", "a\0", "x" * 40]
TIMES = [
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    dt.datetime(2026, 1, 1, tzinfo=UTC),
    dt.datetime(2026, 1, 1, 9, 30, 0, 1, UTC),
]
VALUES: dict[str, list[Any]] = {
    "name": TEXTS,
    "small": [-128, -1, 0, 5, 127],
    "large": [-(1 << 63), -1, 0, 5, (1 << 63) - 1],
    "price": [Decimal("-1.50"), Decimal(0), Decimal("0.01"), Decimal("9999999.99")],
    "ratio": [-1e300, -0.5, -0.0, 0.0, 0.1, 5.0, 1e300, float("inf"), float("-inf"), float("nan")],
    "single": [-0.5, 0.0, 0.5, float("nan")],
    "at": TIMES,
    "day": [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2026, 1, 1)],
    "open": [True, False],
}
OPERATORS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def written(name: str, value: Any) -> str:
    if isinstance(value, dt.date):
        return f'"{value.isoformat()}"'
    if name == "name":
        return f"'{value}'"
    return format(Decimal(value), "f") if isinstance(value, float) else str(value).lower()


def absent(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


@st.composite
def predicates(draw):
    """A text, and a function of a row to True, False, or None where the column is absent."""
    name = draw(st.sampled_from(sorted(VALUES)))
    fit = [
        v
        for v in VALUES[name]
        if "\0" not in str(v) and v != "" and (not isinstance(v, float) or math.isfinite(v))
    ]
    sign = draw(st.sampled_from(sorted(OPERATORS)))
    value = draw(st.sampled_from(fit))

    def truth(row: dict[str, Any]) -> bool | None:
        found = row[name]
        if absent(found):
            return None
        pair = (found.encode(), value.encode()) if name == "name" else (found, value)
        return OPERATORS[sign](*pair)

    return f"{name} {sign} {written(name, value)}", truth


@st.composite
def conditions(draw):
    first, second = draw(predicates()), draw(predicates())
    kind = draw(st.sampled_from(["one", "and", "or", "not"]))
    if kind == "one":
        return first[0], lambda row: first[1](row) is True
    if kind == "not":
        return f"not {first[0]}", lambda row: first[1](row) is False
    both = all if kind == "and" else any
    return (
        f"{first[0]} {kind} {second[0]}",
        lambda row: both(part[1](row) is True for part in (first, second)),
    )


rows = st.fixed_dictionaries(
    {name: st.none() | st.sampled_from(values) for name, values in VALUES.items()}
)


@examples(150)
@given(
    st.lists(conditions(), max_size=12),
    st.lists(rows, max_size=30),
    st.integers(0, 3),
)
def test_each_row_has_the_rules_that_are_true_on_it_and_their_receivers(
    made: list[Any], table: list[dict[str, Any]], skipped: int
) -> None:
    rules = [
        Subscription(f"r{at}", f"h{at % 3}", text + (" : fwd(9, h1)" if at % 4 == 3 else ""))
        for at, (text, _) in enumerate(made)
    ]
    matcher = pickle.loads(pickle.dumps(RowMatcher(SCHEMA, rules)))
    # A slice, as Arrow's buffers begin before it.
    batch = pa.RecordBatch.from_pylist(table, schema=SCHEMA).slice(skipped)
    found_rules, found_receivers = matcher.match(batch)
    for at, row in enumerate(table[skipped:]):
        true = [number for number, (_, truth) in enumerate(made) if truth(row)]
        told = {host for n in true for host in (["9", "h1"] if n % 4 == 3 else [f"h{n % 3}"])}
        assert found_rules[at].as_py() == [f"r{number}" for number in true]
        assert found_receivers[at].as_py() == sorted(told)


@pytest.mark.parametrize(
    ("text", "what", "words"),
    [
        ("name == x and prize > 3", "UNKNOWN_FIELD", "did you mean 'price'"),
        ("tags == x", "UNKNOWN_FIELD", "tags"),
        ("open == 1", "BAD_CONSTANT", "neither true nor false"),
        ("ratio > x", "BAD_CONSTANT", "is not a number"),
        ("small > 3 : log(7)", "ACTION_FOR_SWITCH", "log"),
        ("count(1000000) > 3", "STATE_IN_TABLE", "state"),
    ],
)
def test_a_rule_that_is_wrong_is_named(text: str, what: str, words: str) -> None:
    fine = Subscription("fine", "h1", "small > 3")
    with pytest.raises(SubscriptionError) as caught:
        RowMatcher(SCHEMA, [fine, Subscription("odd", "h2", text)])
    error = caught.value
    assert error.what == what and error.fields["id"] == "odd"
    assert words in error.message and "rule 'odd'" in error.message


def test_no_rules_match_nothing() -> None:
    batch = pa.RecordBatch.from_pylist([{"small": 3}], schema=SCHEMA)
    assert [found.to_pylist() for found in RowMatcher(SCHEMA, []).match(batch)] == [[[]], [[]]]
