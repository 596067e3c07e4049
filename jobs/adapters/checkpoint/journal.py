"""Ledger and statistics, written beside the stream: many batches in one commit a table.

A batch counts as done when its report is a file in the checkpoint. One thread takes all reports
that wait, appends their rows, and removes the files of those whose rows are in every table; what a
crash leaves, the next start writes. Delta's transaction numbers are those of the last batch of a
commit, and rows of batches up to the number that a table has are left out, so each counts once
whatever was cut off.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, Protocol

import pyarrow as pa

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.checkpoint.reports import TABLES, Report, merged
from stackcast.jobs.adapters.tables.tables import LEDGER
from stackcast.udfs.errors import StreamError

log = logging.getLogger(__name__)

#: Batches that may wait to be written; then the stream waits.
MOST = 64
#: How long it waits without one being written until it gives up, seconds.
PATIENCE = 120.0
RETRY = 5.0
#: Tries at the end of a stream; the files stay for the next start.
LAST_TRIES = 3


class Files(Protocol):
    """Keeps reports safe, as `stackcast.jobs.adapters.checkpoint.reports.Reports` keeps them."""

    def left(self) -> list[Report]: ...
    def put(self, report: Report) -> None: ...
    def remove(self, batch_id: int) -> None: ...


class Target(Protocol):
    """Takes rows, as `stackcast.jobs.adapters.tables.tables.Tables` takes them."""

    def append(self, name: str, rows: pa.Table, transaction: tuple[str, int]) -> None: ...
    def last_transaction(self, name: str, writer: str) -> int | None: ...


class _Waiting(NamedTuple):
    report: Report
    since: float


class Journal:
    """Takes a report a batch, and writes them in groups, at most every ``interval`` seconds.

    tell: is told how many batches wait, and since when the first does, in seconds. `recover`,
    `wait_for_capacity` and `put` are for the stream's thread; call `close` at the end.
    """

    def __init__(
        self,
        files: Files,
        target: Target,
        interval: float,
        tell: Callable[[int, float], None] = lambda waiting, oldest: None,
        most: int = MOST,
        patience: float = PATIENCE,
        retry: float = RETRY,
    ) -> None:
        self._files = files
        self._target = target
        self._interval = interval
        self._tell = tell
        self._most = most
        self._patience = patience
        self._retry = retry
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._known: dict[tuple[str, str], int] = {}
        self._failure = ""

    def recover(self) -> None:
        """Write the reports that an earlier run has left.

        Where this fails they wait as others do. Raises StreamError REPORT_UNREADABLE.
        """
        left = self._files.left()
        if not left:
            return
        now = time.monotonic()
        self._waiting.extend(_Waiting(report, now) for report in left)
        numbers = [report.batch_id for report in left]
        log.info(
            "writing batches %s to ledger and statistics, where they were still missing", numbers
        )
        if not self._flush():
            self._start()

    def recorded(self, writer: str, batch_id: int) -> bool:
        """Tells whether the report of a writer's batch is durable, in its file or in the ledger."""
        with self._changed:
            reports = [each.report for each in self._waiting]
        known = any((each.writer, each.batch_id) == (writer, batch_id) for each in reports)
        return known or self._last(LEDGER, writer) >= batch_id

    def wait_for_capacity(self) -> None:
        """Returns when another batch may run: when not too many wait to be written.

        Raises StreamError LEDGER_BEHIND where none was written for long: before anything of the
        batch leaves.
        """
        with self._changed:
            while len(self._waiting) >= self._most:
                before = len(self._waiting)
                log.warning(
                    "%d batches are not in the ledger yet: no new batch starts until they are "
                    "written",
                    before,
                )
                self._changed.wait_for(lambda: len(self._waiting) < self._most, self._patience)
                if len(self._waiting) >= before:
                    raise StreamError(
                        "LEDGER_BEHIND",
                        f"{before} batches are not in ledger and statistics yet, and none was "
                        f"written for {self._patience:g} s: "
                        f"{self._failure or 'the tables are too slow'}. Their rows are safe in "
                        "the checkpoint: fix what prevents writing to the tables, and start the "
                        "stream again",
                    )

    def put(self, report: Report) -> None:
        """Make a report durable; its rows are in the tables some time after.

        Raises StreamError REPORT_NOT_WRITTEN.
        """
        self._files.put(report)
        with self._changed:
            self._waiting.append(_Waiting(report, time.monotonic()))
            self._changed.notify_all()
        self._told()
        self._start()

    def close(self) -> None:
        """Write all that waits. What cannot be written stays in the checkpoint."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        if self._thread is None:
            # Not a thread that a program which fails would wait for: the files are there.
            self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        due, failed = time.monotonic(), 0
        if self._failure:
            due += self._retry
        while self._wait_until(due):
            if self._flush():
                due, failed = time.monotonic() + self._interval, 0
                continue
            due, failed = time.monotonic() + self._retry, failed + 1
            if self._closing:
                if failed >= LAST_TRIES:
                    log.error(
                        "%d batches are not in ledger and statistics; the next start of the "
                        "stream writes them from the checkpoint",
                        len(self._waiting),
                    )
                    return
                time.sleep(min(self._retry, 1.0))

    def _wait_until(self, due: float) -> bool:
        """True when there is something to be written now, False when there never will be."""
        with self._changed:
            while not self._closing:
                left = due - time.monotonic()
                if self._waiting and left <= 0:
                    return True
                self._changed.wait(left if self._waiting else None)
            return bool(self._waiting)

    def _flush(self) -> bool:
        """Write all that waits now; False where it could not be."""
        with self._changed:
            group = [each.report for each in self._waiting]
        try:
            for some in _runs(group):
                self._write(some)
        except Exception as error:  # whatever it is, the thread must go on
            self._known.clear()  # a commit may have gone in all the same
            self._failure = one_line(error)
            log.error(
                "batches %d to %d could not be written to ledger and statistics and will be "
                "retried: %s",
                group[0].batch_id,
                group[-1].batch_id,
                self._failure,
            )
            self._told()
            return False
        if self._failure:
            log.info("writing to ledger and statistics works again")
            self._failure = ""
        self._forget(group)
        return True

    def _write(self, reports: Sequence[Report]) -> None:
        """Append the rows of one writer's batches, ascending, each that a table lacks."""
        writer = reports[0].writer
        for table in TABLES:
            last = self._last(table, writer)
            # One that was left and one of the same batch, which ran again, may both wait.
            new = {each.batch_id: each for each in reports if each.batch_id > last}
            rows = merged(list(new.values()), table)
            if rows is None:
                continue
            self._target.append(table, rows, (writer, max(new)))
            self._known[table, writer] = max(new)

    def _last(self, table: str, writer: str) -> int:
        if (table, writer) not in self._known:
            last = self._target.last_transaction(table, writer)
            self._known[table, writer] = -1 if last is None else last
        return self._known[table, writer]

    def _forget(self, group: Sequence[Report]) -> None:
        for report in group:
            try:
                self._files.remove(report.batch_id)
            except Exception as error:  # its rows are known to be there, at the next start too
                log.warning(
                    "the report of batch %d could not be removed: %s",
                    report.batch_id,
                    one_line(error),
                )
        with self._changed:
            for _ in group:
                self._waiting.popleft()
            self._changed.notify_all()
        self._told()

    def _told(self) -> None:
        with self._changed:
            count = len(self._waiting)
            since = self._waiting[0].since if count else 0.0
        self._tell(count, time.monotonic() - since if count else 0.0)


def _runs(reports: Sequence[Report]) -> Iterator[list[Report]]:
    """Yields runs of reports of one writer each, in their order."""
    for _, some in groupby(reports, key=lambda report: report.writer):
        yield list(some)
