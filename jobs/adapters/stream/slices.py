"""Real time: frames leave as their records come, in batches whose ends are found out as they run.

One job of Spark's follows another. Each is a *slice*: its tasks, one a partition, follow the topic
for about a second from where the slice before ended, and send what comes at once. What came of it
is recorded as of any batch, beside the slice after it. Where all tasks run in one place, the job of
a slice is there before the one before has ended, and its tasks wait for nothing but that.

What a slice that is cut off has sent nobody knows. So its pin says how far it may read, and the
next start sends it again, by the same versions, up to there or to the end that the topic has then.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.error_texts import one_line
from stackcast.jobs.adapters.app.settings import Settings, seconds_of
from stackcast.jobs.adapters.checkpoint.files import FILE_ERRORS
from stackcast.jobs.adapters.checkpoint.pins import Pin
from stackcast.jobs.adapters.checkpoint.progress import Position, Progress, position
from stackcast.jobs.adapters.kafka.file_handoffs import FileHandoffs
from stackcast.jobs.adapters.kafka.ranges import NO_EPOCH, Range, unreachable
from stackcast.jobs.adapters.kafka.slices import SliceSpec, TaskProgress
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.stream.delivery import BatchDelivery, Delivered, LivePlan
from stackcast.jobs.adapters.stream.input import ByTasks, lost_task
from stackcast.jobs.adapters.stream.tasks import SliceTask, unpacked
from stackcast.jobs.adapters.stream.truncation import Truncation
from stackcast.udfs.delivery.deliver import REPORT
from stackcast.udfs.delivery.summary_progress import SummaryAssignment
from stackcast.udfs.errors import KafkaError

log = logging.getLogger(__name__)

#: How long the record of a slice waits until the next one has begun: both would want the driver's
#: one interpreter, and events wait for the slice.
BESIDE_SECONDS = 0.1
#: How long before a slice ends the job of the next one is made, which takes a tenth of it.
AHEAD_SECONDS = 0.2
#: Between two looks for new partitions of the topic.
PARTITION_SECONDS = 10.0


@dataclass
class Slice:
    """A slice that runs."""

    number: int
    live: LivePlan
    carried: Mapping[int, bytes]
    turn: SliceSpec
    everyone: bool
    found: Future[list[tuple[bytes, TaskProgress]]]
    #: Since when it may read.
    clock: float = field(default_factory=time.monotonic)
    started: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))


class Slices:
    """A running stream: it offers what jobs use of Spark's ``StreamingQuery``.

    stopping: tells whether to end after the slice in progress.
    """

    #: Spark reports no progress of it.
    lastProgress = None  # noqa: N815 - Spark's name

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        topics: Topics,
        delivery: BatchDelivery,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        assert delivery.fetch is not None and delivery.source is not None
        self._spark = spark
        self._settings = settings
        self._topics = topics
        self._delivery = delivery
        self._stopping = stopping
        self._patience, self._source = delivery.fetch.patience, delivery.source
        self._seconds = seconds_of(settings.realtime_slice)
        self._progress = Progress(spark, settings.checkpoint, settings.topic)
        self._recorder = ThreadPoolExecutor(max_workers=1, thread_name_prefix="record")
        self._engine = delivery.engine
        self._run_name, self._turns = uuid.uuid4().hex, 0
        #: Whether the last slice has read anything, and how many seconds it took.
        self._flows, self._took = False, self._seconds
        #: Of the last two slices, until each is on record.
        self._recording: list[Future[None]] = []
        #: Set while the next slice waits for what is to be recorded.
        self._awaited = threading.Event()
        self._number = 0
        #: The last batch that is on record.
        self._recorded = -1
        #: By partition, the offset at which the next slice begins; and since when its broker fails.
        self._at: dict[int, int] = {}
        self._failing: dict[int, float] = {}
        #: As the last look saw them.
        self._partitions: frozenset[int] = frozenset()
        #: The state of rules that the next slice begins with; None: as it is on record.
        self._kept: dict[int, bytes] | None = None
        #: The last pin that was written, and whether a slice by it has ended that read nothing.
        self._pinned: tuple[int, Pin] | None = None
        self._unread = False
        self._error: BaseException | None = None
        self._closing = threading.Event()
        #: A thread is no good to wait for: Python takes it for ended after Ctrl-C in its `join`.
        self._started, self._ended = False, threading.Event()

    def start(self) -> None:
        """Run slices from now on."""
        self._started = True
        threading.Thread(target=self._run, name="slices", daemon=True).start()

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        return self._started and not self._ended.is_set()

    @property
    def status(self) -> dict[str, Any]:
        return {"isTriggerActive": self.isActive}

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802 - Spark's name
        return self._ended.wait(timeout)

    def exception(self) -> BaseException | None:
        return self._error

    def stop(self) -> None:
        """End after the slice in progress."""
        self._closing.set()
        if self._started:
            self._ended.wait()

    def recover(self) -> None:
        """Goes to where the stream stands; sends again what batches were cut off in.

        Raises StreamError CHECKPOINT_UNREADABLE, PIN_UNREADABLE, PIN_GONE, and what a batch raises.
        """
        delivery, spans = self._delivery, self._topics.ask(self._topics.spans)
        stands = position(self._spark, self._settings.checkpoint)
        planned = None
        if stands is None:
            self._at = beginnings(self._settings, spans)
            self._progress.begin(self._at)
        else:
            self._number, self._at, planned = stands.batch, stands.offsets, stands.planned
        newest = delivery.pins.newest()
        recorded = planned is not None and delivery.recorded(self._number)
        delivery.leaders.epochs = delivery.epochs_before()
        if newest is not None and newest[0] >= self._number + recorded:
            self._check_cut_off(newest[1].until or planned or {})
        delivery.leaders.look_up(self._at | (planned or {}) if recorded else self._at)
        if planned is not None and recorded:
            # Its commit alone is missing.
            self._progress.done(self._number)
            self._number, self._at, planned = self._number + 1, self._at | planned, None
        elif planned is not None and newest is not None and newest[0] > self._number:
            # The slice after it had begun: both go again as one, so that their order is kept.
            self._progress.forget(self._number)
            planned = None
        while (pin := self._cut_off()) is not None or planned is not None:
            if planned is None:
                # A slice. Frames of the one after it may have left, too.
                assert pin is not None and newest is not None
                most = newest[1].until
                there = {p: min(end, most.get(p, 0)) for p, (_, end) in spans.items()}
                planned = {p: max(at, there.get(p, at)) for p, at in self._all(most).items()}
                if planned == self._all(most):
                    delivery.pins.remove(self._number)
                    break
                self._progress.plan(self._number, planned)
            self._send_again(pin, planned)
            if newest is not None and newest[0] == self._number and newest[1].ahead:
                # Sent with it.
                delivery.pins.remove(self._number)
            planned = None
        if delivery.told is None:
            delivery.told = delivery.told_before()
        self._at = self._all(spans)
        delivery.take_up_newest()

    def _check_cut_off(self, ends: Mapping[int, int]) -> None:
        """Ends the stream if Kafka may have truncated what a batch that was cut off has sent.

        The checks before the start found nothing of it, and those of the next start will.

        Args:
            ends: by partition, the offset up to which the batch may have read.
        """
        leaders = self._delivery.leaders
        found = leaders.find(ends, leaders.epochs, leaders.now())
        if found is not None:
            raise lost_task(self._settings.topic, *found.ends)

    def _cut_off(self) -> Pin | None:
        """Returns the pin of the next batch if it ran before."""
        delivery = self._delivery
        pin = delivery.pins.get(self._number)
        if pin is None or delivery.told is None:
            return pin
        if delivery.begins(self._number, pin) != delivery.told:
            # The batch before has been sent again, with all that this one may have sent.
            delivery.pins.remove(self._number)
            return None
        return pin

    def _send_again(self, pin: Pin | None, planned: Mapping[int, int]) -> None:
        delivery, number = self._delivery, self._number
        started, clock = dt.datetime.now(dt.UTC), time.monotonic()
        if pin is None:
            # Planned, and nothing of it has left.
            if delivery.told is None:
                delivery.told = delivery.told_before()
            versions = dict(delivery.take_up_newest().compilation.versions)
            epochs = dict(delivery.leaders.epochs)
            pin = Pin(versions, delivery.shaping, delivery.told, {}, epochs=epochs)
            delivery.pins.put(number, pin)
        else:
            delivery.plan_again(number, pin)
        live = delivery.with_known()
        carried = delivery.carried(live, number)
        topic, at = self._settings.topic, self._all(planned)
        ranges = [
            Range(topic, p, at[p], end, delivery.leaders.epochs.get(p, NO_EPOCH))
            for p, end in planned.items()
            if end > at[p]
        ]
        records = ByTasks(self._engine, self._source, ranges)
        looked_up = dict(delivery.leaders.epochs)
        delivery.leaders.check(planned, looked_up, {})
        rows = delivery.deliver(live, carried, records, pin.everyone)
        epochs = records.epochs
        done = delivery.delivered(number, live, carried, rows, started, clock, epochs)
        delivery.leaders.check(planned, looked_up, epochs)
        delivery.record(done)
        self._progress.done(number)
        self._number, self._at = number + 1, at | dict(planned)

    def _run(self) -> None:
        delivery = self._delivery
        try:
            self.recover()
            self._recorded = self._number - 1
            delivery.taken = delivery.live
            delivery.follow()
            threading.Thread(target=self._look, name="partitions", daemon=True).start()
            running = None
            while running is not None or not self._ending():
                running = running or self._begin()
                following = self._begin_ahead(running)
                self._end(running, following)
                running = following
            self._await_records(0)
        except BaseException as error:
            log.error("batch %d failed: %s", self._number, one_line(error))
            delivery.metrics.failed(error)
            self._error = error
        finally:
            self._closing.set()
            self._engine.close()
            # What has left is to be on record.
            self._recorder.shutdown(wait=True)
            if self._unread:
                # Otherwise the next start takes it for a slice that was cut off.
                with suppress(*FILE_ERRORS):
                    delivery.pins.remove(self._number)
            self._ended.set()

    def _ending(self) -> bool:
        return self._closing.is_set() or self._stopping()

    def _begin(self) -> Slice:
        """Has a slice read from where the last one ended."""
        delivery = self._delivery
        live = delivery.live
        assert live is not None and delivery.told is not None
        self._await_records(1)
        delivery.journal.wait_for_capacity()
        if new := self._partitions - self._at.keys():
            log.info("topic %s has new partitions: %s", self._settings.topic, sorted(new))
            self._at = self._all(new)
            delivery.leaders.look_up({})
        share = self._share()
        ranges = [
            Range(self._settings.topic, p, at, at + share, delivery.leaders.epochs.get(p, NO_EPOCH))
            for p, at in sorted(self._at.items())
        ]
        pin = self._pin_of(live, ranges)
        self._pin(self._number, pin)
        delivery.taken = live
        carried: Mapping[int, bytes] = {}
        if live.compilation.plan.state is not None:
            carried = delivery.carried(live, self._number) if self._kept is None else self._kept
        begun = self._start(self._number, live, carried, ranges, pin.everyone)
        delivery.metrics.began(self._number)
        return begun

    def _begin_ahead(self, running: Slice) -> Slice | None:
        """Has the tasks of the next slice wait for the one that runs, shortly before that ends;
        None where they cannot, or nobody knows that something is to be read.

        Nothing of what they need may change with that: they have the same plan, which keeps no
        state, and what their predecessors tell they find on the same machine.
        """
        delivery, state = self._delivery, running.live.compilation.plan.state
        if state is not None or not self._flows or not self._engine.single_host():
            return None
        # One that reads its most ends before its time.
        left = running.clock + self._took - AHEAD_SECONDS - time.monotonic()
        if wait([running.found], max(0.0, left)).done:
            return None
        while self._recording:
            either: list[Future[Any]] = [running.found, self._recording[0]]
            wait(either, return_when=FIRST_COMPLETED)
            if running.found.done():
                return None
            self._recording.pop(0).result()
        new = self._partitions - self._at.keys()
        if delivery.live is not running.live or new or self._ending():
            return None
        share = self._share()
        ranges = [
            each._replace(until=self._at[each.partition] + 2 * share)
            for each in running.turn.ranges
        ]
        number = running.number + 1
        pin = self._pin_of(running.live, ranges)._replace(ahead=True)
        self._pin(number, pin)
        return self._start(number, running.live, {}, ranges, pin.everyone, share)

    def _start(
        self,
        number: int,
        live: LivePlan,
        carried: Mapping[int, bytes],
        ranges: list[Range],
        everyone: bool,
        most: int | None = None,
    ) -> Slice:
        delivery, self._turns = self._delivery, self._turns + 1
        assignment = SummaryAssignment(delivery.told or {}, everyone)
        turn = SliceSpec(self._run_name, self._turns, ranges, self._seconds, most)
        work = delivery.slice_work(live, carried, assignment)
        task = SliceTask(turn, self._source, FileHandoffs(), work, REPORT)
        found = self._engine.submit(task, len(ranges))
        return Slice(number, live, carried, turn, everyone, found)

    def _end(self, running: Slice, following: Slice | None) -> None:
        """Waits for a slice, and has it recorded; one in which nothing was read has no number,
        unless the next one has begun."""
        delivery, found = self._delivery, running.found.result()
        self._took = min(running.turn.seconds, time.monotonic() - running.clock)
        if following is not None:
            following.clock, following.started = time.monotonic(), dt.datetime.now(dt.UTC)
        epochs: dict[int, int] = {}
        truncated: dict[int, int] = {}
        failed: KafkaError | None = None
        for each, (_, read) in zip(running.turn.ranges, found, strict=True):
            moved = running.turn.ahead and read.first not in (None, self._at[each.partition])
            if read.lost or moved:
                raise lost_task(each.topic, each.partition)
            if read.truncated is not None:
                truncated[each.partition] = read.truncated
            if read.first is not None:
                self._at[each.partition] = read.offset
                epochs[each.partition] = read.epoch
            failed = self._failed(each, read.failure) or failed
        rows = unpacked((report for report, _ in found), REPORT)
        done = delivery.delivered(
            *(running.number, running.live, running.carried, rows),
            *(running.started, running.clock, epochs),
        )
        self._flows = bool(done.report.partitions)
        if running.everyone and not done.report.told:
            delivery.turns.pass_turn()
        if following is None:
            delivery.metrics.ended()
        else:
            delivery.metrics.began(following.number)
        if self._flows or following is not None:
            self._kept = done.kept or {}
            self._recording.append(self._recorder.submit(self._record_next, done, dict(self._at)))
            self._number += 1
        else:
            self._unread = True
        # The records of this slice are on record before, so that the next start knows them.
        if truncated:
            self._await_records(0)
            raise Truncation(self._settings.topic, dict(self._at), truncated).error()
        if failed is not None:
            self._await_records(0)
            raise failed

    def _share(self) -> int:
        """Returns how many records of a partition a slice has at most."""
        return max(1, self._settings.max_offsets_per_trigger // max(1, len(self._at)))

    def _pin_of(self, live: LivePlan, ranges: Iterable[Range]) -> Pin:
        delivery = self._delivery
        assert delivery.told is not None
        until = {each.partition: each.until for each in ranges}
        versions = dict(live.compilation.versions)
        everyone = delivery.turns.take_turn(self._seconds)
        return Pin(
            *(versions, delivery.shaping, delivery.told, until, everyone),
            epochs=dict(delivery.leaders.epochs),
        )

    def _pin(self, number: int, pin: Pin) -> None:
        """Makes a pin durable before the first frame by it; one by which nothing was read may go.

        Under other versions nothing may leave before all else is on record: what is sent again
        after a crash is sent by one pin.
        """
        last, self._unread = self._pinned, False
        if last == (number, pin):
            return
        if last is not None and last[1].versions != pin.versions:
            self._await_records(0)
        if last is not None and last[0] == number:
            self._delivery.pins.remove(number)
        self._delivery.pins.put(number, pin)
        self._pinned = number, pin

    def _record_next(self, done: Delivered, ends: Mapping[int, int]) -> None:
        self._awaited.wait(BESIDE_SECONDS)
        # Of a batch after one that is not on record, nothing may be.
        if self._recorded == done.batch_id - 1:
            self._record(done, ends)
            self._recorded = done.batch_id

    def _record(self, done: Delivered, ends: Mapping[int, int]) -> None:
        self._progress.plan(done.batch_id, ends)
        self._delivery.record(done)
        self._progress.done(done.batch_id)
        self._delivery.metrics.recorded(done.batch_id, done.seconds)

    def _await_records(self, left: int) -> None:
        """Returns when no more slices than that are not on record."""
        while len(self._recording) > left:
            self._awaited.set()
            self._recording.pop(0).result()
        self._awaited.clear()

    def _failed(self, wanted: Range, failure: str) -> KafkaError | None:
        """Returns the error BROKER_UNREACHABLE if a partition returns no records for too long."""
        if not failure:
            self._failing.pop(wanted.partition, None)
            return None
        now = time.monotonic()
        if wanted.partition not in self._failing:
            log.warning("partition %d of %s: %s", wanted.partition, wanted.topic, failure)
        seconds = now - self._failing.setdefault(wanted.partition, now)
        return unreachable(wanted, seconds, failure) if seconds > self._patience else None

    def _all(self, partitions: Iterable[int]) -> dict[int, int]:
        """Returns where the next slice begins, of these partitions, too: new ones at their
        start."""
        return dict.fromkeys(partitions, 0) | self._at

    def _look(self) -> None:
        while not self._closing.wait(PARTITION_SECONDS):
            try:
                self._partitions = frozenset(self._topics.end_offsets())
            except Exception as error:
                log.debug("partitions could not be listed: %s", one_line(error))


def beginnings(settings: Settings, spans: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """Returns where a new stream begins, as ``startingOffsets`` say, for each partition.

    ``spans``: of each partition the first offset that is there, and the end.
    """
    named: dict[int, int] = {}
    other = -1 if settings.starting_offsets == "latest" else -2
    if settings.starting_offsets.startswith("{"):
        offsets = json.loads(settings.starting_offsets).get(settings.topic, {})
        named = {int(p): int(offset) for p, offset in offsets.items()}
    found = {p: named.get(p, other) for p in spans}
    ends = {-2: 0, -1: 1}
    return {p: spans[p][ends[at]] if at in ends else at for p, at in found.items()}


def cut_off(delivery: BatchDelivery, stands: Position | None) -> bool:
    """Tells whether slices have left something that only they send again."""
    newest = delivery.pins.newest()
    return (
        stands is not None
        and newest is not None
        and newest[0] >= stands.batch
        and bool(newest[1].until)
    )
