"""Micro-batches: the function that is called for each batch of a ``StreamingQuery``."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.logs import named
from stackcast.jobs.adapters.checkpoint.pins import Pin
from stackcast.jobs.adapters.checkpoint.progress import Position, Progress
from stackcast.jobs.adapters.stream.admission import Admission
from stackcast.jobs.adapters.stream.batch_recorder import Start
from stackcast.jobs.adapters.stream.delivery import BatchDelivery
from stackcast.jobs.adapters.stream.input import Records
from stackcast.jobs.adapters.stream.new_attributes import NewAttributes
from stackcast.jobs.adapters.stream.plan_keeper import LivePlan
from stackcast.udfs.stop_request import StopAsked

log = logging.getLogger(__name__)


class BatchQuery(Protocol):
    """The query to which a batch in progress belongs."""

    def count(self, records: int) -> None:
        """Add records to the progress report of the batch."""

    def limit_next(self, records: int) -> None:
        """Set the maximum number of records of the next batch."""


class MicroBatches:
    """Delivers micro-batches.

    Args:
        delivery: delivery of the stream.
        progress: progress of the checkpoint.
        new_attributes: registers names without an id.
        admission: limits the next batch.
        read_position: returns the position of the checkpoint.
        running_query: returns the query, while a batch runs.
        interrupted: returns True if Ctrl-C cuts off the batch in progress.
    """

    def __init__(
        self,
        delivery: BatchDelivery,
        progress: Progress,
        new_attributes: NewAttributes,
        admission: Admission,
        read_position: Callable[[], Position | None],
        running_query: Callable[[], BatchQuery],
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._delivery = delivery
        self._progress = progress
        self._new_attributes = new_attributes
        self._admission = admission
        self._read_position = read_position
        self._open_query = running_query
        self._query: BatchQuery | None = None
        self._interrupted = interrupted
        self._is_first = True
        self._planner = delivery.engine.worker("offsets")

    def process(self, read: Callable[[], Records], batch_id: int) -> None:
        """Deliver one micro-batch.

        If rules keep state and Spark has split a partition, this is found only when the tasks
        report, after their frames have been sent (StreamError PARTITION_SPLIT), and each further
        attempt sends them again. It cannot be found earlier: a task does not know the others,
        offsets of a partition may have gaps, and idle partitions have no task. No setting leads
        there, only options of the source, and `Topics.stream` sets none of these.

        Args:
            read: returns the records of the batch.
            batch_id: number of the batch.
        """
        plans = self._delivery.plans
        try:
            with self._delivery.metrics.batch(batch_id), plans.exclusive:
                self._process(read, batch_id)
        except Exception as error:
            if self._interrupted():
                raise StopAsked from None
            plan = plans.current_plan
            versions = "no plan" if plan is None else named(plan.versions)
            log.error("batch %d with %s failed: %s", batch_id, versions, one_line(error))
            raise

    def flush_overdue_summaries(self) -> None:
        """Send overdue summaries, unless a batch runs."""
        delivery = self._delivery
        if not delivery.summaries.is_overdue():
            return
        if delivery.plans.exclusive.acquire(blocking=False):
            try:
                delivery.flush_summaries()
            finally:
                delivery.plans.exclusive.release()

    def close(self) -> None:
        """Return after background work has ended."""
        self._planner.close()

    def _process(self, read: Callable[[], Records], batch_id: int) -> None:
        delivery, stage = self._delivery, self._delivery.metrics.stage
        start = Start.now(delivery.engine.clock)
        with stage("capacity"):
            delivery.recorder.wait_for_capacity()
        if self._is_first:
            delivery.leaders.restore()
        # Spark has not made the end of the batch durable yet, but it must be durable before the
        # first frame is sent.
        planned = self._planner.submit(self._finish_plan, batch_id)
        records = read()
        pin = self._pin(batch_id, records, planned)
        records.planned(pin.epochs)
        plan = delivery.plans.with_known_stacks()
        with stage("state"):
            state = delivery.recorder.initial_state(plan, batch_id)
        with stage("deliver"):
            rows = delivery.deliver(plan, state, records, pin.everyone)
        epochs = records.epochs
        with stage("report"):
            result = delivery.recorder.collect(batch_id, plan, state, rows, start, epochs)
        delivery.leaders.check(result.ends, pin.epochs, epochs)
        delivery.recorder.record(result)
        self._update_query(result.report.total("packets"), result.report.total("read_bytes"))

    def _finish_plan(self, batch_id: int) -> None:
        """Make the end of a batch durable, and look up the leaders from which it will be read.

        Raises:
            StreamError: LOG_TRUNCATED, if Kafka has truncated the log since the previous batch.
        """
        self._progress.sync(batch_id)
        self._delivery.leaders.look_up(self._delivery.recorder.processed)

    def _pin(self, batch_id: int, records: Records, planned: Future[None]) -> Pin:
        """Make the plan of a batch: that of its earlier attempt, or of the current tables.

        Args:
            batch_id: number of the batch.
            records: records of the batch.
            planned: complete when the end of the batch is durable.

        Returns:
            The pin of the batch, which is recorded.
        """
        delivery = self._delivery
        pin = delivery.pins.get(batch_id) if self._is_first else None
        if pin is not None:
            delivery.summaries.restore_before(batch_id, pin)
            delivery.plans.restore(batch_id, pin)
            self._is_first = False
            planned.result()
            position = self._read_position()
            if position is not None and position.planned is not None:
                delivery.leaders.check(position.planned, pin.epochs, {})
            return pin
        with delivery.metrics.stage("input"):
            self._new_attributes.register(records, batch_id)
        plan: LivePlan = delivery.plans.take_newest()
        with delivery.metrics.stage("pin"):
            if self._is_first:
                delivery.summaries.restore()
                self._is_first = False
            everyone = delivery.summaries.take_turn()
            planned.result()
            pin = delivery.new_pin(plan, everyone)
            delivery.pins.put(batch_id, pin)
        return pin

    def _update_query(self, records: int, size: int) -> None:
        """Report the size of a batch to its query, and limit the next batch by it.

        Args:
            records: number of records.
            size: bytes of their values.
        """
        if self._query is None:
            self._query = self._open_query()
        self._query.count(records)
        if self._admission.adapt(records, size):
            self._query.limit_next(self._admission.records)
