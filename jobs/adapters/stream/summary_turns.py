"""When summaries are for all hosts, and not only for those that something was for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from stackcast.udfs.delivery.told import Told


class SummaryTurns:
    """All hosts are told every ``interval`` seconds, with a batch or where there is none. clock: in
    seconds, never goes back."""

    def __init__(self, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval
        self._clock = clock
        self._all_told = -math.inf
        # By partition, when all were seen to know how far it went.
        self._even: dict[int, float] = {}

    def next(self, length: float = 0.0) -> bool:
        """Tells whether the batch that is planned now tells all, as the next one, which comes so
        many seconds later, would be too late."""
        now = self._clock()
        if now - self._all_told + length <= self._interval and self._interval:
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
        """Tells whether hosts have waited so long for word of a partition; ask now and then."""
        now = self._clock()
        even = {p: now if each.whole else self._even.get(p, now) for p, each in told.items()}
        over = any(now - since >= self._interval for since in even.values())
        # Where they cannot be told, another try follows as long after.
        self._even = {} if over else even
        return over
