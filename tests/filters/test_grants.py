"""Grants: a rule is live only where every event that it may forward is granted, held against trying
every event of small formats."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from small_formats import TYPED, TYPED_EVENTS, UNTYPED, UNTYPED_EVENTS, conditions

from stackcast import schemas
from stackcast.udfs.filters.grants import EVERYBODY, Grant, Grants, select_grants
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.live_rules import LiveRules
from stackcast.udfs.filters.matching.matcher import Matcher
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.messages.specification import parse_specification

pytestmark = pytest.mark.unit

ITCH = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
WIDE = parse_specification(
    "header_type p_t { fields { dst: 128; size: 8; } } header p_t p;", "wide"
)
HOSTS = {"h1", "h2", "h3"}


def granted(*rows, specification=ITCH):
    return Grants(
        [Grant(f"g{n}", host, text) for n, (host, text) in enumerate(rows)], specification
    )


def refused(rules, grants, specification=ITCH):
    rows = [Subscription(f"r{n}", *rule) for n, rule in enumerate(rules)]
    live, rejections = check(rows, specification, HOSTS, "feed1", grants)
    assert [*sorted([r.id for r in live] + [r.id for r in rejections])] == sorted(
        row.id for row in rows
    )
    assert {r.code for r in rejections} <= {"SUBSCRIPTION.NOT_GRANTED"}
    return [rejection.id for rejection in rejections]


@pytest.mark.integration
@pytest.mark.parametrize("form", ["typed", "untyped"])
@examples(200)
@given(
    rule=conditions(),
    own=st.lists(conditions(), max_size=3),
    everybodys=st.lists(conditions(), max_size=2),
    others=st.lists(conditions(), max_size=1),
)
def test_a_rule_is_live_where_each_event_it_matches_is_one_that_a_grant_matches(
    form, rule, own, everybodys, others
):
    specification, events = {
        "typed": (TYPED, TYPED_EVENTS),
        "untyped": (UNTYPED, UNTYPED_EVENTS),
    }[form]

    def true(text, event):
        return matches(parse_rule(text, specification).condition, event)

    wanted = [event for event in events if true(rule, event)]
    allowed = all(any(true(text, event) for text in own + everybodys) for event in wanted)
    grants = granted(
        *(("h1", text) for text in own),
        *((EVERYBODY, text) for text in everybodys),
        *(("h2", text) for text in others),
        specification=specification,
    )
    assert (refused([("h1", rule)], grants, specification) == []) == allowed


@pytest.mark.integration
@examples(30)
@given(
    rules=st.lists(st.tuples(st.sampled_from(sorted(HOSTS)), conditions()), max_size=6),
    grants=st.lists(st.tuples(st.sampled_from(["h1", "h2", "*"]), conditions()), max_size=4),
)
def test_many_rules_at_once_are_granted_what_each_alone_is(rules, grants):
    # Enough other texts that they are read as columns.
    others = [("h3", f"x == {n % 4} and y == {n % 8} # {n}") for n in range(1000)]
    held = granted(*grants, ("h3", "all"), specification=TYPED)
    together = refused([*rules, *others], held, TYPED)
    alone = [f"r{n}" for n, rule in enumerate(rules) if refused([rule], held, TYPED)]
    assert together == alone


def test_a_symbol_a_field_and_a_message_type_are_granted_by_a_condition():
    grants = granted(
        ("h1", "stock in {GOOGL, MSFT}"),
        ("h2", "price <= 50"),
        ("h2", "price > 50 and buy_sell == B"),
        ("h3", "message_type == A"),
    )
    assert refused(
        [
            ("h1", "stock == GOOGL and price > 50"),
            ("h1", "stock == AAPL"),
            ("h1", "price > 50"),
            ("h1", "not stock == GOOGL"),
            ("h2", "price between 40 and 60 and buy_sell == B"),
            ("h2", "price between 40 and 60"),
            ("h3", "stock == AAPL and shares > 3"),
            ("h3", "trade.price > 5"),
        ],
        grants,
    ) == ["r1", "r2", "r3", "r5", "r7"]


def test_all_that_a_rule_forwards_to_must_be_granted_it():
    grants = granted(("h1", "all"), ("h2", "stock == GOOGL"))
    rows = [
        ("h1", "stock == GOOGL : fwd(h1, h2)"),
        ("h1", "stock == MSFT : fwd(h1, h2)"),
        ("h3", "stock == MSFT : fwd(h1)"),
        ("h3", "stock == MSFT"),
    ]
    assert refused(rows, grants) == ["r1", "r3"]


def test_state_counts_for_what_it_is_kept_of():
    grants = granted(("h1", "stock == GOOGL"))
    rows = [
        ("h1", "stock == GOOGL and avg(price, 100) > 50"),
        ("h1", "stock == GOOGL or avg(price, 100) > 50"),
        ("h1", "avg(price, 100) > 50 and stock in {GOOGL, MSFT}"),
    ]
    assert refused(rows, grants) == ["r1", "r2"]


def test_a_refused_rule_takes_no_variable_from_others():
    specification = TYPED
    grants = granted(("h1", "x == 1"), specification=specification)
    rules = [
        ("h2", "x == 1 : { fwd(h2); seen <- max(a.y) }"),
        ("h1", "x == 1 : { fwd(h1); seen <- count() }"),
    ]
    assert refused(rules, grants, specification) == ["r0"]


def test_addresses_wider_than_a_word_are_granted_by_prefix():
    grants = granted(("h1", "dst == 2001:db8::/32"), specification=WIDE)
    rows = [
        ("h1", "dst == 2001:db8::1"),
        ("h1", "dst == 2001:db8:ffff::/48 and size > 3"),
        ("h1", "dst == 2001:db9::1"),
        ("h1", "dst == 2001::/16"),
    ]
    assert refused(rows, grants, WIDE) == ["r2", "r3"]


def test_a_rejection_says_what_is_granted():
    grants = granted(("h1", "stock == GOOGL"), ("*", "stock == IBM"))
    rows = [Subscription("a", "h1", "price > 5"), Subscription("b", "h2", "price > 5")]
    first, second = check(rows, ITCH, HOSTS, "feed1", grants)[1]
    assert first.code == "SUBSCRIPTION.NOT_GRANTED"
    assert "'h1' is not allowed to receive all events" in first.message
    assert "'stock == GOOGL', 'stock == IBM'" in first.message
    assert "'stock == IBM'" in second.message and "GOOGL" not in second.message


@pytest.mark.parametrize(
    "text", ["stock = = X", "stock == GOOGL : fwd(h1)", "avg(price, 100) > 5", "", "prise > 1"]
)
def test_a_grant_that_cannot_be_read_grants_nothing_and_is_told(text):
    grants = granted(("h1", text), ("h2", "all"))
    assert [name for name, _ in grants.errors] == ["g0"]
    assert refused([("h1", "stock == GOOGL"), ("h2", "price > 1")], grants) == ["r0"]


def test_an_empty_table_grants_all_and_its_first_row_takes_all_else():
    row = {"id": "g", "subscriber": "h1", "format": "attributes", "filter": "all"}
    assert select_grants([], "itch") is None
    assert select_grants([row], "itch") == ()
    assert select_grants([row], "attributes") == (Grant("g", "h1", "all"),)
    assert refused([("h1", "price > 1")], Grants.of_table([], "itch", ITCH)) == []
    assert refused([("h1", "price > 1")], Grants.of_table([row], "itch", ITCH)) == ["r0"]


def test_rules_come_and_go_with_their_grants():
    live = LiveRules(ITCH, "feed1")
    rows = [Subscription("a", "h1", "stock == GOOGL"), Subscription("b", "h2", "stock == IBM")]
    for grants, expected in (
        (None, ["a", "b"]),
        (granted(("h1", "stock == GOOGL")), ["a"]),
        (granted(("*", "stock == IBM")), ["b"]),
        (granted(("*", "all")), ["a", "b"]),
        (granted(), []),
    ):
        rules, rejections, grouped = live.update(rows, HOSTS, grants)
        assert [rule.id for rule in rules] == expected
        assert [r.id for r in rejections] == [r.id for r in rows if r.id not in expected]
        assert len(Matcher(grouped.diagram).receivers) == 1 + len(expected)


def test_a_rule_made_to_be_slow_is_refused_and_not_waited_for():
    fields = " ".join(f"f{n}: 8;" for n in range(24))
    wide = parse_specification(f"header_type p_t {{ fields {{ {fields} }} }} header p_t p;", "p")
    pairs = [("h1", f"f{n} < 128 and f{n + 1} >= 100") for n in range(23)]
    assert refused([("h1", "f0 > 1 or f23 > 1")], granted(*pairs, specification=wide), wide)
