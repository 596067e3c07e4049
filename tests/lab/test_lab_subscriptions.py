"""The lab's subscriptions are worth a demonstration: varied, valid, and selective."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import pytest

from stackcast.lab.traffic.itch_writer import itch_specification
from stackcast.lab.traffic.subscriptions import subscriptions
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.udfs.filters.language.rule import And, Node, Not, Or, Predicate, parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.messages.reference import read_message

pytestmark = pytest.mark.unit

HOSTS = [f"h{number}" for number in range(1, 17)]


@pytest.fixture(scope="module")
def rows():
    return subscriptions(HOSTS)


@pytest.fixture(scope="module")
def rules(rows):
    return [(row, parse_rule(row["filter"], itch_specification()).condition) for row in rows]


def predicates(node: Node) -> list[Predicate]:
    if isinstance(node, Predicate):
        return [node]
    children = node.children if isinstance(node, And | Or) else (node.child,)
    return [found for child in children for found in predicates(child)]


def kinds(node: Node) -> set[type]:
    if isinstance(node, Predicate):
        return set()
    children = node.children if isinstance(node, And | Or) else (node.child,)
    return {type(node)}.union(*map(kinds, children))


def test_there_are_a_thousand_with_their_own_ids_spread_over_all_hosts(rows):
    assert len({row["id"] for row in rows}) == len(rows) == 1000
    share = Counter(row["subscriber"] for row in rows)
    assert set(share) == set(HOSTS)
    assert max(share.values()) - min(share.values()) <= 1


def test_the_same_seed_gives_the_same_rules(rows):
    assert subscriptions(HOSTS) == rows
    assert subscriptions(HOSTS, seed=2) != rows


def test_about_a_hundred_stocks_are_asked_for(rows):
    names = {name for row in rows for name in re.findall(r"stock == (\w+)", row["filter"])}
    assert 80 <= len(names) <= 100


def test_they_use_the_whole_language(rules):
    """Thresholds on price and shares, and/or/not, sides of the market, other headers."""
    used = Counter(p.field.qualified for _, node in rules for p in set(predicates(node)))
    assert used["add_order.price"] > 300
    assert used["add_order.shares"] > 300
    assert 20 < used["add_order.buy_sell"] < 300
    assert used["trade.price"] > 10
    connectives = Counter(kind for _, node in rules for kind in kinds(node))
    assert all(connectives[kind] > 50 for kind in (And, Or, Not))
    assert any(re.search(r"price > \d+\.\d\d", row["filter"]) for row, _ in rules)


@pytest.mark.integration
def test_a_fair_part_of_the_default_session_is_wanted_by_a_few_hosts(rules):
    """15 to 30 of 100 messages match; most of them go to 1 to 6 of 16 hosts."""
    specification = itch_specification()
    # A rule can only match a message that has the header of one of its predicates, and names the
    # stock where it asks for one: look only at those.
    by_stock: dict[tuple[str, int], list] = defaultdict(list)
    by_header: dict[str, list] = defaultdict(list)
    for row, node in rules:
        found = [p for p in predicates(node) if p.field.name == "stock"]
        for header, stock in {(p.field.header, p.value) for p in found}:
            by_stock[header, stock].append((row["subscriber"], node))
        if not found:
            for header in {p.field.header for p in predicates(node)}:
                by_header[header].append((row["subscriber"], node))
    sizes: Counter[int] = Counter()
    messages = list(TradingSession())[::20]
    for message in messages:
        event = read_message(specification, message)
        header = specification.header_of_type(message[0]).name
        near = by_stock[header, event.get(f"{header}.stock", 0)] + by_header[header]
        receivers = {host for host, node in near if matches(node, event)}
        sizes[len(receivers)] += 1
    matched = len(messages) - sizes[0]
    assert 0.15 <= matched / len(messages) <= 0.30
    few = sum(sizes[size] for size in range(1, 7))
    assert few > matched / 2
