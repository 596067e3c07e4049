"""Header stacks of all receiver sets of a plan, computed by Spark in the background.

A stream that starts waits for them for a few seconds. Otherwise each worker would compute the
stacks of its first records again. Later nothing waits for them, because a batch computes the stacks
that it uses. The results become part of the next plan, so no worker computes them again, and of
table `header_stacks`, from which the next start reads them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from stackcast.jobs.adapters.app.logs import named
from stackcast.jobs.adapters.app.storage_errors import StorageError
from stackcast.jobs.adapters.runtime.engine import Engine, Shared
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.delivery.plan import Compilation
from stackcast.udfs.trees.header_stacks import HeaderStacks, Receivers, Stacks
from stackcast.udfs.trees.stack_task import StackTask

log = logging.getLogger(__name__)

TABLE = "header_stacks"

#: Intended duration of a job in seconds. Between two jobs, a newer plan or a batch that waits for a
#: slot can start.
_JOB_SECONDS = 0.5
#: Initial and minimum number of receiver sets per task.
_MIN_SIZE = 32
#: Maximum ratio of the sizes of two successive jobs.
_GROWTH = 4
#: Number of receiver sets whose stacks are computed to verify those in the table.
_SAMPLE = 16
#: Maximum seconds for which the end of a stream waits for stacks.
_LAST_SECONDS = 60
#: Seconds between two checks whether a wait was cancelled.
_CHECK_SECONDS = 0.1


class StackJobs:
    """Computes the stacks of the newest plan, in jobs of about half a second.

    If the application has several slots, one of them is left to the stream, except while the stream
    waits in `await_known`. The methods are for one thread.

    Args:
        engine: runs the tasks.
        slots: number of tasks that run at the same time.
        tables: tables of the stream.
        publisher: publisher of the stream.
    """

    def __init__(self, engine: Engine, slots: int, tables: Tables, publisher: str) -> None:
        self._engine = engine
        self._slots = slots
        self._tables = tables
        self._publisher = publisher
        self._newest: Compilation | None = None
        self._running: Future[None] | None = None
        self._handle: tuple[HeaderStacks, Shared[HeaderStacks]] | None = None
        self._replaced: Shared[HeaderStacks] | None = None
        self._closing = engine.clock.event()
        #: Set when all stacks of the newest plan are known, or cannot be computed in advance.
        self._known = engine.clock.event()
        #: Number of slots that are left to the stream.
        self._reserved_slots = 1
        #: Number of receiver sets per task.
        self._size = _MIN_SIZE
        #: Rows of the table; None if they are unknown.
        self._written: list[dict[str, Any]] | None = None
        self._restored = False
        #: Hosts without a path that were logged, with the stacks to which this applies.
        self._logged_hosts: tuple[HeaderStacks, set[str]] | None = None
        self._worker = engine.worker("header-stacks")

    def handle(self, compilation: Compilation) -> Shared[HeaderStacks]:
        """Return the header stacks of a plan, as tasks get them.

        They are sent once per network and set of trees.
        """
        header_stacks = compilation.header_stacks
        if self._handle is None or self._handle[0] is not header_stacks:
            if self._replaced is not None:
                # A job may still use it. Running tasks may use the stacks of the previous plan.
                # The method unpersist would not remove its file.
                self._worker.submit(self._replaced.destroy)
            self._replaced = None if self._handle is None else self._handle[1]
            self._handle = header_stacks, self._engine.broadcast(header_stacks)
        return self._handle[1]

    def submit(self, compilation: Compilation) -> Future[None]:
        """Compute the missing stacks of a plan, and write the table.

        The work for earlier plans is cancelled.
        """
        self._newest = compilation
        self._known.clear()
        self._running = self._worker.submit(self._prepare, compilation, self.handle(compilation))
        return self._running

    def await_known(self, seconds: float, given_up: Callable[[], bool] = lambda: False) -> None:
        """Wait until the stacks of the newest plan are known.

        Args:
            seconds: limit of the wait.
            given_up: ends the wait when it returns True.
        """
        deadline = self._engine.clock.monotonic() + seconds
        self._reserved_slots = 0
        try:
            while not self._known.wait(_CHECK_SECONDS):
                if self._engine.clock.monotonic() >= deadline or given_up():
                    return
        finally:
            self._reserved_slots = 1

    def used(self, compilation: Compilation, routes: Sequence[tuple[int, Receivers]]) -> None:
        """Compute the stacks that a batch has used first, for the table.

        Args:
            compilation: plan of the batch.
            routes: pairs of a link and a receiver set.
        """
        self._running = self._worker.submit(self._compute_used, compilation, routes)

    def close(self) -> None:
        """Wait for the stacks of the newest plan, for at most a minute."""
        if self._newest is not None and self._newest.plan.publishers is not None:
            self._running = self._worker.submit(self._write, self._newest)
        if self._running is not None:
            self._engine.wait([self._running], _LAST_SECONDS)
        self._closing.set()
        self._worker.close()
        if self._replaced is not None:
            self._replaced.destroy()

    def _prepare(self, compilation: Compilation, handle: Shared[HeaderStacks]) -> None:
        try:
            try:
                self._compute(compilation, handle)
            finally:
                if self._newest is compilation:
                    self._known.set()
            if not self._given_up(compilation):
                self._write(compilation)
        except StorageError as error:
            # Batches compute the stacks that they use, and the next plan submits the others again.
            log.error(
                "header stacks of %s could not be computed in advance: %s",
                named(compilation.versions),
                error,
            )
        except Exception:
            log.exception(
                "header stacks of %s could not be computed in advance", named(compilation.versions)
            )

    def _compute_used(
        self, compilation: Compilation, routes: Sequence[tuple[int, Receivers]]
    ) -> None:
        try:
            for link, receivers in routes:
                if self._given_up(compilation):
                    return
                compilation.header_stacks.of(receivers, link)
            self._log_cut_off(compilation)
            # The table is written when their number has doubled, and at the end.
            if len(compilation.header_stacks.remembered()) >= 2 * len(self._written or ()):
                self._write(compilation)
        except Exception:
            log.exception(
                "the used header stacks of %s could not be determined", named(compilation.versions)
            )

    def _compute(self, compilation: Compilation, handle: Shared[HeaderStacks]) -> None:
        if not self._restored:
            self._restored = True
            self._restore(compilation, handle)
        remaining = compilation.unknown()
        total, start = len(remaining), self._engine.clock.monotonic()
        while remaining and not self._given_up(compilation):
            slots = max(1, self._slots - self._reserved_slots)
            chosen, remaining = remaining[: self._size * slots], remaining[self._size * slots :]
            stacks, seconds = self._run(chosen, min(slots, len(chosen)), handle)
            if not compilation.header_stacks.learn(stacks):
                log.warning(
                    "the header stacks of %d of %d receiver sets do not fit into memory and are "
                    "computed when they are used; %s",
                    len(compilation.unknown()),
                    len(compilation.receiver_sets),
                    named(compilation.versions),
                )
                remaining = compilation.unknown()
                break
            # Only time of computation counts. If the stream is busy, jobs mostly wait for slots.
            affordable = int(_JOB_SECONDS * len(chosen) / max(seconds, 1e-6))
            self._size = max(_MIN_SIZE, min(affordable, _GROWTH * self._size))
        if total and not remaining:
            log.info(
                "computed the header stacks of %d receiver sets in %.2f s; %s",
                total,
                self._engine.clock.monotonic() - start,
                named(compilation.versions),
            )
        self._log_cut_off(compilation)

    def _restore(self, compilation: Compilation, handle: Shared[HeaderStacks]) -> None:
        """Load the stacks from the table, if this run would compute the same ones."""
        start = self._engine.clock.monotonic()
        try:
            rows = self._tables.rows(TABLE)
        except StorageError as error:
            log.warning("table %s could not be read: %s", TABLE, error)
            return
        stored = compilation.stacks_of(rows, self._publisher)
        # Other settings or encoders would most likely change the longest ones.
        longest = sorted(stored, key=lambda each: len(stored[each].parts[0].labels), reverse=True)
        sample = longest[:: len(longest) // _SAMPLE or 1]
        if len(sample) == len(longest):
            return
        computed, _ = self._run(sample, 1, handle)
        if any(computed[each] != stored[each] for each in sample):
            log.info(
                "computing all header stacks again, because those in the table were computed "
                "with other settings or by another version"
            )
            return
        compilation.header_stacks.learn(stored)
        self._written = rows
        log.info(
            "loaded the header stacks of %d receiver sets from table %s in %.2f s; %s",
            len(stored),
            TABLE,
            self._engine.clock.monotonic() - start,
            named(compilation.versions),
        )

    def _run(
        self, receiver_sets: list[Receivers], tasks: int, handle: Shared[HeaderStacks]
    ) -> tuple[dict[Receivers, Stacks], float]:
        """Return the stacks by receiver set, and the processor time in seconds."""
        task = StackTask(handle, receiver_sets, tasks)
        stacks, seconds = zip(*self._engine.run(task, tasks), strict=True)
        return task.read_stacks(stacks), sum(seconds)

    def _given_up(self, compilation: Compilation) -> bool:
        return self._closing.is_set() or self._newest is not compilation

    def _log_cut_off(self, compilation: Compilation) -> None:
        """Log each host without a path, once per network and set of trees."""
        logged = self._logged_hosts
        if logged is None or logged[0] is not compilation.header_stacks:
            logged = self._logged_hosts = compilation.header_stacks, set()
        for host, reason in compilation.cut_off.items():
            if host not in logged[1]:
                logged[1].add(host)
                log.error(
                    "host %s is excluded from delivery: %s; %s",
                    host,
                    reason,
                    named(compilation.versions),
                )

    def _write(self, compilation: Compilation) -> None:
        rows = compilation.stack_rows(self._publisher)
        if rows == self._written:
            return
        try:
            self._tables.overwrite(TABLE, rows)
        except StorageError as error:
            # They only explain frames, and the next plan writes them again.
            log.error(
                "table %s could not be written for the plan of %s: %s",
                TABLE,
                named(compilation.versions),
                error,
            )
            return
        self._written = rows
