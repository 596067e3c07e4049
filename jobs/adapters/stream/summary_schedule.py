"""Times at which all hosts get summaries, and not only those with pending notifications."""

from __future__ import annotations

import math
from collections.abc import Mapping

from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.udfs.delivery.summary_progress import SummaryProgress


class SummarySchedule:
    """Sends summaries to all hosts once per interval, with a batch or, if there is none, without.

    Args:
        interval: seconds between two summaries to all hosts; 0 sends them with each batch.
        clock: clock of the driver.
    """

    def __init__(self, interval: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self._interval = interval
        self._clock = clock
        self._last = -math.inf
        #: By partition, when its progress was last seen to be complete.
        self._complete: dict[int, float] = {}

    def take_turn(self, length: float = 0.0) -> bool:
        """Decide whether the batch that is planned now sends summaries to all hosts.

        Args:
            length: seconds until the next batch. If that one is too late, this one sends them.
        """
        now = self._clock.monotonic()
        if now - self._last + length <= self._interval and self._interval:
            return False
        self._last = now
        return True

    def pass_turn(self) -> None:
        """Make the next batch send summaries to all hosts, because this one had none to send."""
        self._last = -math.inf

    def mark_sent(self) -> None:
        """Note that all hosts have received summaries now."""
        self._last = self._clock.monotonic()

    def is_overdue(self, progress: Mapping[int, SummaryProgress]) -> bool:
        """Return True if hosts have waited for an interval for the summaries of a partition.

        Call this regularly. If summaries cannot be sent, it returns True again after an interval.

        Args:
            progress: summary progress by partition.
        """
        now = self._clock.monotonic()
        complete = {
            partition: now if each.is_complete else self._complete.get(partition, now)
            for partition, each in progress.items()
        }
        overdue = any(now - since >= self._interval for since in complete.values())
        self._complete = {} if overdue else complete
        return overdue
