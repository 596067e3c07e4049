"""The plans of a stream, for micro-batches and for real time.

Each new plan is logged. Its header stacks are computed in the background, and the tables that
explain it are written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from stackcast.jobs.adapters.app.logs import named
from stackcast.jobs.adapters.planning.header_stacks import StackJobs
from stackcast.jobs.adapters.planning.plan_tables import PlanTables
from stackcast.jobs.adapters.planning.plans import Plans
from stackcast.jobs.adapters.runtime.engine import Engine, Shared
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.delivery.plan import Compilation
from stackcast.udfs.trees.header_stacks import HeaderStacks

log = logging.getLogger(__name__)


class PlanMetrics(Protocol):
    """Metrics of plans."""

    def planned(self, compilation: Compilation, seconds: float) -> None:
        """Count a plan, which took this time."""

    def stacks_unknown(self, number: int) -> None:
        """Set the number of receiver sets whose header stacks are not known yet."""


class StreamPlan:
    """Makes plans, and adds header stacks to them as these become known. For one thread.

    Args:
        engine: runs the tasks, with the threads and the clock of the driver.
        slots: number of tasks that run at the same time.
        tables: tables of the stream.
        publisher: publisher of the stream.
        plans: makes plans for versions of the tables.
        metrics: metrics of plans.
        rejections: see `PlanTables`.
    """

    def __init__(
        self,
        engine: Engine,
        slots: int,
        tables: Tables,
        publisher: str,
        plans: Plans,
        metrics: PlanMetrics,
        rejections: bool = True,
    ) -> None:
        self._clock = engine.clock
        self._plans = plans
        self._metrics = metrics
        self._stacks = StackJobs(engine, slots, tables, publisher)
        self._tables = PlanTables(tables, publisher, rejections, engine)

    def make(self, versions: Mapping[str, int]) -> Compilation:
        """Return the plan of these versions.

        Raises:
            StackcastError: see `Plans.at`. In this case, nothing has changed.
        """
        start = self._clock.monotonic()
        compilation, subscriptions, network = self._plans.at(versions)
        seconds = self._clock.monotonic() - start
        self._metrics.planned(compilation, seconds)
        for rejection in compilation.rejections:
            log.warning(
                "subscriptions@%d: rule %s is not live: %s %s",
                versions["subscriptions"],
                rejection.id,
                rejection.code,
                rejection.message,
            )
        log.info(
            "plan of %s: %d rules, %d rejected, %d entries, %d leaves, %d terms in the indexes, "
            "header stacks of %d receiver sets to compute, in %.2f s",
            named(versions),
            len(compilation.rules),
            len(compilation.rejections),
            len(compilation.filter.diagram.entries),
            len(compilation.receivers),
            sum(index.terms for index in compilation.filter.indexes),
            len(compilation.receiver_sets) - compilation.shipped,
            seconds,
        )
        self._stacks.submit(compilation)
        self._tables.submit(compilation, subscriptions, network)
        return compilation

    def await_stacks(self, seconds: float, given_up: Callable[[], bool]) -> None:
        """Wait for the header stacks of the newest plan; see `StackJobs.await_known`."""
        self._stacks.await_known(seconds, given_up)

    def with_known(self, compilation: Compilation) -> Compilation:
        """Return the plan with the header stacks that have become known, or the plan itself.

        A new plan must be sent to all executors. So there is one when all stacks are known, and
        before that each time their number has doubled.
        """
        shipped, sets = compilation.shipped, len(compilation.receiver_sets)
        computed = sets if shipped == sets else sets - len(compilation.unknown())
        self._metrics.stacks_unknown(sets - computed)
        if shipped == sets or (computed < sets and computed < 2 * max(1, shipped)):
            return compilation
        return compilation.with_known()

    def stacks(self, compilation: Compilation) -> Shared[HeaderStacks]:
        """Return the header stacks of a plan, as tasks get them."""
        return self._stacks.handle(compilation)

    def used(self, compilation: Compilation, routes: Sequence[tuple[int, tuple[str, ...]]]) -> None:
        """Add pairs of publisher and receiver set that a batch has used first.

        There are none if the stream has one publisher.
        """
        if routes:
            self._stacks.used(compilation, routes)

    def close(self) -> None:
        """Wait for stacks and tables that are still being written."""
        self._stacks.close()
        self._tables.close()
