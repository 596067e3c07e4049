"""Rules for everything, names that many messages share, times of day and windows with units."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.language.shapes import read_table
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.meaning.normal_form import normal_form
from stackcast.udfs.filters.nodes import And, Not, Predicate
from stackcast.udfs.messages.specification import parse_specification

pytestmark = pytest.mark.unit

TRADES = parse_specification(
    """
    header_type frame_t { fields { length: 16; sent: 48; } }
    header frame_t frame;
    header_type add_t { fields {
        @string kind: 8; @clock(1000) @time_of_day(ns) at: 48; locate: 16; @string stock: 64;
        @decimals(4) price: 32; @time_of_day(s) opens: 32;
    } }
    @message_type("A") header add_t add;
    header_type trade_t { fields {
        @string kind: 8; @clock(1000) @time_of_day(ns) at: 48; locate: 16; @string stock: 64;
    } }
    @message_type("P") header trade_t trade;
    header_type halt_t { fields { @string kind: 8; locate: 16; sent: 48; } }
    @message_type("H") header halt_t halt;
    @query_field(add.stock)
    """,
    "trades",
)
MESSAGES = {
    header.message_type: {field.name: field.qualified for field in header.fields}
    for header in TRADES.headers
    if header.message_type is not None
}


def parts(node) -> object:
    """A condition without its places and texts."""
    if isinstance(node, Predicate):
        return (node.field.qualified, node.operator, node.constants)
    if isinstance(node, Not):
        return ("not", parts(node.child))
    return ("and" if isinstance(node, And) else "or", [parts(child) for child in node.children])


def trades(text: str):
    return parse_rule(text, TRADES).condition


@pytest.mark.parametrize("text", ["all", "ALL : fwd(1)", "(all);", "all # whatever\n: fwd(1)"])
def test_all_is_the_rule_for_every_event(text: str):
    assert parse_rule(text, TRADES).condition == And(())
    assert matches(trades(text), {}) and matches(trades("price > 5 or all"), {})
    assert not matches(trades("not all"), {"add.price": 6})
    assert matches(trades("all and price > 0.0005"), {"add.price": 6})


def test_a_field_may_be_called_all():
    spec = parse_specification("header_type h_t { fields { all: 8; } } header h_t h;", "names")
    condition = parse_rule("all == 5 and not all in {6} or all && all between 1 and 2", spec)
    first, second = condition.condition.children
    assert parts(first) == (
        "and",
        [("h.all", "==", ((5, 5),)), ("not", ("h.all", "in", ((6, 6),)))],
    )
    assert parts(second) == ("and", [("and", []), ("h.all", "in", ((1, 2),))])


@st.composite
def shared_conditions(draw, depth: int = 6) -> tuple[str, object]:
    """A condition on names that messages share, and what it asks of one message's fields.

    ``depth``: of conditions in each other; a rule may have 64 parentheses and negations.
    """
    name, starred = draw(
        st.sampled_from([("at", "at"), ("locate", "locate"), ("at", "*.at"), ("kind", "kind")])
        | st.sampled_from([("stock", "*.stock"), ("sent", "*.sent"), ("price", "add.price")])
    )
    if depth and draw(st.integers(0, 3)) == 0:
        left, right = draw(shared_conditions(depth - 1)), draw(shared_conditions(depth - 1))
        joint = draw(st.sampled_from(["and", "or"]))
        return f"({left[0]} {joint} {right[0]})", (joint, left[1], right[1])
    if depth and draw(st.integers(0, 2)) == 0:
        inner = draw(shared_conditions(depth - 1))
        return f"not ({inner[0]})", ("not", inner[1])
    constants = {"stock": ["A", "B"], "kind": ["A", "P", "H"]}.get(name, ["0", "1", "2"])
    operator = draw(st.sampled_from(["==", "!=", "<", ">="]))
    constant = draw(st.sampled_from(constants))
    return f"{starred} {operator} {constant}", (name, operator, constant)


def asks(condition, message: dict[str, int], fields: dict[str, str]) -> bool | None:
    """The meaning of the manual, on names alone: None is unknown."""
    if condition[0] == "not":
        found = asks(condition[1], message, fields)
        return None if found is None else not found
    if condition[0] in ("and", "or"):
        truths = [asks(part, message, fields) for part in condition[1:]]
        decides = condition[0] == "or"
        if decides in truths:
            return decides
        return None if None in truths else not decides
    name, operator, constant = condition
    if name not in fields:
        return None
    raw = TRADES.fields[fields[name]].encode(constant)
    value = message[name]
    return {"==": value == raw, "!=": value != raw, "<": value < raw, ">=": value >= raw}[operator]


@examples(300)
@given(shared_conditions(), st.sampled_from(sorted(MESSAGES)), st.randoms(use_true_random=False))
def test_a_name_that_messages_share_asks_each_of_them(condition, kind: int, chance):
    text, meaning = condition
    fields = MESSAGES[kind]
    message = {}
    for name, qualified in fields.items():
        pool = (
            [TRADES.fields[qualified].encode(text) for text in ("A", "B")]
            if name == "stock"
            else []
        )
        message[name] = kind if name == "kind" else chance.choice(pool or [0, 1, 2, 10000])
    event = {fields[name]: value for name, value in message.items()}
    wanted = asks(meaning, message, fields) is True
    rule = parse_rule(text, TRADES)
    assert matches(rule.condition, event) == wanted
    terms = normal_form(rule.condition, TRADES, optional=True)
    values = event | {"message_type": kind}
    assert wanted == any(
        all(
            name in values and any(low <= values[name] <= high for low, high in allowed)
            for name, allowed in term
        )
        for term in terms
    )


def test_a_name_keeps_the_one_field_that_it_means():
    assert parts(trades("stock == A"))[0] == "add.stock"
    assert parts(trades("add.at > 5"))[0] == "add.at"
    assert [part[0] for part in parts(trades("*.stock == A"))[1]] == ["add.stock", "trade.stock"]
    assert [part[0] for part in parts(trades("at > 5"))[1]] == ["add.at", "trade.at"]
    assert parts(trades("*.price > 5"))[0] == "add.price"
    assert parts(trades("*.sent > 5"))[0] == "halt.sent"


@pytest.mark.parametrize(
    ("text", "code", "column", "words"),
    [
        ("avg(at, 5) > 1", "AMBIGUOUS_FIELD", 5, "add.at, trade.at"),
        ("*.stok == A", "UNKNOWN_FIELD", 1, "did you mean 'stock'"),
        (
            "*.length > 1",
            "UNKNOWN_FIELD",
            1,
            "no message type of trades has a field named 'length'",
        ),
        ("at > 24:00:00", "BAD_CONSTANT", 6, "not a time of day"),
        ("at > 09:60:00", "BAD_CONSTANT", 6, "not a time of day"),
        ("opens == 09:30:00.5", "BAD_CONSTANT", 10, "more precise than 1/1 of a second"),
        ("price > 09:30:00", "BAD_CONSTANT", 9, "not a number"),
        ("at > soon", "BAD_CONSTANT", 6, "such as 09:30:00"),
        ("avg(price, 100ns) > 1", "SYNTAX", 15, "found 'ns'"),
        ("avg(price, 0.5us) > 1", "BAD_AGGREGATE", 12, "a whole number"),
        ("avg(price, 0s) > 1", "BAD_AGGREGATE", 12, "whole number of microseconds from 1 to"),
    ],
)
def test_what_is_wrong_with_shared_names_times_and_durations(
    text: str, code: str, column: int, words: str
):
    with pytest.raises(SubscriptionError) as caught:
        trades(text)
    assert caught.value.code == f"SUBSCRIPTION.{code}" and caught.value.column == column
    assert words in caught.value.message


@examples(100)
@given(
    st.integers(0, 86_399), st.integers(0, 999_999_999), st.sampled_from(["", ":fwd(1)", " : 7"])
)
def test_a_time_of_day_is_what_has_passed_since_midnight(second: int, part: int, action: str):
    clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    rule = parse_rule(f"add.at >= {clock}.{part:09d}{action}", TRADES)
    assert rule.condition.value == second * 10**9 + part
    assert len(rule.receivers) == bool(action)
    assert trades(f"opens == {clock}") == trades(f"opens == '{clock}'").__class__(
        TRADES.fields["add.opens"], "==", ((second, second),), f"opens == {clock}", 1, 1
    )


@pytest.mark.parametrize(
    ("window", "microseconds"),
    [
        ("100", 100),
        ("5us", 5),
        ("5µs", 5),
        ("100ms", 100_000),
        ("1s", 1_000_000),
        ("1.5s", 1_500_000),
        ("0.25ms", 250),
        ("2min", 120_000_000),
        ("1h", 3_600_000_000),
    ],
)
def test_a_window_has_a_unit_or_is_in_microseconds(window: str, microseconds: int):
    for text in (f"avg(price, {window}) > 5", f"count({window}) > 5"):
        assert trades(text).subject.window == microseconds


def test_of_many_texts_those_with_shared_names_and_times_are_read_as_alone():
    texts = [f"at > 09:30:{second:02d} : fwd(h{second})" for second in range(20)]
    texts += [f"add.at > 09:30:{second:02d} and price > {second}" for second in range(20)]
    texts += [f"add.at > {second} : {second}" for second in range(20)]
    texts += [f"add.at > {second}:{second:02d}:00" for second in range(20)] + ["all"] * 20
    table = read_table(texts, TRADES)
    assert not table.errors
    rules = dict(table.rules)
    for number, text in enumerate(texts):
        alone = parse_rule(text, TRADES)
        assert rules.get(number, alone) == alone
        assert table.outcomes[table.outcome[number]] == alone.actions
    held = {at for block in table.blocks for at in block.rule.tolist()} | rules.keys()
    assert held == set(range(len(texts)))
