"""Filters of switches from version to version: no event ever meets a mixture of two versions."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from p4_tables import Switch, read_back

from stackcast import schemas
from stackcast.udfs.errors import FilterError
from stackcast.udfs.filters.compiler.compile import compile_rules
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.messages.specification import parse_specification
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network_match.entries import program_entries
from stackcast.udfs.network_match.filters import GENERATIONS, START, NetworkFilters
from stackcast.udfs.network_match.layout import STATE_BITS, program_layout
from stackcast.udfs.network_match.refusals import refused_by_program, rules_without
from stackcast.udfs.network_match.routing import ports_towards
from stackcast.udfs.switches.entry import SwitchEntry, difference
from stackcast.udfs.switches.ordering import write_steps

pytestmark = pytest.mark.unit

ITCH = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
PROGRAM = program_layout(ITCH)
NETWORK = fabric(2, 2, 2, 1, 1)
HOSTS = NETWORK.subscribers()
STOCKS = ("AAPL", "GOOGL", "MSFT")
EVENTS = [
    {
        "add_order.stock": int.from_bytes(stock.ljust(8).encode(), "big"),
        "add_order.price": dollars * 10_000,
    }
    for stock in (*STOCKS, "OTHER")
    for dollars in (0, 5, 12)
]


def rules(seed: int, count: int):
    rng = random.Random(seed)
    rows = [
        Subscription(
            f"s{n}",
            rng.choice(HOSTS),
            f"stock == {rng.choice(STOCKS)} and price > {rng.randrange(15)}"
            if rng.random() < 0.7
            else f"price < {rng.randrange(15)}",
        )
        for n in range(count)
    ]
    return check(rows, ITCH, set(HOSTS), "feed1")[0]


def answers(held: dict[str, SwitchEntry]) -> list[tuple[int, ...]]:
    switch = Switch(PROGRAM, read_back(held.values()))
    return [switch.event(event, ord("A"))[0] for event in EVENTS]


def wanted(switch: str, those) -> list[tuple[int, ...]]:
    behind = ports_towards(NETWORK, "feed1")[switch]
    return [
        tuple(
            sorted(
                {
                    behind[name]
                    for rule in those
                    if matches(rule.condition, event)
                    for name in rule.receivers
                    if name in behind
                }
            )
        )
        for event in EVENTS
    ]


@pytest.mark.integration
@examples(15)
@given(st.integers(0, 1 << 20), st.lists(st.integers(0, 9), min_size=2, max_size=3), st.randoms())
def test_in_the_middle_of_an_edit_every_event_goes_by_the_old_rules_or_by_the_new(
    seed, counts, chance
):
    filters = NetworkFilters(ITCH, "feed1")
    held: dict[str, list[SwitchEntry]] = {}
    before = None
    for edit, count in enumerate(counts):
        now = rules(seed + edit, count)
        made = filters.entries(NETWORK, now, held)
        assert not made.rejections
        for switch, wanted_rows in made.entries.items():
            present = {entry.key: entry for entry in held.get(switch, [])}
            if before is not None:
                allowed = list(zip(wanted(switch, before), wanted(switch, now), strict=True))
                for step in write_steps(difference(wanted_rows, present.values())):
                    for entry in chance.sample(step.entries, len(step.entries)):
                        if step.kind == "delete":
                            del present[entry.key]
                        else:
                            present[entry.key] = entry
                        got = answers(present)
                        assert all(g in a for g, a in zip(got, allowed, strict=True))
                assert present == {entry.key: entry for entry in wanted_rows}
            assert answers({entry.key: entry for entry in wanted_rows}) == wanted(switch, now)
        held = {switch: list(rows) for switch, rows in made.entries.items()}
        before = now


def test_rules_that_stay_write_nothing():
    near = next(h for h in HOSTS if NETWORK.hosts[h].switch == NETWORK.hosts["feed1"].switch)
    texts = ["changed(stock)", "stock == GOOGL and avg(price) > 5", "moved(price, 2)"]
    rows = [Subscription(f"c{at}", near, text) for at, text in enumerate(texts)]
    stateful = check(rows, ITCH, set(HOSTS), "feed1")[0]
    for wanted in (rules(7, 12), stateful):
        filters = NetworkFilters(ITCH, "feed1")
        # Cells have not the registers that they would have if all were new.
        held = dict(filters.entries(NETWORK, wanted[1:], {}).entries)
        held = dict(filters.entries(NETWORK, wanted, held, 1).entries)
        assert filters.entries(NETWORK, wanted, held, 2).entries == held
        # Nor after a restart, when nothing but the entries is known.
        assert NetworkFilters(ITCH, "feed1").entries(NETWORK, wanted, held, 3).entries == held


def test_a_rule_with_state_beyond_the_first_switch_is_refused_and_harms_no_other():
    far = next(h for h in HOSTS if NETWORK.hosts[h].switch != NETWORK.hosts["feed1"].switch)
    rows = [
        Subscription("far", far, "stock == AAPL and avg(price) > 5"),
        Subscription("plain", far, "price > 5"),
    ]
    live = check(rows, ITCH, set(HOSTS), "feed1")[0]
    made = NetworkFilters(ITCH, "feed1").entries(NETWORK, live, {})
    assert [r.id for r in made.rejections] == ["far"]
    only = check(rows[1:], ITCH, set(HOSTS), "feed1")[0]
    assert made.entries == NetworkFilters(ITCH, "feed1").entries(NETWORK, only, {}).entries


TEXTS = (
    "stock == AAPL",
    "stock != AAPL and price > 3",
    "not stock in {AAPL, MSFT}",
    "stock > AAPL",
    "stock between A and B and price > 2",
    "not stock between A and B",
    "buy_sell > A",
    "not buy_sell == B",
    "trade.price > 3",
    "stock == GOOGL or trade.stock == GOOGL",
    "stock == AAPL and timestamp > 5",
    "add_order.message_type == A",
    "price > 3 or not price > 3",
    "avg(price) > 5",
    "avg(trade.price) > 5",
    "trade.price > 3 and avg(price) > 5",
    "stock == AAPL : recent <- sum(shares)",
    "stock == AAPL : recent <- sum(trade.shares)",
    "recent > 5",
    "count(1000) > 5",
    "avg(price, 1000000) > 5 and max(shares, 5) > 3",
    "stock == GOOGL and moved(price, 0.5)",
)


@pytest.mark.integration
@pytest.mark.parametrize("many", [False, True], ids=["objects", "columns"])
@pytest.mark.parametrize("text", TEXTS)
def test_a_rule_is_refused_just_if_the_program_cannot_hold_it_by_itself(text, many):
    near = next(h for h in HOSTS if NETWORK.hosts[h].switch == NETWORK.hosts["feed1"].switch)
    row = Subscription("one", near, text)
    if many:
        fill = [Subscription(f"s{n}", near, f"stock == S{n} and price > 1") for n in range(1000)]
        rules = check([row, *fill], ITCH, set(HOSTS), "feed1")[0]
        rules = rules_without(rules, {r.id for r in fill}, ITCH)
    else:
        rules = check([row], ITCH, set(HOSTS), "feed1")[0]
    if not rules:
        return  # of no stream's either
    refused = refused_by_program(rules, ITCH, PROGRAM)
    try:
        program_entries(compile_rules([replace(rules[0], receivers=("1",))], ITCH), ITCH, {})
    except FilterError as error:
        assert error.code in ("FILTER.NO_TABLE", "FILTER.NO_SLOT")
        assert [(r.id, r.code) for r in refused] == [("one", "SUBSCRIPTION.NOT_ON_SWITCHES")]
    else:
        assert not refused


def test_a_program_without_registers_refuses_a_change_by_name():
    text = "header_type t { fields { p: 32; q: 32; } } header t h; @query_field(h.p)"
    rows = [Subscription(t, HOSTS[0], t) for t in ("p > 5", "p > 5 and moved(p, 2)", "changed(q)")]
    for counters, refused in (("", rows[1:]), ("@query_counter(seen, 9, 4)", rows[2:])):
        specification = parse_specification(f"{text} {counters}", "numbers")
        found = refused_by_program(
            check(rows, specification, set(HOSTS), "feed1")[0],
            specification,
            program_layout(specification),
        )
        assert {r.id for r in found} == {row.id for row in refused}
        assert {r.code for r in found} == {"SUBSCRIPTION.NOT_ON_SWITCHES"}
        words = (
            "does not read h.q"
            if counters
            else "cannot store state: compare only fields, declare one"
        )
        assert words in found[-1 if counters else 0].message


@examples(60)
@given(st.lists(st.tuples(st.sampled_from(HOSTS), st.sampled_from(TEXTS)), max_size=6))
def test_rules_that_switches_cannot_hold_never_keep_the_others_from_being_live(wanted):
    rows = [Subscription(f"s{n}", host, text) for n, (host, text) in enumerate(wanted)]
    live = check(rows, ITCH, set(HOSTS), "feed1")[0]
    made = NetworkFilters(ITCH, "feed1").entries(NETWORK, live, {})
    refused = {r.id for r in made.rejections}
    assert len(refused) == len(made.rejections)
    others = [rule for rule in live if rule.id not in refused]
    again = NetworkFilters(ITCH, "feed1").entries(NETWORK, others, {})
    assert (again.entries, again.rejections) == (made.entries, [])


def test_a_switch_that_missed_edits_still_never_meets_a_mixture():
    """Numbers of states that it holds are used again after 256 edits only."""
    filters = NetworkFilters(ITCH, "feed1")
    held: dict[str, list[SwitchEntry]] = {}
    network = fabric(1, 1, 1, 1, 1)
    first = network.hosts["feed1"].switch
    seen: dict[bytes, int] = {}
    for edit in range(GENERATIONS + 1):
        row = Subscription("s", "h1", f"price > {edit}")
        made = filters.entries(network, check([row], ITCH, {"h1"}, "feed1")[0], held)
        held = {switch: list(rows) for switch, rows in made.entries.items()}
        (start,) = (entry for entry in held[first] if entry.table == START)
        generation = int.from_bytes(start.params[0][1], "big") >> STATE_BITS - 8
        assert edit - seen.get(generation, -GENERATIONS) >= GENERATIONS
        seen[generation] = edit
