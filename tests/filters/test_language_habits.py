"""What people bring along from SQL, jq, packet filters, Snort and Python: said what to write."""

from __future__ import annotations

import re

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.language.habits import begins_with
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.messages.specification import parse_specification

pytestmark = pytest.mark.unit

SPEC = parse_specification(
    """
    header_type order_t { fields { @string stock: 64; @decimals(4) price: 32; shares: 32; } }
    header order_t order;
    @query_counter(seen, 100)
    """,
    "market",
)

# Text, code, the word under the caret, and what is written instead.
HABITS = [
    ("stock LIKE 'GOO%'", "SYNTAX", "LIKE", "stock >= GOO and stock < GOP"),
    ("price > 5 and stock like GOO%", "SYNTAX", "like", "stock >= GOO and stock < GOP"),
    ("stock NOT LIKE 'GOO%'", "SYNTAX", "LIKE", "not (stock >= GOO and stock < GOP)"),
    ("stock LIKE '%GL'", "SYNTAX", "LIKE", "stock in {A, B}"),
    ("stock =~ 'GOO.*'", "SYNTAX", "=~", "stock >= GOO and stock < GOP"),
    ("stock =~ GOO", "SYNTAX", "=~", "patterns are not supported"),
    ("stock ~ GOO", "SYNTAX", "~", "patterns are not supported"),
    ("stock !~ GOO", "SYNTAX", "!~", "not (stock >= GOO and stock < GOP)"),
    ("stock matches 'GOO'", "SYNTAX", "matches", "patterns are not supported"),
    ("stock contains GOO", "SYNTAX", "contains", "stock in {A, B}"),
    ("stock startswith GOO", "SYNTAX", "startswith", "stock >= GOO and stock < GOP"),
    ("startswith(stock, 'GOO')", "SYNTAX", "startswith", "stock >= GOO and stock < GOP"),
    ("stock.startswith('GOO')", "SYNTAX", "startswith", "stock >= GOO and stock < GOP"),
    ("stock.lower() == goo", "SYNTAX", "lower", "fields have no methods"),
    ("price IS NULL", "SYNTAX", "IS", "NULL is not supported"),
    ("price is not null and shares > 1", "SYNTAX", "is", "such as price >= 0"),
    ("price == NULL", "BAD_CONSTANT", "NULL", "NULL is not supported"),
    ("price != None", "BAD_CONSTANT", "None", "such as price >= 0"),
    ("price eq 50", "SYNTAX", "eq", "write price == 50"),
    ("price ne 50", "SYNTAX", "ne", "write price != 50"),
    ("price gt 50 and shares > 1", "SYNTAX", "gt", "write price > 50"),
    ("shares > 1 and price lte 50", "SYNTAX", "lte", "write price <= 50"),
    ("price is 50", "SYNTAX", "is", "write price == 50"),
    ("price > shares", "BAD_CONSTANT", "shares", "'shares' is a field"),
    ("price > order.shares", "BAD_CONSTANT", "order.shares", "is a field"),
    ("avg(price) > shares", "BAD_CONSTANT", "shares", "'shares' is a field"),
    ("price > avg(price)", "SYNTAX", "avg", "as in avg(price) > 50"),
    ("avg(price) > max(price)", "SYNTAX", "max", "on the left"),
    ("stock == GOOGL : drop", "SYNTAX", "drop", "rules cannot drop events"),
    ("stock == GOOGL : { drop }", "SYNTAX", "drop", "rules cannot drop events"),
    ("stock == A : fwd(1), fwd(2)", "SYNTAX", "fwd(2)", "write fwd(1, 2)"),
    ("stock == A : fwd(1) fwd(h2, 3)", "SYNTAX", "fwd(h2", "write fwd(1, h2, 3)"),
    ("stock == A : fwd(1); fwd(2)", "SYNTAX", "fwd(2)", "write fwd(1, 2)"),
    ("stock == A : fwd(1) and fwd(2)", "SYNTAX", "fwd(2)", "write fwd(1, 2)"),
    ("stock == A : fwd(1), seen <- count()", "SYNTAX", ",", "{ fwd(1); seen <- count() }"),
    ("stock == A : fwd h1", "SYNTAX", "fwd", "write fwd(h1)"),
    ("stock == A : forward to h1", "SYNTAX", "forward", "write fwd(h1)"),
    ("stock == A : h1", "SYNTAX", "h1", "write fwd(h1)"),
    ("stock == A -> fwd(1)", "SYNTAX", "->", "follow a colon"),
    ("stock == A => fwd(1)", "SYNTAX", "=>", "follow a colon"),
    ("stock == A then fwd(1)", "SYNTAX", "then", "follow a colon"),
    ("stock == A fwd(1)", "SYNTAX", "fwd", "follow a colon"),
    ("WHERE stock == A", "SYNTAX", "WHERE", "remove 'WHERE'"),
    ("where (stock == A)", "SYNTAX", "where", "remove 'where'"),
    ("if stock == A : fwd(1)", "SYNTAX", "if", "remove 'if'"),
    ("if (stock == A) then fwd(1)", "SYNTAX", "if", "remove 'if'"),
    ("SELECT * FROM t WHERE price > 5", "SYNTAX", "SELECT", "starts with its condition"),
    ("tcp port 80", "SYNTAX", "tcp", "not part of the rule language"),
    ("host 10.0.0.1", "SYNTAX", "host", "not part of the rule language"),
    ("alert tcp any any -> any 80 (msg: 'x';)", "SYNTAX", "alert", "not part of the rule language"),
    (".price > 50", "SYNTAX", ".price", "write price"),
    ("true : fwd(1)", "SYNTAX", "true", "all : fwd(h1)"),
    ("50 < price < 60", "SYNTAX", "", "write price > 50 and price < 60"),
    ("price > 50 < 60", "SYNTAX", "<", "write price > 50 and price < 60"),
    ("price >= 50 and <= 60", "SYNTAX", "<=", "write price >= 50 and price <= 60"),
    ("stock == A or B", "SYNTAX", "B", "stock in {A, B}"),
    ("stock in A, B", "SYNTAX", "A", "in braces"),
    ("price in 1 to 5", "SYNTAX", "1", "price between 1 and 5"),
    ("price between 1 to 5", "SYNTAX", "to", "price between 1 and 5"),
    ("price * shares > 100", "SYNTAX", "*", "arithmetic is not supported"),
    ("price > 5 xor shares > 1", "SYNTAX", "xor", "'xor' is not supported"),
    ("stock == A price > 5", "SYNTAX", "price", "joined by 'and' or 'or'"),
    ("(stock == A : fwd(1)", "SYNTAX", ":", "the '(' before 'stock' is not closed"),
    ("(stock == A and (price > 5)", "SYNTAX", "", "the '(' before 'stock' is not closed"),
    ("stock == A and (price > 5 : fwd(1)", "SYNTAX", ":", "the '(' before 'price' is not closed"),
    ("stock == A) : fwd(1)", "SYNTAX", ")", "no matching '('"),
]


def fault(text: str) -> SubscriptionError:
    with pytest.raises(SubscriptionError) as caught:
        parse_rule(text, SPEC)
    return caught.value


@pytest.mark.parametrize(("text", "code", "word", "words"), HABITS)
def test_a_habit_is_told_at_its_word_with_what_to_write(
    text: str, code: str, word: str, words: str
):
    error = fault(text)
    assert error.code == f"SUBSCRIPTION.{code}"
    assert error.line == 1 and text[error.column - 1 :].startswith(word)
    assert words in error.message
    *_, shown, caret = error.message.split("\n")
    assert shown.strip() == text and len(caret) - 2 == error.column


def test_what_is_written_instead_is_understood():
    for _, _, _, words in HABITS:
        for found in re.findall(r"write ([a-z]+(?: |\().+)$", words):
            parse_rule(found if " : " in found or "fwd" not in found else f"all : {found}", SPEC)


def test_a_habit_is_shown_in_its_line_and_not_seen_in_quotes_or_comments():
    error = fault("stock == 'x LIKE y' # price IS NULL\n and price eq 5")
    assert (error.line, error.column) == (2, 12) and "write price == 5" in error.message


def test_fields_may_be_called_as_the_words_of_other_languages():
    spec = parse_specification(
        """header_type h_t { fields { port: 16; where: 8; if: 8; eq: 8; is: 8; tcp: 8; any: 8; } }
        header h_t h;""",
        "words",
    )
    for field in ("port", "where", "if", "eq", "is", "tcp", "any"):
        rule = parse_rule(f"{field} == 5 and not {field} in {{1, 2}} : fwd(1)", spec)
        assert rule.condition.children[0].field.name == field


@examples(100)
@given(st.text("ABGOXYZ019", min_size=1, max_size=4), st.text("ABGOXYZ019", max_size=8))
def test_the_range_that_stands_for_a_beginning_has_what_begins_so(start: str, symbol: str):
    text = begins_with("stock", start)
    if start not in text:
        return
    raw = int.from_bytes(symbol.encode().ljust(8), "big")
    condition = parse_rule(text, SPEC).condition
    assert matches(condition, {"order.stock": raw}) == symbol.startswith(start)


@pytest.mark.parametrize("word", ["and", "or", "AND", "and not"])
def test_an_unfinished_comparison_after_another_one_lacks_a_constant(word: str) -> None:
    text = f"stock == GOOGL {word} price >"
    with pytest.raises(SubscriptionError) as caught:
        parse_rule(text, SPEC)
    assert "expected a constant, found the end" in caught.value.message
    assert caught.value.column == len(text) + 1
