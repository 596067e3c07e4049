"""The plans of a running stream: the newest one, the one of the slice that runs, and the last one.

tables ── look, take_newest ──▶ current_plan ── activate ──▶ active_plan
                 │                    │
                 ▼                    ▼ replaced by a newer one
          rejected versions     kept until it is replaced, because tasks may still use it
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from stackcast.jobs.adapters.app.logs import named
from stackcast.jobs.adapters.checkpoint.identity import changed
from stackcast.jobs.adapters.checkpoint.pins import Pin, Pins
from stackcast.jobs.adapters.planning.stream_plan import StreamPlan
from stackcast.jobs.adapters.planning.versions import LINK_STATES, BatchVersions
from stackcast.jobs.adapters.runtime.engine import Engine, Shared
from stackcast.jobs.adapters.stream.metrics import StreamMetrics
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.delivery.plan import Compilation, Plan
from stackcast.udfs.errors import StackcastError, TableError
from stackcast.udfs.trees.header_stacks import HeaderStacks

log = logging.getLogger(__name__)


class LivePlan(NamedTuple):
    """A plan that tasks can use.

    Attributes:
        compilation: plan, and what the driver knows of it.
        plan: plan, as tasks get it.
        stacks: its header stacks, as tasks get them.
    """

    compilation: Compilation
    plan: Shared[Plan]
    stacks: Shared[HeaderStacks]

    @property
    def versions(self) -> dict[str, int]:
        """Versions of the tables from which the plan was made."""
        return dict(self.compilation.versions)


class PlanKeeper:
    """Makes plans from the tables, and keeps those in use.

    If tables cannot be used, the last valid plan stays current, and their versions are not tried
    again. A batch, or a look between two batches, makes plans while it holds `exclusive`.

    Args:
        tables: tables of the stream.
        versions: versions of the tables for batches.
        looks: versions of the tables for looks between batches, which have a thread of their own.
        plans: makes plans of versions.
        pins: pins of earlier batches.
        shaping: settings that shape the bytes of frames.
        engine: sends plans to the executors.
        metrics: metrics of the stream.
    """

    def __init__(
        self,
        tables: Tables,
        versions: BatchVersions,
        looks: BatchVersions,
        plans: StreamPlan,
        pins: Pins,
        shaping: Mapping[str, str],
        engine: Engine,
        metrics: StreamMetrics,
    ) -> None:
        self._tables = tables
        self._versions = versions
        self._looks = looks
        self._plans = plans
        self._pins = pins
        self._shaping = shaping
        self._engine = engine
        self._metrics = metrics
        self._current: LivePlan | None = None
        self._active: LivePlan | None = None
        self._replaced: LivePlan | None = None
        self._rejected: dict[str, int] | None = None
        #: Held by the thread that makes plans.
        self.exclusive = threading.Lock()

    @property
    def current_plan(self) -> LivePlan | None:
        """The newest plan; None before `prepare`."""
        return self._current

    @property
    def active_plan(self) -> LivePlan | None:
        """The plan of the slice that runs; None in micro-batches."""
        return self._active

    def activate(self, plan: LivePlan) -> None:
        """Set the plan of the slice that runs."""
        self._active = plan

    def prepare(self, patience: float, given_up: Callable[[], bool]) -> None:
        """Make a plan for the first batch.

        If the current tables cannot be used, the plan of the last recorded batch becomes current.

        Args:
            patience: seconds to wait for the header stacks of the plan.
            given_up: returns True if the job was asked to stop.

        Raises:
            StackcastError: the tables cannot be used, and no batch was recorded.
        """
        last = self._pins.newest()
        versions = self._versions.current()
        announcing = self._engine.worker("announce")
        try:
            # Before its first batch, switches do not know the stream.
            announced = last is None and announcing.submit(self._versions.announce, versions)
            try:
                self._plan_of(versions)
            except StackcastError as error:
                if last is None:
                    raise
                self._plan_of(last[1].versions)
                self._reject(versions, error)
            if announced:
                announced.result()
        finally:
            announcing.close()
        self._plans.await_stacks(patience, given_up)
        self.with_known_stacks()

    def take_newest(self) -> LivePlan:
        """Return the plan of the current tables, or the last valid one if they cannot be used."""
        with self._metrics.stage("versions"):
            versions = self._versions.current()
        return self._take(versions)

    def restore(self, batch_id: int, pin: Pin) -> None:
        """Make the plan of a batch that ran before.

        Raises:
            StreamError: PIN_GONE, if versions of its tables no longer exist; see `Pins.useless`.
        """
        log.warning(
            "batch %d is repeated with the versions of its first attempt: %s",
            batch_id,
            named(pin.versions),
        )
        self._metrics.ran_again()
        different = changed(pin.settings, self._shaping)
        if different:
            log.warning(
                "the first attempt of batch %d had other settings (%s), so the repeated batch "
                "may differ from frames that were already sent; %s",
                batch_id,
                ", ".join(f"{key} {value}" for key, value in sorted(different.items())),
                named(pin.versions),
            )
        with self._metrics.stage("plan"):
            try:
                self._plan_of(pin.versions)
            except TableError as error:
                raise self._pins.useless(batch_id, error) from error

    def with_known_stacks(self) -> LivePlan:
        """Return the current plan, which is sent again if more of its header stacks are known."""
        assert self._current is not None
        newest = self._plans.with_known(self._current.compilation)
        return self._current if newest is self._current.compilation else self._use(newest)

    def look(self) -> None:
        """Look for newer tables between batches, and make their plan.

        While a batch runs, it only notes since when they wait: the next batch begins with a look of
        its own. In real time, one plan at most waits for its slice, because workers may still use
        the plan before it.
        """
        versions = self._looks.poll()
        if self._is_decided(versions):
            self._metrics.pending(None)
            if self._active is not None and self._active is self._current:
                self.with_known_stacks()
            return
        self._metrics.pending(self._engine.clock.monotonic())
        if self._active is not None and self._active is not self._current:
            return
        if self.exclusive.acquire(blocking=False):
            try:
                # A batch may have made a newer plan in the meantime.
                versions = self._looks.poll()
                if not self._is_decided(versions):
                    self._take(versions)
            finally:
                self.exclusive.release()
            self._metrics.pending(None)

    def used(self, compilation: Compilation, routes: Sequence[tuple[int, tuple[str, ...]]]) -> None:
        """Note pairs of publisher and receiver set that events have brought into use."""
        self._plans.used(compilation, routes)

    def close(self) -> None:
        """Return after everything that is written for plans has been written."""
        self._versions.close()
        self._plans.close()
        if self._replaced is not None:
            self._replaced.plan.destroy()

    def _is_decided(self, versions: Mapping[str, int]) -> bool:
        """Return True if these versions are in use, or cannot be used."""
        current = None if self._current is None else self._current.compilation.versions
        return versions in (current, self._rejected)

    def _take(self, versions: dict[str, int]) -> LivePlan:
        plan = self._current
        if plan is None or versions != self._rejected:
            try:
                with self._metrics.stage("plan"):
                    plan = self._plan_of(versions)
                self._metrics.refused(None)
            except StackcastError as error:
                if plan is None:
                    raise
                self._reject(versions, error)
        return plan

    def _reject(self, versions: dict[str, int], error: StackcastError) -> None:
        current = {} if self._current is None else self._current.compilation.versions
        different = {name: v for name, v in versions.items() if current.get(name) != v}
        log.error(
            "the changed tables %s cannot be used, so %s remain live: %s",
            named(different),
            named(current),
            error,
        )
        self._rejected = versions
        self._metrics.refused(versions)

    def _plan_of(self, versions: Mapping[str, int]) -> LivePlan:
        if self._current is not None and self._current.compilation.versions == versions:
            return self._current
        compilation = self._plans.make(versions)
        for name, version in versions.items():
            # Otherwise, after a power failure, the version in a pin could become another one.
            self._tables.make_durable("links" if name == LINK_STATES else name, version)
        return self._use(compilation)

    def _use(self, compilation: Compilation) -> LivePlan:
        # Tasks may still use the previous plan, but not the one before it. To unpersist that alone
        # would leave its file.
        replaced, self._replaced = self._replaced, self._current
        plan = self._engine.broadcast(compilation.plan)
        self._current = LivePlan(compilation, plan, self._plans.stacks(compilation))
        if replaced is not None:
            replaced.plan.destroy()
        return self._current
