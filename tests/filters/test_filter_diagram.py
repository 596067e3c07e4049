"""Diagrams: one number for one function, however it was united, changed, grown or compacted."""

from __future__ import annotations

import importlib
import itertools
import random
import sys
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import pytest
from dd.autoref import BDD
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

import stackcast.udfs.filters.diagrams
from stackcast.udfs.errors import FilterError
from stackcast.udfs.filters.diagrams import diagrams as compiled
from stackcast.udfs.filters.diagrams.diagrams import DROPPED, NOBODY, Diagrams
from stackcast.udfs.filters.diagrams.segments import SegmentTree

pytestmark = pytest.mark.unit

Point = tuple[int | None, ...]
Constraint = tuple[int, tuple[tuple[int, int], ...]]
Term = tuple[tuple[Constraint, ...], frozenset[int]]

LARGEST = 2**64 - 1


@dataclass(frozen=True)
class Rules:
    """A small domain, and terms over it: constraints on some levels, and the tokens they give."""

    maxima: tuple[int, ...]
    optional: tuple[bool, ...]
    tokens: int
    terms: tuple[Term, ...]

    def points(self) -> list[Point]:
        sides = [
            [*range(maximum + 1), *([None] if absent else [])]
            for maximum, absent in zip(self.maxima, self.optional, strict=True)
        ]
        return list(itertools.product(*sides))

    def diagrams(self, capacity: int = 1) -> Diagrams:
        return Diagrams(self.maxima, self.optional, self.tokens, 100_000, capacity=capacity)


def intervals(values: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """The values as disjoint intervals that do not touch."""
    found: list[tuple[int, int]] = []
    for value in sorted(set(values)):
        if found and found[-1][1] == value - 1:
            found[-1] = (found[-1][0], value)
        else:
            found.append((value, value))
    return tuple(found)


@st.composite
def rules(draw: st.DrawFn, most_terms: int = 8) -> Rules:
    maxima = draw(st.lists(st.sampled_from([1, 3, 7]), min_size=1, max_size=3))
    optional = [draw(st.booleans()) for _ in maxima]
    tokens = draw(st.sampled_from([3, 65, 300]))
    sets = st.frozensets(st.integers(0, tokens - 1), max_size=2)
    terms = []
    for _ in range(draw(st.integers(0, most_terms))):
        levels = draw(st.sets(st.integers(0, len(maxima) - 1)))
        constraints = tuple(
            (level, intervals(draw(st.lists(st.integers(0, maxima[level]), max_size=6))))
            for level in sorted(levels)
        )
        terms.append((constraints, draw(sets)))
    return Rules(tuple(maxima), tuple(optional), tokens, tuple(terms))


def roots_of(diagrams: Any, terms: Sequence[Term]) -> Any:
    """The terms' diagrams."""
    constraints = [constraint for term, _ in terms for constraint in term]
    pairs = [pair for _, allowed in constraints for pair in allowed]
    return diagrams.terms(
        np.cumsum([0, *(len(term) for term, _ in terms)]),
        np.array([level for level, _ in constraints], np.int32),
        np.cumsum([0, *(len(allowed) for _, allowed in constraints)]),
        np.array([low for low, _ in pairs], np.uint64),
        np.array([high for _, high in pairs], np.uint64),
        np.array([diagrams.leaf(tokens) for _, tokens in terms], np.int32),
    )


def holds(term: Term, point: Point) -> bool:
    for level, allowed in term[0]:
        value = point[level]
        if value is None or not any(low <= value <= high for low, high in allowed):
            return False
    return True


def expected(terms: Sequence[Term], point: Point) -> set[int]:
    return {token for term in terms if holds(term, point) for token in term[1]}


def reached(diagrams: Diagrams, node: int, point: Point) -> set[int]:
    """Walk the diagram's rows, one after the other."""
    while node >= 0:
        level, lows, children, absent = diagrams.rows(node)
        value = point[level]
        if value is None:
            assert absent is not None
            node = absent
        else:
            node = [child for low, child in zip(lows, children, strict=True) if low <= value][-1]
    return set(diagrams.members(node))


@given(rules())
def test_the_union_of_terms_is_what_brute_force_finds_at_every_point(rules: Rules):
    diagrams = rules.diagrams()
    root = diagrams.union_all(roots_of(diagrams, rules.terms))
    for point in rules.points():
        assert reached(diagrams, root, point) == expected(rules.terms, point)


@given(rules(), st.randoms(use_true_random=False))
def test_any_order_and_grouping_of_unions_gives_the_same_number(
    rules: Rules, chance: random.Random
):
    diagrams = rules.diagrams()
    parts = roots_of(diagrams, rules.terms).tolist()
    root = diagrams.union_all(np.array(parts, np.int32))
    chance.shuffle(parts)
    while len(parts) > 1:
        one = parts.pop(chance.randrange(len(parts)))
        other = parts.pop(chance.randrange(len(parts)))
        parts.append(diagrams.union(one, other))
    assert (parts or [NOBODY]) == [root]
    assert diagrams.union(root, root) == root


@given(rules(), st.randoms(use_true_random=False))
def test_equal_functions_have_equal_numbers_however_they_are_written(
    rules: Rules, chance: random.Random
):
    # Each term cut into one for every value of a level that it names, and every token.
    cut: list[Term] = []
    for constraints, tokens in rules.terms:
        pieces = [constraints]
        if constraints:
            at = chance.randrange(len(constraints))
            level, allowed = constraints[at]
            pieces = [
                (*constraints[:at], (level, ((value, value),)), *constraints[at + 1 :])
                for low, high in allowed
                for value in range(low, high + 1)
            ]
        cut += [(piece, frozenset([token])) for piece in pieces for token in tokens]
    chance.shuffle(cut)
    diagrams = rules.diagrams()
    whole = diagrams.union_all(roots_of(diagrams, rules.terms))
    assert diagrams.union_all(roots_of(diagrams, cut)) == whole


@given(rules())
def test_no_node_is_superfluous_and_its_rows_cover_the_domain(rules: Rules):
    diagrams = rules.diagrams()
    root = diagrams.union_all(roots_of(diagrams, rules.terms))
    seen = set()
    found = diagrams.reachable(root)
    for place, node in enumerate(found.nodes.tolist()):
        level, lows, children, absent = diagrams.rows(node)
        assert lows[0] == 0 and lows == sorted(set(lows)) and lows[-1] <= rules.maxima[level]
        assert all(left != right for left, right in itertools.pairwise(children))
        assert len({*children, *([] if absent is None else [absent])}) > 1
        seen.add((level, tuple(lows), tuple(children), absent))
        # And the flat form says the same.
        part = slice(found.row_start[place], found.row_start[place + 1])
        assert found.level[place] == level
        assert found.low[part].tolist() == lows
        assert found.high[part].tolist() == [*(low - 1 for low in lows[1:]), rules.maxima[level]]
        assert found.child[part].tolist() == children
        assert found.absent[place] == (NOBODY if absent is None else absent)
    assert len(seen) == len(found.nodes)
    assert found.level.tolist() == sorted(found.level.tolist())
    below = {*found.child.tolist(), root} | {
        int(absent)
        for absent, level in zip(found.absent, found.level, strict=True)
        if rules.optional[level]
    }
    assert {*found.nodes.tolist(), *found.leaves.tolist()} == below
    ids = np.concatenate([found.nodes, found.leaves])
    assert found.positions(ids).tolist() == list(range(len(ids)))


def bits_of(level: int, value: int | None, widths: Sequence[int], absent: bool) -> str:
    """One value of a level as a conjunction of the bits that stand for it."""
    number = 0 if value is None else value
    signs = [f"{'' if number >> bit & 1 else '~'} b{level}_{bit}" for bit in range(widths[level])]
    if absent:
        signs.append(f"{'' if value is None else '~'} absent{level}")
    return "(" + r" /\ ".join(signs) + ")"


def independent(rules: Rules, bdd: BDD) -> dict[int, Any]:
    """For each token the points that reach it, as a binary decision diagram of package dd."""
    widths = [maximum.bit_length() for maximum in rules.maxima]
    for level, width in enumerate(widths):
        bdd.declare(*(f"b{level}_{bit}" for bit in range(width)))
        if rules.optional[level]:
            bdd.declare(f"absent{level}")
    result = {}
    for constraints, tokens in rules.terms:
        function = bdd.true
        named = dict(constraints)
        for level, maximum in enumerate(rules.maxima):
            values: list[int | None] = [*range(maximum + 1)]
            if rules.optional[level]:
                values.append(None)
            if level in named:
                inside = named[level]
                values = [
                    v for v in values if v is not None and any(a <= v <= b for a, b in inside)
                ]
            side = bdd.false
            for value in values:
                side |= bdd.add_expr(bits_of(level, value, widths, rules.optional[level]))
            function &= side
        for token in tokens:
            result[token] = result.get(token, bdd.false) | function
    return {token: function for token, function in result.items() if function != bdd.false}


def counted(diagrams: Diagrams, root: int, rules: Rules) -> dict[int, int]:
    """For each token the number of points that reach it, from the rows of the diagram."""
    sizes = [m + 1 + o for m, o in zip(rules.maxima, rules.optional, strict=True)]
    found = diagrams.reachable(root)
    ways = {root: 1.0}
    total: dict[int, int] = {}
    # Every node is reached by all values of the levels above it that it does not depend on.
    points = float(np.prod(sizes))
    for place, node in enumerate(found.nodes.tolist()):
        part = slice(found.row_start[place], found.row_start[place + 1])
        share = ways[node] / sizes[found.level[place]]
        widths = (found.high[part] - found.low[part] + np.uint64(1)).tolist()
        for width, child in zip(widths, found.child[part].tolist(), strict=True):
            ways[child] = ways.get(child, 0) + share * width
        if rules.optional[found.level[place]]:
            absent = int(found.absent[place])
            ways[absent] = ways.get(absent, 0) + share
    for leaf in found.leaves.tolist():
        for token in diagrams.members(leaf):
            total[token] = total.get(token, 0) + round(ways[leaf] * points)
    return total


@examples(60)
@given(rules(most_terms=4), rules(most_terms=4))
def test_an_independent_package_of_decision_diagrams_agrees(one: Rules, other: Rules):
    bdd = BDD()
    functions = independent(one, bdd)
    variables = len(bdd.vars)
    diagrams = one.diagrams()
    root = diagrams.union_all(roots_of(diagrams, one.terms))
    counts = {token: bdd.count(function, variables) for token, function in functions.items()}
    assert counted(diagrams, root, one) == counts
    # Two sets of rules over one domain: one number exactly if they are one function.
    shape = one.maxima
    terms = tuple(
        (
            tuple(
                (
                    level,
                    intervals(
                        [v for a, b in allowed for v in range(a, b + 1) if v <= shape[level]]
                    ),
                )
                for level, allowed in constraints
                if level < len(shape)
            ),
            frozenset(token % one.tokens for token in tokens),
        )
        for constraints, tokens in other.terms
    )
    second = Rules(one.maxima, one.optional, one.tokens, terms)
    same = independent(second, bdd) == functions
    assert (diagrams.union_all(roots_of(diagrams, terms)) == root) == same


@given(rules(most_terms=12), st.data())
def test_a_tree_after_any_changes_is_the_tree_built_from_scratch(rules: Rules, data: st.DataObject):
    diagrams = rules.diagrams()
    parts = [NOBODY, *roots_of(diagrams, rules.terms).tolist()]
    slots: dict[int, int] = dict(enumerate(data.draw(st.lists(st.sampled_from(parts), max_size=8))))
    tree = SegmentTree(diagrams)
    tree.assign(np.array(list(slots.values()), np.int32))
    for _ in range(data.draw(st.integers(1, 5))):
        changes = data.draw(st.dictionaries(st.integers(0, 40), st.sampled_from(parts), max_size=4))
        tree.set(changes)
        slots |= changes
        if data.draw(st.booleans()):
            moved = tree.compact(np.array(parts, np.int32))
            parts = moved.of(np.array(parts, np.int32)).tolist()
            slots = {s: int(moved.of(np.array([n], np.int32))[0]) for s, n in slots.items()}
            assert DROPPED not in parts
        held = np.full(tree.slots, NOBODY, np.int32)
        for slot, node in slots.items():
            held[slot] = node
        assert tree.slot_roots().tolist() == held.tolist()
        assert tree.root == diagrams.union_all(held)


@given(rules())
def test_compaction_keeps_the_function_and_drops_the_rest(rules: Rules):
    diagrams = rules.diagrams()
    roots = roots_of(diagrams, rules.terms)
    root = diagrams.union_all(roots)
    before = diagrams.reachable(root)
    moved = diagrams.compact(np.array([root], np.int32))
    new = int(moved.of(np.array([root], np.int32))[0])
    assert diagrams.node_count == len(before.nodes)
    assert diagrams.row_count == len(before.low)
    for point in rules.points():
        assert reached(diagrams, new, point) == expected(rules.terms, point)
    # What is made again finds what was kept.
    assert diagrams.union_all(roots_of(diagrams, rules.terms)) == new


@given(st.lists(st.sets(st.integers(0, 9_999), max_size=30), max_size=8))
def test_leaves_are_sets_of_thousands_of_tokens(sets: list[set[int]]):
    diagrams = Diagrams([1], [False], 10_000, 1000, capacity=1)
    leaves = [diagrams.leaf(tokens) for tokens in sets]
    start, tokens = diagrams.members_of(np.array(leaves, np.int32))
    for i, members in enumerate(sets):
        assert diagrams.members(leaves[i]) == tuple(sorted(members))
        assert tokens[start[i] : start[i + 1]].tolist() == sorted(members)
    some = leaves[::2]
    assert diagrams.tokens_in(np.array(some, np.int32)).tolist() == sorted(set().union(*sets[::2]))
    union = diagrams.union_all(np.array(leaves, np.int32))
    assert diagrams.members(union) == tuple(sorted(set().union(*sets)))
    assert union == diagrams.leaf(set().union(*sets))
    assert diagrams.leaf([]) == NOBODY


def test_a_token_that_was_not_announced_is_refused():
    diagrams = Diagrams([1], [False], 3, 1000)
    with pytest.raises(ValueError, match="token 3"):
        diagrams.leaf([3])


@pytest.mark.parametrize("absent", [False, True])
def test_the_greatest_values_of_64_bits_are_values_like_others(absent: bool):
    diagrams = Diagrams([LARGEST, LARGEST], [absent] * 2, 4, 1000)
    terms: list[Term] = [
        (((0, ((LARGEST, LARGEST),)),), frozenset([0])),
        (((0, ((0, LARGEST),)), (1, ((1, LARGEST - 1),))), frozenset([1])),
        (((1, ((2**63, LARGEST),)),), frozenset([2])),
        (((0, ((0, 0), (2**63 - 1, 2**63))), (1, ((0, 0),))), frozenset([3])),
    ]
    root = diagrams.union_all(roots_of(diagrams, terms))
    edges: list[int | None] = [0, 1, 2**63 - 1, 2**63, LARGEST - 1, LARGEST]
    if absent:
        edges.append(None)
    for point in itertools.product(edges, repeat=2):
        assert reached(diagrams, root, point) == expected(terms, point)


@pytest.mark.parametrize("absent", [False, True])
def test_thousands_of_levels_need_no_deep_stack(absent: bool):
    levels = 3_000
    chance = random.Random(1)
    deep: list[Term] = []
    for token in range(4):
        wanted = [chance.randrange(256) for _ in range(levels)]
        # They part ways at the last levels only, so that a union has to go all the way down.
        wanted[: levels - 5] = [7] * (levels - 5)
        deep.append((tuple((i, ((v, v),)) for i, v in enumerate(wanted)), frozenset([token])))
    sparse: list[Term] = [
        (((level, ((chance.randrange(256), 255),)),), frozenset([chance.randrange(4)]))
        for level in range(0, levels, 700)
    ]
    terms = [*deep, *sparse]
    answers: list[bool] = []

    def run() -> None:
        diagrams = Diagrams([255] * levels, [absent] * levels, 4, 1_000_000)
        root = diagrams.union_all(roots_of(diagrams, terms))
        for constraints, _ in deep:
            point = tuple(allowed[0][0] for _, allowed in constraints)
            answers.append(reached(diagrams, root, point) == expected(terms, point))

    before = threading.stack_size(512 * 1024)
    try:
        thread = threading.Thread(target=run)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert answers == [True] * 4


def multiplying(count: int) -> list[Term]:
    """Thresholds of two levels in opposite order: every pair of them is told apart."""
    chance = random.Random(3)
    return [
        (
            (
                (0, ((chance.randrange(1000), 999),)),
                (1, ((chance.randrange(1000), 999),)),
            ),
            frozenset([token]),
        )
        for token in range(count)
    ]


def test_too_many_rows_are_an_error_and_what_there_was_stays():
    terms = multiplying(60)
    diagrams = Diagrams([999, 999], [False] * 2, 60, 1_500, capacity=8)
    roots = roots_of(diagrams, terms)
    tree = SegmentTree(diagrams)
    tree.assign(roots[:8])
    root, slots = tree.root, tree.slot_roots().tolist()
    for attempt in (lambda: tree.assign(roots), lambda: tree.set(dict(enumerate(roots.tolist())))):
        with pytest.raises(FilterError, match="more than 1500 table entries") as raised:
            attempt()
        assert raised.value.code == "FILTER.TOO_LARGE"
        assert raised.value.max_entries == 1_500
        assert tree.root == root
        assert tree.slot_roots().tolist()[:8] == slots
    tree.compact()
    for point in [(0, 0), (500, 500), (999, 999)]:
        assert reached(diagrams, tree.root, point) == expected(terms[:8], point)


def test_nothing_at_all_reaches_nobody():
    diagrams = Diagrams([255], [True], 1, 1000)
    assert diagrams.union_all(np.empty(0, np.int32)) == NOBODY
    tree = SegmentTree(diagrams)
    tree.assign(np.empty(0, np.int32))
    tree.set({})
    assert tree.root == NOBODY
    assert diagrams.members(NOBODY) == ()
    assert diagrams.reachable(NOBODY).leaves.tolist() == [NOBODY]


@given(rules())
def test_a_pool_that_keeps_nothing_is_as_good_as_a_new_one(rules: Rules):
    diagrams = rules.diagrams()
    diagrams.union_all(roots_of(diagrams, rules.terms))
    moved = diagrams.compact(np.empty(0, np.int32))
    assert (moved.nodes == DROPPED).all()
    assert (diagrams.node_count, diagrams.row_count) == (0, 0)
    root = diagrams.union_all(roots_of(diagrams, rules.terms))
    for point in rules.points():
        assert reached(diagrams, root, point) == expected(rules.terms, point)
    assert diagrams.union_all(roots_of(diagrams, rules.terms)) == root


def test_a_slot_below_the_first_is_refused():
    with pytest.raises(ValueError, match="negative"):
        SegmentTree(Diagrams([1], [False], 1, 1000)).set({-1: NOBODY})


def test_without_compilation_the_same_diagrams_come_out(monkeypatch: pytest.MonkeyPatch):
    names = ["pool", "token_sets", "kernels", "walks", "diagrams", "segments"]
    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)
    for name in names:
        monkeypatch.delitem(sys.modules, f"stackcast.udfs.filters.diagrams.{name}")
        monkeypatch.delattr(stackcast.udfs.filters.diagrams, name)
    plain = importlib.import_module("stackcast.udfs.filters.diagrams.diagrams")
    trees = importlib.import_module("stackcast.udfs.filters.diagrams.segments")
    assert plain.diagram_kernels is not compiled.diagram_kernels
    chance = random.Random(5)
    terms: list[Term] = [
        *multiplying(12),
        *(
            (
                ((0, intervals(chance.sample(range(1000), 3))), (2, ((LARGEST, LARGEST),))),
                frozenset(chance.sample(range(300), 2)),
            )
            for _ in range(20)
        ),
    ]
    outcomes = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for module, tree_type in ((compiled, SegmentTree), (plain, trees.SegmentTree)):
            diagrams = module.Diagrams(
                [999, 999, LARGEST], [True, False, True], 300, 10_000, capacity=2
            )
            roots = roots_of(diagrams, terms)
            tree = tree_type(diagrams)
            tree.assign(roots)
            tree.set({3: int(roots[5]), 70: NOBODY})
            tree.compact()
            found = diagrams.reachable(tree.root)
            outcomes.append(
                [
                    getattr(found, name).tolist()
                    for name in ("nodes", "level", "absent", "low", "high", "child", "leaves")
                ]
                + [diagrams.members(leaf) for leaf in found.leaves.tolist()]
            )
    assert outcomes[0] == outcomes[1]
