"""Header stacks of many receiver sets, computed in tasks."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from stackcast.udfs.trees.header_stacks import HeaderStacks, Receivers, Stack, Stacks


class SharedStacks(Protocol):
    """Header stacks as a task receives them."""

    @property
    def value(self) -> HeaderStacks:
        """The header stacks."""


@dataclass(frozen=True)
class StackTask:
    """Computes the stacks of receiver sets, of which each task takes a part.

    Attributes:
        header_stacks: encoder of the stacks, which a worker keeps from task to task.
        receiver_sets: the receiver sets of all tasks.
        tasks: number of tasks.
    """

    header_stacks: SharedStacks
    receiver_sets: Sequence[Receivers]
    tasks: int

    def __call__(self, number: int) -> tuple[list[Stacks], float]:
        """Return the stacks of task ``number``, and the seconds of a core that they took."""
        header_stacks = self.header_stacks.value
        started = time.thread_time()
        stacks = [header_stacks.of(receivers) for receivers in self._part(number)]
        return stacks, time.thread_time() - started

    def read_stacks(self, results: Iterable[list[Stacks]]) -> dict[Receivers, Stacks]:
        """Return the stacks of all tasks by receiver set.

        Equal names are one object, because each name is in many sets.
        """
        return {
            receivers: _interned(stacks, receivers)
            for number, result in enumerate(results)
            for receivers, stacks in zip(self._part(number), result, strict=True)
        }

    def _part(self, number: int) -> Sequence[Receivers]:
        return self.receiver_sets[number :: self.tasks]


def _interned(stacks: Stacks, receivers: Receivers) -> Stacks:
    parts = []
    for part in stacks.parts:
        names = tuple(map(sys.intern, part.receivers))
        parts.append(Stack(part.labels, receivers if names == receivers else names, part.entry))
    cut_off = tuple((sys.intern(host), reason) for host, reason in stacks.cut_off)
    return Stacks(tuple(parts), cut_off)
