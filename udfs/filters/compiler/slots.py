"""Which slot of a union tree each rule is in: rules with equal diagrams share one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from udfs.filters.diagrams.diagrams import NOBODY, Moved


@dataclass(frozen=True)
class Edit:
    """What becomes of the slots.

    count: rules by root, where it changes. added: slots of new roots. free: free slots; last: the
    first that was never used. slots: the new roots of slots.
    """

    count: dict[int, int]
    added: dict[int, int]
    free: list[int]
    last: int
    slots: dict[int, int]


class RuleSlots:
    """Rules by name, the diagrams they have (ids: roots), and the slots of these."""

    def __init__(self) -> None:
        self._root_of: dict[Hashable, int] = {}
        self._count: dict[int, int] = {}
        self._slot: dict[int, int] = {}
        self._free: list[int] = []
        self._last = 0

    def edit(
        self, names: Sequence[Hashable], roots: Mapping[Hashable, int], like: Sequence[int]
    ) -> Edit:
        """Which slots change if the rules ``names`` have ``roots`` from now on."""
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
        return Edit(count, added, free, last, slots)

    def commit(self, names: Sequence[Hashable], roots: Mapping[Hashable, int], edit: Edit) -> None:
        """Take note of an edit that has been made."""
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
        """Follow roots whose ids have changed."""

        def of(ids: Iterable[int]) -> list[int]:
            found: list[int] = moved.of(np.fromiter(ids, np.int32)).tolist()
            return found

        self._root_of = dict(zip(self._root_of, of(self._root_of.values()), strict=True))
        self._count = dict(zip(of(self._count), self._count.values(), strict=True))
        self._slot = dict(zip(of(self._slot), self._slot.values(), strict=True))
