"""Handoffs between tasks in memory, under a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from virtual_time import VirtualTime

from stackcast.jobs.adapters.kafka.handoffs import Handoff, HandoffKey


class MemoryHandoffs:
    """Handoffs of all tasks of a simulation."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self._held: set[HandoffKey] = set()
        self._handoffs: dict[HandoffKey, Handoff] = {}

    def read(self, key: HandoffKey) -> Handoff | None:
        self._time.block(lambda: key not in self._held, None)
        return self._handoffs.get(key)

    @contextmanager
    def hold(self, key: HandoffKey) -> Iterator[Callable[[Handoff], None]]:
        # A new attempt forgets the handoff of the one before.
        self._handoffs.pop(key, None)
        self._handoffs.pop(key.earlier(2), None)
        self._held.add(key)

        def write(handoff: Handoff) -> None:
            self._handoffs[key] = handoff

        try:
            yield write
        finally:
            self._held.discard(key)
