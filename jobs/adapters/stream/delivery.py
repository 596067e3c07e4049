"""Delivery of batches: builds the tasks of a batch, and holds the owners of plans, summaries and
records.

Micro-batches (`stackcast.jobs.adapters.stream.micro_batches`) and slices
(`stackcast.jobs.adapters.stream.slices`) use the same delivery.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Protocol

import pyarrow as pa

from stackcast.jobs.adapters.checkpoint.pins import Pin, Pins
from stackcast.jobs.adapters.runtime.engine import Engine
from stackcast.jobs.adapters.stream.batch_recorder import BatchRecorder
from stackcast.jobs.adapters.stream.input import Records, WithoutRecords
from stackcast.jobs.adapters.stream.metrics import StreamMetrics
from stackcast.jobs.adapters.stream.plan_keeper import LivePlan, PlanKeeper
from stackcast.jobs.adapters.stream.report import BatchReport
from stackcast.jobs.adapters.stream.summary_ledger import SummaryLedger
from stackcast.jobs.adapters.stream.truncation import Leaders
from stackcast.jobs.adapters.tables.writers import Fence
from stackcast.udfs.delivery.deliver import REPORT, Source, Work, deliver
from stackcast.udfs.delivery.sink import Opener
from stackcast.udfs.delivery.summary_progress import SummaryAssignment, SummaryProgress
from stackcast.udfs.errors import StackcastError
from stackcast.udfs.messages.sequence import Topic


class EndingBatch(Protocol):
    """The batch in progress of a stream that was asked to stop."""

    def check(self) -> StackcastError | None:
        """Return why the batch cannot end, or None."""


class BatchDelivery:
    """The parts of a running stream. The caller must close it.

    Args:
        topic: topic of the stream, with the generation of its sessions.
        fence: fails if another stream has taken over.
        engine: runs the tasks.
        open_sink: opens the sink of a task.
        samples: maximum number of dead letters that a task reports with their bytes.
        shaping: settings that shape the bytes of frames.
        pins: pins of batches.
        plans: plans of the stream.
        summaries: progress of summaries.
        recorder: records batches.
        leaders: leaders of the topic.
        metrics: metrics of the stream.
        last_batch: finds out whether the batch in progress can still end, after a stop.
        ending: closed by `close`.
    """

    def __init__(
        self,
        topic: Topic,
        fence: Fence,
        engine: Engine,
        open_sink: Opener,
        samples: int,
        shaping: Mapping[str, str],
        pins: Pins,
        plans: PlanKeeper,
        summaries: SummaryLedger,
        recorder: BatchRecorder,
        leaders: Leaders,
        metrics: StreamMetrics,
        last_batch: EndingBatch,
        ending: ExitStack,
    ) -> None:
        self.topic = topic
        self.fence = fence
        self.engine = engine
        self.pins = pins
        self.plans = plans
        self.summaries = summaries
        self.recorder = recorder
        self.leaders = leaders
        self.metrics = metrics
        self.last_batch = last_batch
        self._open_sink = open_sink
        self._samples = samples
        self._shaping = dict(shaping)
        self._ending = ending

    def new_pin(
        self,
        plan: LivePlan,
        everyone: bool = True,
        until: Mapping[int, int] | None = None,
        ahead: bool = False,
    ) -> Pin:
        """Return the pin of the next batch, with the current progress of summaries and leaders.

        Args:
            plan: plan of the batch.
            everyone: whether it sends summaries to all hosts.
            until: by partition, the offset up to which its tasks may read; empty if it was planned.
            ahead: whether the previous batch still runs.
        """
        return Pin(
            *(plan.versions, self._shaping, self.summaries.progress, dict(until or {})),
            *(everyone, ahead, dict(self.leaders.epochs)),
        )

    def work(
        self,
        plan: LivePlan,
        initial_state: Mapping[int, bytes],
        assignment: SummaryAssignment,
        flush_each_batch: bool = False,
    ) -> Callable[[Source], Work]:
        """Return the work of the tasks of a batch, given the source of their records.

        Args:
            plan: plan of the batch.
            initial_state: by partition, the state of rules before the batch.
            assignment: summaries to send.
            flush_each_batch: see `stackcast.udfs.delivery.deliver.deliver`.

        Raises:
            TableError: FENCED, if another stream has taken over.
        """
        self.fence.check()
        return partial(
            deliver,
            *(plan.plan, plan.stacks, self.topic, self._open_sink, self._samples),
            *(initial_state, assignment),
            flush_each_batch=flush_each_batch,
            freeze=True,
        )

    def deliver(
        self,
        plan: LivePlan,
        initial_state: Mapping[int, bytes],
        records: Records,
        everyone: bool,
    ) -> pa.Table:
        """Run tasks that deliver records, and return the rows of their reports.

        Args:
            plan: plan of the batch.
            initial_state: by partition, the state of rules before the batch.
            records: records of the batch.
            everyone: whether to send summaries to all hosts.
        """
        work = self.work(plan, initial_state, self.summaries.assignment(everyone))
        return records.through(work, REPORT)

    def flush_summaries(self) -> None:
        """Send summaries to the hosts without one, while no batch runs."""
        self.summaries.flush(self._send_summaries)

    def before_close(self, call: Callable[[], object]) -> None:
        """Add a call to the beginning of `close`."""
        self._ending.callback(call)

    def close(self) -> None:
        """Stop the stream, and return after everything has been written."""
        self._ending.close()

    def _send_summaries(
        self, partitions: Sequence[int], assignment: SummaryAssignment
    ) -> Mapping[int, SummaryProgress]:
        plan = self.plans.current_plan
        assert plan is not None
        work = self.work(plan, {}, assignment)
        rows = WithoutRecords(self.engine, partitions).through(work, REPORT)
        return BatchReport(rows, ()).summaries
