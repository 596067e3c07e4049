"""Writes ledger and statistics in the background, in groups of batches.

A batch is complete once its report is a file of the checkpoint. The journal appends the rows of all
waiting reports to the tables, one commit per table, and then removes the files:

    put          report file ──┐
    put          report file ──┤
    background                 └── rows to DELIVERIES, PUBLICATIONS, LEDGER ── remove the files

A crash may interrupt each of these steps. The next start finds the files that are left, and writes
them again. Each commit contains the number of its last batch as the transaction number of Delta,
and rows of batches up to the number that a table has are omitted. So each batch counts once in each
table, no matter where a process was killed.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, Protocol

import pyarrow as pa

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.checkpoint.reports import TABLES, Report, merge_rows
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS, Poll, Threads
from stackcast.jobs.adapters.tables.tables import LEDGER
from stackcast.udfs.errors import StreamError

log = logging.getLogger(__name__)

#: Maximum number of batches that wait to be written. The stream pauses at this number.
CAPACITY = 64
#: Seconds for which the stream pauses, without a batch being written, before it ends.
PATIENCE = 120.0
#: Seconds between two attempts.
RETRY = 5.0
#: Failed attempts in a row after which `Journal.close` leaves the files to the next start.
LAST_ATTEMPTS = 3


class ReportFiles(Protocol):
    """Durable files of reports; see `stackcast.jobs.adapters.checkpoint.reports.Reports`."""

    def pending(self) -> list[Report]: ...
    def put(self, report: Report) -> None: ...
    def remove(self, batch_id: int) -> None: ...


class Target(Protocol):
    """Tables to which rows are appended; see `stackcast.jobs.adapters.tables.tables.Tables`."""

    def append(self, name: str, rows: pa.Table, transaction: tuple[str, int]) -> None: ...
    def last_transaction(self, name: str, writer: str) -> int | None: ...


class _Waiting(NamedTuple):
    report: Report
    since: float


def _ignore_backlog(waiting: int, age: float) -> None:
    pass


class Journal:
    """Takes one report per batch, and writes the reports to the tables in groups.

    The thread of the stream calls `recover`, `wait_for_capacity` and `put`.

    Args:
        files: files of reports.
        target: tables to which rows are appended.
        interval: minimum seconds between two groups.
        on_backlog: called with the number of waiting batches, and the age of the first in seconds.
        capacity: number of waiting batches at which `wait_for_capacity` waits.
        patience: seconds for which it waits without a batch being written.
        retry: seconds between two attempts.
        threads: threads of the driver.
    """

    def __init__(
        self,
        files: ReportFiles,
        target: Target,
        interval: float,
        on_backlog: Callable[[int, float], None] = _ignore_backlog,
        capacity: int = CAPACITY,
        patience: float = PATIENCE,
        retry: float = RETRY,
        threads: Threads = SYSTEM_THREADS,
    ) -> None:
        self._files = files
        self._target = target
        self._interval = interval
        self._on_backlog = on_backlog
        self._capacity = capacity
        self._patience = patience
        self._retry = retry
        self._threads = threads
        self._clock = threads.clock
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        #: Set when a group has been written.
        self._written = self._clock.event()
        self._poll: Poll | None = None
        #: Time of the next attempt, failed attempts in a row, and the error of the last one.
        self._due, self._failures, self._failure = self._clock.monotonic(), 0, ""
        #: By table and writer, the last batch in the table.
        self._last_batches: dict[tuple[str, str], int] = {}

    def recover(self) -> None:
        """Write the reports that an earlier run has left.

        If that fails, they wait to be written in the background.

        Raises:
            StreamError: REPORT_UNREADABLE.
        """
        reports = self._files.pending()
        if not reports:
            return
        now = self._clock.monotonic()
        self._waiting.extend(_Waiting(report, now) for report in reports)
        log.info(
            "writing batches %s to ledger and statistics, where they were still missing",
            [report.batch_id for report in reports],
        )
        if not self._flush():
            self._start()

    def recorded(self, writer: str, batch_id: int) -> bool:
        """Return True if the report of a batch is durable, as a file or in the ledger."""
        with self._lock:
            reports = [waiting.report for waiting in self._waiting]
        is_waiting = any((r.writer, r.batch_id) == (writer, batch_id) for r in reports)
        return is_waiting or self._last_batch(LEDGER, writer) >= batch_id

    def wait_for_capacity(self) -> None:
        """Return when another batch may start, because not too many wait to be written.

        Raises:
            StreamError: LEDGER_BEHIND, if no batch was written for a long time. Nothing of the next
                batch has been sent then.
        """
        while True:
            self._written.clear()
            count = len(self._waiting)
            if count < self._capacity:
                return
            log.warning(
                "%d batches are not in the ledger yet: no new batch starts until they are written",
                count,
            )
            if not self._written.wait(self._patience):
                raise StreamError(
                    "LEDGER_BEHIND",
                    f"{count} batches are not in ledger and statistics yet, and none was written "
                    f"for {self._patience:g} s: {self._failure or 'the tables are too slow'}. "
                    "Their rows are safe in the checkpoint: fix what prevents writing to the "
                    "tables, and start the stream again",
                )

    def put(self, report: Report) -> None:
        """Make a report durable, and write its rows to the tables later.

        Raises:
            StreamError: REPORT_NOT_WRITTEN.
        """
        self._files.put(report)
        with self._lock:
            self._waiting.append(_Waiting(report, self._clock.monotonic()))
        self._report_backlog()
        self._start()

    def close(self) -> None:
        """Write everything that waits. What cannot be written stays in the checkpoint."""
        if self._poll is None:
            return
        self._poll.close()
        # On a thread of its own, so that Ctrl-C interrupts the wait and not a commit.
        self._threads.start("journal", self._flush_all).result()

    def _start(self) -> None:
        if self._poll is None:
            self._poll = self._threads.poll("journal", self._flush_if_due)
        else:
            self._poll.wake()

    def _flush_if_due(self) -> float | None:
        """Write a group if it is due. Return the seconds until the next one is, or None."""
        remaining = self._due - self._clock.monotonic()
        if self._waiting and remaining <= 0:
            self._flush()
            remaining = self._due - self._clock.monotonic()
        return max(remaining, 0.0) if self._waiting else None

    def _flush_all(self) -> None:
        while self._waiting and not self._flush():
            if self._failures >= LAST_ATTEMPTS:
                log.error(
                    "%d batches are not in ledger and statistics; the next start of the stream "
                    "writes them from the checkpoint",
                    len(self._waiting),
                )
                return
            self._clock.sleep(min(self._retry, 1.0))

    def _flush(self) -> bool:
        """Write all reports that wait. Return False if that failed."""
        with self._lock:
            group = [waiting.report for waiting in self._waiting]
        try:
            for reports in _by_writer(group):
                self._write(reports)
        except Exception as error:  # the thread must survive any error, and try again
            # A commit that failed may have succeeded in the table.
            self._last_batches.clear()
            self._failure, self._failures = one_line(error), self._failures + 1
            self._due = self._clock.monotonic() + self._retry
            log.error(
                "batches %d to %d could not be written to ledger and statistics and will be "
                "retried: %s",
                group[0].batch_id,
                group[-1].batch_id,
                self._failure,
            )
            self._report_backlog()
            return False
        if self._failure:
            log.info("writing to ledger and statistics works again")
        self._failure, self._failures = "", 0
        self._remove(group)
        self._due = self._clock.monotonic() + self._interval
        return True

    def _write(self, reports: Sequence[Report]) -> None:
        """Append the rows of batches of one writer, in ascending order, to each table without them.

        Batches may be in some tables only, if a crash interrupted this method.
        """
        writer = reports[0].writer
        for table in TABLES:
            last = self._last_batch(table, writer)
            # A batch that ran again after a crash has two reports, of which the newer one counts.
            new = {report.batch_id: report for report in reports if report.batch_id > last}
            rows = merge_rows(list(new.values()), table)
            if rows is None:
                continue
            self._target.append(table, rows, (writer, max(new)))
            self._last_batches[table, writer] = max(new)

    def _last_batch(self, table: str, writer: str) -> int:
        if (table, writer) not in self._last_batches:
            last = self._target.last_transaction(table, writer)
            self._last_batches[table, writer] = -1 if last is None else last
        return self._last_batches[table, writer]

    def _remove(self, group: Sequence[Report]) -> None:
        """Remove the files of reports whose rows are in all tables."""
        for report in group:
            try:
                self._files.remove(report.batch_id)
            except Exception as error:  # the next start finds the rows in the tables
                log.warning(
                    "the report of batch %d could not be removed: %s",
                    report.batch_id,
                    one_line(error),
                )
        with self._lock:
            for _ in group:
                self._waiting.popleft()
        self._written.set()
        self._report_backlog()

    def _report_backlog(self) -> None:
        with self._lock:
            count = len(self._waiting)
            oldest = self._waiting[0].since if count else 0.0
        self._on_backlog(count, self._clock.monotonic() - oldest if count else 0.0)


def _by_writer(reports: Sequence[Report]) -> Iterator[list[Report]]:
    """Yield the reports in their order, grouped by consecutive reports of the same writer."""
    for _, group in groupby(reports, key=lambda report: report.writer):
        yield list(group)
