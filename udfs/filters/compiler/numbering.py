"""Numbers that stay from one edit to the next: states of a diagram's nodes and leaves, slots of
rules, and tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.filters.compiler.outcomes import Token, token_order
from stackcast.udfs.filters.compiler.slices import Slices
from stackcast.udfs.filters.compiler.table_kernels import pair
from stackcast.udfs.filters.diagrams.diagrams import NOBODY, Diagrams, Moved
from stackcast.udfs.filters.diagrams.pool import NODES, SETS


@dataclass(frozen=True)
class Numbered:
    """Holds a diagram's slices with their states: int32, of ``slices.nodes`` and
    ``slices.leaves``."""

    root: int
    slices: Slices
    nodes: NDArray[np.int32]
    leaves: NDArray[np.int32]


@dataclass(frozen=True)
class Renumbered:
    """Holds the numbers after an edit.

    free, next: states to give away from the next update on. is_new, is_gone: True for nodes and
    leaves, in the order of their slices, that were not there before, or are no more.
    """

    now: Numbered
    free: NDArray[np.int32]
    next: int
    is_new: NDArray[np.bool_]
    is_gone: NDArray[np.bool_]


def renumber(
    diagrams: Diagrams,
    old: Numbered,
    root: int,
    slices: Slices,
    free: NDArray[np.int32],
    next_state: int,
) -> Renumbered:
    """Numbers the states of the diagram ``root``: those of ``old`` for nodes that stay.

    A new node takes the state of the one that it replaces, or else one that is ``free``
    (ascending), or else one from ``next_state`` on.
    """
    size = int(diagrams.pool.counters[NODES] + diagrams.pool.counters[SETS])
    before, after = _places(diagrams, old.slices), _places(diagrams, slices)
    was, is_ = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
    was[before], is_[after] = True, True
    partner = np.full(size, -1, np.int32)
    pair(diagrams.pool, old.root, root, was, is_, partner)
    state = np.full(size, -1, np.int32)
    state[before] = np.concatenate([old.nodes, old.leaves])
    is_new = ~was[after]
    new = after[is_new]
    replaced = partner[new]
    state[new] = np.where(replaced < 0, -1, state[replaced])
    alone = new[replaced < 0]
    fresh = free[: len(alone)]
    more = len(alone) - len(fresh)
    last = next_state + more
    state[alone] = np.concatenate([fresh, np.arange(next_state, last, dtype=np.int32)])
    is_gone = ~is_[before]
    taken = np.zeros(size, np.bool_)
    taken[replaced[replaced >= 0]] = True
    freed = state[before[is_gone & ~taken[before]]]
    left = np.sort(np.concatenate([free[len(fresh) :], freed]))
    states = state[after]
    now = Numbered(root, slices, *np.split(states, [len(slices.nodes)]))
    return Renumbered(now, left, last, is_new, is_gone)


@cache
def load_kernels() -> None:
    """Runs the loops that a first build leaves out, so that the first edit need not wait for them
    to load."""
    diagrams = Diagrams([1], [False], 1, 64, capacity=16)
    diagrams.compact(np.array([NOBODY], np.int32))
    nobody = Numbered(
        NOBODY,
        Slices(
            np.empty(0, np.int32),
            np.empty(0, np.int32),
            np.empty(0, np.int64),
            np.array([NOBODY], np.int32),
            (),
        ),
        np.empty(0, np.int32),
        np.zeros(1, np.int32),
    )
    renumber(diagrams, nobody, NOBODY, nobody.slices, np.empty(0, np.int32), 1)


def _places(diagrams: Diagrams, slices: Slices) -> NDArray[np.int64]:
    """Returns numbers of nodes, and behind all nodes those of sets."""
    nodes = int(diagrams.pool.counters[NODES])
    return np.concatenate([slices.nodes, nodes - 1 - slices.leaves]).astype(np.int64)


@dataclass(frozen=True)
class SlotEdit:
    """Holds the changes of slots by an edit.

    count: rules by root, where it changes. added: slots of new roots. free: free slots; last: the
    first that was never used. slots: the new roots of slots.
    """

    count: dict[int, int]
    added: dict[int, int]
    free: list[int]
    last: int
    slots: dict[int, int]


class RuleSlots:
    """Gives rules of equal diagrams one slot of a tree of unions: roots by name, slots by root."""

    def __init__(self) -> None:
        self._root_of: dict[Hashable, int] = {}
        self._count: dict[int, int] = {}
        self._slot: dict[int, int] = {}
        self._free: list[int] = []
        self._last = 0

    def edit(
        self, names: Sequence[Hashable], roots: Mapping[Hashable, int], like: Sequence[int]
    ) -> SlotEdit:
        """Returns the slots that change if the rules ``names`` have ``roots`` from now on."""
        change: Counter[int] = Counter(roots.values())
        if self._root_of:
            change.subtract(self._root_of[n] for n in names if n in self._root_of)
        count = {
            root: self._count.get(root, 0) + more
            for root, more in change.items()
            if more and root != NOBODY
        }
        freed = [self._slot[root] for root, left in count.items() if not left]
        free = self._free + freed
        last = self._last
        slots = dict.fromkeys(freed, NOBODY)
        added = {}
        for root in like:
            if root != NOBODY and root not in self._slot:
                if not free:
                    free.append(last)
                    last += 1
                added[root] = free.pop()
                slots[added[root]] = root
        return SlotEdit(count, added, free, last, slots)

    def commit(
        self, names: Sequence[Hashable], roots: Mapping[Hashable, int], edit: SlotEdit
    ) -> None:
        """Notes an edit that has been made."""
        for name in names if self._root_of else ():
            self._root_of.pop(name, None)
        self._root_of |= roots
        for root, count in edit.count.items():
            if count:
                self._count[root] = count
            else:
                del self._count[root], self._slot[root]
        self._slot |= edit.added
        self._free, self._last = edit.free, edit.last

    def move(self, moved: Moved) -> None:
        """Follows roots whose ids have changed."""

        def of(ids: Iterable[int]) -> list[int]:
            found: list[int] = moved.of(np.fromiter(ids, np.int32)).tolist()
            return found

        self._root_of = dict(zip(self._root_of, of(self._root_of.values()), strict=True))
        self._count = dict(zip(of(self._count), self._count.values(), strict=True))
        self._slot = dict(zip(of(self._slot), self._slot.values(), strict=True))


class TokenNumbers:
    """Numbers tokens; each keeps its number until it is forgotten, then another gets it."""

    def __init__(self) -> None:
        self._numbers: dict[Token, int] = {}
        self._free: list[int] = []
        self._ranked: tuple[Sequence[Token], Sequence[int]] | None = None

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def capacity(self) -> int:
        """The bound below which all numbers are."""
        return len(self._numbers) + len(self._free)

    def number(self, token: Token) -> int:
        """Returns the number of a token that has one."""
        return self._numbers[token]

    def add(self, tokens: Iterable[Token]) -> None:
        """Makes numbers for these tokens."""
        for token in tokens:
            if token not in self._numbers:
                self._numbers[token] = self._free.pop() if self._free else self.capacity
                self._ranked = None

    def keep(self, numbers: NDArray[np.int64]) -> None:
        """Forgets all tokens but those of these numbers. No set that counts may have another."""
        kept = frozenset(numbers.tolist())
        capacity = self.capacity
        self._numbers = {token: n for token, n in self._numbers.items() if n in kept}
        self._free = sorted(frozenset(range(capacity)).difference(kept), reverse=True)
        self._ranked = None

    def ranked(self) -> tuple[Sequence[Token], Sequence[int]]:
        """Returns all tokens in their order, and the position in it of each number (-1: of
        none)."""
        if self._ranked is None:
            tokens = sorted(self._numbers, key=token_order)
            ranks = [-1] * self.capacity
            for position, token in enumerate(tokens):
                ranks[self._numbers[token]] = position
            self._ranked = tokens, ranks
        return self._ranked
