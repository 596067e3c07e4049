"""Header stacks of all receiver sets of a plan, worked out by Spark beside the stream.

A stream waits for them for some seconds when it starts. Otherwise each worker would work out the
stacks of its first records again. Later nothing waits for them: a batch works out what it uses
itself. They go into the next plan, so that no worker works them out again, and into the table
`header_stacks`, where the next start finds them.
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

#: How long a job's tasks should work, seconds: after it a newer plan has its turn, and so has a
#: batch that found all slots taken.
_JOB_SECONDS = 0.5
#: Receiver sets a task, at first and at least.
_LEAST = 32
#: How much larger a job can be than the one before.
_GROWTH = 4
#: Receiver sets whose stacks are worked out anew before others are taken from the table.
_SAMPLE = 16
#: How long the end of a stream waits for what is still to be worked out, seconds.
_LAST_SECONDS = 60
#: Interval between two looks whether a wait was given up, seconds.
_LOOK_SECONDS = 0.1


class StackJobs:
    """Works out the stacks of the newest plan, in jobs of about half a second.

    One slot of the application is left to the stream, where there is more than one, except while
    the stream waits in `await_known`. `submit` is for one thread. Call `close` at the end.
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
        #: Set once all stacks of the newest plan are known, or cannot be worked out ahead.
        self._known = engine.clock.event()
        #: Number of slots that are left to the stream.
        self._spared = 1
        self._size = _LEAST
        self._written: list[dict[str, Any]] | None = None
        self._restored = False
        self._told: tuple[HeaderStacks, set[str]] | None = None
        self._thread = engine.worker("header-stacks")

    def handle(self, compilation: Compilation) -> Shared[HeaderStacks]:
        """The plan's header stacks as workers take them: sent once for a network and its trees."""
        header_stacks = compilation.header_stacks
        if self._handle is None or self._handle[0] is not header_stacks:
            if self._replaced is not None:
                # After the job that may still use it. Tasks that run may use those of the plan
                # before this one; unpersist alone would leave its file.
                self._thread.submit(self._replaced.destroy)
            self._replaced = None if self._handle is None else self._handle[1]
            self._handle = header_stacks, self._engine.broadcast(header_stacks)
        return self._handle[1]

    def submit(self, compilation: Compilation) -> Future[None]:
        """Work out what this plan lacks and write its table; a plan before it is given up."""
        self._newest = compilation
        self._known.clear()
        self._running = self._thread.submit(self._work, compilation, self.handle(compilation))
        return self._running

    def await_known(self, seconds: float, given_up: Callable[[], bool] = lambda: False) -> None:
        """Wait until the stacks of the newest plan are known.

        Args:
            seconds: limit of the wait.
            given_up: ends the wait when it returns True.
        """
        deadline = self._engine.clock.monotonic() + seconds
        self._spared = 0
        try:
            while not self._known.wait(_LOOK_SECONDS):
                if self._engine.clock.monotonic() >= deadline or given_up():
                    return
        finally:
            self._spared = 1

    def used(self, compilation: Compilation, routes: Sequence[tuple[int, Receivers]]) -> None:
        """Works out what workers have worked out for themselves, for the table: pairs of a link
        and a receiver set that came into use with a batch of this plan."""
        self._running = self._thread.submit(self._work_out_used, compilation, routes)

    def close(self) -> None:
        """Wait until the newest plan is done with, a minute at most."""
        if self._newest is not None and self._newest.plan.publishers is not None:
            self._running = self._thread.submit(self._write, self._newest)
        if self._running is not None:
            self._engine.wait([self._running], _LAST_SECONDS)
        self._closing.set()
        self._thread.close()
        if self._replaced is not None:
            self._replaced.destroy()

    def _work(self, compilation: Compilation, handle: Shared[HeaderStacks]) -> None:
        try:
            try:
                self._work_out(compilation, handle)
            finally:
                if self._newest is compilation:
                    self._known.set()
            if not self._given_up(compilation):
                self._write(compilation)
        except StorageError as error:
            # Batches work out what they use; the next plan brings the rest up again.
            log.error(
                "header stacks of %s could not be computed in advance: %s",
                named(compilation.versions),
                error,
            )
        except Exception:
            log.exception(
                "header stacks of %s could not be computed in advance", named(compilation.versions)
            )

    def _work_out_used(
        self, compilation: Compilation, routes: Sequence[tuple[int, Receivers]]
    ) -> None:
        try:
            for link, receivers in routes:
                if self._given_up(compilation):
                    return
                compilation.header_stacks.of(receivers, link)
            self._tell(compilation)
            # Each time as many as there were have come, and at the end.
            if len(compilation.header_stacks.remembered()) >= 2 * len(self._written or ()):
                self._write(compilation)
        except Exception:
            log.exception(
                "the used header stacks of %s could not be determined", named(compilation.versions)
            )

    def _work_out(self, compilation: Compilation, handle: Shared[HeaderStacks]) -> None:
        if not self._restored:
            self._restored = True
            self._restore(compilation, handle)
        waiting = compilation.unknown()
        total, clock = len(waiting), self._engine.clock.monotonic()
        while waiting and not self._given_up(compilation):
            slots = max(1, self._slots - self._spared)
            some, waiting = waiting[: self._size * slots], waiting[self._size * slots :]
            made, seconds = self._run(some, min(slots, len(some)), handle)
            if not compilation.header_stacks.learn(made):
                log.warning(
                    "the header stacks of %d of %d receiver sets do not fit into memory and are "
                    "computed when they are used; %s",
                    len(compilation.unknown()),
                    len(compilation.receiver_sets),
                    named(compilation.versions),
                )
                waiting = compilation.unknown()
                break
            # Of the work, not of the time: beside a busy stream a job mostly waits for a slot.
            fitting = int(_JOB_SECONDS * len(some) / max(seconds, 1e-6))
            self._size = max(_LEAST, min(fitting, _GROWTH * self._size))
        if total and not waiting:
            log.info(
                "computed the header stacks of %d receiver sets in %.2f s; %s",
                total,
                self._engine.clock.monotonic() - clock,
                named(compilation.versions),
            )
        self._tell(compilation)

    def _restore(self, compilation: Compilation, handle: Shared[HeaderStacks]) -> None:
        """Takes what the run before wrote into the table, if this one makes the same of it."""
        clock = self._engine.clock.monotonic()
        try:
            rows = self._tables.rows(TABLE)
        except StorageError as error:
            log.warning("table %s could not be read: %s", TABLE, error)
            return
        kept = compilation.stacks_of(rows, self._publisher)
        # The longest among them, which other settings or encoders would make otherwise first.
        longest = sorted(kept, key=lambda each: len(kept[each].parts[0].labels), reverse=True)
        sample = longest[:: len(longest) // _SAMPLE or 1]
        if len(sample) == len(longest):
            return
        made, _ = self._run(sample, 1, handle)
        if any(made[each] != kept[each] for each in sample):
            log.info(
                "computing all header stacks again, because those in the table were computed "
                "with other settings or by another version"
            )
            return
        compilation.header_stacks.learn(kept)
        self._written = rows
        log.info(
            "loaded the header stacks of %d receiver sets from table %s in %.2f s; %s",
            len(kept),
            TABLE,
            self._engine.clock.monotonic() - clock,
            named(compilation.versions),
        )

    def _run(
        self, receiver_sets: list[Receivers], tasks: int, handle: Shared[HeaderStacks]
    ) -> tuple[dict[Receivers, Stacks], float]:
        """Stacks by receiver set, and the seconds of a core that they took."""
        task = StackTask(handle, receiver_sets, tasks)
        stacks, seconds = zip(*self._engine.run(task, tasks), strict=True)
        return task.read_stacks(stacks), sum(seconds)

    def _given_up(self, compilation: Compilation) -> bool:
        return self._closing.is_set() or self._newest is not compilation

    def _tell(self, compilation: Compilation) -> None:
        """Log each host that is cut off, once for a network and its trees."""
        if self._told is None or self._told[0] is not compilation.header_stacks:
            self._told = compilation.header_stacks, set()
        for host, reason in compilation.cut_off.items():
            if host not in self._told[1]:
                self._told[1].add(host)
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
            # They explain frames and make none: the next plan writes them anew.
            log.error(
                "table %s could not be written for the plan of %s: %s",
                TABLE,
                named(compilation.versions),
                error,
            )
            return
        self._written = rows
