"""One meaning for any rules over any format: syntax trees, diagram, rows, matchers and switch."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from examples import examples
from filter_cases import (
    Case,
    actions,
    batches,
    can_be_sent,
    cases,
    conditions,
    lanes_of,
    ports_of,
    predicates,
    rules,
    shape,
    switch_of,
)
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from plain_matcher import PlainMatcher, PlainStatefulMatcher

from stackcast.udfs.errors import FilterError, SubscriptionError
from stackcast.udfs.filters.compiler.compile import (
    CheckedRule,
    compile_rules,
    compile_texts,
    table_of_texts,
)
from stackcast.udfs.filters.compiler.incremental import IncrementalCompiler
from stackcast.udfs.filters.compiler.levels import make_levels
from stackcast.udfs.filters.compiler.outcomes import token_order
from stackcast.udfs.filters.compiler.tables import KINDS, CompiledFilter
from stackcast.udfs.filters.diagrams.diagrams import Diagrams
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.language.shapes import read_table
from stackcast.udfs.filters.matching.cells import StatefulMatcher
from stackcast.udfs.filters.matching.matcher import Matcher
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.meaning.interpreter import Interpreter
from stackcast.udfs.filters.meaning.state import clock_of
from stackcast.udfs.filters.nodes import And, Call, Node, Not, Predicate, Rule, Update
from stackcast.udfs.messages.specification import Specification, parse_specification

pytestmark = pytest.mark.unit

Said = tuple[tuple[str, ...], tuple[Call, ...]]
"""Receivers and calls."""

MAX_ENTRIES = 20_000
patient = settings(
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def compiled_of(texts: Sequence[str], specification: Specification, **more: Any) -> CompiledFilter:
    try:
        return compile_texts(texts, specification, MAX_ENTRIES, **more)
    except (SubscriptionError, FilterError) as error:
        assert error.what in ("TOO_COMPLEX", "TOO_LARGE"), error
        assume(False)
        raise


def by_trees(read: Sequence[Rule], event: Mapping[str, int]) -> Said:
    """Brute force: each rule on its own."""
    taken = [a for rule in read if matches(rule.condition, event) for a in rule.actions]
    names = {name for a in taken for name in getattr(a, "targets", ())}
    return sorted_names(names), tuple(sorted({a for a in taken if isinstance(a, Call)}))


def sorted_names(names: set[str]) -> tuple[str, ...]:
    ports = sorted(name for name in names if not name.isdigit())
    return (*sorted((n for n in names if n.isdigit()), key=int), *ports)


def by_rows(compiled: CompiledFilter, kind: int, event: Mapping[str, int]) -> Said:
    """An interpreter of the tables, row by row."""
    state = compiled.root
    rows = compiled.entries
    for index, name in enumerate(compiled.fields):
        value = event.get(name) if index else kind
        mine = [row[2:] for row in rows[rows["state"] == state].tolist() if row[0] == index]
        special = {KINDS[kind]: after for _, _, kind, after in mine if kind in (2, 4)}
        fit = [row for row in mine if row[2] not in (2, 4) and value is not None]
        fit = sorted((high - low, after) for low, high, _, after in fit if low <= value <= high)
        if mine:
            otherwise = special["default"]
            missing = special.get("absent", otherwise)
            state = fit[0][1] if fit else missing if value is None else otherwise
    return compiled.outcomes[state].receivers, compiled.outcomes[state].calls


def by_diagram(
    texts: Sequence[str], specification: Specification, optional: bool | None
) -> Callable[[int, Mapping[str, int]], Said]:
    """The diagram itself, before tables are cut from it."""
    table = table_of_texts(texts, read_table(texts, specification), specification, optional)
    levels = make_levels(specification, (), (), None, optional)
    tokens = sorted({t for outcome in table.outcomes for t in outcome}, key=token_order)
    diagrams = Diagrams(levels.maxima, levels.may_lack, len(tokens), 1 << 20)
    leaves = [diagrams.leaf(map(tokens.index, outcome)) for outcome in table.outcomes]
    roots, _ = table.roots(diagrams, levels, np.array(leaves, np.int32))
    root = diagrams.union_all(roots)

    def walk(kind: int, event: Mapping[str, int]) -> Said:
        node = root
        while node >= 0:
            level, lows, children, absent = diagrams.rows(node)
            value = event.get(levels.names[level]) if level else kind
            if value is None:
                assert absent is not None, "a field that is always there is not"
                node = absent
            else:
                node = children[sum(low <= value for low in lows) - 1]
        said = [tokens[member] for member in diagrams.members(node)]
        names = {token for token in said if isinstance(token, str)}
        return sorted_names(names), tuple(t for t in said if isinstance(t, Call))

    return walk


def columns_of(
    batch: Sequence[tuple[int, Mapping[str, int]]], names: Sequence[str], rubbish: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Values and presence; what is absent has ``rubbish`` that nobody may look at."""
    shape = (len(names), len(batch))
    found = [[event.get(name) for _, event in batch] for name in names]
    values = [[rubbish if v is None else v for v in row] for row in found]
    present = [[v is not None for v in row] for row in found]
    return np.array(values, np.uint64).reshape(shape), np.array(present, np.bool_).reshape(shape)


def by_matcher(
    matcher: Matcher, batch: Sequence[tuple[int, Mapping[str, int]]], rubbish: int
) -> list[Said]:
    kinds = np.array([kind for kind, _ in batch], np.uint8)
    leaves = matcher.match(kinds, *columns_of(batch, matcher.fields, rubbish))
    return [(matcher.outcomes[i].receivers, matcher.outcomes[i].calls) for i in leaves]


@examples(150, patient)
@given(st.data())
def test_everything_agrees_on_any_rules_over_any_format(data: st.DataObject):
    case = data.draw(cases())
    texts = data.draw(rules(case))
    specification = case.specification
    read = [parse_rule(text, specification) for text in texts]
    by_field = data.draw(st.integers(0, 3)) == 0
    optional = True if by_field else None
    batch = data.draw(batches(case, 40, by_field))
    cut = [(kind, lanes_of(specification, event)) for kind, event in batch]
    expected = [by_trees(read, event) for _, event in batch]

    compiled = compiled_of(texts, specification, optional=optional)
    diagram = by_diagram(texts, specification, optional)
    assert [diagram(*event) for event in cut] == expected
    assert [by_rows(compiled, *event) for event in cut] == expected
    for matching in (Matcher, PlainMatcher):
        assert by_matcher(matching(compiled), cut, data.draw(st.integers(0, 1))) == expected
    if not by_field:
        switch = switch_of(compiled, read, specification)
        for (kind, event), said in zip(cut, expected, strict=True):
            if switch is not None and can_be_sent(case, event):
                assert delivered(switch, kind, event) == in_ports(said)


def delivered(switch: Any, kind: int, event: Mapping[str, int], time: int = 0) -> Any:
    return switch.event(event, kind, time)


def in_ports(said: Said) -> tuple[tuple[int, ...], set[tuple[Any, ...]]]:
    """Receivers and calls as a switch has them."""
    numbers = {"10.0.0.97": 0x0A000061}
    calls = {(c.name, *(numbers.get(a) or int(a) for a in c.args)) for c in said[1]}
    return ports_of(said[0]), calls


@examples(40, patient)
@given(st.data())
def test_the_order_of_the_fields_changes_nothing(data: st.DataObject):
    case = data.draw(cases(most_bits=130))
    texts = data.draw(rules(case))
    read = [parse_rule(text, case.specification) for text in texts]
    plain = compiled_of(texts, case.specification)
    chosen = compiled_of(texts, case.specification, order="auto")
    given_order = data.draw(st.permutations(case.names))
    any_order = compiled_of(texts, case.specification, order=tuple(given_order))
    assert len(chosen.entries) <= len(plain.entries)
    batch = data.draw(batches(case))
    cut = [(kind, lanes_of(case.specification, event)) for kind, event in batch]
    expected = [by_trees(read, event) for _, event in batch]
    for compiled in (chosen, any_order):
        assert [by_rows(compiled, *event) for event in cut] == expected
        assert by_matcher(Matcher(compiled), cut, 1) == expected


@examples(40, patient)
@given(st.data())
def test_a_rule_and_its_opposite_part_the_events_that_have_the_fields(data: st.DataObject):
    """Contradictions reach nobody, and tautologies all that know what they ask for."""
    case = data.draw(cases())
    condition = data.draw(conditions(predicates(case)))
    texts = [
        f"({condition}) and not ({condition}) : fwd(1)",
        f"({condition}) or not ({condition}) : fwd(2)",
        f"{condition} : fwd(3)",
        f"not ({condition}) : fwd(4)",
    ]
    compiled = compiled_of(texts, case.specification)
    assert all("1" not in outcome.receivers for outcome in compiled.outcomes.values())
    for kind, event in data.draw(batches(case)):
        names = set(by_rows(compiled, kind, lanes_of(case.specification, event))[0])
        assert names in (set(), {"2", "3"}, {"2", "4"})
        node = parse_rule(condition, case.specification).condition
        if names == set():
            assert not matches(node, event) and not matches(Not(node), event)


# State.

_FUNCTIONS = ("count()", "sum({})", "avg({})", "min({})", "max({})")


@st.composite
def stateful_cases(draw: st.DrawFn) -> tuple[Case, list[str]]:
    """A format with windows of 10 and 25 microseconds, and rules with state."""
    extra = "@query_counter(seen, 10, 64)\n@query_counter(spent, 25, 64)\n"
    clock = draw(st.sampled_from([0, 0, 1, 3, 1000]))
    case = draw(cases(most_bits=64, annotated=True, clock=clock, extra=extra))
    numbers = [n for n in case.names if case.field(n).kind != "string" and "kind" not in n]
    functions = _FUNCTIONS if numbers else _FUNCTIONS[:1]

    def called(function: str) -> str:
        return function.format(draw(st.sampled_from(numbers))) if "{" in function else function

    # All updates of a variable are by one function.
    updates = []
    for variable in ("seen", "spent"):
        function = draw(st.sampled_from(functions))
        updates += [f"{variable} <- {called(function)}" for _ in range(2)]

    @st.composite
    def read(draw_: st.DrawFn, subjects: Sequence[str]) -> str:
        subject = draw_(st.sampled_from(subjects))
        pool, field = (0, 1, 2, 3), None
        if "{" in subject:
            name = draw_(st.sampled_from(numbers))
            field = case.field(name)
            pool = (*case.constants[name], 0, 1)
            window = draw_(st.sampled_from(["", ", 10", ", 25"]))
            subject = subject.format(name + window)
        elif subject == "count()":
            subject = draw_(st.sampled_from(["count()", "count(25)"]))
        raw = draw_(st.sampled_from(pool))
        shown = field.render(raw) if field is not None else str(raw)
        operator = draw_(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]))
        return f"{subject} {operator} {shown}"

    @st.composite
    def change(draw_: st.DrawFn) -> str:
        name = draw_(st.sampled_from([n for n in case.names if "kind" not in n] or case.names))
        field = case.field(name)
        if field.kind == "string" or draw_(st.booleans()):
            return f"changed({name})"
        return (
            f"moved({name}, {field.render(min((1 << field.bits) - 1, draw_(st.integers(1, 9))))})"
        )

    leaves = predicates(case) | read(["seen", "seen", "spent"]) | read(functions) | change()
    rule = st.builds("{} : {}".format, conditions(leaves, 3), actions(updates))
    count = draw(st.sampled_from([3, 2, 4, 1]))
    return case, draw(st.lists(rule, min_size=count, max_size=count))


@examples(80, patient)
@given(st.data())
def test_everything_agrees_on_rules_with_state(data: st.DataObject):
    case, texts = data.draw(stateful_cases())
    specification = case.specification
    read = [parse_rule(text, specification) for text in texts]
    clock = clock_of(specification)
    by_field = data.draw(st.integers(0, 3)) == 0
    batch, times, now = [], [], 1000
    chance = random.Random(data.draw(st.integers(0, 999)))
    for kind, event in data.draw(batches(case, 40, by_field)):
        now += chance.choice([0, 0, 1, 1, 1, 4, 5, 9, 10, 11, 24, 25, 26, -1, -9, -10, -26])
        if "m0.at" in specification.fields and any(name.startswith("m0.") for name in event):
            # One unit before, at, and behind a microsecond's beginning.
            event["m0.at"] = now * clock.units + chance.choice([-1, 0, 0, 1])
        batch.append((kind, event))
        times.append(clock.time(event, now))
    compiled = compiled_of(texts, specification, optional=True if by_field else None)
    reference = Interpreter(read, specification)
    steps = [
        reference.step(event, time // clock.units)
        for (_, event), time in zip(batch, times, strict=True)
    ]
    expected = [(step.receivers, step.calls) for step in steps]
    cut = [(kind, lanes_of(specification, event)) for kind, event in batch]

    if compiled.cells or Matcher(compiled).stateful:
        for kind in (StatefulMatcher, PlainStatefulMatcher):
            assert by_stateful(kind(compiled, clock.units), cut, times, data) == expected
    else:
        assert by_matcher(Matcher(compiled), cut, 1) == expected

    if not by_field and all(can_be_sent(case, event) for _, event in batch):
        switch = switch_of(compiled, read, specification)
        if switch is not None:
            found = [delivered(switch, *e, t) for e, t in zip(cut, times, strict=True)]
            assert found == [in_ports(said) for said in expected]


def by_stateful(
    matcher: StatefulMatcher,
    batch: Sequence[tuple[int, Mapping[str, int]]],
    times: Sequence[int],
    data: st.DataObject,
) -> list[Said]:
    """The source in two slices."""
    edge = data.draw(st.integers(0, len(batch)))
    carried, found = None, []
    for part in (slice(0, edge), slice(edge, None)):
        kinds = np.array([kind for kind, _ in batch[part]], np.uint8)
        values, present = columns_of(batch[part], matcher.matcher.fields, 1)
        codes = matcher.matcher.walk(kinds, values, present)
        at = np.array(times[part], np.int64)
        leaves, carried = matcher.run(codes, values, at, carried)
        found += [matcher.matcher.outcomes[leaf] for leaf in leaves]
    return [(outcome.receivers, outcome.calls) for outcome in found]


# Edits.


def checked(text: str, specification: Specification) -> CheckedRule:
    rule = parse_rule(text, specification)
    calls = tuple(a for a in rule.actions if isinstance(a, Call))
    updates = tuple(a for a in rule.actions if isinstance(a, Update))
    return CheckedRule("", rule.condition, sorted_names(set(rule.receivers)), calls, updates)


@examples(80, patient)
@given(st.data())
def test_any_sequence_of_edits_gives_what_compiling_anew_gives(data: st.DataObject):
    if data.draw(st.booleans()):
        case, texts = data.draw(stateful_cases())
    else:
        case = data.draw(cases())
        texts = data.draw(rules(case))
    order = data.draw(st.sampled_from(["specification", "auto", "given"]))
    if order == "given":
        order = tuple(data.draw(st.permutations(case.names)))
    specification = case.specification
    limit = data.draw(st.sampled_from([4, 30, MAX_ENTRIES]))
    compiler = IncrementalCompiler(specification, order=order, max_entries=limit)
    read = [checked(text, specification) for text in texts]
    live: dict[str, CheckedRule] = {}
    chance = random.Random(data.draw(st.integers(0, 999)))
    for _ in range(data.draw(st.integers(2, 10))):
        step = {
            chance.choice("abcde"): None if chance.random() < 0.4 else chance.choice(read)
            for _ in range(chance.randint(1, 3))
        }
        try:
            compiler.update(step)
            live = {n: r for n, r in (live | step).items() if r is not None}
        except (SubscriptionError, FilterError) as error:
            # Then all is as it was.
            assert error.what in ("TOO_COMPLEX", "TOO_LARGE"), error
        if order == "auto" and live:
            wholes = {
                lane.qualified: f.qualified
                for f in specification.fields.values()
                for lane in f.lanes()
            }
            order_now = tuple(
                dict.fromkeys(wholes[n] for n in compiler.compiled.fields[1:] if n in wholes)
            )
        else:
            order_now = order if order != "auto" else "specification"
        anew = compile_rules(list(live.values()), specification, MAX_ENTRIES, order=order_now)
        assert shape(compiler.compiled) == shape(anew)


def test_an_order_is_chosen_after_a_rule_with_state_that_nothing_satisfies():
    specification = parse_specification(
        "header_type t { fields { p: 8; q: 8; } } header t h; @query_counter(seen, 10)", "never"
    )
    never = checked("p < 0 : seen <- count()", specification)
    other = checked("q == 1 and p > 5 : fwd(1)", specification)
    compiler = IncrementalCompiler(specification, order="auto")
    compiler.update({"never": never})
    assert compiler.compiled.fields == ("message_type", "seen")
    compiler.update({"other": other})
    assert shape(compiler.compiled) == shape(compile_rules([never, other], specification))


# An independent package of decision diagrams, on domains that are small enough for its bits.


class Bits:
    """Sets of events of a small format as binary decision diagrams of package dd."""

    def __init__(self, case: Case) -> None:
        from dd.autoref import BDD  # noqa: PLC0415

        self.case = case
        self.bdd = BDD()
        self.types = {
            h.name: h.message_type for h in case.specification.headers if h.message_type is not None
        }
        self.bdd.declare(*(f"is_{name}" for name in self.types))
        for name in case.names:
            field = case.field(name)
            self.bdd.declare(*(f"{field.header}_{field.name}_{b}" for b in range(field.bits)))
            if not case.typed:
                self.bdd.declare(f"has_{field.header}_{field.name}")
        self.possible = self.bdd.true
        if not case.typed and len(case.specification.headers) == 1:
            for name in case.names:
                self.possible &= self.has(name)
        for one in self.types:
            for other in self.types:
                if one < other:
                    both = self.bdd.var(f"is_{one}") & self.bdd.var(f"is_{other}")
                    self.possible &= ~both

    def has(self, name: str) -> Any:
        field = self.case.field(name)
        if self.case.typed:
            return self.bdd.var(f"is_{field.header}")
        return self.bdd.var(f"has_{field.header}_{field.name}")

    def inside(self, name: str, low: int, high: int) -> Any:
        """Values from low to high."""
        field = self.case.field(name)
        if self.case.typed and field.name == "kind":
            return self.typed(low, high) & self.bdd.var(f"is_{field.header}")
        found = self.bdd.false
        for value in range(low, min(high, (1 << field.bits) - 1) + 1):
            one = self.bdd.true
            for bit in range(field.bits):
                variable = self.bdd.var(f"{field.header}_{field.name}_{bit}")
                one &= variable if value >> bit & 1 else ~variable
            found |= one
        return found

    def typed(self, low: int, high: int) -> Any:
        """Messages with such a type; one of no header of the format is Z."""
        none = self.bdd.true
        found = self.bdd.false
        for name, number in self.types.items():
            none &= ~self.bdd.var(f"is_{name}")
            if low <= number <= high:
                found |= self.bdd.var(f"is_{name}")
        return found | none if low <= ord("Z") <= high else found

    def of(self, node: Node) -> tuple[Any, Any]:
        """Where a condition is true, and where it is false."""
        if isinstance(node, Not):
            true, false = self.of(node.child)
            return false, true
        if isinstance(node, Predicate):
            name, top = node.field.qualified, (1 << node.field.bits) - 1
            value = node.constants[0][0]
            spans = {
                "<": [(0, value - 1)],
                "<=": [(0, value)],
                ">": [(value + 1, top)],
                ">=": [(value, top)],
            }.get(node.operator, list(node.constants))
            held = self.bdd.false
            for low, high in spans:
                held |= self.inside(name, low, high)
            if node.operator in ("!=", "not in"):
                held = ~held
            return self.has(name) & held, self.has(name) & ~held
        both = isinstance(node, And)
        true, false = (self.bdd.true, self.bdd.false) if both else (self.bdd.false, self.bdd.true)
        for more, less in (self.of(child) for child in node.children):
            if both:
                true, false = true & more, false | less
            else:
                true, false = true | more, false & less
        return true, false

    def leaves(self, compiled: CompiledFilter) -> dict[int, Any]:
        """The events that reach each leaf, from the rows."""
        reach = {compiled.root: self.bdd.true}
        for index, name in enumerate(compiled.fields):
            after = {s: f for s, f in reach.items()}
            for state, function in reach.items():
                mine = [row[2:] for row in compiled.entries.tolist() if row[:2] == (index, state)]
                if not mine:
                    continue
                del after[state]
                has = self.has(name) if index else self.bdd.true
                left, absent = has, ~has
                moves: list[tuple[int, Any]] = []
                fixed = [row for row in mine if KINDS[row[2]] not in ("default", "absent")]
                for low, high, _, to in sorted(fixed, key=lambda row: row[1] - row[0]):
                    span = self.inside(name, low, high) if index else self.typed(low, high)
                    moves.append((to, left & span))
                    left &= ~span
                for _, _, kind, to in sorted(mine, key=lambda row: -row[2]):
                    if KINDS[kind] == "absent":
                        moves.append((to, absent))
                        absent = self.bdd.false
                    elif KINDS[kind] == "default":
                        moves.append((to, left | absent))
                for to, part in moves:
                    after[to] = after.get(to, self.bdd.false) | (function & part)
            reach = after
        return reach


@examples(60, patient)
@given(st.data())
def test_an_independent_package_makes_the_same_functions_of_the_same_texts(data: st.DataObject):
    case = data.draw(cases(most_bits=3))
    texts = data.draw(rules(case))
    bits = Bits(case)
    compiled = compiled_of(texts, case.specification)
    leaves = bits.leaves(compiled)
    read = [parse_rule(text, case.specification) for text in texts]
    for name in sorted({name for rule in read for name in rule.receivers}):
        wanted = bits.bdd.false
        for rule in read:
            if name in rule.receivers:
                wanted |= bits.of(rule.condition)[0]
        found = bits.bdd.false
        for state, function in leaves.items():
            if name in compiled.outcomes[state].receivers:
                found |= function
        assert found & bits.possible == wanted & bits.possible


# Size.

PLAIN = parse_specification(
    """
    header_type order_t { fields { kind: 8; @string stock: 64; @decimals(4) price: 32; } }
    @message_type("A") header order_t order;
    @query_field_exact(order.stock)
    @query_field(order.price)
    """,
    "plain",
)


def test_thousands_of_equal_rules_are_one_rule():
    one = ["stock == A and price > 5 : fwd(1)", "not price <= 7 : { fwd(2); mark(1) }"]
    first, many = compile_texts(one, PLAIN), compile_texts(one * 4000, PLAIN)
    assert np.array_equal(first.entries, many.entries)
    assert first.outcomes == many.outcomes


@pytest.mark.integration
def test_a_thousand_fields_and_rules_that_ask_for_all_of_them():
    names = [f"f{number}" for number in range(1000)]
    fields = " ".join(f"{name}: 8;" for name in names)
    text = f"header_type h_t {{ fields {{ {fields} }} }} header h_t h;"
    specification = parse_specification(text, "wide")
    every_tenth = [" and ".join(f"{name} == 1" for name in names[at::10]) for at in range(2)]
    texts = [f"{condition} : fwd({at + 1})" for at, condition in enumerate(every_tenth)]
    texts += [f"{name} == 2 : fwd(9)" for name in names]
    compiled = compile_texts(texts, specification, optional=True)
    read = [parse_rule(text, specification) for text in texts]
    event = {f"h.{name}": 1 for name in names}
    batch = [(0, event), (0, event | {"h.f999": 2}), (0, event | {"h.f10": 3}), (0, {}),
             (0, {"h.f500": 2}), (0, {n: v for n, v in event.items() if n != "h.f31"})]  # fmt: skip
    expected = [by_trees(read, event) for _, event in batch]
    assert expected[0][0] == ("1", "2") and expected[1][0] == ("1", "2", "9")
    assert [by_rows(compiled, *event) for event in batch] == expected
    for matching in (Matcher, PlainMatcher):
        assert by_matcher(matching(compiled), batch, 2) == expected


# The rules and tables printed in both texts.

FIGURE_2 = parse_specification(
    """
    header_type itch_add_order_t { fields { shares: 32; stock: 64; price: 32; } }
    header itch_add_order_t add_order;
    header_type ipv4_t { fields { dst: 32; } }
    header ipv4_t ip;
    @query_field(add_order.shares)
    @query_field(add_order.price)
    @query_field_exact(add_order.stock)
    @query_field_lpm(ip.dst)
    @query_counter(my_counter, 100, 16)
    """,
    "figure2",
)
PRINTED = {
    "ip.dst == 192.168.0.1 : fwd(1)": [
        ({"ip.dst": 0xC0A80001}, (1,)),
        ({"ip.dst": 0xC0A80002}, ()),
    ],
    "stock == GOOGL : fwd(1)": [({"stock": "GOOGL"}, (1,)), ({"stock": "MSFT"}, ())],
    "stock == GOOGL : fwd(1,2,3)": [({"stock": "GOOGL"}, (1, 2, 3)), ({"stock": "GOOG"}, ())],
    "stock == GOOGL : fwd(1,2)": [({"stock": "GOOGL"}, (1, 2)), ({}, ())],
    'stock = "GOOGL" : 1, 2;': [({"stock": "GOOGL"}, (1, 2)), ({"stock": "A"}, ())],
    "stock == GOOGL ^ avg(price) > 50 : fwd(1)": [
        ({"stock": "GOOGL", "price": 60}, ()),
        ({"stock": "MSFT", "price": 0}, ()),
        ({"stock": "GOOGL", "price": 41}, (1,)),
        # The average of 60 and 41 is 50, as it is rounded down.
        ({"stock": "GOOGL", "price": 70}, ()),
        ({"stock": "GOOGL", "price": 0}, (1,)),
    ],
}


@pytest.mark.parametrize("text", PRINTED)
def test_every_rule_printed_in_the_texts_does_what_they_say(text: str):
    stock = FIGURE_2.field("stock")
    rule = parse_rule(text, FIGURE_2)
    compiled = compile_texts([text], FIGURE_2)
    switch = switch_of(compiled, [rule], FIGURE_2)
    reference = Interpreter([rule], FIGURE_2)
    for given_event, ports in PRINTED[text]:
        event = {"add_order.shares": 1, "add_order.stock": 0, "add_order.price": 0}
        for name, value in given_event.items():
            raw = stock.from_raw(value) if isinstance(value, str) else value
            event[FIGURE_2.field(name).qualified] = raw
        assert ports_of(reference.step(event, 5).receivers) == ports
        assert switch.event(event, time=5)[0] == ports
