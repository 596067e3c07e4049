"""The plan of a real-time stream: made beside it whenever the tables change, and handed to workers.

Nobody waits for a batch: a thread looks at the tables some times a second.
"""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from jobs.adapters.app.error_texts import SQL_ERRORS, one_line
from jobs.adapters.app.settings import PREFIX, Settings
from jobs.adapters.planning import formats
from jobs.adapters.planning.plans import Planned, Plans
from jobs.adapters.planning.stream_plan import StreamPlan
from jobs.adapters.planning.versions import BatchVersions
from jobs.adapters.stream.metrics import StreamMetrics
from jobs.adapters.tables.tables import Tables
from udfs.delivery.plan import Compilation
from udfs.errors import StackcastError, SubscriptionError
from udfs.filters.meaning.evaluate import is_stateful
from udfs.filters.subscriptions import CheckedRule, Rejection, Subscription
from udfs.trees.header_stacks import Receivers

log = logging.getLogger(__name__)

#: Between two looks at the tables.
POLL_SECONDS = 0.2
#: After a look that failed for want of Spark or a disk.
AGAIN_SECONDS = 2.0
#: Plans that reports may still be about.
_REMEMBERED = 16


@dataclass(frozen=True)
class Served:
    """A plan as it goes to workers: pickled once."""

    number: int
    compilation: Compilation
    plan: bytes
    stacks_number: int
    stacks: bytes


class Reported(NamedTuple):
    """Things that reports of a plan are read with: its versions, and by delivery whom its stacks
    reach."""

    versions: Mapping[str, int]
    reached: Sequence[Sequence[Receivers] | None]


class RealTimePlans:
    """Keeps ``served`` up to date from `start` to `close`.

    `start` makes the first plan, and raises StackcastError where the tables cannot be used; later
    ones that cannot leave the last good plan where it is.
    """

    def __init__(
        self, spark: SparkSession, settings: Settings, tables: Tables, metrics: StreamMetrics
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._versions = BatchVersions(tables, settings.topic, formats.sources(settings))
        plans = StatelessPlans(settings, tables)
        self._live = StreamPlan(spark, tables, settings.publisher, plans, metrics)
        self._seen: Mapping[str, int] = {}
        self._pickled_stacks: tuple[Any, int, bytes] | None = None
        self._reported: dict[int, Reported] = {}
        self._served: Served | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="plans", daemon=True)

    @property
    def served(self) -> Served:
        """The newest plan; after `start`."""
        assert self._served is not None
        return self._served

    def reported(self, number: int) -> Reported | None:
        """Returns what reports of this plan are read with; None where it is long gone."""
        return self._reported.get(number)

    def start(self, announce: bool) -> None:
        """Make the first plan, then watch. ``announce``: nobody knows of the stream yet."""
        versions = self._versions.poll()
        if announce:
            self._versions.announce(versions)
            # Of what is ready by now, nothing may leave the switches from here on.
            versions = self._versions.poll()
        self._serve(self._live.make(versions))
        self._seen = versions
        self._thread.start()

    def close(self) -> None:
        """End the watch; waits for tables that are still being written."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        self._live.close()

    def _watch(self) -> None:
        pause = POLL_SECONDS
        while not self._closing.wait(pause):
            pause = POLL_SECONDS
            try:
                self._poll()
            except SQL_ERRORS as error:
                log.error("the tables cannot be looked at: %s", one_line(error))
                pause = AGAIN_SECONDS
            except Exception:
                log.exception("the tables cannot be looked at")
                pause = AGAIN_SECONDS

    def _poll(self) -> None:
        versions = self._versions.poll()
        if versions != self._seen:
            self._metrics.pending(time.monotonic())
            try:
                self._serve(self._live.make(versions))
                self._metrics.pending(None)
            except StackcastError as error:
                # The last good version stays live.
                log.error(
                    "the changed tables cannot be used, the last good ones stay live: %s", error
                )
                self._metrics.refused(versions)
                self._metrics.pending(None)
            self._seen = versions
        else:
            self._with_known()

    def _with_known(self) -> None:
        """Serves the plan anew as its header stacks get known."""
        compilation = self.served.compilation
        known = self._live.with_known(compilation)
        if known is not compilation:
            self._serve(known)

    def _serve(self, compilation: Compilation) -> None:
        stacks = compilation.header_stacks
        if self._pickled_stacks is None or self._pickled_stacks[0] is not stacks:
            number = 0 if self._pickled_stacks is None else self._pickled_stacks[1] + 1
            self._pickled_stacks = stacks, number, pickle.dumps(stacks)
        number = 0 if self._served is None else self._served.number + 1
        self._reported[number] = Reported(compilation.versions, compilation.reached)
        self._reported.pop(number - _REMEMBERED, None)
        self._served = Served(
            number, compilation, pickle.dumps(compilation.plan), *self._pickled_stacks[1:]
        )


class StatelessPlans(Plans):
    """Plans of rules that keep no state; those that do are rejected, and the others are live.

    State is carried from micro-batch to micro-batch, and a real-time stream has none.
    """

    def __init__(self, settings: Settings, tables: Tables) -> None:
        super().__init__(settings, tables)
        self._stateful: set[Subscription] = set()

    def at(self, versions: Mapping[str, int]) -> Planned:
        """As of `Plans`; rejections may be SUBSCRIPTION.STATE_IN_REALTIME."""
        planned = super().at(versions)
        if planned.compilation.plan.state is None:
            return planned
        found = {rule.id for rule in planned.compilation.rules if keeps_state(rule)}
        self._stateful |= {row for row in planned.subscriptions if row.id in found}
        return super().at(versions)

    def _subscriptions(self, version: int) -> tuple[list[Subscription], list[Rejection]]:
        rows, rejected = super()._subscriptions(version)
        if not self._stateful:
            return rows, rejected
        refused = [_refusal(row.id) for row in rows if row in self._stateful]
        return [row for row in rows if row not in self._stateful], rejected + refused


def keeps_state(rule: CheckedRule) -> bool:
    """Tells whether a rule reads or updates state."""
    return bool(rule.updates) or is_stateful(rule.condition)


def _refusal(name: str) -> Rejection:
    fault = SubscriptionError(
        "STATE_IN_REALTIME",
        "line 1, column 1: the rule keeps state, which is carried from micro-batch to micro-batch: "
        f"it is not live with {PREFIX}latency=realtime",
    )
    return Rejection(name, fault.code, 1, 1, fault.message)
