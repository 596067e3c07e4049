"""Reading subscriptions: what people write is understood, and what is wrong is pointed at."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from udfs import filters
from udfs.errors import SubscriptionError
from udfs.filters.language import MAX_LENGTH, parse_rule
from udfs.filters.nodes import And, Not, Or, Predicate
from udfs.filters.subscriptions import Subscription, check, select
from udfs.messages.specification import parse_specification

pytestmark = pytest.mark.unit

HOSTS = {"h1", "h2", "h3", "feed1"}


SPEC = parse_specification(
    """
    header_type envelope_t { fields { @string session: 80; } }
    header envelope_t envelope;
    header_type add_order_t { fields {
        @string message_type: 8; @string stock: 64; @decimals(4) price: 32; shares: 32;
        locate: 16; @string buy_sell: 8;
    } }
    @message_type("A") header add_order_t add_order;
    header_type trade_t { fields {
        @string message_type: 8; @string stock: 64; locate: 16; match_number: 64; @string note: 72;
    } }
    @message_type("P") header trade_t trade;
    @query_field_exact(add_order.stock)
    @query_field(add_order.price)
    @query_field(add_order.shares)
    """,
    "market",
)


def fault(text: str) -> SubscriptionError:
    with pytest.raises(SubscriptionError) as caught:
        parse_rule(text, SPEC)
    return caught.value


def condition(text: str):
    return parse_rule(text, SPEC).condition


def test_a_price_in_dollars_becomes_the_raw_value_with_its_four_decimals():
    predicate = condition("price > 50.25")
    assert isinstance(predicate, Predicate)
    assert (predicate.field.qualified, predicate.operator, predicate.value) == (
        "add_order.price",
        ">",
        502500,
    )
    assert predicate.text == "price > 50.25"


@pytest.mark.parametrize(
    "text", ["stock == GOOGL", "stock = GOOGL", 'stock="GOOGL"', "add_order.stock == 'GOOGL'"]
)
def test_a_symbol_may_be_bare_or_quoted_and_is_padded(text: str):
    assert condition(text).value == int.from_bytes(b"GOOGL   ", "big")


@pytest.mark.parametrize("symbol", ["AND", "or", "NOT", "fwd", "BRK.B", "ACH-A", "3M"])
def test_any_symbol_can_be_compared_with_even_a_keyword(symbol: str):
    expected = int.from_bytes(symbol.encode().ljust(8), "big")
    assert condition(f"not stock == {symbol} and shares > 1").children[0].child.value == expected


@pytest.mark.parametrize("text", ["shares >= 255", "shares >= 0xff", "shares>=255 # round lots"])
def test_integers_hex_and_comments(text: str):
    assert (condition(text).operator, condition(text).value) == (">=", 255)


@pytest.mark.parametrize("conjunction", ["and", "AND", "&&", "∧", "^"])
@pytest.mark.parametrize("disjunction", ["or", "Or", "||", "∨"])
@pytest.mark.parametrize("negation", ["not ", "!", "not not !"])
def test_all_spellings_and_precedence(conjunction: str, disjunction: str, negation: str):
    tree = condition(f"shares<1 {disjunction} {negation}shares<2 {conjunction} shares<3")
    assert isinstance(tree, Or)
    assert isinstance(tree.children[1], And)
    assert isinstance(tree.children[1].children[0], Not)
    grouped = condition(f"(shares<1 {disjunction} shares<2) {conjunction} shares<3")
    assert isinstance(grouped, And)


def test_the_action_names_receivers_in_order_without_repeats():
    rule = parse_rule("stock == GOOGL : fwd(h2, h1, h2);", SPEC)
    assert rule.receivers == ("h2", "h1")
    assert rule.places == ((1, 22), (1, 26))
    assert parse_rule("stock == GOOGL", SPEC).receivers == ()


FAULTS = [
    ("", "EMPTY", 1, 1, "empty"),
    ("  # nothing here", "EMPTY", 1, 1, "empty"),
    ("prise > 5", "UNKNOWN_FIELD", 1, 1, "did you mean 'price'?"),
    ("shares > 1 and\n  add_order.prise > 5", "UNKNOWN_FIELD", 2, 3, "'add_order.price'?"),
    ("locate == 1", "AMBIGUOUS_FIELD", 1, 1, "add_order.locate, trade.locate"),
    ("session == A", "NOT_IN_MESSAGES", 1, 1, "'envelope.session' belongs to the framing"),
    ("price > cheap", "BAD_CONSTANT", 1, 9, "'cheap' is not a number"),
    ("price > 1.23456", "BAD_CONSTANT", 1, 9, ""),
    ("shares > -1", "BAD_CONSTANT", 1, 10, ""),
    ("shares > 1.5", "BAD_CONSTANT", 1, 10, ""),
    ("shares > 4294967296", "BAD_CONSTANT", 1, 10, ""),
    ("shares > " + "9" * 5000, "BAD_CONSTANT", 1, 10, "over 64"),
    ("stock == TOOLONGNAME", "BAD_CONSTANT", 1, 10, ""),
    ("stock == 'é'", "BAD_CONSTANT", 1, 10, "not ASCII"),
    ("stock GOOGL", "SYNTAX", 1, 7, "expected a comparison"),
    ("price > ", "SYNTAX", 1, 8, "expected a constant, found the end"),
    ("price => 5", "SYNTAX", 1, 8, "write '>='"),
    ("price <> 5", "SYNTAX", 1, 8, "write '!='"),
    ("stock == 'GOOGL", "SYNTAX", 1, 10, "quotes are not closed"),
    ("5 < price", "SYNTAX", 1, 1, "field stands on the left"),
    ("shares > 1,000", "SYNTAX", 1, 11, "write 1000"),
    ("(price > 5", "SYNTAX", 1, 11, "')'"),
    ("price > 5)", "SYNTAX", 1, 10, "found ')'"),
    ("price > 5 price < 6", "SYNTAX", 1, 11, "'and'"),
    ("price > 5 : forward(h1)", "SYNTAX", 1, 13, "expected 'fwd(...)'"),
    ("price > 5 : fwd()", "SYNTAX", 1, 17, "expected a host name"),
    ("price > 5 : fwd(h1 h2)", "SYNTAX", 1, 20, "parted by commas"),
    ("shares > 1" + " or shares > 1" * 1000, "TOO_LONG", 1, 1, f"limit is {MAX_LENGTH}"),
    ("(" * 65 + "shares > 1" + ")" * 65, "TOO_DEEP", 1, 66, "64"),
    ("!" * 8000 + "shares > 1", "TOO_DEEP", 1, 8001, "64"),
]


@pytest.mark.parametrize(("text", "code", "line", "column", "part"), FAULTS)
def test_every_fault_has_its_code_and_place_and_says_what_to_do(
    text: str, code: str, line: int, column: int, part: str
):
    error = fault(text)
    assert error.code == f"SUBSCRIPTION.{code}"
    assert (error.line, error.column) == (line, column)
    assert error.message.startswith(f"line {line}, column {column}: ")
    assert part in error.message
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_the_caret_stands_under_the_fault_even_in_a_long_line():
    text = "shares > 1 and " * 40 + "\tprise > 5 and shares > 2"
    *_, excerpt, caret = fault(text).message.split("\n")
    assert len(excerpt) < 100
    assert excerpt[caret.index("^") :].startswith("prise > 5")


def test_nesting_of_64_is_allowed_and_long_chains_are_not_nesting():
    parse_rule("(" * 64 + "shares > 1" + ")" * 64, SPEC)
    parse_rule(" or ".join(["shares > 1"] * 500), SPEC)


def rejected(text: str | None, subscriber: str = "h1"):
    rules, rejections = check([Subscription("x", subscriber, text)], SPEC, HOSTS, "feed1")
    assert not rules
    return rejections[0]


BAD_ROWS = [
    ("price > 5 : fwd(h1, h22)", "h1", "UNKNOWN_HOST", 21, "did you mean 'h2'?"),
    ("price > 5 : fwd(feed1)", "h1", "PUBLISHER_AS_RECEIVER", 17, "publisher"),
    ("price > 5", "h9", "UNKNOWN_HOST", 1, "subscriber 'h9'"),
    ("price > 5", "feed1", "PUBLISHER_AS_RECEIVER", 1, "subscriber 'feed1'"),
    (None, "h1", "EMPTY", 1, "empty"),
    (
        " and ".join(f"(shares != {i} or price != {i})" for i in range(99)),
        "h1",
        "TOO_COMPLEX",
        1,
        "split it",
    ),
]


@pytest.mark.parametrize(("text", "subscriber", "code", "column", "part"), BAD_ROWS)
def test_a_row_that_cannot_be_live_is_rejected_with_its_place(
    text: str, subscriber: str, code: str, column: int, part: str
):
    rejection = rejected(text, subscriber)
    assert (rejection.id, rejection.code) == ("x", f"SUBSCRIPTION.{code}")
    assert (rejection.line, rejection.column) == (1, column)
    assert part in rejection.message


@pytest.mark.parametrize("code", sorted({row[1] for row in FAULTS} | {row[2] for row in BAD_ROWS}))
def test_the_manual_says_what_to_do_about_every_code(code: str):
    manual = Path(filters.__file__).parents[2] / "docs" / "subscriptions.md"
    assert f"| `SUBSCRIPTION.{code}` | " in manual.read_text("utf-8")


def test_one_bad_subscription_harms_no_other():
    rows = [
        Subscription("a", "h1", "stock == GOOGL"),
        Subscription("b", "h1", "stock = = GOOGL"),
        Subscription("c", "h2", "stock == GOOGL : fwd(h3, h1)"),
        Subscription("d", "h3", "stock = = GOOGL"),
    ]
    for _ in range(2):  # the second time from the cache of texts
        rules, rejections = check(rows, SPEC, HOSTS, "feed1")
        assert [(rule.id, rule.receivers) for rule in rules] == [
            ("a", ("h1",)),
            ("c", ("h1", "h3")),
        ]
        assert [rejection.id for rejection in rejections] == ["b", "d"]


def test_the_host_set_is_asked_anew_each_time_though_texts_are_cached():
    row = [Subscription("a", "h9", "stock == GOOGL")]
    assert check(row, SPEC, HOSTS, "feed1")[1]
    assert check(row, SPEC, HOSTS | {"h9"}, "feed1")[0]


PIECES = r"""price shares stock add_order.price locate envelope.session and or not && || ∧ ∨ ! ^ ( )
== = != < <= > >= : fwd fwd(h1) , ; # ' " GOOGL 5 50.25 0xff -1 1e9 . .. é 漢 ٣ [] \ { & |"""
pieces = st.sampled_from([*PIECES.split(), "\n", "\t", "\0", "\r", "\u2028", "\ud800"])
noise = st.one_of(st.text(max_size=40), st.lists(pieces, max_size=25).map(" ".join))


@settings(max_examples=300, deadline=None)
@given(noise)
def test_no_text_whatever_brings_anything_but_a_rule_or_a_rejection(text: str):
    rules, rejections = check([Subscription("x", "h1", text)], SPEC, HOSTS, "feed1")
    assert len(rules) + len(rejections) == 1
    for rejection in rejections:
        assert 1 <= rejection.line <= text.count("\n") + 1
        assert 1 <= rejection.column <= len(text) + 1
        assert rejection.message.startswith(f"line {rejection.line}, column {rejection.column}: ")


def test_rows_of_no_known_format_are_rejected_and_rows_of_another_job_left_to_it():
    rows = [
        {"id": i, "subscriber": "h1", "filter": "price > 1", "format": f, "enabled": e}
        for i, f, e in (
            ("b", "itch", True),
            ("a", "ITCH", True),
            ("c", "av", True),
            ("d", "x", False),
        )
    ]
    chosen, rejected = select(rows, "itch", ("itch", "av"))
    assert [s.id for s in chosen] == ["b"]
    assert [(r.id, r.code) for r in rejected] == [("a", "SUBSCRIPTION.UNKNOWN_FORMAT")]
