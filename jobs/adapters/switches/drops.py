"""Reads the drop counters of switches, for metrics and table ``switch_drops``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS
from stackcast.jobs.adapters.runtime.clock import utc
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS, Threads
from stackcast.jobs.adapters.switches.background import Background
from stackcast.jobs.adapters.switches.metrics import SwitchMetrics
from stackcast.jobs.adapters.switches.sessions import SwitchSessions
from stackcast.jobs.adapters.tables.tables import DROPS, Tables
from stackcast.udfs.errors import StackcastError

log = logging.getLogger(__name__)

#: Pause between two readings of the counters of all switches, in seconds.
LOOK_SECONDS = 10.0

Counts = Mapping[tuple[str, str], int]


class SwitchDrops:
    """Follows the counters ``dropped`` of the switches. Not thread-safe.

    Args:
        tables: `follow` appends to ``switch_drops``.
        sessions: the sessions of the refresher.
        metrics: counts the packets.
        on_drops: called with the switches and reasons whose counters have risen.
        threads: threads of the driver.
    """

    def __init__(
        self,
        tables: Tables,
        sessions: SwitchSessions,
        metrics: SwitchMetrics,
        on_drops: Callable[[Collection[tuple[str, str]]], None] = lambda _: None,
        threads: Threads = SYSTEM_THREADS,
    ) -> None:
        self._clock = threads.clock
        self._on_drops = on_drops
        self._tables = tables
        self._sessions = sessions
        self._metrics = metrics
        self._reads: Background[Mapping[str, int] | None] = Background("switch-drops", threads)
        self._next_reading = 0.0
        self._last_counts: dict[tuple[str, str], int] = {}

    def follow(self) -> None:
        """Process the counters that were read, and start a reading; never wait for a switch.

        Counts that cannot be written to the table are logged, and written after the next reading.
        """
        self._take(
            {
                (switch, reason): packets
                for switch, counts in self._reads.collect().items()
                for reason, packets in (counts or {}).items()
            }
        )
        now = self._clock.monotonic()
        if now >= self._next_reading:
            self._next_reading = now + LOOK_SECONDS
            self._reads.start(self._sessions.drop_reads())

    def close(self) -> None:
        """Start no further reading."""
        self._reads.close()

    def _take(self, counts: Counts) -> None:
        # A count of 0 is only news if it was higher before.
        last = self._last_counts
        differ = {key: count for key, count in counts.items() if count != last.get(key, 0)}
        if not differ:
            return
        self._on_drops([key for key, count in differ.items() if count > last.get(key, 0)])
        now = utc(self._clock)
        rows = [
            {"switch": switch, "reason": reason, "packets": packets, "counted_at": now}
            for (switch, reason), packets in sorted(differ.items())
        ]
        try:
            self._tables.append(DROPS, rows)
        except (StackcastError, *SQL_ERRORS, OSError) as error:
            log.error("table %s could not be written: %s", DROPS, one_line(error))
            return
        for (switch, reason), packets in differ.items():
            before = last.get((switch, reason), 0)
            # A switch that restarted counts from 0.
            self._metrics.dropped(switch, reason, packets - before if packets > before else packets)
        last.update(differ)
