"""The record of a batch: state of rules, dead letters, summary progress, ledger and statistics."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from stackcast.jobs.adapters.app.logs import named
from stackcast.jobs.adapters.checkpoint.journal import Journal
from stackcast.jobs.adapters.checkpoint.reports import Report, Rows, writer_of
from stackcast.jobs.adapters.checkpoint.state import CarriedState
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock, utc
from stackcast.jobs.adapters.stream.dead_letters import DeadLetters
from stackcast.jobs.adapters.stream.metrics import StreamMetrics
from stackcast.jobs.adapters.stream.plan_keeper import LivePlan, PlanKeeper
from stackcast.jobs.adapters.stream.report import BatchReport, Reach
from stackcast.jobs.adapters.stream.summary_ledger import SummaryLedger
from stackcast.jobs.adapters.stream.truncation import Leaders
from stackcast.jobs.adapters.tables.tables import DELIVERIES, LEDGER, PUBLICATIONS
from stackcast.jobs.adapters.tables.writers import Fence
from stackcast.udfs.delivery.plan import Compilation
from stackcast.udfs.messages.sequence import Topic

log = logging.getLogger(__name__)


class Start(NamedTuple):
    """Beginning of a batch.

    Attributes:
        time: wall time, in UTC.
        monotonic: the same moment on the monotonic clock, in seconds.
    """

    time: dt.datetime
    monotonic: float

    @classmethod
    def now(cls, clock: Clock = SYSTEM_CLOCK) -> Start:
        """Return the current time."""
        return cls(utc(clock), clock.monotonic())


class BatchResult(NamedTuple):
    """A batch whose frames have been sent, and which is not recorded yet.

    Attributes:
        batch_id: number of the batch.
        compilation: its plan.
        report: report of its tasks.
        final_state: by partition, the state of rules after the batch; None if rules keep none.
        started: time of its beginning.
        seconds: its duration.
    """

    batch_id: int
    compilation: Compilation
    report: BatchReport
    final_state: dict[int, bytes] | None
    started: dt.datetime
    seconds: float

    @property
    def ends(self) -> dict[int, int]:
        """By partition, the offset after the last record of the batch."""
        return {row["partition"]: row["until_offset"] for row in self.report.partitions}


class BatchRecorder:
    """Evaluates the reports of tasks, and records finished batches.

    Args:
        writer: id of the query, which names the writer of its batches.
        topic: topic of the stream.
        publisher: publisher of the topic.
        shaping: settings that shape the bytes of frames.
        fence: fails if another stream has taken over.
        state: state of rules.
        dead_letters: destination of dead letters.
        journal: writes ledger and statistics.
        summaries: progress of summaries.
        leaders: leaders of the topic.
        plans: plans of the stream.
        metrics: metrics of the stream.
        clock: clock of the driver.
    """

    def __init__(
        self,
        writer: str,
        topic: Topic,
        publisher: str,
        shaping: Mapping[str, str],
        fence: Fence,
        state: CarriedState,
        dead_letters: DeadLetters,
        journal: Journal,
        summaries: SummaryLedger,
        leaders: Leaders,
        plans: PlanKeeper,
        metrics: StreamMetrics,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._writer = writer_of(writer)
        self._topic = topic
        self._publisher = publisher
        self._shaping = dict(shaping)
        self._fence = fence
        self._state = state
        self._dead_letters = dead_letters
        self._journal = journal
        self._summaries = summaries
        self._leaders = leaders
        self._plans = plans
        self._metrics = metrics
        self._clock = clock
        self._reach: tuple[Compilation, Reach] | None = None
        self._processed: dict[int, int] = {}

    @property
    def processed(self) -> dict[int, int]:
        """By partition, the offset after the last record of the recorded batches."""
        return self._processed

    def start_from(self, offsets: Mapping[int, int]) -> None:
        """Set the offsets up to which earlier runs have recorded batches."""
        self._processed = dict(offsets)

    def wait_for_capacity(self) -> None:
        """Return when another batch may start; see `Journal.wait_for_capacity`."""
        self._journal.wait_for_capacity()

    def is_recorded(self, batch_id: int) -> bool:
        """Return True if a batch of this query is recorded completely."""
        return self._journal.recorded(self._writer, batch_id)

    def initial_state(self, plan: LivePlan, batch_id: int) -> dict[int, bytes]:
        """Return the state of rules before a batch, from the record of the batch before."""
        return {} if plan.compilation.plan.state is None else self._state.before(batch_id)

    def collect(
        self,
        batch_id: int,
        plan: LivePlan,
        initial_state: Mapping[int, bytes],
        rows: pa.Table,
        start: Start,
        epochs: Mapping[int, int],
    ) -> BatchResult:
        """Evaluate the reports of the tasks of a batch. The next batch begins where this one ends.

        Args:
            batch_id: number of the batch.
            plan: its plan.
            initial_state: state of rules before it.
            rows: rows of the reports.
            start: its beginning.
            epochs: by partition, the epoch of the leader from which it was read.

        Raises:
            StreamError: PARTITION_SPLIT.
        """
        compilation = plan.compilation
        report = BatchReport(rows, self._reach_of(compilation))
        state, final_state = compilation.plan.state, None
        if state is not None:
            final_state = self._state.merged(initial_state, report.states, state.identities)
        self._leaders.note_epochs(epochs)
        for row in report.partitions:
            row["leader_epoch"] = self._leaders.epochs.get(row["partition"])
        seconds = self._clock.monotonic() - start.monotonic
        result = BatchResult(batch_id, compilation, report, final_state, start.time, seconds)
        self._summaries.advance(result.ends, report.summaries)
        return result

    def record(self, result: BatchResult) -> None:
        """Make the results of a batch durable. The batch is then complete.

        Raises:
            TableError: FENCED, if another process has taken over the checkpoint.
            StreamError: a file of the checkpoint could not be written.
        """
        self._fence.check_owner()
        stage, report, batch_id = self._metrics.stage, result.report, result.batch_id
        if result.final_state is not None:
            with stage("state"):
                self._state.put(batch_id, result.final_state)
        with stage("dead_letters"):
            self._dead_letters.put(batch_id, result.compilation, report)
        self._summaries.record(batch_id, report.summaries)
        with stage("journal"):
            self._journal.put(self._report(result))
        self._metrics.delivered(report, result.compilation.versions)
        self._plans.used(result.compilation, report.new_routes())
        self._processed = self._processed | result.ends
        self._metrics.processed(self._processed)
        log.info(
            "batch %d: %d packets, %d messages, %d matched, %d frames, %d dead letters "
            "in %.2f s; %s; offsets %s",
            batch_id,
            report.total("packets"),
            report.total("messages"),
            report.total("matched"),
            report.total("frames"),
            report.dead_letters,
            result.seconds,
            named(result.compilation.versions),
            ", ".join(
                f"{p['partition']}: {p['from_offset']} to {p['until_offset']}"
                for p in report.partitions
            ),
        )

    def record_resumption(
        self, batch_id: int, begins: Mapping[int, int], versions: Mapping[str, int]
    ) -> None:
        """Record a batch that has read nothing, at which a new generation of the topic begins.

        Args:
            batch_id: number of the batch.
            begins: by partition, the offset at which the generation begins.
            versions: versions of the tables.
        """
        self._state.put(batch_id, self._state.before(batch_id))
        # An interrupted attempt sent its summaries in the sessions before.
        self._summaries.record_complete(batch_id)
        epochs = self._leaders.epochs
        none = dict.fromkeys(("first_sequence", "last_sequence"))
        partitions = [
            {"partition": p, "from_offset": offset, "until_offset": offset, "records": 0, **none}
            | {"leader_epoch": epochs.get(p), "ingress": None}
            for p, offset in sorted(begins.items())
        ]
        counts = ("packets", "messages", "matched", "frames", "bytes", "dead_letters")
        row = self._ledger_row(versions) | dict.fromkeys(counts, 0)
        row |= {
            "batch_id": batch_id,
            "started_at": utc(self._clock),
            "seconds": 0.0,
            "settings": self._shaping,
        }
        rows = {LEDGER: Rows(1, row, {"partitions": [partitions]})}
        self._journal.put(Report(self._writer, batch_id, rows))

    def _reach_of(self, compilation: Compilation) -> Reach:
        if self._reach is None or self._reach[0] is not compilation:
            publishers, sets = compilation.plan.publishers, compilation.receiver_sets
            self._reach = compilation, Reach(compilation.reached, publishers, sets)
        return self._reach[1]

    def _report(self, result: BatchResult) -> Report:
        """Return the rows of a batch for ledger and statistics."""
        report = result.report
        ledger = self._ledger_row(result.compilation.versions) | {
            "packets": report.total("packets"),
            "messages": report.total("messages"),
            "matched": report.total("matched"),
            "frames": report.total("frames"),
            "bytes": report.total("bytes"),
            "dead_letters": report.dead_letters,
            "started_at": result.started,
            "seconds": result.seconds,
            "settings": self._shaping,
        }
        statistics: dict[str, Any] = {"recorded_at": utc(self._clock)}
        if result.compilation.plan.publishers is None:
            # Otherwise it is a column.
            statistics["publisher"] = self._publisher
        batch = {"batch_id": result.batch_id}
        subscribers, publications = report.subscriber_columns, report.publication_columns
        tables = {
            DELIVERIES: Rows(len(subscribers["subscriber"]), batch | statistics, subscribers),
            PUBLICATIONS: Rows(len(publications["receivers"]), batch | statistics, publications),
            LEDGER: Rows(1, batch | ledger, {"partitions": [report.partitions]}),
        }
        return Report(self._writer, result.batch_id, tables)

    def _ledger_row(self, versions: Mapping[str, int]) -> dict[str, Any]:
        """Return the columns of the ledger for topic and tables."""
        return {
            "topic": self._topic.name,
            "topic_id": self._topic.id,
            "generation": self._topic.generation,
            "versions": dict(versions),
        }
