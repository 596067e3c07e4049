"""Real time: frames are sent as records arrive, in batches whose ends are not known in advance.

A batch is a *slice*: its tasks, one per partition, follow the topic for about a second, from where
the previous slice ended, and send each frame at once. A slice is recorded like any other batch,
while the next one runs. If all tasks run on one machine, the next slice is started *ahead*: its
tasks wait for the tasks of the previous slice, and begin where those stop.

    slice 7     pin ── tasks read ───────────┐ end
    record 7                                 └── plan, record, commit
    slice 8              pin ·· tasks wait ··┴── tasks read ─────────────┐ end
    record 8                                                             └── plan, record, commit

It is unknown which frames an interrupted slice has already sent. Its pin therefore contains how far
it may read, and the next start sends it again up to there; see
`stackcast.jobs.adapters.stream.recovery`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.settings import Settings, seconds_of
from stackcast.jobs.adapters.checkpoint.pins import Pin
from stackcast.jobs.adapters.checkpoint.progress import Position, Progress
from stackcast.jobs.adapters.kafka.handoffs import Handoffs
from stackcast.jobs.adapters.kafka.ranges import NO_EPOCH, Range, unreachable
from stackcast.jobs.adapters.kafka.record_source import RecordSource
from stackcast.jobs.adapters.kafka.slices import SliceSpec, TaskProgress
from stackcast.jobs.adapters.kafka.topic_log import TopicLog
from stackcast.jobs.adapters.runtime.threads import Poll
from stackcast.jobs.adapters.stream.batch_recorder import Start
from stackcast.jobs.adapters.stream.between_batches import BetweenBatches
from stackcast.jobs.adapters.stream.delivery import BatchDelivery
from stackcast.jobs.adapters.stream.input import lost_task
from stackcast.jobs.adapters.stream.plan_keeper import LivePlan
from stackcast.jobs.adapters.stream.progress_reports import ProgressReports
from stackcast.jobs.adapters.stream.slice_recorder import SliceRecorder
from stackcast.jobs.adapters.stream.tasks import SliceTask, unpacked
from stackcast.jobs.adapters.stream.truncation import Truncation
from stackcast.udfs.delivery.deliver import REPORT
from stackcast.udfs.errors import KafkaError

log = logging.getLogger(__name__)

#: Seconds before the end of a slice at which the next one is started, which takes a tenth of it.
AHEAD_SECONDS = 0.2
#: Seconds between two looks for new partitions of the topic.
PARTITION_SECONDS = 10.0


@dataclass
class Slice:
    """A slice that runs.

    Attributes:
        number: number of the batch.
        plan: its plan.
        initial_state: state of rules before it.
        spec: work of its tasks.
        everyone: whether it sends summaries to all hosts.
        results: results of its tasks.
        start: time from which on it may read.
        planning: seconds until its tasks started; 0 if the previous slice ran meanwhile.
    """

    number: int
    plan: LivePlan
    initial_state: Mapping[int, bytes]
    spec: SliceSpec
    everyone: bool
    results: Future[list[tuple[bytes, TaskProgress]]]
    start: Start
    planning: float = 0.0


class Slices:
    """A stream in real time. It has the members of Spark's ``StreamingQuery`` that jobs use.

    Args:
        settings: settings of the stream.
        topics: topics of the stream.
        delivery: delivery of the stream.
        progress: progress of the checkpoint.
        source: source from which tasks fetch records.
        patience: seconds for which a broker may be unreachable.
        handoffs: handoffs between the tasks of a machine.
        reports: progress reports of this run.
        recover: sends interrupted batches again, and returns the position of the next batch.
        local_tables: whether the tables are on this machine.
        stopping: returns True if the stream must end after the slice in progress.
    """

    def __init__(
        self,
        settings: Settings,
        topics: TopicLog,
        delivery: BatchDelivery,
        progress: Progress,
        source: RecordSource,
        patience: float,
        handoffs: Handoffs,
        reports: ProgressReports,
        recover: Callable[[], Position],
        local_tables: bool = True,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._topic = settings.topic
        self._maximum = settings.max_offsets_per_trigger
        self._seconds = seconds_of(settings.realtime_slice)
        self._topics = topics
        self._delivery = delivery
        self._plans = delivery.plans
        self._summaries = delivery.summaries
        self._batches = delivery.recorder
        self._leaders = delivery.leaders
        self._recorder = SliceRecorder(
            *(delivery.recorder, progress, reports, delivery.metrics, delivery.engine)
        )
        self._source = source
        self._patience = patience
        self._handoffs = handoffs
        self._reports = reports
        self._recover = recover
        self._local_tables = local_tables
        self._stopping = stopping
        self._engine = delivery.engine
        self._clock = delivery.engine.clock
        self._run_name, self._started_slices = uuid.uuid4().hex, 0
        #: Whether the last slice has read records, and how many seconds it took.
        self._has_records, self._duration = False, self._seconds
        #: Number of the next batch.
        self._number = 0
        #: By partition, the offset at which the next slice begins.
        self._offsets: dict[int, int] = {}
        #: By partition, the time since which its broker fails.
        self._failing: dict[int, float] = {}
        self._partitions: frozenset[int] = frozenset()
        #: State of rules after the last slice; None if it must be read from the checkpoint.
        self._final_state: dict[int, bytes] | None = None
        self._last_pin: tuple[int, Pin] | None = None
        #: Whether the last slice had no record, so that its pin is not needed.
        self._pin_unused = False
        self._error: BaseException | None = None
        self._closing = self._clock.event()
        self._poll: Poll | None = None
        #: Joining the thread is not enough: after Ctrl-C, Python considers it ended.
        self._ended = self._clock.event()

    def start(self) -> None:
        """Run slices in the background."""
        self._poll = self._engine.poll("slices", self._run)

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        """Whether slices run."""
        return self._poll is not None and not self._ended.is_set()

    @property
    def lastProgress(self) -> Mapping[str, Any] | None:  # noqa: N802 - Spark's name
        """The report of the last recorded slice; None before the first one."""
        return self._reports.last

    @property
    def recentProgress(self) -> list[Mapping[str, Any]]:  # noqa: N802 - Spark's name
        """The reports of the last slices, oldest first."""
        return self._reports.recent

    @property
    def status(self) -> dict[str, Any]:
        """The field ``isTriggerActive``, which is True while slices run."""
        return {"isTriggerActive": self.isActive}

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802 - Spark's name
        """Wait for the end of the stream, or some seconds, and return True if it has ended."""
        return self._ended.wait(timeout)

    def exception(self) -> BaseException | None:
        """Return the error that has ended the stream; None if there is none."""
        return self._error

    def stop(self) -> None:
        """End after the slice in progress."""
        self._closing.set()
        if self._poll is not None:
            self._ended.wait()

    def _run(self) -> None:
        metrics = self._delivery.metrics
        looks: BetweenBatches | None = None
        try:
            self._reports.started()
            position = self._recover()
            self._number, self._offsets = position.batch, dict(position.offsets)
            self._recorder.start_after(self._number - 1)
            plan = self._plans.current_plan
            assert plan is not None
            self._plans.activate(plan)
            looks = BetweenBatches(self._plans, self._engine, self._local_tables)
            # It ends by itself, because a look may wait for a broker, and a stop must not.
            self._engine.poll("partitions", self._look_for_partitions, PARTITION_SECONDS)
            running = None
            while running is not None or not self._is_ending():
                running = running or self._begin()
                following = self._begin_ahead(running)
                self._end(running, following)
                running = following
            self._recorder.await_records(0)
        except BaseException as error:
            log.error("batch %d failed: %s", self._number, one_line(error))
            metrics.failed(error)
            self._error = error
        finally:
            self._closing.set()
            self._engine.close()
            # Slices that have ended must be recorded.
            self._recorder.close()
            if self._pin_unused:
                # Otherwise the next start takes it for the pin of an interrupted slice.
                with suppress(OSError):
                    self._delivery.pins.remove(self._number)
            if looks is not None:
                looks.close()
            self._reports.terminated(self._error)
            self._ended.set()

    def _is_ending(self) -> bool:
        return self._closing.is_set() or self._stopping()

    def _begin(self) -> Slice:
        """Start a slice where the last one ended."""
        planned_from, plan = self._clock.monotonic(), self._plans.current_plan
        assert plan is not None
        self._recorder.await_records(1)
        self._batches.wait_for_capacity()
        if new := self._partitions - self._offsets.keys():
            log.info("topic %s has new partitions: %s", self._topic, sorted(new))
            self._offsets = dict.fromkeys(new, 0) | self._offsets
            self._leaders.look_up({})
        share, epochs = self._share(), self._leaders.epochs
        ranges = [
            Range(self._topic, p, offset, offset + share, epochs.get(p, NO_EPOCH))
            for p, offset in sorted(self._offsets.items())
        ]
        pin = self._new_pin(plan, ranges)
        self._write_pin(self._number, pin)
        self._plans.activate(plan)
        state: Mapping[int, bytes] = {}
        if plan.compilation.plan.state is not None:
            final_state = self._final_state
            if final_state is None:
                state = self._batches.initial_state(plan, self._number)
            else:
                state = final_state
        started = self._start(self._number, plan, state, ranges, pin.everyone)
        started.planning = started.start.monotonic - planned_from
        self._delivery.metrics.began(self._number)
        return started

    def _begin_ahead(self, running: Slice) -> Slice | None:
        """Start the next slice shortly before the end of the one that runs, if that is possible.

        Everything that its tasks need must be known: they have the same plan, rules keep no state,
        and the handoffs of the running tasks are on the same machine. Without records in the last
        slice, there may be nothing to read.
        """
        stateful = running.plan.compilation.plan.state is not None
        if stateful or not self._has_records or not self._engine.single_host():
            return None
        due = running.start.monotonic + self._duration - AHEAD_SECONDS
        # A slice with its maximum of records ends earlier.
        if self._engine.wait([running.results], max(0.0, due - self._clock.monotonic())):
            return None
        if not self._recorder.complete_before(running.results):
            return None
        new = self._partitions - self._offsets.keys()
        if self._plans.current_plan is not running.plan or new or self._is_ending():
            return None
        share, number = self._share(), running.number + 1
        ranges = [
            each._replace(until=self._offsets[each.partition] + 2 * share)
            for each in running.spec.ranges
        ]
        pin = self._new_pin(running.plan, ranges, ahead=True)
        self._write_pin(number, pin)
        return self._start(number, running.plan, {}, ranges, pin.everyone, share)

    def _start(
        self,
        number: int,
        plan: LivePlan,
        initial_state: Mapping[int, bytes],
        ranges: list[Range],
        everyone: bool,
        share: int | None = None,
    ) -> Slice:
        self._started_slices += 1
        spec = SliceSpec(self._run_name, self._started_slices, ranges, self._seconds, share)
        assignment = self._summaries.assignment(everyone)
        work = self._delivery.work(plan, initial_state, assignment, flush_each_batch=True)
        task = SliceTask(spec, self._source, self._handoffs, work, REPORT)
        results = self._engine.submit(task, len(ranges))
        start = Start.now(self._clock)
        return Slice(number, plan, initial_state, spec, everyone, results, start)

    def _end(self, running: Slice, following: Slice | None) -> None:
        """Wait for the end of a slice, and start to record it.

        A slice without records is not recorded, unless the next one has begun. Its number is then
        used again.
        """
        results = running.results.result()
        elapsed = self._clock.monotonic() - running.start.monotonic
        self._duration = min(running.spec.seconds, elapsed)
        if following is not None:
            following.start = Start.now(self._clock)
        epochs: dict[int, int] = {}
        truncated: dict[int, int] = {}
        failure: KafkaError | None = None
        for requested, (_, progress) in zip(running.spec.ranges, results, strict=True):
            p = requested.partition
            moved = running.spec.ahead and progress.first not in (None, self._offsets[p])
            if progress.lost or moved:
                raise lost_task(requested.topic, p)
            if progress.truncated is not None:
                truncated[p] = progress.truncated
            if progress.first is not None:
                self._offsets[p] = progress.offset
                epochs[p] = progress.epoch
            failure = self._failure_of(requested, progress.failure) or failure
        rows = unpacked((report for report, _ in results), REPORT)
        result = self._batches.collect(
            *(running.number, running.plan, running.initial_state, rows, running.start, epochs)
        )
        self._has_records = bool(result.report.partitions)
        if running.everyone and not result.report.summaries:
            self._summaries.pass_turn()
        if following is None:
            self._delivery.metrics.ended()
        else:
            self._delivery.metrics.began(following.number)
        if self._has_records or following is not None:
            self._final_state = result.final_state or {}
            stages = {
                "plan": running.planning,
                "deliver": elapsed,
                "report": result.seconds - elapsed,
            }
            self._recorder.submit(result, dict(self._offsets), stages)
            self._number += 1
        else:
            self._pin_unused = True
            self._reports.idle()
        # The records of this slice are recorded first, so that the next start knows them.
        if truncated:
            self._recorder.await_records(0)
            raise Truncation(self._topic, dict(self._offsets), truncated).error()
        if failure is not None:
            self._recorder.await_records(0)
            raise failure

    def _share(self) -> int:
        """Return the maximum number of records of a partition in a slice."""
        return max(1, self._maximum // max(1, len(self._offsets)))

    def _new_pin(self, plan: LivePlan, ranges: Iterable[Range], ahead: bool = False) -> Pin:
        until = {each.partition: each.until for each in ranges}
        everyone = self._summaries.take_turn(self._seconds)
        return self._delivery.new_pin(plan, everyone, until, ahead)

    def _write_pin(self, number: int, pin: Pin) -> None:
        """Make a pin durable before the first frame of its slice.

        Before a slice with other versions, all earlier slices must be recorded: after a crash,
        everything that is sent again is sent by one pin.
        """
        last, self._pin_unused = self._last_pin, False
        if last == (number, pin):
            return
        if last is not None and last[1].versions != pin.versions:
            self._recorder.await_records(0)
        if last is not None and last[0] == number:
            # Nothing was read by it.
            self._delivery.pins.remove(number)
        self._delivery.pins.put(number, pin)
        self._last_pin = number, pin

    def _failure_of(self, requested: Range, failure: str) -> KafkaError | None:
        """Return the error BROKER_UNREACHABLE if a partition returns no records for too long."""
        partition = requested.partition
        if not failure:
            self._failing.pop(partition, None)
            return None
        if partition not in self._failing:
            log.warning("partition %d of %s: %s", partition, requested.topic, failure)
            self._failing[partition] = self._clock.monotonic()
        seconds = self._clock.monotonic() - self._failing[partition]
        return unreachable(requested, seconds, failure) if seconds > self._patience else None

    def _look_for_partitions(self) -> float | None:
        if self._closing.is_set():
            return None
        try:
            ends = self._topics.end_offsets()
            self._partitions = frozenset(ends)
            self._reports.topic_grew(ends)
        except Exception as error:
            log.debug("partitions could not be listed: %s", one_line(error))
        return PARTITION_SECONDS
