"""Warnings: what is right and most likely not meant is told; what is meant is left alone."""

from __future__ import annotations

from itertools import product

import pytest
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.rule_warnings import SubscriptionWarnings, warnings_of
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages.specification import parse_specification

pytestmark = pytest.mark.unit

SPEC = parse_specification(
    """
    header_type add_t { fields { @string kind: 8; @string stock: 64; price: 32; shares: 32; } }
    @message_type("A") header add_t add;
    header_type trade_t { fields { @string kind: 8; @string stock: 64; volume: 32; } }
    @message_type("P") header trade_t trade;
    @query_field(add.stock)
    @query_default_action(drop)
    @query_counter(seen, 100)
    """,
    "market",
)

WARNED = [
    ("stock == GOO*", "PATTERN_CONSTANT", "GOO*", "stock >= GOO and stock < GOP"),
    ("stock in {A, 'GOO%'}", "PATTERN_CONSTANT", "'GOO%'", "patterns are not supported"),
    ("stock == price", "FIELD_CONSTANT", "price", "although a field has this name"),
    ("stock == NULL", "NULL_CONSTANT", "NULL", "no null value"),
    ("stock != none and price > 5", "NULL_CONSTANT", "none", "no null value"),
    ("stock == ''", "EMPTY_CONSTANT", "''", "consists of padding"),
    ("price > 5 and price < 5", "NEVER_TRUE", "price", "no event can match this rule"),
    ("stock == A and stock == B", "NEVER_TRUE", "stock", "'or'"),
    ("price < 0 or shares > 1", "NEVER_TRUE", "price", "no value of 'add.price'"),
    ("not all", "NEVER_TRUE", "not", "no event"),
    ("shares > 1 and price >= 0", "ALWAYS_TRUE", "price", "remove it"),
    ("price > 5 or not price > 5", "ALWAYS_TRUE", "price", "to match every event, write all"),
    ("price != 5 or price == 5", "ALWAYS_TRUE", "price", "to match every event, write all"),
    (
        "price > 5 and volume > 5",
        "TWO_MESSAGES",
        "volume",
        "'trade.volume' and the fields compared",
    ),
    ("shares > 1 or (price > 5 and not volume > 5)", "TWO_MESSAGES", "volume", "one message"),
    ("not (price > 5 or volume > 5)", "TWO_MESSAGES", "volume", "one message"),
    ("price > 5 and changed(volume)", "TWO_MESSAGES", "changed(", "'trade.volume' and the fields"),
    ("price == 5 and changed(price)", "NO_CHANGE", "changed", "changes once"),
    ("stock == A and not changed(stock)", "NO_CHANGE", "changed", "only one value"),
    (
        "shares > 1 and (changed(shares) or price in {5, 9} and moved(price, 5))",
        "NO_CHANGE",
        "moved",
        "'add.price'",
    ),
    ("changed(price) and not changed(price)", "NEVER_TRUE", "changed", "no event"),
    ("price > 5 : answer(5)", "UNKNOWN_ACTION", "answer", "is unknown"),
]

MEANT = [
    "all",
    "price > 5",
    "stock == GOOGL and price > 5 : fwd(1)",
    "price > 5 or volume > 5",
    "kind == A",
    "add.kind == A or trade.volume > 5",
    "*.stock == A and (price > 5 or volume > 5)",
    "not *.stock == A",
    "stock == 'price' or stock == 'NULL' or stock == \"none\"",
    "price in {1, 2} and seen > 5 and avg(price) > 7",
    "price > 5 : drop()",
    "stock == A and changed(price)",
    "price in {5, 10} and moved(price, 5) and not changed(price)",
]


def told(texts: list[str]) -> dict[int, list[SubscriptionError]]:
    found: dict[int, list[SubscriptionError]] = {}
    for at, warning in warnings_of(texts, SPEC):
        found.setdefault(at, []).append(warning)
    return found


@pytest.mark.parametrize(("text", "code", "word", "words"), WARNED)
def test_what_is_most_likely_not_meant_is_told_at_its_word(
    text: str, code: str, word: str, words: str
):
    (warning,) = told([text])[0]
    assert warning.code == f"SUBSCRIPTION.{code}" and words in warning.message
    at = 0 if word == "not" else warning.column - 1
    assert text[at:].startswith(word)


@pytest.mark.parametrize("text", MEANT)
def test_what_may_well_be_meant_is_left_alone(text: str):
    assert not told([text])


@pytest.mark.integration
def test_of_many_rules_the_same_are_told_as_of_each_alone():
    texts = [f"stock == S{n % 9} and price > {n + 1} : fwd(h{n})" for n in range(2000)]
    texts += [
        f"{text}{' : fwd(1)' if ':' not in text else ''}"
        for text, n in product([*(w[0] for w in WARNED), *MEANT], range(9))
    ]
    texts += [f"stock == S{n}* and price > {n} : fwd(1)" for n in range(20)]
    texts += [f"stock == S{n} and price > 4294967295 : fwd(1)" for n in range(20)]
    texts += [f"stock == S{n} and price >= 0 : mark({n})" for n in range(20)] + ["prise > 1"]
    found = told(texts)
    for at, text in enumerate(texts):
        alone = told([text]).get(0, [])
        assert [str(one) for one in found.get(at, [])] == [str(one) for one in alone]


def test_rows_keep_their_warnings_from_version_to_version():
    warnings = SubscriptionWarnings()
    rows = [Subscription("a", "h1", "stock == NULL"), Subscription("b", "h1", "price > 5")]
    (first,) = warnings.of(rows, SPEC)
    assert (first.id, first.code, first.column) == ("a", "SUBSCRIPTION.NULL_CONSTANT", 10)
    edited = [Subscription("a", "h1", "stock == A"), Subscription("c", "h1", "price < 0")]
    assert [w.id for w in warnings.of([*edited, rows[0]._replace(id="d")], SPEC)] == ["c", "d"]


leaves = st.sampled_from(
    [
        "price > 1",
        "price < 1",
        "price == 1",
        "price >= 0",
        "shares != 1",
        "shares < 0",
        "volume > 1",
    ]
)
conditions = st.recursive(
    leaves,
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner)
        | st.builds("not ({})".format, inner)
    ),
    max_leaves=4,
)


@examples(300)
@given(conditions)
@example("(price < 1 or not ((price < 1 or shares < 0)))")
def test_never_and_always_are_what_trying_all_values_says(condition: str):
    """Of a rule that is told nothing, some event is met and some is not."""
    (rule, found) = parse_rule(condition, SPEC).condition, told([condition])
    values = (0, 1, 2, 0xFFFFFFFF)
    events = [{"add.price": a, "add.shares": b} for a, b in product(values, values)]
    events += [{"trade.volume": a} for a in values]
    met = [matches(rule, event) for event in events]
    codes = {warning.code.partition(".")[2] for warning in found.get(0, [])}
    if not any(met):
        assert codes & {"NEVER_TRUE", "TWO_MESSAGES"}
    if all(met[: len(values) ** 2]):
        assert "ALWAYS_TRUE" in codes
    if codes == {"NEVER_TRUE"} and "shares < 0" not in condition and "price >= 0" not in condition:
        assert not any(met)
