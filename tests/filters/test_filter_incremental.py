"""Edits of a rule set: the result is that of compiling anew, and nearly all rows stay."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from examples import examples
from filter_cases import shape
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.errors import FilterError
from stackcast.udfs.filters.compiler.change import TableChange
from stackcast.udfs.filters.compiler.compile import CheckedRule, CompiledFilter, compile_rules
from stackcast.udfs.filters.compiler.incremental import IncrementalCompiler
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.nodes import Call, Update
from stackcast.udfs.messages.specification import Specification, parse_specification

pytestmark = pytest.mark.unit

QUERIES = """
    @query_field_exact(order.stock)
    @query_field(order.price)
    @query_field(order.shares)
    @query_field_lpm({})
    @query_counter(seen, 100)
    """
SPEC = parse_specification(
    """
    header_type order_t { fields {
        @string message_type: 8; @string stock: 64; @decimals(4) price: 32; shares: 32;
        to: 32; kind: 8; } }
    @message_type("A") header order_t order;
    """
    + QUERIES.format("order.to"),
    "typed",
)
LOOSE = parse_specification(
    """
    header_type order_t { fields { @string stock: 64; @decimals(4) price: 32; shares: 32; } }
    header order_t order;
    header_type ip_t { fields { to: 32; kind: 8; } }
    header ip_t ip;
    """
    + QUERIES.format("ip.to"),
    "loose",
)
"""Its events may lack any field."""


def rule(
    text: str, *receivers: str, calls: tuple[Call, ...] = (), spec: Specification = SPEC
) -> CheckedRule:
    read = parse_rule(text, spec)
    updates = tuple(action for action in read.actions if isinstance(action, Update))
    return CheckedRule("", read.condition, receivers, calls, updates)


def table(filter_: CompiledFilter) -> dict[tuple[Any, ...], int]:
    """Rows as a switch holds them: what is matched, and the next state."""
    return {
        (filter_.fields[index], state, low, high, kind): following
        for index, state, low, high, kind, following in filter_.entries.tolist()
    }


def key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["field"], row["state"], row["low"], row["high"], row["kind"]


def check_change(change: TableChange, before: CompiledFilter) -> None:
    """The rows before, and what the change says, make the rows after."""
    rows = {key(row): row["next"] for row in before.entry_rows()}
    said = {name: list(rows_) for name, rows_ in change.entry_rows().items()}
    for row in said["removed"]:
        assert rows.pop(key(row)) == row["next"]
    for row in said["added"]:
        assert key(row) not in rows
        rows[key(row)] = row["next"]
    for row in said["changed"]:
        assert rows[key(row)] != row["next"]
        rows[key(row)] = row["next"]
    assert rows == {key(row): row["next"] for row in change.compiled.entry_rows()}
    leaves = {row["state"]: row for row in before.leaf_rows()}
    for row in change.leaf_rows()["removed"]:
        assert leaves.pop(row["state"]) == row
    for row in change.leaf_rows()["added"]:
        assert row["state"] not in leaves
        leaves[row["state"]] = row
    for row in change.leaf_rows()["changed"]:
        assert leaves[row["state"]] != row
        leaves[row["state"]] = row
    assert leaves == {row["state"]: row for row in change.compiled.leaf_rows()}


predicates = st.one_of(
    st.builds("stock == {}".format, st.sampled_from("ABC")),
    st.builds("price {} {}".format, st.sampled_from(["<", ">", "=="]), st.integers(1, 6)),
    st.builds("shares > {}".format, st.integers(0, 3)),
    st.builds("to == 10.{}.0.0/16".format, st.integers(0, 3)),
    st.builds("kind != {}".format, st.integers(0, 2)),
    st.builds("{}(price) > {}".format, st.sampled_from(["avg", "sum"]), st.integers(1, 3)),
    st.builds("seen > {}".format, st.integers(0, 2)),
)
conditions = st.recursive(
    predicates,
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner)
        | st.builds("not ({})".format, inner)
    ),
    max_leaves=4,
)
new_rules = st.builds(
    lambda text, action, receivers, calls: (text + action, sorted(receivers), calls),
    conditions,
    st.sampled_from(["", "", " : seen <- count()"]),
    st.sets(st.sampled_from(["h1", "h2", "h3"]), max_size=2),
    st.sampled_from([(), (Call("mirror", ("1",)),)]),
)
edits = st.lists(
    st.dictionaries(st.sampled_from("abcdef"), st.none() | new_rules, min_size=1, max_size=3),
    min_size=1,
    max_size=6,
)


@examples(120)
@given(st.sampled_from([SPEC, LOOSE]), st.sampled_from(["specification", "auto"]), edits)
def test_edits_one_after_the_other_give_what_compiling_anew_gives(spec, order, steps):
    compiler = IncrementalCompiler(spec, order=order)
    live: dict[str, CheckedRule] = {}
    before = None
    for step in steps:
        changes = {
            name: None if new is None else rule(new[0], *new[1], calls=new[2], spec=spec)
            for name, new in step.items()
        }
        change = compiler.update(changes)
        live |= {name: new for name, new in changes.items() if new is not None}
        for name, new in changes.items():
            if new is None:
                live.pop(name, None)
        anew = compile_rules(list(live.values()), spec, order=compiler.order)
        if before is None:
            assert np.array_equal(change.compiled.entries, anew.entries)
            assert change.compiled.outcomes == anew.outcomes
        else:
            assert change.previous is before
            check_change(change, before)
        assert shape(change.compiled) == shape(anew)
        before = change.compiled


def random_rule(rng: random.Random) -> CheckedRule:
    return rule(
        f"stock == S{rng.randrange(40)} and price > {rng.randrange(1, 10**4)}.5",
        f"h{rng.randrange(50)}",
    )


def many(count: int, rng: random.Random) -> dict[str, CheckedRule | None]:
    return {str(number): random_rule(rng) for number in range(count)}


@pytest.mark.integration
@pytest.mark.parametrize("count", [1500, pytest.param(5000, marks=pytest.mark.long)])
def test_a_random_edit_of_thousands_of_rules_changes_at_most_one_row_in_a_hundred(count):
    rng = random.Random(4)
    compiler = IncrementalCompiler(SPEC)
    first = compiler.update(many(count, rng))
    total = len(first.compiled.entries) + len(first.compiled.outcomes)
    sizes = []
    for step in range(30):
        before = compiler.compiled
        name = str(rng.randrange(count))
        edit = [{name: random_rule(rng)}, {name: None}, {f"new{step}": random_rule(rng)}]
        change = compiler.update(edit[step % 3])
        check_change(change, before)
        sizes.append(change.size)
    assert max(sizes) <= 0.02 * total
    assert np.mean(sizes) <= 0.01 * total


@examples(60)
@given(st.sampled_from([SPEC, LOOSE]), st.lists(new_rules, min_size=1, max_size=8))
def test_an_order_that_is_chosen_needs_no_more_rows_than_that_of_the_specification(spec, texts):
    rules = [rule(text, *hosts, calls=calls, spec=spec) for text, hosts, calls in texts]
    anew = compile_rules(rules, spec)
    chosen = compile_rules(rules, spec, order="auto")
    assert len(chosen.entries) <= len(anew.entries)
    compiler = IncrementalCompiler(spec, order="auto")
    change = compiler.update(dict(enumerate(rules)))
    assert np.array_equal(change.compiled.entries, chosen.entries)


def test_an_order_is_chosen_for_the_first_rules_and_then_kept():
    compiler = IncrementalCompiler(SPEC, order="auto")
    assert compiler.update({}).compiled.entries.size == 0
    assert compiler.order == ()
    by_stock = {f"s{n}": rule(f"stock == S{n} and shares == 1", f"h{n}") for n in range(20)}
    by_price = {f"p{n}": rule(f"price > {n} and shares == 2", f"h{n}") for n in range(20)}
    first = compiler.update(by_stock | by_price)
    order = compiler.order
    assert order[0] == "order.shares"
    anew = compile_rules([*by_stock.values(), *by_price.values()], SPEC)
    assert len(first.compiled.entries) < len(anew.entries) / 2
    compiler.update({str(n): rule(f"stock == S{n} and price > {n}", "h1") for n in range(60)})
    compiler.update(dict.fromkeys(by_stock | by_price))
    compiler.update({"new": rule("shares > 5 and stock == A", "h1")})
    assert compiler.order == order


def test_an_edit_of_one_stock_leaves_the_rows_of_the_others_as_they_are():
    rng = random.Random(5)
    compiler = IncrementalCompiler(SPEC)
    compiler.update(many(500, rng))
    before = compiler.compiled
    change = compiler.update({"new": rule("stock == NEW and price > 7", "h1")})
    old, new = table(before), table(change.compiled)
    assert old.items() <= new.items()
    assert len(new) <= len(old) + 3
    assert not len(change.removed) and not len(change.changed)
    back = compiler.update({"new": None})
    assert table(back.compiled) == old
    assert back.compiled.outcomes == before.outcomes


def test_what_is_taken_away_gives_its_numbers_back_from_the_next_edit_on():
    compiler = IncrementalCompiler(SPEC)
    rules = {name: rule(f"stock == {name}", name) for name in ("A", "B", "C")}
    compiler.update(rules)
    before = set(compiler.compiled.outcomes)
    gone = compiler.update({"B": None, "D": rule("price > 5 and shares > 5", "x")})
    freed = before - set(gone.compiled.outcomes)
    again = compiler.update({"E": rule("stock == E", "e")})
    assert freed <= set(again.compiled.outcomes) | set(again.compiled.entries["state"].tolist())


def test_an_edit_that_changes_nothing_changes_no_row():
    rng = random.Random(6)
    rules = many(200, rng)
    compiler = IncrementalCompiler(SPEC)
    compiler.update(rules)
    change = compiler.update(rules | {"twin": rules["7"], "never": rule("price < 0", "h1")})
    assert change.size == 0
    assert compiler.update({"twin": None, "never": None, "unknown": None}).size == 0


def test_thousands_of_equal_rules_cost_one():
    compiler = IncrementalCompiler(SPEC)
    same = rule("stock == A and price > 5", "h1")
    rules: dict[str, CheckedRule | None] = {str(number): same for number in range(5000)}
    assert len(compiler.update(rules).compiled.entries) == 6
    for number in range(4999):
        rules[str(number)] = None
    assert compiler.update(rules).size == 0
    assert len(compiler.update({"4999": None}).compiled.entries) == 0


def test_a_thousand_fields_are_no_trouble():
    count = 1000
    fields = "".join(f"f{number}: 16; " for number in range(count))
    spec = parse_specification(
        f"header_type h_t {{ fields {{ {fields} }} }}\nheader h_t h;\n"
        + "".join(f"@query_field(h.f{number})\n" for number in range(count)),
        "text",
    )
    compiler = IncrementalCompiler(spec)
    rules = [rule(f"f{number} == 1", "h1", spec=spec) for number in range(count)]
    every = " and ".join(f"f{number} > 0" for number in range(500))
    rules.append(rule(every, "h2", spec=spec))
    change = compiler.update(dict(enumerate(rules)))
    assert len(change.compiled.fields) == 1 + count
    assert shape(change.compiled) == shape(compile_rules(rules, spec))
    assert compiler.update({3: None}).size < 30


def test_edits_that_need_too_many_rows_leave_the_last_good_tables():
    rng = random.Random(7)
    compiler = IncrementalCompiler(SPEC, max_entries=500)
    good = many(100, rng)
    compiler.update(good)
    before = compiler.compiled
    large = {
        f"x{n}": rule(
            f"price > {rng.randrange(10**5)} and shares > {rng.randrange(10**5)}", f"r{n}"
        )
        for n in range(200)
    }
    with pytest.raises(FilterError) as caught:
        compiler.update(large)
    assert caught.value.code == "FILTER.TOO_LARGE"
    assert caught.value.max_entries == 500
    assert compiler.compiled is before
    assert compiler.update({}).size == 0
    change = compiler.update({"one": large["x1"]})
    check_change(change, before)
    live = [*good.values(), large["x1"]]
    assert shape(change.compiled) == shape(compile_rules(live, SPEC))


@pytest.mark.parametrize("empty_first", [False, True])
def test_a_first_set_that_is_too_large_does_not_harm_the_next(empty_first: bool):
    spec = parse_specification(
        "header_type a_t { fields { p: 8; q: 8; } } header a_t a;", "two fields"
    )
    large = {n: rule(f"p == {n} and q == {n}", f"h{n}", spec=spec) for n in range(200)}
    for order in ("specification", "auto"):
        compiler = IncrementalCompiler(spec, max_entries=8, order=order)
        if empty_first:
            compiler.update({})
        for _ in range(3):
            with pytest.raises(FilterError, match="more than 8"):
                compiler.update(large)
            assert not len(compiler.compiled.entries)
            assert compiler.order == ()
        small = {1: large[1], 2: rule("p == 9", "h1", spec=spec)}
        found = compiler.update(small).compiled
        assert shape(found) == shape(
            compile_rules([*small.values()], spec, order=compiler.order or "specification")
        )


def test_an_update_that_fails_at_its_very_end_leaves_all_as_it_was(monkeypatch):
    compiler = IncrementalCompiler(SPEC, order="auto")
    rules = {"a": rule("stock == A and avg(price) > 2", "1", "2"), "b": rule("price > 3", "3")}

    def fail(*_: Any) -> Any:
        raise MemoryError

    for step in ({}, rules, {"c": rule("shares == 5 and sum(price) > 1", "4", "5"), "a": None}):
        before = compiler.compiled, compiler.order
        with monkeypatch.context() as patched, pytest.raises(MemoryError):
            patched.setattr("stackcast.udfs.filters.compiler.incremental.table_change", fail)
            compiler.update({"d": rule("shares == 6 and sum(price) > 7", "6", "7")} | step)
        assert (compiler.compiled, compiler.order) == before
        change = compiler.update(step)
        if step and len(before[0].entries):
            check_change(change, before[0])
    live = [rules["b"], rule("shares == 5 and sum(price) > 1", "4", "5")]
    assert shape(compiler.compiled) == shape(compile_rules(live, SPEC, order=compiler.order))


@pytest.mark.integration
def test_edits_of_one_rule_with_state_leave_nothing_behind_and_the_others_alone():
    compiler = IncrementalCompiler(SPEC)
    others = {
        name: rule(f"stock == {name} and price > {n} and count() > 2", f"h{n}")
        for n, name in enumerate("ABC", 1)
    }
    compiler.update(others)
    kept = table(compiler.compiled)
    leaves = dict(compiler.compiled.outcomes)
    for step in range(350):
        before = compiler.compiled
        edited = rule(f"stock == X and price > {step} and sum(price) > 9", f"x{step}")
        change = compiler.update({"x": edited})
        check_change(change, before)
        now = table(change.compiled)
        assert kept.items() <= now.items()
        assert leaves.items() <= change.compiled.outcomes.items()
        assert change.size < 20
        assert len(compiler._levels.cells) < 150
        assert compiler._tokens.capacity < 300
        if step % 50 == 0:
            assert shape(change.compiled) == shape(compile_rules([*others.values(), edited], SPEC))
    assert shape(compiler.compiled) == shape(compile_rules([*others.values(), edited], SPEC))


def test_more_cells_than_a_row_can_name_are_refused(monkeypatch):
    monkeypatch.setattr("stackcast.udfs.filters.compiler.levels.MOST_LEVELS", 20)
    monkeypatch.setattr("stackcast.udfs.filters.compiler.incremental.MOST_LEVELS", 20)
    rules = {n: rule(f"shares == {n} and sum(price) > 9", "1") for n in range(30)}
    compiler = IncrementalCompiler(SPEC)
    first = {n: rules[n] for n in range(6)}
    compiler.update(first)
    for attempt in (
        lambda: compiler.update(rules),
        lambda: compile_rules([*rules.values()], SPEC),
        lambda: IncrementalCompiler(SPEC).update(rules),
    ):
        with pytest.raises(FilterError) as caught:
            attempt()
        assert caught.value.code == "FILTER.TOO_MANY_FIELDS"
    assert compiler.update({}).size == 0
    # Cells that were live before do not count.
    second = {n: rules[n] for n in range(6, 12)}
    before = compiler.compiled
    change = compiler.update(dict.fromkeys(first) | second)
    check_change(change, before)
    third = compiler.update(dict.fromkeys(second) | first)
    check_change(third, change.compiled)
    assert shape(third.compiled) == shape(compile_rules([*first.values()], SPEC))


@pytest.mark.integration
def test_a_compiler_that_is_edited_for_long_forgets_what_it_no_longer_needs(monkeypatch):
    monkeypatch.setattr("stackcast.udfs.filters.compiler.incremental._COMPACT_ROWS", 200)
    rng = random.Random(8)
    compiler = IncrementalCompiler(SPEC)
    live = many(100, rng)
    compiler.update(live)
    most = 0
    for _ in range(300):
        name = str(rng.randrange(100))
        live[name] = random_rule(rng)
        before = compiler.compiled
        check_change(compiler.update({name: live[name]}), before)
        most = max(most, compiler._diagrams.row_count)
    assert shape(compiler.compiled) == shape(compile_rules(list(live.values()), SPEC))
    assert most < 20_000


def test_more_receivers_than_there_was_room_for():
    compiler = IncrementalCompiler(SPEC)
    everybody = rule("price > 100", *(f"h{number}" for number in range(1000)))
    compiler.update({"all": everybody, "always": rule("kind <= 255", "x")})
    before = compiler.compiled
    others = {str(n): rule(f"price > {n % 7}", f"p{n}") for n in range(3000)}
    change = compiler.update(others)
    check_change(change, before)
    live = [everybody, rule("kind <= 255", "x"), *others.values()]
    assert shape(change.compiled) == shape(compile_rules(live, SPEC))
