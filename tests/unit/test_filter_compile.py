"""Compiling: the worked examples of CAMUS, canonical tables, limits, and speed."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pytest

from udfs.errors import FilterError
from udfs.filters.compile import CompiledFilter, Subscription, check, compile_rules
from udfs.messages.specification import Specification, parse_specification

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
        optional=False,
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
        optional=False,
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
        optional=False,
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
