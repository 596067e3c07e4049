"""Compiling: the worked examples of CAMUS, canonical tables, limits, and speed."""

from __future__ import annotations

import pickle
import random
import time
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.errors import FilterError
from stackcast.udfs.filters import grouped as grouped_module
from stackcast.udfs.filters.compiler.compile import (
    CheckedRule,
    CompiledFilter,
    Subscription,
    check,
    compile_rules,
    compile_texts,
)
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.live_rules import LiveRules
from stackcast.udfs.filters.nodes import Call
from stackcast.udfs.messages.specification import Specification, parse_specification

pytestmark = pytest.mark.unit


SHARES, PRICE, DOLLARS = "shares: 32", "price: 32", "@decimals(4) price: 32"
STOCK, SIDE = "@string stock: 64", "@string buy_sell: 8"


def specification(message_type: str | None, *columns: str) -> Specification:
    """One header ``add_order`` with the columns, which are its query fields in that order."""
    names = [column.split()[-2].rstrip(":") for column in columns]
    first = ["@string message_type: 8"] if message_type else []
    exact = {"stock", "buy_sell"}
    return parse_specification(
        "header_type add_order_t { fields {"
        + "".join(f"{column}; " for column in [*first, *columns])
        + "} }\n"
        + (f'@message_type("{message_type}")' if message_type else "")
        + "header add_order_t add_order;\n"
        + "".join(
            f"@query_field{'_exact' if name in exact else ''}(add_order.{name})\n" for name in names
        ),
        "text",
    )


def compiled(spec: Specification, *texts: str, **more: Any) -> CompiledFilter:
    hosts = {"1", "2", "3"} | {f"h{i}" for i in range(100)}
    rows = [Subscription(str(i), "h0", text) for i, text in enumerate(texts)]
    rules, rejections = check(rows, spec, hosts, "feed1")
    assert not rejections
    return compile_rules(rules, spec, **more)


def table(filter_: CompiledFilter, field: str) -> list[tuple[int, str, int]]:
    return [
        (row["state"], row["text"], row["next"])
        for row in filter_.entry_rows()
        if row["field"] == field
    ]


def test_camus_figure_3_gives_exactly_the_three_tables_of_figure_4():
    filter_ = compiled(
        specification(None, SHARES, STOCK),
        "shares > 100 : fwd(1)",
        "shares > 100 ^ stock == MSFT : fwd(2)",
        "shares < 60 ^ stock == AAPL : fwd(3)",
    )
    assert filter_.root == 0
    assert table(filter_, "message_type") == []
    assert table(filter_, "add_order.shares") == [
        (0, "shares <= 59", 1),
        (0, "shares >= 101", 2),
        (0, "otherwise", 6),
    ]
    assert table(filter_, "add_order.stock") == [
        (1, "stock == AAPL", 3),
        (1, "otherwise", 6),
        (2, "stock == MSFT", 4),
        (2, "otherwise", 5),
    ]
    assert filter_.leaf_rows() == [
        {"state": 3, "receivers": ["3"], "actions": []},
        {"state": 4, "receivers": ["1", "2"], "actions": []},
        {"state": 5, "receivers": ["1"], "actions": []},
        {"state": 6, "receivers": [], "actions": []},
    ]


def test_camus_slides_tables_of_price_shares_and_actions():
    filter_ = compiled(
        specification(None, PRICE, SHARES),
        "price > 1 : fwd(3)",
        "price == 3 : fwd(1)",
        "shares == 5 ^ (price < 2 or price == 3) : fwd(2)",
    )
    price, shares = table(filter_, "add_order.price"), table(filter_, "add_order.shares")
    assert (len(price), len(shares), len(filter_.leaves)) == (3, 4, 5)

    def receivers(state: int, rows: list[tuple[int, str, int]]) -> dict[str, tuple[str, ...]]:
        return {text: filter_.leaves[after] for before, text, after in rows if before == state}

    after = {text: state for _, text, state in price}
    assert receivers(after["price <= 1"], shares) == {"shares == 5": ("2",), "otherwise": ()}
    assert receivers(after["price == 3"], shares) == {
        "shares == 5": ("1", "2", "3"),
        "otherwise": ("1", "3"),
    }
    assert filter_.leaves[after["otherwise"]] == ("3",)


def test_camus_slides_two_rules_over_shares_then_price():
    filter_ = compiled(
        specification(None, SHARES, PRICE),
        "shares==2 : fwd(1)",
        "price>1 ^ shares==2 : fwd(2)",
    )
    assert table(filter_, "add_order.shares") == [(0, "shares == 2", 1), (0, "otherwise", 4)]
    assert len(table(filter_, "add_order.price")) == 2
    assert list(filter_.leaves.values()) == [("1",), ("1", "2"), ()]


def test_a_predicate_on_a_header_asks_for_its_message_type():
    filter_ = compiled(specification("A", DOLLARS), "price <= 50.25 : fwd(1)")
    assert filter_.fields == ("message_type", "add_order.price")
    assert list(filter_.entry_rows()) == [
        {
            "field": "message_type",
            "state": 0,
            "low": b"A",
            "high": b"A",
            "kind": "exact",
            "next": 1,
            "text": "message_type == A",
        },
        {
            "field": "message_type",
            "state": 0,
            "low": b"\x00",
            "high": b"\xff",
            "kind": "default",
            "next": 3,
            "text": "otherwise",
        },
        {
            "field": "add_order.price",
            "state": 1,
            "low": b"\x00\x00\x00\x00",
            "high": (502500).to_bytes(4, "big"),
            "kind": "range",
            "next": 2,
            "text": "price <= 50.2500",
        },
        {
            "field": "add_order.price",
            "state": 1,
            "low": b"\x00\x00\x00\x00",
            "high": b"\xff\xff\xff\xff",
            "kind": "default",
            "next": 3,
            "text": "otherwise",
        },
    ]


def test_an_always_true_condition_still_asks_for_the_header_and_no_field():
    filter_ = compiled(specification("A", PRICE), "price < 7 or not price < 7 : fwd(1)")
    assert filter_.fields == ("message_type",)
    assert len(filter_.entries) == 2


@pytest.mark.parametrize("texts", [(), ("price > 5 and price < 5 : fwd(1)",)])
def test_no_rule_or_one_that_nothing_satisfies_is_the_leaf_of_nobody(texts: tuple[str, ...]):
    filter_ = compiled(specification("A", PRICE), *texts)
    assert len(filter_.entries) == 0
    assert filter_.leaves == {filter_.root: ()}


def test_exact_fields_get_exact_rows_even_for_neighbouring_values_and_negations():
    filter_ = compiled(
        specification(None, STOCK, SIDE),
        "buy_sell == B or buy_sell == C : fwd(1)",
        "not (stock == AAPL or stock == MSFT) : fwd(2)",
    )
    assert {row["kind"] for row in filter_.entry_rows()} == {"exact", "default"}


def random_texts(count: int, seed: int = 7) -> list[str]:
    """Rules over 100 symbols with thresholds on price and shares, and all connectives."""
    rng = random.Random(seed)
    texts = []
    for _ in range(count):
        stock = f"stock == S{rng.randrange(100)}"
        price, shares = (
            f"price > {rng.randrange(1, 1000)}.25",
            f"shares >= {rng.randrange(1, 99)}00",
        )
        other = f"stock == S{rng.randrange(100)}"
        form = rng.choice(
            [
                "{stock} and {price}",
                "{stock} and {price} and not {shares}",
                "({stock} or {other}) and {shares}",
                "{stock} and ({price} or {shares})",
                "{stock} and not ({price} and {shares})",
                "{stock} and buy_sell == B",
            ]
        )
        receiver = f" : fwd(h{rng.randrange(16)})"
        texts.append(form.format(stock=stock, price=price, shares=shares, other=other) + receiver)
    return texts


ITCH_LIKE = specification("A", STOCK, DOLLARS, SHARES, SIDE)


def test_a_thousand_rules_compile_in_a_fraction_of_a_second():
    texts = random_texts(1000)
    hosts = {f"h{i}" for i in range(16)}
    rows = [Subscription(str(i), "h0", text) for i, text in enumerate(texts)]
    rules, _ = check(rows, ITCH_LIKE, hosts, "feed1")
    start = time.process_time()
    filter_ = compile_rules(rules, ITCH_LIKE)
    assert time.process_time() - start < 2.0  # 0.3 s on a machine of its own
    assert 1000 < len(filter_.entries) < 50_000


def test_the_order_of_the_rules_does_not_change_a_row():
    texts = random_texts(150)
    first = compiled(ITCH_LIKE, *texts)
    second = compiled(ITCH_LIKE, *sorted(texts))
    assert np.array_equal(first.entries, second.entries)
    assert (first.leaves, first.root, first.fields) == (second.leaves, second.root, second.fields)


def test_rows_are_sorted_and_each_state_is_disjoint_with_one_default_last():
    filter_ = compiled(ITCH_LIKE, *random_texts(150))
    rows = filter_.entries
    is_default = rows["kind"] == 2
    order = np.lexsort((rows["low"], is_default, rows["state"], rows["field"]))
    assert np.array_equal(order, np.arange(len(rows)))
    for state in np.unique(rows["state"]):
        mine = rows[rows["state"] == state]
        assert (mine["kind"] == 2).tolist() == [False] * (len(mine) - 1) + [True]
        assert len(set(mine["next"].tolist())) > 1, "a redundant node was kept"
        assert (mine["low"][1:-1] > mine["high"][:-2]).all()
        assert (mine["next"] > state).all()
    contents = {
        (rows[rows["state"] == s][["low", "high", "kind", "next"]]).tobytes()
        for s in np.unique(rows["state"])
    }
    assert len(contents) == len(np.unique(rows["state"])), "two equal nodes were kept"


def test_thousands_of_equal_rules_cost_one():
    filter_ = compiled(ITCH_LIKE, *["stock == S1 and price > 5 : fwd(h1)"] * 3000)
    assert len(filter_.entries) == 6


def test_a_set_of_rules_that_would_eat_the_memory_is_refused_in_time():
    rng = random.Random(1)
    texts = [
        f"price > {rng.randrange(10**5)} and shares > {rng.randrange(10**6)} : fwd(h{i % 99})"
        for i in range(600)
    ]
    with pytest.raises(FilterError) as caught:
        compiled(ITCH_LIKE, *texts, max_entries=2_000)
    assert caught.value.code == "FILTER.TOO_LARGE"
    assert caught.value.max_entries == 2_000


def test_texts_compile_to_what_their_rules_compile_to():
    texts = [*random_texts(300), "price < 0 : fwd(h1)", *["stock == S1 : fwd(h2, 10, 9)"] * 40]
    texts += [f"price > {n} : {{fwd(h{n % 3}); mirror({n % 2})}}" for n in range(1, 60)]
    rules = []
    for text in texts:
        rule = parse_rule(text, ITCH_LIKE)
        calls = tuple(action for action in rule.actions if isinstance(action, Call))
        rules.append(CheckedRule("", rule.condition, rule.receivers, calls))
    for order in ("specification", ("add_order.price", "add_order.stock")):
        first = compile_texts(texts, ITCH_LIKE, order=order)
        second = compile_rules(rules, ITCH_LIKE, order=order)
        assert np.array_equal(first.entries, second.entries)
        assert first.outcomes == second.outcomes
        assert first.fields == second.fields
    assert ("9", "10", "h2") in {r for leaf in first.leaves.values() for r in [leaf[:3]]}


def test_an_order_chosen_automatically_never_needs_more_rows():
    texts = [
        f"price > {n % 90} and stock == S{n % 20} and shares < {n % 9 + 1}00 : fwd(h{n % 7})"
        for n in range(200)
    ]
    plain, chosen = (compile_texts(texts, ITCH_LIKE, order=o) for o in ("specification", "auto"))
    assert len(chosen.entries) <= len(plain.entries)


def test_leaves_with_the_same_receivers_and_other_actions_are_different():
    read = parse_rule("stock == A", ITCH_LIKE).condition
    other = parse_rule("stock == B", ITCH_LIKE).condition
    mirror = Call("mirror", ("1", "2"))
    rules = [CheckedRule("a", read, ("h1",), (mirror,)), CheckedRule("b", other, ("h1",))]
    filter_ = compile_rules(rules, ITCH_LIKE)
    assert sorted((row["receivers"], row["actions"]) for row in filter_.leaf_rows()) == [
        ([], []),
        (["h1"], []),
        (["h1"], ["mirror(1, 2)"]),
    ]


def test_an_attribute_that_may_lack_has_a_row_of_its_own_only_where_it_matters():
    spec = specification(None, SHARES, PRICE)
    (needed,) = [
        row
        for row in compiled(
            spec, "price > 5 : fwd(1)", "price <= 5 : fwd(1)", optional=True
        ).entry_rows()
        if row["kind"] == "absent"
    ]
    assert needed["text"] == "price is absent"
    kinds = [
        row["kind"] for row in compiled(spec, "price > 5 : fwd(1)", optional=True).entry_rows()
    ]
    assert kinds == ["range", "default"]


def test_a_pickled_filter_says_the_same_of_its_leaves():
    filter_ = compiled(ITCH_LIKE, *random_texts(100))
    again = pickle.loads(pickle.dumps(filter_))
    assert again.outcomes == filter_.outcomes
    assert list(again.outcomes) == sorted(again.outcomes)


COUNTING = """
    header_type add_order_t { fields { @string message_type: 8; @string stock: 64;
        @decimals(4) price: 32; shares: 32; @string buy_sell: 8; } }
    @message_type("A") header add_order_t add_order;
    @query_field_exact(add_order.stock)
    @query_field(add_order.price)
    @query_field(add_order.shares)
    @query_field_exact(add_order.buy_sell)
    @query_counter(seen, 100)
    """
MIXED = [
    "stock == {} and price > {}",
    "stock == {} and price > {} : fwd(h1, h2)",
    "(stock == {} or price > {}) : fwd(h3)",
    "stock == {} and price > {} : fwd(feed1)",
    "stock == {} and price > {} : fwd(nobody)",
    "stock == {} and prise > {}",
    "stock == {} and price > {} : answerDNS(10.0.0.97)",
    "stock == {} and avg(price) > {} : fwd(h3)",
    "stock == {} and price > {} and price < 0",
    "stock == {} and price > {} : {{ fwd(h1); seen <- count() }}",
    "stock == {} and seen > {}",
    "stock == {} and price > {} : {{ fwd(h2); seen <- sum(shares) }}",
]


@pytest.mark.integration
def test_many_rows_are_checked_as_few_are():
    stateful = parse_specification(COUNTING, "text")
    rows = [
        Subscription(
            str(n), ["h1", "h2", "x", "feed1"][n // 12 % 4], MIXED[n % 12].format(f"S{n % 50}", n)
        )
        for n in range(1500)
    ]
    hosts = {"h1", "h2", "h3", "feed1"}
    rules, rejections = check(rows, stateful, hosts, "feed1")
    assert not isinstance(rules, list)
    again = parse_specification(COUNTING, "text")
    parts = [check(rows[at : at + 500], again, hosts, "feed1") for at in range(0, 1500, 500)]
    one_by_one = [rule for part, _ in parts for rule in part]
    assert list(rules) == one_by_one
    assert rejections == [rejection for _, part in parts for rejection in part]
    codes = {rejection.code.removeprefix("SUBSCRIPTION.") for rejection in rejections}
    assert codes == {
        "PUBLISHER_AS_RECEIVER",
        "UNKNOWN_HOST",
        "UNKNOWN_FIELD",
        "ACTION_FOR_SWITCH",
        "MIXED_UPDATES",
    }
    first, second = (compile_rules(r, stateful) for r in (rules, one_by_one))
    assert np.array_equal(first.entries, second.entries)
    assert first.outcomes == second.outcomes
    assert first.cells == second.cells and len(first.cells) > 20


def test_actions_of_a_switch_are_refused():
    row = Subscription("s", "h1", "price > 1 : mirror(3)")
    _, (rejection,) = check([row], ITCH_LIKE, {"h1"}, "feed1")
    assert (rejection.code, rejection.column) == ("SUBSCRIPTION.ACTION_FOR_SWITCH", 1)
    assert "'mirror'" in rejection.message


def test_a_rule_with_too_many_alternatives_is_refused_with_state_too():
    text = " and ".join(f"(shares != {n} or price != {n})" for n in range(99)) + " and count() > 3"
    spec = parse_specification(COUNTING, "text")
    _, (rejection,) = check([Subscription("s", "h1", text)], spec, {"h1"}, "feed1")
    assert rejection.code == "SUBSCRIPTION.TOO_COMPLEX"


def test_of_rules_that_update_a_variable_differently_those_that_come_first_live():
    spec = parse_specification(COUNTING, "text")
    live = LiveRules(spec, "feed1")
    texts = {
        "a": "price > 1",
        "b": "price > 2 : seen <- count()",
        "c": "price > 3 : seen <- sum(price)",
        "d": "seen > 3",
        "e": "price > 4 : seen <- sum(price)",
    }

    def ids() -> tuple[str, str, set[str]]:
        rows = [Subscription(name, "h1", text) for name, text in sorted(texts.items())]
        rules, rejections, grouped = live.update(rows, {"h1"})
        filter_ = grouped.diagram
        expected, refused = check(rows, spec, {"h1"}, "feed1")
        assert (list(rules), rejections) == (list(expected), refused)
        assert {r.code for r in rejections} <= {"SUBSCRIPTION.MIXED_UPDATES"}
        functions = {cell.function for cell in filter_.cells}
        return "".join(r.id for r in rules), "".join(r.id for r in rejections), functions

    assert ids() == ("abd", "ce", {"count"})
    texts["a"] = "price > 9"
    assert ids() == ("abd", "ce", {"count"})
    texts["b"] = "price > 2"
    assert ids() == ("abcde", "", {"sum"})
    texts["a"] = "price > 9 : seen <- max(price)"
    assert ids() == ("abd", "ce", {"max"})
    del texts["a"]
    assert ids() == ("bcde", "", {"sum"})


KEEPING = [
    "stock == GOOGL and avg(price) > 50",
    "count() > 3",
    "shares > 5 and seen > 2 : fwd(h1)",
    "not seen > 2 and price > 3",
    "price > 50 : seen <- count()",
    "price > 40 : { fwd(h2); seen <- max(price) }",
    "price > 30 : seen <- max(shares)",
]


@pytest.mark.parametrize("keeping", [[], KEEPING], ids=["without state", "with state"])
def test_an_edited_table_of_subscriptions_gives_what_it_would_give_anew(
    keeping, monkeypatch: pytest.MonkeyPatch
):
    # All in one diagram, however many rows it takes.
    monkeypatch.setattr(grouped_module, "_FEWEST_ROWS", 1 << 20)
    rng = random.Random(9)
    spec = parse_specification(COUNTING, "text") if keeping else ITCH_LIKE
    live = LiveRules(spec, "feed1")
    hosts = {f"h{n}" for n in range(16)}
    texts = [*random_texts(60), "stok == A", "price > 1 : fwd(h99)", *keeping]
    rows = {str(n): Subscription(str(n), "h0", text) for n, text in enumerate(texts)}
    states: dict[str, int] = {}
    for step in range(12):
        if step:
            for text in random_texts(2, seed=step):
                name = str(rng.randrange(70))
                rows[name] = Subscription(name, "h1", text)
            if keeping:
                for name in ("k", str(rng.randrange(70))):
                    rows[name] = Subscription(name, "h5", rng.choice(keeping))
            rows.pop(str(rng.randrange(60)), None)
        if step == 8:
            hosts = hosts - {"h3"}
        table = list(rows.values())
        rules, rejections, grouped = live.update(table, hosts)
        filter_ = grouped.diagram
        assert grouped.index is None
        expected, refused = check(table, spec, hosts, "feed1")
        assert (list(rules), rejections) == (list(expected), refused)
        anew = compile_rules(expected, spec)
        assert set(filter_.cells) == set(anew.cells)
        assert len(filter_.entries) == len(anew.entries)
        assert sorted(filter_.leaves.values()) == sorted(anew.leaves.values())
        moved = {row["state"]: row for row in filter_.leaf_rows()}
        if states and step != 8 and not keeping:
            same = sum(moved.get(state) == row for state, row in states.items())
            assert same > len(states) // 2
        states = moved


TEXTS = ["price > 1", "price > 2 : fwd(h2)", "stok == A", "price > 3 : seen <- count()"]
few_rows = st.lists(
    st.builds(Subscription, st.sampled_from("abcdefgh"), st.just("h1"), st.sampled_from(TEXTS)),
    max_size=8,
    unique_by=lambda row: row.id,
)


@examples(60)
@given(st.lists(few_rows, min_size=1, max_size=5))
def test_rows_may_move_or_go_from_version_to_version(versions):
    spec = parse_specification(COUNTING, "text")
    live = LiveRules(spec, "feed1")
    for rows in versions:
        rules, rejections, grouped = live.update(rows, {"h1", "h2"})
        filter_ = grouped.diagram
        expected, refused = check(rows, spec, {"h1", "h2"}, "feed1")
        assert len(rules) == len(expected)
        assert (list(rules), list(rules[1:3])) == (list(expected), list(expected[1:3]))
        assert rejections == refused
        anew = compile_rules(expected, spec)
        assert len(filter_.entries) == len(anew.entries)
        assert sorted(filter_.leaves.values()) == sorted(anew.leaves.values())
