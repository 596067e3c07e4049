"""Reading many rules at once: the same as reading them one by one, whatever is written."""

from __future__ import annotations

import random
from decimal import Decimal, InvalidOperation

import numpy as np
import pytest
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st

from stackcast.udfs.errors import SpecificationError, SubscriptionError
from stackcast.udfs.filters.language.rule import MAX_LENGTH, parse_rule
from stackcast.udfs.filters.language.shapes import RuleTable, read_numerals, read_table
from stackcast.udfs.filters.meaning.normal_form import normal_form
from stackcast.udfs.filters.nodes import Rule
from stackcast.udfs.messages.specification import Field, parse_specification

pytestmark = pytest.mark.unit

MARKET = parse_specification(
    """
    header_type order_t { fields {
        @string message_type: 8; @string stock: 64; @decimals(4) price: 32; shares: 32;
        @decimals(18) fine: 64; whole: 64; bit: 1; small: 7; @string side: 8; wide: 128;
        mac: 48; ip: 32; net: 32; ip6: 128;
    } }
    @message_type("A") header order_t order;
    header_type trade_t { fields { @string message_type: 8; @string stock: 64; volume: 16; } }
    @message_type("P") header trade_t trade;
    @query_field_exact(order.stock)
    @query_field(order.price)
    @query_counter(seen, 100)
    """,
    "market",
)
PLAIN = parse_specification(
    """
    header_type quote_t { fields { @string stock: 64; @decimals(4) price: 32; shares: 32;
        @decimals(18) fine: 64; whole: 64; bit: 1; small: 7; @string side: 8; wide: 128;
        mac: 48; ip: 32; net: 32; ip6: 128; } }
    header quote_t order;
    header_type other_t { fields { volume: 16; @string message_type: 8; } }
    header other_t trade;
    """,
    "plain",
)

FIELDS = [
    *("stock", "order.stock", "trade.stock", "price", "order.price", "shares", "fine", "whole"),
    *("bit", "small", "side", "wide", "volume", "order.message_type", "trade.message_type"),
    *("message_type", "nothing", "order.nothing", "mac", "ip", "net", "ip6", "seen", "avg(price)"),
]
OPERATORS = ["==", "=", "!=", "<", "<=", ">", ">=", "=>", "<>", "in", "≤", "≥", "≠"]
CONSTANTS = [
    *("0", "1", "00", "007", "5", "42", "127", "128", "65535", "65536", "4294967295", "4294967296"),
    *("429496.7295", "429496.7296", "50.25", "50.2500", "50.25000", "1.23456", ".5", "5.", ".", ""),
    *("18446744073709551615", "18446744073709551616", "18.446744073709551615", "9" * 19, "9" * 20),
    *("18.446744073709551616", "0.000000000000000001", "0.0000000000000000001", "1" + "0" * 30),
    *("-1", "-0", "+5", "1e3", "0x1F", "0xG", "1.2.3", "1_000", "٣", "nan", "inf", "0" * 24),
    *("0" * 25, "0" * 70, "1" * 24, "1" * 25, "0.0" + "0" * 22, "0" * 30 + "5", "0." + "0" * 20),
    *("GOOGL", "A", "B", "P", "and", "or", "not", "fwd", "TOOLONGNAME", "EIGHTCHR", "A.B", "é"),
    *('"A"', "'A B'", '""', '"TOO LONG A NAME"', '"5"', "'5.5'", '"A', "'#'", '"a:b"', '";"'),
    *(
        "10.0.0.1",
        "10.0.0.0/8",
        "a-b",
        "a/b",
        "*",
        "~",
        "\\",
        "5\0",
        "\u00a0",
        "5 ",
        "\t7",
        "5#",
        "#5",
    ),
]
ACTIONS = [
    *("", ": fwd(1)", ":fwd(h1,h2)", " : fwd(h1) ;", ": fwd( h2 , h1,h2 )", ";", " : fwd()", ":"),
    *(": fwd(h1))", ": drop", "# all", " : fwd(h3) # b", " # : fwd(h1)", ": FWD(h1)", ": fwd(1);;"),
    *(": fwd(h1\n)", ": fwd(a:b)", " \n: fwd(h1,\n h2)", ": fwd(-)", ": {fwd(1)}", ": 1, 2;"),
    *(":1", ":1,2", ":5::6", ": drop(5) ;", ": {fwd(1); seen <- count(); mark(a, 'b:c')}"),
    *(": seen <- sum(price)", ": seen <- sum(stock)", ": fwd(1); fwd(2)", ":fwd (2)"),
]
CONDITIONS = [
    *(
        "{f} {o} {c}",
        "{f}{o}{c}",
        "{f} {o} {c} and {f} {o} {c}",
        "({f} {o} {c})",
        "not {f} {o} {c}",
    ),
    *("{f} {o} {c} ∧ {f} {o} {c} & {f} {o} {c}", "({f} {o} {c}) ^ ({f}{o}{c})", "{f}\n{o} {c}"),
    *("{f} {o} {c} or {f} {o} {c}", "{f} {o} # why\n {c}", "{f} {o} {c} # {c}\n and {f} {o} {c}"),
    *("(({f} {o} {c} and {f} {o} {c}) and {f} {o} {c})", "not (not {f} {o} {c})", "{c} {o} {f}"),
    *(
        "{f} {o} {c} and stock == {c}",
        "stock == {c} and price > {c}",
        "price > {c} and price < {c}",
    ),
    *("shares >= {c} and bit == {c}", "stock == {c} and trade.volume > {c}", "fine <= {c}", "{c}"),
    *("order.message_type == {c} and price > {c}", "order.message_type >= {c}", "whole < {c}"),
    *(
        "price > {c} and price >= {c} and price <= {c}",
        "{f} in {{{c}, {c}}}",
        "mac == {c}",
        "é == {c}",
    ),
    *(
        "price between {c} and {c}",
        "{f} not in {{{c}}}",
        "mac == {c}:{c}",
        "mac <= {c} and ip > {c}",
    ),
    *("ip6 == {c}", "net == {c} and ip == {c}", "ip in {{{c},{c}}} and net < {c}"),
    *("avg(price) > {c} and stock == {c}", "seen > {c}", "stock == {c} and count() == {c}"),
    *("wide == {c} and shares > {c}", "stock == {c} and stock == {c}"),
]


@st.composite
def tables(draw: st.DrawFn) -> list[str]:
    """Several texts of each of some shapes, shuffled, some of them damaged."""
    source = random.Random(draw(st.integers(0, 2**32)))
    texts: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        form = draw(st.sampled_from(CONDITIONS))
        for _ in range(form.count("{f}")):
            form = form.replace("{f}", draw(st.sampled_from(FIELDS)), 1)
            form = form.replace("{o}", draw(st.sampled_from(OPERATORS)), 1)
        ends = draw(st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=3))
        pool = draw(st.lists(st.sampled_from(CONSTANTS), min_size=1, max_size=12))
        for _ in range(draw(st.sampled_from([1, 12, 30]))):
            text = form
            while "{c}" in text:
                text = text.replace("{c}", source.choice(pool), 1)
            texts.append(text + source.choice(ends))
    for _ in range(draw(st.integers(0, 4))):
        at = source.randrange(len(texts))
        cut = source.randrange(len(texts[at]) + 1)
        texts[at] = (
            texts[at][:cut]
            + source.choice([" ", "\n", "#", "'", '"', ")", "("]) * (source.randrange(3))
            + texts[at][cut + source.randrange(2) :]
        )
    source.shuffle(texts)
    return texts


def one_by_one(text, specification):
    try:
        return parse_rule(text, specification)
    except SubscriptionError as error:
        return error


def assert_same(texts: list[str], table: RuleTable, specification) -> None:
    blocks = {}
    for block in table.blocks:
        assert list(block.names) == sorted(block.names)
        assert block.rule.dtype == np.int32
        assert all(column.dtype == np.uint64 for column in (*block.lows, *block.highs))
        for term, at in block.terms():
            assert at not in blocks, "a rule is in one block at most"
            blocks[at] = term
    rules, errors = dict(table.rules), dict(table.errors)
    assert [at for at, _ in table.rules] == sorted(rules)
    assert [at for at, _ in table.errors] == sorted(errors)
    assert len(set(table.outcomes)) == len(table.outcomes)
    for at, text in enumerate(texts):
        expected = one_by_one(text, specification)
        if isinstance(expected, SubscriptionError):
            assert at not in blocks and at not in rules
            assert table.outcome[at] == -1
            got = errors[at]
            assert (got.code, got.message, got.fields) == (
                expected.code,
                expected.message,
                expected.fields,
            )
            continue
        assert at not in errors
        assert table.outcomes[table.outcome[at]] == expected.actions, text
        if at in rules:
            assert at not in blocks
            assert rules[at] == expected
        else:
            terms = normal_form(expected.condition, specification, optional=True)
            assert terms == ((blocks[at],) if at in blocks else ()), text


@pytest.mark.integration
@examples(600)
@given(tables(), st.sampled_from([MARKET, PLAIN]))
def test_a_table_of_texts_says_what_each_text_says_alone(texts, specification):
    assert_same(texts, read_table(texts, specification), specification)


@examples(100)
@given(st.lists(st.text(alphabet="ab5.=<>! ()&|:;,#'\"\nfwd", max_size=24), max_size=12))
def test_nothing_but_rules_and_errors_comes_out_of_any_texts(texts):
    texts = texts * 9 + ["price > 5"] * 9
    assert_same(texts, read_table(texts, MARKET), MARKET)


def test_plain_rules_never_become_syntax_trees():
    texts = [
        f"stock == S{i % 10} and price > {i}.{i % 10000:04d} : fwd(h{i % 7})" for i in range(999)
    ]
    table = read_table(texts, MARKET)
    assert (table.rules, table.errors) == ([], [])
    (block,) = table.blocks
    assert block.names == ("message_type", "order.price", "order.stock")
    assert block.rule.tolist() == list(range(999))
    assert len(table.outcomes) == 7
    assert_same(texts, table, MARKET)


def test_shapes_may_be_mixed_and_each_is_read_as_columns():
    texts = []
    for i in range(60):
        texts += [f"price > {i}: fwd(1)", f"shares<={i} ^ (stock = S{i})", f'side == "{i % 10}";']
    table = read_table(texts, MARKET)
    assert (table.rules, table.errors) == ([], [])
    assert sum(len(block) for block in table.blocks) == len(texts)
    assert_same(texts, table, MARKET)


def test_a_field_that_may_have_any_value_stays_named_as_it_must_be_there():
    texts = [f"stock == A and shares >= {i % 2}" for i in range(20)]
    table = read_table(texts, MARKET)
    (block,) = table.blocks
    assert block.names == ("message_type", "order.shares", "order.stock")
    assert_same(texts, table, MARKET)


def test_a_rule_that_nothing_satisfies_has_no_term_but_keeps_its_actions():
    texts = ["shares > 4294967295 : fwd(h1)"] * 10 + ["shares > 5 : fwd(h2)"] * 10
    table = read_table(texts, MARKET)
    assert [len(block) for block in table.blocks] == [10]
    assert len(set(table.outcome[:10].tolist())) == 1
    assert_same(texts, table, MARKET)


def test_a_colon_of_an_address_is_not_taken_for_the_one_before_the_actions():
    texts = ["stock == 0: fwd(1)"] * 9 + ["stock == 0:5::6", "stock == 1:5::6", "stock == 0:5,6"]
    assert_same(texts, read_table(texts, MARKET), MARKET)


def test_the_same_actions_mean_the_same_behind_any_condition_and_only_as_actions():
    acts = ["fwd(1)", " fwd(1)", "5::6", " 5::6", "5", " 5, 6", "{ fwd(h1); alert() }", " fwd()"]
    heads = ["stock == 0", "shares > 7 ", "(price > 5)", "ip6 == 5:5:5:5:5:5:5", "ip6 == 1:"]
    texts = [f"{head}:{act}" for head in heads for act in acts for _ in range(9)]
    assert_same(texts, read_table(texts, MARKET), MARKET)
    assert_same(texts[::-1], read_table(texts[::-1], MARKET), MARKET)


def test_actions_behind_a_comment_are_those_of_the_rule():
    texts = [f"price > {at} # a limit: fwd(9)\n : fwd({at % 3})" for at in range(20)]
    texts += [f"shares > {at} # no actions: fwd(9)" for at in range(20)]
    assert_same(texts, read_table(texts, MARKET), MARKET)


def test_a_text_that_is_too_long_is_refused_even_if_its_shape_is_known():
    texts = ["shares > 5 : fwd(h1)"] * 20
    texts[13] += " " * MAX_LENGTH
    table = read_table(texts, MARKET)
    assert [(at, error.code) for at, error in table.errors] == [(13, "SUBSCRIPTION.TOO_LONG")]


def test_no_texts_make_an_empty_table():
    assert read_table([], MARKET).outcome.size == 0


numerals = st.one_of(
    st.from_regex(r"[0-9]{0,26}\.?[0-9]{0,26}", fullmatch=True),
    st.text(alphabet="0123456789.+-eE_ x", max_size=30),
    st.sampled_from(CONSTANTS),
)


@examples(300)
@given(st.lists(numerals, max_size=40), st.integers(0, 18), st.integers(1, 64))
@example(["9999999999999999999", "18446744073709551615"], 0, 64)
@example(["٣", "³", "5\x00", "\x00"], 0, 64)
def test_a_numeral_that_is_sure_is_what_exact_arithmetic_gives(texts, decimals, bits):
    field = Field("h", "f", bits, 0, "decimal" if decimals else "integer", decimals)
    values, sure = read_numerals(texts, decimals, (1 << bits) - 1)
    assert len(values) == len(sure) == len(texts)
    for text, value, certain in zip(texts, values.tolist(), sure.tolist(), strict=True):
        if certain:
            assert set(text) <= set("0123456789."), text
            assert value == field.encode(Decimal(text))
        else:
            try:
                accepted = field.encode(Decimal(text))
            except (SpecificationError, InvalidOperation):
                continue
            plain = set(text) <= set("0123456789.") and len(text) <= 18 and not text.endswith(".")
            short = len(text.replace(".", "")) + decimals <= 18
            places = len(text.partition(".")[2])
            assert not (plain and short and places <= decimals), (text, accepted)


def test_rules_compare_with_those_of_the_parser_as_equal_objects():
    texts = ["price > 5 or shares > 6 : fwd(h2, h1)"] * 9
    table = read_table(texts, MARKET)
    assert all(isinstance(rule, Rule) and rule.receivers == ("h2", "h1") for _, rule in table.rules)
    assert len(table.rules) == 9
