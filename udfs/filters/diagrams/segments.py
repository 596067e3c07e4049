"""A diagram of many slots of which one at a time may change: a balanced tree of unions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.filters.diagrams.diagrams import NOBODY, Diagrams, Moved


class SegmentTree:
    """The union of slots' diagrams, kept as a heap of the unions of two neighbours each.

    A slot that was never set holds NOBODY. A change of k slots takes at most k log2(slots)
    unions, most of them remembered. Slots with like terms belong side by side.
    """

    def __init__(self, diagrams: Diagrams) -> None:
        self.diagrams = diagrams
        # Place 1 is the root, the children of p are 2p and 2p + 1, the last half are the slots.
        self._tree = np.full(2, NOBODY, np.int32)

    @property
    def slots(self) -> int:
        """The capacity in slots; ``set`` grows it of its own accord."""
        return len(self._tree) // 2

    @property
    def root(self) -> int:
        """The union of all slots."""
        return int(self._tree[1])

    def slot_roots(self) -> NDArray[np.int32]:
        """Returns a copy of the slots' roots."""
        return self._tree[self.slots :].copy()

    def copy(self) -> NDArray[np.int32]:
        """Copies all slots and the unions above them, for ``restore``."""
        return self._tree.copy()

    def restore(self, before: NDArray[np.int32]) -> None:
        """Goes back to a ``copy``, which no ``compact`` has come after."""
        self._tree = before

    def assign(self, slot_roots: NDArray[np.int32]) -> None:
        """Replaces all slots by these. Errors: as ``Diagrams``, and then all is as before."""
        width = 1 << max(len(slot_roots) - 1, 0).bit_length()
        tree = np.full(2 * width, NOBODY, np.int32)
        tree[width : width + len(slot_roots)] = slot_roots
        self.diagrams.repair(tree, np.arange(width - 1, 0, -1, dtype=np.int64))
        self._tree = tree

    def set(self, changes: Mapping[int, int]) -> None:
        """Replaces single slots (slot to root). Errors: as ``assign``."""
        if not changes:
            return
        while max(changes) >= self.slots:
            self._double()
        slots = np.fromiter(changes.keys(), np.int64, len(changes)) + self.slots
        if slots.min() < self.slots:
            raise ValueError("a slot is not negative")
        levels = []
        above = np.unique(slots >> 1)
        while above[-1] > 0:
            levels.append(above)
            above = np.unique(above >> 1)
        places = np.concatenate([np.empty(0, np.int64), *levels])
        touched = np.concatenate([slots, places])
        before = self._tree[touched]
        self._tree[slots] = np.fromiter(changes.values(), np.int32, len(changes))
        try:
            self.diagrams.repair(self._tree, places)
        except BaseException:
            self._tree[touched] = before
            raise

    def compact(self, keep: NDArray[np.int32] | None = None) -> Moved:
        """Drops all that neither this tree nor ``keep`` (ids) reaches; all ids change."""
        also = np.empty(0, np.int32) if keep is None else keep
        moved = self.diagrams.compact(np.concatenate([self._tree, also]))
        self._tree = moved.of(self._tree)
        return moved

    def add_tokens(self, tokens: int) -> Moved:
        """Grows the pool to ``tokens`` tokens; see ``Diagrams.add_tokens``."""
        moved = self.diagrams.add_tokens(tokens)
        self._tree = moved.of(self._tree)
        return moved

    def _double(self) -> None:
        """Doubles the slots: the present ones become the left half."""
        old = self._tree
        tree = np.full(2 * len(old), NOBODY, np.int32)
        tree[1] = old[1]
        begin = 1
        while begin < len(old):
            tree[2 * begin : 3 * begin] = old[begin : 2 * begin]
            begin *= 2
        self._tree = tree
