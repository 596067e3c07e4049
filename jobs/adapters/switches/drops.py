"""What switches have dropped, by reason: read now and then, for metrics and a table."""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from jobs.adapters.app.error_texts import SQL_ERRORS, one_line
from jobs.adapters.switches.metrics import SwitchMetrics
from jobs.adapters.switches.sessions import SwitchSessions
from jobs.adapters.tables.tables import DROPS, Tables
from udfs.errors import StackcastError

log = logging.getLogger(__name__)

#: Between two looks at the counters of all switches, seconds.
LOOK_SECONDS = 10.0

Counts = Mapping[tuple[str, str], int]


class SwitchDrops:
    """Follows the counters ``dropped`` of the switches. Not for several threads at once."""

    def __init__(self, tables: Tables, sessions: SwitchSessions, metrics: SwitchMetrics) -> None:
        self._tables = tables
        self._sessions = sessions
        self._metrics = metrics
        # A switch that hangs holds up the look, and nothing else.
        self._pool = ThreadPoolExecutor(1, "switch-drops")
        self._look: Future[Counts] | None = None
        self._due = 0.0
        self._known: dict[tuple[str, str], int] = {}

    def follow(self) -> None:
        """Begins a look where one is due, or takes what one has found; never waits for a switch.

        What cannot be written is told in the log, and written after the next look.
        """
        now = time.monotonic()
        if self._look is None:
            if now >= self._due:
                self._due = now + LOOK_SECONDS
                self._look = self._pool.submit(self._sessions.drops)
        elif self._look.done():
            look, self._look = self._look, None
            self._take(look.result())

    def close(self) -> None:
        """Begins nothing any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _take(self, counts: Counts) -> None:
        # A count of 0 says something only of a switch that had dropped some before.
        differ = {key: count for key, count in counts.items() if count != self._known.get(key, 0)}
        if not differ:
            return
        at = dt.datetime.now(dt.UTC)
        rows = [
            {"switch": switch, "reason": reason, "packets": packets, "counted_at": at}
            for (switch, reason), packets in sorted(differ.items())
        ]
        try:
            self._tables.append(DROPS, rows)
        except (StackcastError, *SQL_ERRORS, OSError) as error:
            log.error("%s was not written: %s", DROPS, one_line(error))
            return
        for (switch, reason), packets in differ.items():
            before = self._known.get((switch, reason), 0)
            # One that began anew counts from 0.
            self._metrics.dropped(switch, reason, packets - before if packets > before else packets)
        self._known.update(differ)
