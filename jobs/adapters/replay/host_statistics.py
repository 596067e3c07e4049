"""What each host asks for again: counted, and written to a table beside the answers."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS
from stackcast.jobs.adapters.runtime.clock import utc
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS, Threads
from stackcast.jobs.adapters.tables.tables import REREQUESTS, Tables
from stackcast.udfs.errors import StackcastError

log = logging.getLogger(__name__)

#: Between two commits, seconds.
WRITE_SECONDS = 5.0
_COLUMNS = ("requests", "notifications", "bytes", "unavailable", "rejected")


class HostStatistics:
    """Counts by host what came since the last commit, and commits it now and then. For any thread.

    No answer waits for a commit. One that fails is logged, and its counts go with the next.
    """

    def __init__(self, tables: Tables, threads: Threads = SYSTEM_THREADS) -> None:
        self._clock = threads.clock
        self._tables = tables
        self._worker = threads.worker("rerequest-statistics")
        self._lock = threading.Lock()
        self._counts: dict[str, dict[str, int]] = {}
        self._writing: Future[None] | None = None
        self._due = 0.0

    def answered(self, host: str, outcome: str, notifications: int, octets: int) -> None:
        """Counts an answer, by its outcome as `RequestAnswer` has it."""
        if outcome != "ahead":
            unavailable = int(outcome == "gone")
            self._add(
                host,
                requests=1,
                notifications=notifications,
                bytes=octets,
                unavailable=unavailable,
            )

    def refused(self, host: str) -> None:
        """Counts a request that was over the limits of its host."""
        self._add(host, rejected=1)

    def follow(self) -> None:
        """Begins a commit where one is due; never waits for it."""
        now = self._clock.monotonic()
        ended = self._writing is None or self._writing.done()
        if self._counts and ended and now >= self._due:
            self._due = now + WRITE_SECONDS
            self._writing = self._worker.submit(self._write)

    def close(self) -> None:
        """Commits what is left."""
        self._worker.submit(self._write).result()
        self._worker.close()

    def _add(self, host: str, **counts: int) -> None:
        with self._lock:
            sums = self._counts.setdefault(host, dict.fromkeys(_COLUMNS, 0))
            for name, count in counts.items():
                sums[name] += count

    def _write(self) -> None:
        with self._lock:
            counts, self._counts = self._counts, {}
        if not counts:
            return
        at = utc(self._clock)
        rows = [{"subscriber": host, **sums, "recorded_at": at} for host, sums in counts.items()]
        try:
            self._tables.append(REREQUESTS, rows)
        except (StackcastError, *SQL_ERRORS, OSError) as error:
            log.error("table %s could not be written: %s", REREQUESTS, one_line(error))
            for host, sums in counts.items():
                self._add(host, **sums)
