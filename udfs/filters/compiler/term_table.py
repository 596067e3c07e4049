"""Terms of rules over levels, as arrays that diagrams are made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.filters.compiler.levels import Levels
from stackcast.udfs.filters.compiler.outcomes import Token
from stackcast.udfs.filters.diagrams.diagrams import Diagrams
from stackcast.udfs.filters.meaning.normal_form import Term, lane_terms
from stackcast.udfs.filters.meaning.state import Cell, split
from stackcast.udfs.filters.meaning.terms import TermBlock
from stackcast.udfs.filters.nodes import Call, Function, Node, Update
from stackcast.udfs.messages.specification import Specification

_SORT_LEVELS = 6


@dataclass
class TermTable:
    """Holds the terms of many rules, and the outcome of each.

    blocks: terms of one form as columns; ``TermBlock.rule`` counts the rules of ``outcome``.
    outcome: int32, one a rule of the blocks: the number of its outcome in ``outcomes``.
    terms: other terms: (term, rule, number of outcome). Terms are over lanes.
    outcomes: distinct sets of tokens. cells: all cells that terms name or outcomes update.
    kept, updates: of rules with state, the cells and the updates of variables, by rule.
    """

    blocks: Sequence[TermBlock] = ()
    outcome: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    terms: list[tuple[Term, int, int]] = field(default_factory=list)
    outcomes: dict[tuple[Token, ...], int] = field(default_factory=dict)
    cells: dict[str, Cell] = field(default_factory=dict)
    kept: dict[int, tuple[Cell, ...]] = field(default_factory=dict)
    updates: dict[int, tuple[Update, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self.blocks)) + len(self.terms)

    def outcome_number(self, tokens: Iterable[Token]) -> int:
        """Returns the number of a set of tokens, which is new or known."""
        return self.outcomes.setdefault(tuple(dict.fromkeys(tokens)), len(self.outcomes))

    def add(
        self,
        rule: int,
        condition: Node,
        receivers: Sequence[str],
        calls: Sequence[Call],
        updates: Sequence[Update],
        specification: Specification,
        functions: Mapping[str, Function],
        optional: bool | None,
    ) -> None:
        """Adds the terms of a rule. Errors: those of ``split``."""
        parted = split(condition, specification, updates, functions, optional)
        self.cells |= {cell.name: cell for cell in parted.cells}
        if parted.cells:
            self.kept[rule] = parted.cells
        if updates:
            self.updates[rule] = tuple(updates)
        for term, updated, acts in parted.terms:
            own: Sequence[Token] = (*receivers, *calls) if acts else ()
            number = self.outcome_number((*own, *updated))
            self.terms += [(lane, rule, number) for lane in lane_terms(term, specification)]

    def used(self) -> set[str]:
        """Returns the names that the terms ask for."""
        names = {name for block in self.blocks for name in block.names}
        return names.union(name for term, _, _ in self.terms for name, _ in term)

    def rules(self) -> NDArray[np.int32]:
        """Returns the rule of each term, int32, in the order of ``roots``."""
        others = np.fromiter((rule for _, rule, _ in self.terms), np.int32, len(self.terms))
        return np.concatenate([*(block.rule for block in self.blocks), others])

    def select(self, rules: NDArray[np.int64]) -> TermTable:
        """Returns the terms of these rules, which are numbered from 0 on as they stand here."""
        most = max(
            [len(self.outcome), *(rule + 1 for _, rule, _ in self.terms)]
            + [rule + 1 for kept in (self.kept, self.updates) for rule in kept]
            + [int(rules.max(initial=-1)) + 1]
        )
        number = np.full(most, -1, np.int32)
        number[rules] = np.arange(len(rules), dtype=np.int32)
        place = {int(rule): at for at, rule in enumerate(rules.tolist())}
        # Rules without a term in a block may have no outcome there.
        known = rules[rules < len(self.outcome)]
        outcome = np.zeros(len(rules), np.int32)
        outcome[number[known]] = self.outcome[known]
        blocks = []
        for block in self.blocks:
            chosen = number[block.rule] >= 0
            if chosen.any():
                blocks.append(
                    TermBlock(
                        block.names,
                        [low[chosen] for low in block.lows],
                        [high[chosen] for high in block.highs],
                        number[block.rule[chosen]],
                    )
                )
        kept = {place[rule]: cells for rule, cells in self.kept.items() if rule in place}
        return TermTable(
            blocks=blocks,
            outcome=outcome,
            terms=[(term, place[r], n) for term, r, n in self.terms if r in place],
            outcomes=self.outcomes,
            cells={cell.name: cell for cells in kept.values() for cell in cells},
            kept=kept,
            updates={place[rule]: made for rule, made in self.updates.items() if rule in place},
        )

    def roots(
        self, diagrams: Diagrams, levels: Levels, leaf_of: NDArray[np.int32]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Returns the diagram of each term, and an order that puts like terms side by side.

        leaf_of: leaf id of each of ``outcomes``. Returns int32[t], blocks first, and int64[t].
        """
        parts = [_block_arrays(block, levels) for block in self.blocks]
        leaves = [leaf_of[self.outcome[block.rule]] for block in self.blocks]
        if self.terms:
            parts.append(_term_arrays([term for term, _, _ in self.terms], levels))
            numbers = np.fromiter((n for _, _, n in self.terms), np.int64, len(self.terms))
            leaves.append(leaf_of[numbers])
        found = [
            diagrams.terms(*part, np.ascontiguousarray(leaf, np.int32))
            for part, leaf in zip(parts, leaves, strict=True)
        ]
        order = _like_together(parts, leaves, levels)
        return np.concatenate([*found, np.empty(0, np.int32)]), order


_Arrays = tuple[
    NDArray[np.int64], NDArray[np.int32], NDArray[np.int64], NDArray[np.uint64], NDArray[np.uint64]
]


def _block_arrays(block: TermBlock, levels: Levels) -> _Arrays:
    """Returns by term the start of its constraints, their levels, starts of intervals, low,
    high."""
    count, width = len(block), len(block.names)
    at = [levels.of_name[name] for name in block.names]
    by_level = sorted(range(width), key=at.__getitem__)
    low, high = (
        np.column_stack([column[k] for k in by_level]).reshape(-1)
        if width
        else np.empty(0, np.uint64)
        for column in (block.lows, block.highs)
    )
    level = np.tile(np.array([at[k] for k in by_level], np.int32), count)
    return np.arange(count + 1) * width, level, np.arange(count * width + 1), low, high


def _term_arrays(terms: Sequence[Term], levels: Levels) -> _Arrays:
    of_name = levels.of_name
    sorted_terms = [sorted((of_name[name], allowed) for name, allowed in term) for term in terms]
    constraints = list(chain.from_iterable(sorted_terms))
    bounds = list(chain.from_iterable(allowed for _, allowed in constraints))
    return (
        _starts([len(term) for term in sorted_terms]),
        np.array([level for level, _ in constraints], np.int32),
        _starts([len(allowed) for _, allowed in constraints]),
        np.array([low for low, _ in bounds], np.uint64),
        np.array([high for _, high in bounds], np.uint64),
    )


def _starts(lengths: Sequence[int]) -> NDArray[np.int64]:
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def _like_together(
    parts: Sequence[_Arrays], leaves: Sequence[NDArray[np.int32]], levels: Levels
) -> NDArray[np.int64]:
    """Returns an order of the terms: by first constraints, then by leaf, then by the last level.

    Terms that differ in the last level alone, and do the same, thus unite to one before they
    meet any other.
    """
    count = sum(len(leaf) for leaf in leaves)
    if not count:
        return np.empty(0, np.int64)
    constrained = np.zeros(len(levels), np.int64)
    for part in parts:
        constrained += np.bincount(part[1], minlength=len(levels))
    chosen = np.flatnonzero(constrained).tolist()
    if len(chosen) > _SORT_LEVELS:
        most = sorted(chosen, key=lambda level: (-constrained[level], level))[:_SORT_LEVELS]
        chosen = sorted(most)
    keys: list[NDArray[Any]] = [np.concatenate(leaves)]
    for level in chosen:
        # A term that does not ask for the level comes before all that do.
        low, high = np.zeros(count, np.uint64), np.full(count, levels.maxima[level], np.uint64)
        begin = 0
        for (start, level_of, interval, lows, highs), leaf in zip(parts, leaves, strict=True):
            here = np.flatnonzero(level_of == level)
            if len(here):
                at = begin + np.searchsorted(start, here, side="right") - 1
                low[at], high[at] = lows[interval[here]], highs[interval[here]]
            begin += len(leaf)
        for column in (high, low) if level == chosen[-1] else (low, high):
            if (column != column[0]).any():
                if level == chosen[-1]:
                    keys.insert(0, column)
                else:
                    keys.append(column)
    # The last key of a lexsort is the first to sort by.
    leaf_at = next(i for i, key in enumerate(keys) if key.dtype == np.int32)
    order: NDArray[np.int64] = np.lexsort([*keys[: leaf_at + 1], *reversed(keys[leaf_at + 1 :])])
    return order
