"""Groups of rules of a switch: fewest passes, and one rule's trouble is nobody else's."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from p4_tables import Switch, read_back

from stackcast.udfs.filters.compiler.compile import compile_rules, table_of_rules
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.meaning.interpreter import Interpreter
from stackcast.udfs.filters.subscriptions import CheckedRule, Subscription, check
from stackcast.udfs.messages.specification import Specification, parse_specification
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network_match.cell_tags import HeldCells
from stackcast.udfs.network_match.entries import program_entries
from stackcast.udfs.network_match.filters import NetworkFilters
from stackcast.udfs.network_match.fitting import fit, fitting_rules
from stackcast.udfs.network_match.groups import Groups
from stackcast.udfs.network_match.layout import ProgramOptions, program_layout
from stackcast.udfs.network_match.routing import ports_towards
from stackcast.udfs.switches.entry import SwitchEntry, difference
from stackcast.udfs.switches.ordering import write_steps

pytestmark = pytest.mark.unit

NAMES = [f"f{n}" for n in range(12)]


def fields(count: int, extra: str = "") -> Specification:
    """A format of so many fields, the first matched exactly, and registers."""
    names = [f"f{n}" for n in range(count)]
    listed = " ".join(f"{name}: 32;" for name in names)
    marks = "\n".join(f"@query_field(h.{name})" for name in names[1:])
    return parse_specification(
        f"header_type h_t {{ fields {{ {listed} }} }} header h_t h;\n"
        f"@query_field_exact(h.f0)\n{marks}\n{extra}",
        "fields",
    )


TWELVE = fields(12)
STATE = fields(12, "@query_counter(seen, 1000, 64)")


def rules_of(texts: list[str], specification: Specification) -> list[CheckedRule]:
    """Rules whose receivers are ports."""
    rows = [Subscription(f"r{n:04}", "h", text) for n, text in enumerate(texts)]
    ports = {str(port) for port in range(1, 65)}
    found, wrong = check(rows, specification, {"h", *ports}, "feed")
    assert not wrong
    return list(found)


def groups(texts: list[str], specification: Specification) -> Groups:
    rules = rules_of(texts, specification)
    table = table_of_rules(rules, specification)
    found = fit(table, len(rules), specification, program_layout(specification), {})
    assert not found.refused
    return found.groups


def fitted(rules: list[CheckedRule], specification: Specification, options=None):
    program = program_layout(specification, options)
    made = fitting_rules(rules, specification, program, "s1", HeldCells())
    return Switch(program, made.entries), made.rejections


def wanted(rules: list[CheckedRule], event: dict[str, int]) -> tuple[int, ...]:
    sent = {name for rule in rules if matches(rule.condition, event) for name in rule.receivers}
    return tuple(sorted(map(int, sent)))


def random_event(chance: random.Random) -> dict[str, int]:
    return {f"h.{name}": chance.randrange(41) for name in NAMES}


def test_a_set_that_fits_one_small_diagram_stays_one():
    texts = [f"f0 == {n} and f1 > {n} : fwd({n % 9 + 1})" for n in range(100)]
    found = groups(texts, TWELVE)
    assert not found.vectors and found.passes == 1
    whole = compile_rules(rules_of(texts, TWELVE), TWELVE)
    made = program_entries(whole, TWELVE, {})
    assert program_entries(found.diagram, TWELVE, {}) == made


def test_forty_rules_that_each_ask_for_another_field_are_some_tens_of_rows_in_one_pass():
    texts = [f"{NAMES[n % 11 + 1]} == {n} : fwd({n + 1})" for n in range(40)]
    switch, rejections = fitted(rules_of(texts, TWELVE), TWELVE)
    assert not rejections and sum(map(len, switch.rows.values())) < 60
    assert switch.event({"h.f1": 0, "h.f2": 1, "h.f3": 5})[0] == (1, 2)
    assert switch.passes == 1


@examples(60)
@given(st.randoms(use_true_random=False), st.integers(1, 120), st.integers(1, 3), st.data())
def test_rules_that_fit_are_delivered_and_only_the_others_are_refused(chance, count, form, data):
    options = ProgramOptions(
        words=data.draw(st.sampled_from([1, 4])),
        passes=data.draw(st.integers(1, 3)),
        rows=data.draw(st.sampled_from([100, 2_000])),
    )
    ports = data.draw(st.sampled_from([3, 20, 64]))
    texts = []
    for _ in range(count):
        names = chance.sample(NAMES, form)
        parts = [
            f"{name} {'==' if name == 'f0' else chance.choice(['==', '>', '<'])} "
            f"{chance.randrange(1, 40)}"
            for name in names
        ]
        texts.append(f"{' and '.join(parts)} : fwd({chance.randrange(ports) + 1})")
    rules = rules_of(texts, TWELVE)
    held, refused = rules, set()
    while True:  # As all switches of a network do: what one refuses, none has.
        switch, rejections = fitted(held, TWELVE, options)
        if not rejections:
            break
        assert {r.code for r in rejections} <= {
            "SUBSCRIPTION.NO_ROOM_ON_SWITCHES",
            "FILTER.TOO_LARGE",
        }
        refused |= {r.id for r in rejections}
        held = [rule for rule in rules if rule.id not in refused]
    assert held, "one rule fits always"
    for _ in range(30):
        event = random_event(chance)
        assert switch.event(event)[0] == wanted(held, event)
        assert switch.passes <= 1 + options.passes


@pytest.mark.parametrize(
    ("texts", "keyed"),
    [
        ([f"{NAMES[n % 11 + 1]} > {n} : fwd({n + 1})" for n in range(40)], False),
        (
            [f"f{n % 5} == {n % 7} and f{5 + n % 7} == 5 : fwd({n % 3 + 1})" for n in range(200)],
            True,
        ),
    ],
    ids=["bit vectors", "keys"],
)
def test_state_stays_in_the_diagram_and_its_neighbours_in_other_groups(texts, keyed):
    texts = [*texts, "f0 == 1 and count() >= 2 : fwd(60)", "f0 == 2 : { fwd(61); seen <- sum(f1) }"]
    found = groups(texts, STATE)
    assert found.passes > 1 and len(found.diagram.cells) == 2 and bool(found.conjunctions) == keyed
    rules = rules_of(texts, STATE)
    switch, rejections = fitted(rules, STATE)
    assert not rejections
    oracle = Interpreter([parse_rule(text, STATE) for text in texts], STATE)
    sent = set()
    for turn in range(6):
        event = {f"h.{name}": 5 for name in NAMES} | {"h.f0": 1 + turn % 2}
        ports, _ = switch.event(event, time=turn)
        assert ports == tuple(sorted(map(int, oracle.step(event, turn).receivers)))
        assert switch.passes == found.passes
        sent |= {*ports}
    assert {1, 60, 61} <= sent


def test_a_rule_with_more_state_than_there_is_room_for_is_refused_alone():
    windows = "\n".join(f"@query_counter(c{n}, {1000 * n}, 1)" for n in range(1, 7))
    specification = fields(12, windows)
    many = " and ".join(f"c{n} > 5" for n in range(1, 7))
    texts = ["f0 == 1 and c1 > 3 : fwd(1)", f"f0 == 2 and {many} : fwd(2)", "f1 > 7 : fwd(3)"]
    rules = rules_of(texts, specification)
    switch, rejections = fitted(rules, specification)
    assert [(r.id, r.code) for r in rejections] == [("r0001", "FILTER.TOO_MANY_VARIABLES")]
    assert switch.event({"h.f0": 2, "h.f1": 8})[0] == (3,)


@pytest.mark.parametrize(
    "asked", ["f0 == {}", "f1 between {0}0 and {0}7"], ids=["values", "ranges"]
)
def test_of_rules_that_ask_for_more_values_than_a_table_has_rows_as_many_are_live_as_fit(asked):
    options = ProgramOptions(rows=50, conjunctions=0)
    texts = [f"{asked.format(n)} : fwd(1)" for n in range(60)] + ["f2 > 5 : fwd(2)"]
    rules = rules_of(texts, TWELVE)
    switch, rejections = fitted(rules, TWELVE, options)
    assert {r.code for r in rejections} == {"FILTER.TOO_LARGE"}
    assert asked[:2] in rejections[0].message
    refused = {r.id for r in rejections}
    held = [rule for rule in rules if rule.id not in refused]
    assert len(held) >= 50 and rules[-1] in held
    for value in range(600):
        event = {"h.f0": value, "h.f1": value, "h.f2": value % 10}
        assert switch.event(event)[0] == wanted(held, event)


def test_keys_that_one_table_has_no_rows_for_go_on_in_the_next():
    options = ProgramOptions(rows=50, conjunctions=3, passes=2)
    rules = rules_of(
        [f"f0 == {7 * n} and f1 == {n} : fwd({n % 9 + 1})" for n in range(150)], TWELVE
    )
    switch, rejections = fitted(rules, TWELVE, options)
    assert not rejections
    sizes = [len(rows) for (table, _), rows in switch.rows.items() if table.endswith(".keys")]
    assert sizes == [50, 50, 50]
    for n in range(150):
        event = {"h.f0": 7 * n, "h.f1": n}
        assert switch.event(event)[0] == wanted(rules, event) and switch.passes == 1


def test_of_more_keys_than_all_tables_have_rows_the_latest_rules_are_refused():
    options = ProgramOptions(rows=50, conjunctions=2, passes=1, words=1)
    rules = rules_of([f"f0 == {n} and f1 == {n} : fwd(1)" for n in range(120)], TWELVE)
    switch, rejections = fitted(rules, TWELVE, options)
    # One more is the term of bit vectors that a port has.
    assert [r.id for r in rejections] == [rule.id for rule in rules[101:]]
    message = rejections[0].message
    assert "h.f0, h.f1" in message and "1 terms" in message
    for n in range(120):
        event = {"h.f0": n, "h.f1": n}
        assert switch.event(event)[0] == wanted(rules[:101], event)


@pytest.mark.integration
@pytest.mark.parametrize("count", [1, 2, 5, 11, 25, 50])
@examples(20)
@given(chance=st.randoms(use_true_random=False), some=st.integers(1, 90))
def test_rules_over_any_number_of_fields_are_delivered_or_refused_alone(count, chance, some):
    """Single values, lists, ranges and all else, some of it more than there is room for."""
    names = [f"f{n}" for n in range(count)]
    specification = fields(count)
    options = ProgramOptions(words=2, passes=3, conjunctions=6, rows=2_000)
    texts = []
    for _ in range(some):
        chosen = chance.sample(names, min(chance.choice([1, 2, 2, 3, 5]), count))
        exact = chance.random() < 0.7
        parts = [
            f"{name} == {chance.randrange(6)}"
            if exact or name == "f0"
            else f"{name} {chance.choice(['==', '!=', '<', '>'])} {chance.randrange(6)}"
            for name in chosen
        ]
        if chance.random() < 0.1:
            parts[-1] = f"{chosen[-1]} in {{1, 4}}"
        joined = " or " if chance.random() < 0.05 else " and "
        texts.append(f"{joined.join(parts)} : fwd({chance.randrange(20) + 1})")
    held = rules_of(texts, specification)
    while True:
        switch, rejections = fitted(held, specification, options)
        if not rejections:
            break
        refused = {r.id for r in rejections}
        held = [rule for rule in held if rule.id not in refused]
    for _ in range(20):
        event = {f"h.{name}": chance.randrange(7) for name in names}
        assert switch.event(event)[0] == wanted(held, event)


NETWORK = fabric(2, 2, 2, 1, 1)
WIDE = fabric(1, 2, 12, 1, 1)
HOSTS = NETWORK.subscribers()


def test_a_rule_that_one_switch_has_no_room_for_is_in_none_and_all_others_are_live():
    specification = TWELVE
    options = ProgramOptions(words=1, passes=2, rows=500)
    host = HOSTS[-1]
    rows = [
        Subscription(f"s{n:02}", host, f"{NAMES[n % 12]} == {n} and {NAMES[n % 5 + 1]} == {n}")
        for n in range(12)
    ]
    rows += [
        Subscription(f"t{n:03}", HOSTS[n % len(HOSTS)], f"{NAMES[n % 11 + 1]} == {n}")
        for n in range(60)
    ]
    rules = list(check(rows, specification, set(HOSTS), "feed1")[0])
    made = NetworkFilters(specification, "feed1", options).entries(NETWORK, rules, {})
    refused = {r.id for r in made.rejections}
    assert refused and {r.code for r in made.rejections} == {"SUBSCRIPTION.NO_ROOM_ON_SWITCHES"}
    others = [rule for rule in rules if rule.id not in refused]
    again = NetworkFilters(specification, "feed1", options).entries(NETWORK, others, {})
    assert (again.entries, again.rejections) == (made.entries, [])
    program = program_layout(specification, options)
    for switch, behind in ports_towards(NETWORK, "feed1").items():
        tables = Switch(program, read_back(made.entries[switch]))
        here = through(others, behind)
        chance = random.Random(switch)
        for _ in range(100):
            event = random_event(chance)
            assert tables.event(event)[0] == wanted(here, event)


@pytest.mark.integration
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))]
)
def test_in_the_middle_of_an_edit_of_groups_events_go_by_the_old_rules_or_by_the_new(seed):
    """From a diagram to bit vectors in several passes, to keys, and back."""
    chance = random.Random(seed)
    options = ProgramOptions(words=1, passes=8, rows=600)
    program = program_layout(TWELVE, options)
    filters = NetworkFilters(TWELVE, "feed1", options)
    hosts = WIDE.subscribers()
    ports = ports_towards(WIDE, "feed1")
    held: dict[str, list[SwitchEntry]] = {}
    before: list[CheckedRule] = []
    passes, filled = [], set()
    for count, operator in ((3, ">"), (60, ">"), (80, ">"), (80, "=="), (5, ">")):
        rows = []
        for n in range(count):
            names = chance.sample(NAMES[1:], 1 + n % 2)
            parts = [f"{name} {operator} {chance.randrange(40)}" for name in names]
            rows.append(Subscription(f"s{n}", hosts[n % len(hosts)], " and ".join(parts)))
        rules = list(check(rows, TWELVE, set(hosts), "feed1")[0])
        made = filters.entries(WIDE, rules, held)
        refused = {r.id for r in made.rejections}
        rules = [rule for rule in rules if rule.id not in refused]
        passes.append(made.passes)
        filled |= {entry.table for entries in made.entries.values() for entry in entries}
        events = [random_event(chance) for _ in range(3)]
        for switch, entries in made.entries.items():
            old, new = (
                [wanted(through(those, ports[switch]), event) for event in events]
                for those in (before, rules)
            )
            present = {entry.key: entry for entry in held.get(switch, [])}
            for step in write_steps(difference(entries, present.values())):
                some = chance.sample(step.entries, len(step.entries))
                for at, entry in enumerate(some):
                    if step.kind == "delete":
                        del present[entry.key]
                    else:
                        present[entry.key] = entry
                    if before and (at % 25 == 0 or at + 1 == len(some)):
                        tables = Switch(program, read_back(present.values()))
                        got = [tables.event(event)[0] for event in events]
                        assert all(g in o for g, *o in zip(got, old, new, strict=True))
            tables = Switch(program, read_back(entries))
            assert [tables.event(event)[0] for event in events] == new
        held = {switch: list(entries) for switch, entries in made.entries.items()}
        before = rules
    assert passes[0] == 1 and max(passes) > 2
    assert any(table.endswith(".keys") for table in filled)


def through(rules: list[CheckedRule], ports: dict[str, int]) -> list[CheckedRule]:
    """The rules of a switch, with ports for the hosts behind it."""
    return [
        replace(rule, receivers=tuple({str(ports[n]) for n in rule.receivers if n in ports}))
        for rule in rules
    ]
