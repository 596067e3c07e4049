"""When summaries are for all hosts, and not only for those that something was for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from udfs.delivery.told import Told


class SummaryTurns:
    """All hosts are told every ``interval`` seconds. clock: in seconds, never goes back."""

    def __init__(self, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval
        self._clock = clock
        self._all_told = -math.inf
        # Of partitions whose hosts wait, how far it went, and since when.
        self._waiting: dict[int, tuple[int, float]] = {}

    def next(self) -> bool:
        """Tells whether the batch that is planned now tells all."""
        now = self._clock()
        if now - self._all_told < self._interval:
            return False
        self._all_told = now
        return True

    def none_told(self) -> None:
        """Takes that a batch which was to tell all had nothing to tell: the next one will."""
        self._all_told = -math.inf

    def all_told(self) -> None:
        """Takes that all were told now."""
        self._all_told = self._clock()

    def waited(self, told: Mapping[int, Told]) -> bool:
        """Tells, once, whether hosts have waited as long for word of a partition that went no
        further since."""
        now, before = self._clock(), self._waiting
        self._waiting = {
            p: before[p] if p in before and before[p][0] == each.until else (each.until, now)
            for p, each in told.items()
            if not each.whole
        }
        over = any(now - since >= self._interval for _, since in self._waiting.values())
        if over:
            self._waiting = {}
        return over
