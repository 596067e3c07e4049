"""The plan that a stream delivers by, made from versions of the tables, with all that hangs on it.

The one place for micro-batches and for real time: each new plan is logged, its header stacks are
worked out beside the stream, and the tables that explain it are written.
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
    """Takes what Prometheus is told of plans."""

    def planned(self, compilation: Compilation, seconds: float) -> None: ...
    def stacks_unknown(self, number: int) -> None: ...


class StreamPlan:
    """Makes plans by `make`, and ships them again by `with_known` as their stacks get known.

    For one thread. Call `close` at the end: it waits for what is still being written. rejections:
    as of `PlanTables`.
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
        """Returns the plan of these versions. Raises as `Plans.at`; nothing has changed then."""
        clock = self._clock.monotonic()
        compilation, subscriptions, network = self._plans.at(versions)
        seconds = self._clock.monotonic() - clock
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
        """Wait until the newest plan's header stacks are known; see `StackJobs.await_known`."""
        self._stacks.await_known(seconds, given_up)

    def with_known(self, compilation: Compilation) -> Compilation:
        """Returns the plan with the stacks that were worked out since, if that is worth sending.

        It is when all are known, and on the way there as often as they have doubled; else it
        returns the plan that it was given.
        """
        shipped, sets = compilation.shipped, len(compilation.receiver_sets)
        known = sets if shipped == sets else sets - len(compilation.unknown())
        self._metrics.stacks_unknown(sets - known)
        if shipped == sets or (known < sets and known < 2 * max(1, shipped)):
            return compilation
        return compilation.with_known()

    def stacks(self, compilation: Compilation) -> Shared[HeaderStacks]:
        """Returns the plan's header stacks as workers take them."""
        return self._stacks.handle(compilation)

    def used(self, compilation: Compilation, routes: Sequence[tuple[int, tuple[str, ...]]]) -> None:
        """Notes pairs of publisher and receiver set that events have brought into use, where there
        are several publishers."""
        if routes:
            self._stacks.used(compilation, routes)

    def close(self) -> None:
        """Waits for stacks and tables that are still being written."""
        self._stacks.close()
        self._tables.close()
