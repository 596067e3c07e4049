"""Reading subscriptions: what people write is understood, and what is wrong is pointed at."""

from __future__ import annotations

import pickle
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.language.rule import MAX_CONSTANTS, MAX_LENGTH, parse_rule
from stackcast.udfs.filters.nodes import (
    Aggregate,
    And,
    Call,
    Forward,
    Not,
    Or,
    Predicate,
    StatePredicate,
    Update,
)
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.messages.specification import parse_specification

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

# As a switch sees packets: no header is typed, nothing but the price annotated.
NET = parse_specification(
    """
    header_type ethernet_t { fields { dst: 48; src: 48; } }
    header_type ip_t { fields { ttl: 8; src: 32; dst: 32; } }
    header_type ip6_t { fields { src: 128; dst: 128; } }
    header_type order_t { fields { shares: 32; stock: 64; @decimals(4) price: 32; } }
    header ethernet_t eth;
    header ip_t ip;
    header ip6_t ip6;
    header order_t order;
    @query_field(order.shares)
    @query_field(order.price)
    @query_field_exact(order.stock)
    @query_field_lpm(ip.dst)
    @query_counter(my_counter, 100)
    @query_counter(slow, 1000, 16)
    """,
    "net",
)


def net(text: str):
    return parse_rule(text, NET)


def parts(node) -> object:
    """A condition without its places and texts."""
    if isinstance(node, Predicate):
        return (node.field.qualified, node.operator, node.constants)
    if isinstance(node, StatePredicate):
        subject = node.subject
        if isinstance(subject, Aggregate):
            field = subject.field and subject.field.qualified
            return (subject.function, field, subject.window, node.operator, node.value)
        return (subject.name, node.operator, node.value)
    if isinstance(node, Not):
        return ("not", parts(node.child))
    return ("and" if isinstance(node, And) else "or", [parts(child) for child in node.children])


def text_value(text: str) -> int:
    return int.from_bytes(text.encode().ljust(8), "big")


GOOGL = ("order.stock", "==", ((text_value("GOOGL"),) * 2,))

#: The examples of both texts on CAMUS.
EXAMPLES = [
    ("ip.dst == 192.168.0.1 : fwd(1)", ("ip.dst", "==", ((0xC0A80001,) * 2,)), ("1",)),
    ("stock == GOOGL : fwd(1)", GOOGL, ("1",)),
    ("stock == GOOGL : fwd(1,2,3)", GOOGL, ("1", "2", "3")),
    (
        "stock == GOOGL ^ avg(price) > 50 : fwd(1)",
        ("and", [GOOGL, ("avg", "order.price", 100, ">", 500000)]),
        ("1",),
    ),
    (
        "stock == GOOGL ∧ avg(price) > 50 : fwd(1)",
        ("and", [GOOGL, ("avg", "order.price", 100, ">", 500000)]),
        ("1",),
    ),
    ('stock = "GOOGL" : 1, 2;', GOOGL, ("1", "2")),
    ("shares==2 : fwd(1)", ("order.shares", "==", ((2, 2),)), ("1",)),
    (
        "price>1 ^ shares==2 : fwd(2)",
        ("and", [("order.price", ">", ((10000,) * 2,)), ("order.shares", "==", ((2, 2),))]),
        ("2",),
    ),
    (
        "shares < 60 ∧ stock == AAPL: fwd(3)",
        ("and", [("order.shares", "<", ((60, 60),)), (*GOOGL[:2], ((text_value("AAPL"),) * 2,))]),
        ("3",),
    ),
]


@pytest.mark.parametrize(("text", "condition", "receivers"), EXAMPLES)
def test_the_examples_of_the_texts_are_read(text: str, condition: object, receivers: tuple):
    rule = net(text)
    assert parts(rule.condition) == condition
    assert rule.receivers == receivers


V6 = int(IPv6Address("2001:db8::1"))
PREDICATES = [
    ("ip.dst == 10.0.0.0/8", "in", ((0x0A000000, 0x0AFFFFFF),)),
    ("ip.dst != 10.0.0.0/8", "not in", ((0x0A000000, 0x0AFFFFFF),)),
    ("ip.dst == 10.0.0.1/32", "==", ((0x0A000001,) * 2,)),
    (
        "ip.dst in {10.0.0.0/8, 1.2.3.4, 7}",
        "in",
        ((0x0A000000, 0x0AFFFFFF), (0x01020304,) * 2, (7, 7)),
    ),
    ("ip.dst not in {0/0}", "not in", ((0, 0xFFFFFFFF),)),
    ("ip.dst between 10.0.0.1 and 10.0.0.9", "in", ((0x0A000001, 0x0A000009),)),
    ("ttl not between 0x10 and 0x20", "not in", ((16, 32),)),
    ("ttl BETWEEN 3 AND 3", "in", ((3, 3),)),
    ("ip6.dst == 2001:db8::1", "==", ((V6, V6),)),
    ("ip6.dst==2001:db8::1/128", "==", ((V6, V6),)),
    ("ip6.dst == 2001:DB8::/32", "in", ((V6 - 1, V6 - 1 + (1 << 96) - 1),)),
    ("ip6.dst in {::1,::}", "in", ((1, 1), (0, 0))),
    ("ip6.dst == '::ffff:10.0.0.1'", "==", ((0xFFFF0A000001,) * 2,)),
    ("eth.dst == 00:11:22:33:44:55", "==", ((0x001122334455,) * 2,)),
    ("eth.dst = 00-11-22-33-44-55", "==", ((0x001122334455,) * 2,)),
    ("eth.dst in {00:11:22:00:00:00/24}", "in", ((0x001122000000, 0x001122FFFFFF),)),
    ("price ≥ 50.25", ">=", ((502500,) * 2,)),
    ("price ≤ 50.25", "<=", ((502500,) * 2,)),
    ("shares ≠ 0x10", "!=", ((16, 16),)),
    (
        "stock in { 'A B', AND , in }",
        "in",
        tuple((text_value(text),) * 2 for text in ("A B", "AND", "in")),
    ),
    ("stock between A and B", "in", ((text_value("A"), text_value("B")),)),
]


@pytest.mark.parametrize(("text", "operator", "constants"), PREDICATES)
@pytest.mark.parametrize("action", ["", ":fwd(1)", " : fwd(1)", " : 1;"])
def test_sets_spans_prefixes_and_addresses(text: str, operator: str, constants: tuple, action: str):
    rule = net(text + action)
    assert (rule.condition.operator, rule.condition.constants) == (operator, constants)
    assert rule.condition.text == text
    assert rule.receivers == (("1",) if action else ())


STATE = [
    ("my_counter > 10", ("my_counter", ">", 10)),
    ("slow = 0", ("slow", "==", 0)),
    ("count() >= 3", ("count", None, 100, ">=", 3)),
    ("count( 50 ) >= 3", ("count", None, 50, ">=", 3)),
    ("sum(shares) < 4294967296", ("sum", "order.shares", 100, "<", 1 << 32)),
    ("min(order.price, 7) != 1.5", ("min", "order.price", 7, "!=", 15000)),
    ("max (price) <= 1", ("max", "order.price", 100, "<=", 10000)),
    (
        "avg(price) between 1 and 2",
        ("and", [("avg", "order.price", 100, o, v) for o, v in ((">=", 10000), ("<=", 20000))]),
    ),
    (
        "slow not between 1 and 2",
        ("or", [("slow", "<", 1), ("slow", ">", 2)]),
    ),
    ("slow in {1, 2}", ("or", [("slow", "==", 1), ("slow", "==", 2)])),
    ("slow not in {1, 2}", ("and", [("slow", "!=", 1), ("slow", "!=", 2)])),
    ("slow in {1}", ("slow", "==", 1)),
]


@pytest.mark.parametrize(("text", "expected"), STATE)
def test_state_variables_and_macros(text: str, expected: object):
    assert parts(net(text).condition) == expected
    assert parts(net(f"not ({text}) : fwd(1)").condition) == ("not", expected)


ACTIONS = [
    ("fwd(h1, 02)", (Forward(("h1", "2")),)),
    ("1, 2", (Forward(("1", "2")),)),
    ("{ 1, 2 }", None),
    ("answerDNS(10.0.0.97)", (Call("answerDNS", ("10.0.0.97",)),)),
    ("log()", (Call("log", ()),)),
    ("set('a, b', 2001:db8::1, 0x5)", (Call("set", ("a, b", "2001:db8::1", "0x5")),)),
    ("my_counter <- count()", (Update(NET.counter("my_counter"), "count", None),)),
    ("slow ← sum(shares)", (Update(NET.counter("slow"), "sum", NET.field("shares")),)),
    (
        "{ fwd(1); my_counter<-count(); a(1); fwd(h2, 1) }",
        (
            Forward(("1",)),
            Update(NET.counter("my_counter"), "count", None),
            Call("a", ("1",)),
            Forward(("h2", "1")),
        ),
    ),
    ("{fwd(1);}", (Forward(("1",)),)),
    ("{fwd(1)};", (Forward(("1",)),)),
]


@pytest.mark.parametrize(("text", "actions"), ACTIONS)
def test_actions(text: str, actions: tuple | None):
    if actions is None:
        with pytest.raises(SubscriptionError):
            net(f"shares > 1 : {text}")
        return
    rule = net(f"shares > 1 : {text}")
    assert rule.actions == actions
    assert len(rule.places) == len(rule.receivers)


@pytest.mark.parametrize("host", ["10ge-3", "1a", "10.0.0.1", "0", "x1.5", "3com.lab"])
def test_names_that_begin_with_digits_are_hosts_unless_they_are_numbers(host: str):
    assert net(f"shares > 1 : fwd({host})").receivers == (host,)


@pytest.mark.parametrize("name", ["flood", "drop", "set", "log", "fwd_cpu", "fwd2", "answerDNS"])
def test_actions_that_are_no_slips_keep_their_names(name: str):
    assert net(f"shares > 1 : {name}(1)").actions == (Call(name, ("1",)),)


def test_a_rule_that_is_too_long_is_shown_from_its_beginning():
    with pytest.raises(SubscriptionError) as caught:
        net("shares == 5 or " * MAX_LENGTH)
    assert caught.value.message.split("\n")[1:] == ["  " + ("shares == 5 or " * 9)[:72], "  ^"]


def test_all_targets_of_a_rule_are_its_receivers_once_each():
    rule = net("shares > 1 : { fwd(h2, 1); fwd(3, h2) }")
    assert rule.receivers == ("h2", "1", "3")
    assert rule.places == ((1, 20), (1, 24), (1, 32))


@pytest.mark.parametrize("name", ["fwd", "count", "in", "between"])
def test_words_of_the_language_can_name_fields_and_variables(name: str):
    spec = parse_specification(
        f"header_type t {{ fields {{ {name}: 8; }} }} header t h; @query_counter(x_{name}, 5)", "w"
    )
    assert parts(parse_rule(f"{name} == 5", spec).condition) == (f"h.{name}", "==", ((5, 5),))
    assert parts(parse_rule(f"h.{name} in {{5}}", spec).condition)[1] == "in"
    assert parse_rule(f"{name} > 1 : x_{name} <- count()", spec).actions


def test_fields_of_framing_can_be_allowed():
    rule = parse_rule("session == A and shares > 1", SPEC, framing=True)
    assert rule.condition.children[0].field.qualified == "envelope.session"


NET_FAULTS = [
    ("ip.dst < 10.0.0.0/8", "PREFIX_ORDER", 1, 10, "'10.0.0.0/8' is a prefix"),
    ("ip.dst between 1.0.0.0/8 and 2.0.0.0", "PREFIX_ORDER", 1, 16, "prefix"),
    ("ip.dst == 10.0.0.0/33", "BAD_CONSTANT", 1, 11, "32 bits"),
    ("ip.dst == 2001:db8::1", "BAD_CONSTANT", 1, 11, "128 bits"),
    ("ip.dst == 10.0.0.256", "BAD_CONSTANT", 1, 11, "or an address"),
    ("shares between 9 and 3", "BAD_CONSTANT", 1, 22, "smaller value first"),
    ("shares in {1, 2 , x!}", "SYNTAX", 1, 20, "expected ',' or '}'"),
    ("shares in {}", "SYNTAX", 1, 12, "a constant"),
    ("shares in (1, 2)", "SYNTAX", 1, 11, "in braces"),
    ("shares == {1, 2}", "SYNTAX", 1, 11, "in {a, b}"),
    ("shares between 1, 3", "SYNTAX", 1, 17, "expected 'and'"),
    ("10.0.0.0/8 == ip.dst", "SYNTAX", 1, 1, "write the field on the left"),
    ('"GOOGL" == stock', "SYNTAX", 1, 1, "write the field on the left"),
    ("mean(price) > 5", "BAD_AGGREGATE", 1, 1, "count, sum, avg, min, max"),
    ("agv(price) > 5", "BAD_AGGREGATE", 1, 1, "did you mean 'avg'?"),
    ("avg() > 5", "BAD_AGGREGATE", 1, 1, "avg requires a field"),
    ("avg(100) > 5", "BAD_AGGREGATE", 1, 1, "avg requires a field"),
    ("count(price) > 5", "BAD_AGGREGATE", 1, 7, "takes no field"),
    ("avg(ip6.dst) > 5", "BAD_AGGREGATE", 1, 5, "wider than 64 bits"),
    ("changed(ip6.dst)", "BAD_AGGREGATE", 1, 9, "wider than 64 bits"),
    ("changed()", "BAD_AGGREGATE", 1, 1, "changed requires a field, as in changed(price)"),
    ("changed(avg(price))", "BAD_AGGREGATE", 1, 9, "not the result of a function"),
    ("changed(moved(price, 1))", "BAD_AGGREGATE", 1, 9, "not the result of a function"),
    ("changed(price, 0.5)", "BAD_AGGREGATE", 1, 16, "use moved to specify a distance"),
    ("changed(slow)", "BAD_AGGREGATE", 1, 9, "'slow' is a variable"),
    ("changed(prise)", "UNKNOWN_FIELD", 1, 9, "did you mean 'price'?"),
    ("moved(price)", "BAD_AGGREGATE", 1, 1, "write moved(price, 0.5), or changed(price)"),
    ("shares > 1 and moved(price, -1)", "BAD_AGGREGATE", 1, 29, "a number above 0"),
    ("moved(price, 0.0)", "BAD_AGGREGATE", 1, 14, "a number above 0"),
    ("moved(price, 1s)", "BAD_AGGREGATE", 1, 14, "a number above 0"),
    ("moved(shares, 0.5)", "BAD_AGGREGATE", 1, 15, "are 1 apart"),
    ("moved(shares, 4294967296)", "BAD_AGGREGATE", 1, 15, "that far apart"),
    ("moved(price, 1) > 5", "SYNTAX", 1, 17, "is a condition by itself and cannot be compared"),
    ("chnaged(price)", "SYNTAX", 1, 15, "did you mean 'changed'?"),
    ("shares > 1 : slow <- moved(price)", "BAD_AGGREGATE", 1, 22, "cannot be assigned"),
    ("avg(price, 0) > 5", "BAD_AGGREGATE", 1, 12, "microseconds"),
    ("avg(price, x) > 5", "SYNTAX", 1, 12, "number of microseconds"),
    ("avg(prise) > 5", "UNKNOWN_FIELD", 1, 5, "did you mean 'price'?"),
    ("avg(price) > GOOGL", "BAD_CONSTANT", 1, 14, "not a number"),
    ("avg(price) > 429496.7296", "BAD_CONSTANT", 1, 14, "32 bits"),
    ("my_counter > 1.5", "BAD_CONSTANT", 1, 14, "not a whole number"),
    ("my_conter > 1", "UNKNOWN_FIELD", 1, 1, "did you mean 'my_counter'?"),
    ("shares > 1 : my_conter <- count()", "UNKNOWN_VARIABLE", 1, 14, "'my_counter'?"),
    ("shares > 1 : slow <- count(5)", "BAD_AGGREGATE", 1, 28, "defines the window"),
    ("shares > 1 : slow <- avg()", "BAD_AGGREGATE", 1, 22, "avg requires a field"),
    ("shares > 1 : slow = count()", "SYNTAX", 1, 19, "expected '(' or '<-'"),
    ("shares > 1 : h1, h2", "SYNTAX", 1, 16, "as in fwd(h1, h2)"),
    ("shares > 1 : forward(h1)", "SYNTAX", 1, 14, "did you mean 'fwd'?"),
    ("shares > 1 : { fwd(1)", "SYNTAX", 1, 22, "'}'"),
    ("shares > 1 : fwd(1); fwd(2)", "SYNTAX", 1, 22, "';' ends the rule"),
    ("shares > 1 : fwd(1, 1.5)", "BAD_PORT", 1, 21, "whole number"),
    ("shares > 1 : fwd(0x10)", "BAD_PORT", 1, 18, "whole number"),
    ("shares > 1 : fdw(1)", "SYNTAX", 1, 14, "did you mean 'fwd'?"),
    ("shares > 1 : foward(1)", "SYNTAX", 1, 14, "did you mean 'fwd'?"),
    ("shares > 1 : FWDD(1)", "SYNTAX", 1, 14, "did you mean 'fwd'?"),
    ("shares > 1 : set('a\tb')", "BAD_CONSTANT", 1, 18, "non-printable"),
    ("stock == 'A\tB'", "BAD_CONSTANT", 1, 10, "non-printable"),
    ("stock == A\0", "BAD_CHARACTER", 1, 11, "not printable"),
    ("avg(price > 5", "SYNTAX", 1, 11, "close the macro with ')'"),
    ("avg(price, 5 > 5", "SYNTAX", 1, 14, "close the macro with ')'"),
    ("avg(price 5) > 5", "SYNTAX", 1, 11, "a comma before the window"),
    ("shares > 1 : answerDNS(1 2)", "SYNTAX", 1, 26, "separate arguments by commas"),
    ("shares > 1 : fwd(h1 h2)", "SYNTAX", 1, 21, "separate hosts by commas"),
    ("shares !== 5", "SYNTAX", 1, 10, "write '!='"),
    ("shares === 5", "SYNTAX", 1, 10, "write '=='"),
    ("shares > 1 : my_counter < count()", "SYNTAX", 1, 25, "write '<-'"),
    ("shares > 1 : fwd(4294967296)", "BAD_PORT", 1, 18, "4294967295"),
    ("shares > 1 : fwd(" + "9" * 5000 + ")", "BAD_PORT", 1, 18, "4294967295"),
    (
        "shares in {" + "1," * MAX_CONSTANTS + "\n 2,3}",
        "TOO_MANY_CONSTANTS",
        2,
        2,
        f"more than {MAX_CONSTANTS} constants",
    ),
]


@pytest.mark.parametrize(("text", "code", "line", "column", "part"), NET_FAULTS)
def test_every_fault_of_the_wider_language_too(
    text: str, code: str, line: int, column: int, part: str
):
    with pytest.raises(SubscriptionError) as caught:
        net(text)
    error = caught.value
    assert (error.code, error.line, error.column) == (f"SUBSCRIPTION.{code}", line, column)
    assert part in error.message


def test_a_window_is_at_most_what_the_clocks_unit_leaves_room_for():
    clock = parse_specification(
        "header_type t { fields { @clock(1000000) at: 40; k: 8; } } header t h;", "clock"
    )
    rule = parse_rule("avg(k, 9223372036854) > 5 : fwd(1)", clock)
    assert rule.condition.subject.window == 9223372036854
    with pytest.raises(SubscriptionError) as caught:
        parse_rule("avg(k, 9223372036855) > 5 : fwd(1)", clock)
    assert (caught.value.code, caught.value.column) == ("SUBSCRIPTION.BAD_AGGREGATE", 8)
    assert "microseconds from 1 to 9223372036854" in caught.value.message


def test_a_macro_needs_a_window_where_the_specification_has_none():
    error = fault("avg(price) > 5")
    assert (error.code, error.column) == ("SUBSCRIPTION.NO_WINDOW", 1)
    assert "as in avg(price, 100)" in error.message
    assert condition("avg(price, 100) > 5").subject.window == 100


# Random trees are written in random spellings, and read back.

SPELLINGS = {
    "==": ("==", "="),
    "!=": ("!=", "≠"),
    "<": ("<",),
    "<=": ("<=", "≤"),
    ">": (">",),
    ">=": (">=", "≥"),
}
NUMBERS = {"ip.ttl": 8, "order.shares": 32, "ip.dst": 32, "ip6.dst": 128, "eth.dst": 48}
SHORT = {"ip.ttl": "ttl", "order.shares": "shares", "order.stock": "stock", "order.price": "price"}


@st.composite
def constants(draw: st.DrawFn, name: str) -> tuple[int, str]:
    """A raw value of a field, and a text for it."""
    if name == "order.stock":
        text = draw(st.text("ABCXYZ.-", min_size=1, max_size=7).map("Q".__add__))
        return text_value(text), draw(st.sampled_from([text, f'"{text}"', f"'{text}'"]))
    if name == "order.price":
        raw = draw(st.integers(0, (1 << 32) - 1))
        return raw, draw(st.sampled_from([str(Decimal(raw) / 10000), f"{raw / 10000:.4f}"]))
    bits = NUMBERS[name]
    raw = draw(st.integers(0, 9) | st.integers(0, (1 << bits) - 1))
    texts = [str(raw), hex(raw), f"0X{raw:X}"]
    if bits == 32:
        texts.append(str(IPv4Address(raw)))
    if bits == 128:
        texts += [str(IPv6Address(raw)), IPv6Address(raw).exploded]
    if bits == 48:
        mac = f"{raw:012x}"
        texts.append(":".join(mac[i : i + 2] for i in range(0, 12, 2)))
    return raw, draw(st.sampled_from(texts))


@st.composite
def predicates(draw: st.DrawFn) -> tuple[object, str]:
    name = draw(st.sampled_from([*NUMBERS, "order.stock", "order.price"]))
    shown = draw(st.sampled_from([name, SHORT.get(name, name)]))
    gap = draw(st.sampled_from([" ", "  ", "\n", " # why\n"]))
    form = draw(st.sampled_from(["compare", "in", "between", "prefix"]))
    if form == "prefix" and name in ("ip.dst", "ip6.dst"):
        raw, _ = draw(constants(name))
        bits = NUMBERS[name]
        network = ip_network(
            ((IPv4Address if bits == 32 else IPv6Address)(raw), draw(st.integers(0, bits - 1))),
            strict=False,
        )
        span = (int(network[0]), int(network[-1]))
        operator = draw(st.sampled_from(["==", "!="]))
        meant = "in" if operator == "==" else "not in"
        return (name, meant, (span,)), f"{shown} {operator}{gap}{network}"
    word = draw(st.sampled_from(["in", "not in"]))
    if form == "in":
        pairs = draw(st.lists(constants(name), min_size=1, max_size=4))
        spans = tuple((raw, raw) for raw, _ in pairs)
        comma = draw(st.sampled_from([",", " , "]))
        return (name, word, spans), f"{shown}{gap}{word} {{{comma.join(t for _, t in pairs)}}}"
    if form == "between":
        (low, first), (high, last) = sorted([draw(constants(name)), draw(constants(name))])
        both = draw(st.sampled_from(["and", "AND", "^", "&&"]))
        text = f"{shown} {word[:-2]}between{gap}{first} {both} {last}"
        return (name, word, ((low, high),)), text
    operator = draw(st.sampled_from([*SPELLINGS]))
    raw, text = draw(constants(name))
    space = draw(st.sampled_from(["", " "]))
    spelled = draw(st.sampled_from(SPELLINGS[operator]))
    return (name, operator, ((raw, raw),)), f"{shown}{space}{spelled}{space}{text}"


macros = st.sampled_from(
    [
        (("avg", "order.price", 100, ">", 500000), "avg(price) > 50"),
        (("count", None, 7, "<=", 3), "count(7) ≤ 3"),
        (("slow", "!=", 3), "slow != 3"),
    ]
)


def joined(word: str, spellings: tuple[str, ...]):
    def build(draw: st.DrawFn, children) -> tuple[object, str]:
        below = draw(st.lists(children, min_size=2, max_size=4))
        text = ""
        for part, shown in below:
            loose = part[0] == word or (word == "and" and part[0] == "or")
            text += f" {draw(st.sampled_from(spellings))} " if text else ""
            text += f"({shown})" if loose or draw(st.booleans()) else shown
        return (word, [part for part, _ in below]), text

    return st.composite(build)


@st.composite
def negated(draw: st.DrawFn, children) -> tuple[object, str]:
    part, shown = draw(children)
    sign = draw(st.sampled_from(["not ", "NOT ", "!", "¬", "! "]))
    loose = part[0] in ("and", "or")
    return ("not", part), sign + (f"({shown})" if loose or draw(st.booleans()) else shown)


trees = st.recursive(
    predicates() | macros,
    lambda children: (
        joined("and", ("and", "AND", "&&", "&", "∧", "^"))(children)
        | joined("or", ("or", "Or", "||", "|", "∨"))(children)
        | negated(children)
    ),
    max_leaves=12,
)


@examples(300)
@given(trees, st.sampled_from(["", ":fwd(1)", " : 1;", " : { fwd(1) }", " # end"]))
def test_a_tree_in_any_spelling_is_read_back(tree: tuple[object, str], end: str):
    expected, text = tree
    assert parts(net(text + end).condition) == expected


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
    ("max(locate, 5) > 1", "AMBIGUOUS_FIELD", 1, 5, "add_order.locate, trade.locate"),
    ("session == A", "NOT_IN_MESSAGES", 1, 1, "'envelope.session' belongs to the packet framing"),
    ("price > cheap", "BAD_CONSTANT", 1, 9, "'cheap' is not a number"),
    ("price > 1.23456", "BAD_CONSTANT", 1, 9, ""),
    ("shares > -1", "BAD_CONSTANT", 1, 10, ""),
    ("shares > 1.5", "BAD_CONSTANT", 1, 10, ""),
    ("moved(price, 0.00005)", "BAD_AGGREGATE", 1, 14, "are 0.0001 apart"),
    ("moved(stock, 0.5)", "BAD_AGGREGATE", 1, 7, "write changed(stock)"),
    ("shares > 4294967296", "BAD_CONSTANT", 1, 10, ""),
    ("shares > " + "9" * 5000, "BAD_CONSTANT", 1, 10, "at most 64"),
    ("stock == TOOLONGNAME", "BAD_CONSTANT", 1, 10, ""),
    ("stock == 'é'", "BAD_CONSTANT", 1, 10, "non-ASCII"),
    ("stock GOOGL", "SYNTAX", 1, 7, "expected a comparison"),
    ("price > ", "SYNTAX", 1, 8, "expected a constant, found the end"),
    ("price => 5", "SYNTAX", 1, 8, "write '>='"),
    ("price <> 5", "SYNTAX", 1, 8, "write '!='"),
    ("stock == 'GOOGL", "SYNTAX", 1, 10, "closing quote is missing"),
    ("5 < price", "SYNTAX", 1, 1, "write the field on the left"),
    ("shares > 1,000", "SYNTAX", 1, 11, "write 1000"),
    ("(price > 5", "SYNTAX", 1, 11, "')'"),
    ("price > 5)", "SYNTAX", 1, 10, "found ')'"),
    ("price > 5 price < 6", "SYNTAX", 1, 11, "'and'"),
    ("price > 5 : forward(h1)", "SYNTAX", 1, 13, "expected 'fwd(...)'"),
    ("price > 5 : fwd()", "SYNTAX", 1, 17, "expected a host name"),
    ("price > 5 : fwd(h1 h2)", "SYNTAX", 1, 20, "separate hosts by commas"),
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


CODES = {row[1] for row in FAULTS + NET_FAULTS} | {row[2] for row in BAD_ROWS} | {"NO_WINDOW"}


@pytest.mark.parametrize("code", sorted(CODES))
def test_the_manual_says_what_to_do_about_every_code(code: str):
    manual = ROOT / "docs" / "reference" / "rule-errors.md"
    assert f"| `SUBSCRIPTION.{code}` | " in manual.read_text("utf-8")


PIECES = r"""price shares stock add_order.price locate envelope.session and or not && || ∧ ∨ ! ^ ( )
== = != < <= > >= : fwd fwd(h1) , ; # ' " GOOGL 5 50.25 0xff -1 1e9 . .. é 漢 ٣ [] \ { & |"""
pieces = st.sampled_from([*PIECES.split(), "\n", "\t", "\0", "\r", "\u2028", "\ud800"])
noise = st.one_of(st.text(max_size=40), st.lists(pieces, max_size=25).map(" ".join))


NET_PIECES = """in {1,2} { } between ip.dst ip6.dst eth.dst 10.0.0.0/8 2001:db8::1 :: 1:2 avg( ←
avg(price) count() sum(x) my_counter slow <- { fwd(1); } a() 00:11:22:33:44:55 /8 ≤"""
net_pieces = st.sampled_from([*PIECES.split(), *NET_PIECES.split(), "\n"])


@examples(300)
@given(st.one_of(st.text(max_size=40), st.lists(net_pieces, max_size=20).map(" ".join)))
def test_no_text_whatever_brings_anything_but_a_rule_or_our_error(text: str):
    try:
        net(text)
    except SubscriptionError as error:
        assert 1 <= error.line <= text.count("\n") + 1
        assert 1 <= error.column <= len(text) + 1
        assert error.message.startswith(f"line {error.line}, column {error.column}: ")


@examples(300)
@given(noise)
def test_no_text_whatever_brings_anything_but_a_rule_or_a_rejection(text: str):
    rules, rejections = check([Subscription("x", "h1", text)], SPEC, HOSTS, "feed1")
    assert len(rules) + len(rejections) == 1
    for rejection in rejections:
        assert 1 <= rejection.line <= text.count("\n") + 1
        assert 1 <= rejection.column <= len(text) + 1
        assert rejection.message.startswith(f"line {rejection.line}, column {rejection.column}: ")
