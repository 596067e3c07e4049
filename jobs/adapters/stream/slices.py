"""Real time: frames leave as their records come, in batches whose ends are found out as they run.

One job of Spark's follows another. Each is a *slice*: its tasks, one a partition, follow the topic
for about a second from where the slice before ended, and send what comes at once. What came of it
is recorded as of any batch, beside the slice after it.

What a slice that is cut off has sent nobody knows. So its pin says how far it may read, and the
next start sends it again, by the same versions, up to there or to the end that the topic has then.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from jobs.adapters.app.error_texts import one_line
from jobs.adapters.app.settings import Settings, seconds_of
from jobs.adapters.checkpoint.pins import Pin
from jobs.adapters.checkpoint.progress import Position, Progress, position
from jobs.adapters.fetch.client import Range, Reached, client_of, unreachable
from jobs.adapters.fetch.options import FetchOptions
from jobs.adapters.stream.delivery import BatchDelivery, Delivered
from jobs.adapters.stream.input import ByTasks
from jobs.adapters.stream.kafka import Topics
from jobs.adapters.stream.tasks import packed, run_tasks, unpacked
from udfs.columns import REPORT, Source

log = logging.getLogger(__name__)

#: How long the record of a slice waits until the next one has begun: both would want the driver's
#: one interpreter, and events wait for the slice.
BESIDE_SECONDS = 0.1
#: Between two looks for new partitions of the topic.
PARTITION_SECONDS = 10.0


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
        assert delivery.fetch is not None
        self._spark = spark
        self._settings = settings
        self._topics = topics
        self._delivery = delivery
        self._stopping = stopping
        self._fetch = delivery.fetch
        self._seconds = seconds_of(settings.realtime_slice)
        self._progress = Progress(spark, settings.checkpoint, settings.topic)
        self._recorder = ThreadPoolExecutor(max_workers=1, thread_name_prefix="record")
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
        #: The last pin that was written.
        self._pinned: tuple[int, Pin] | None = None
        self._error: BaseException | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slices", daemon=True)

    def start(self) -> None:
        """Runs slices from now on."""
        self._thread.start()

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        return self._thread.is_alive()

    @property
    def status(self) -> dict[str, Any]:
        return {"isTriggerActive": self.isActive}

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802 - Spark's name
        self._thread.join(timeout)
        return not self.isActive

    def exception(self) -> BaseException | None:
        return self._error

    def stop(self) -> None:
        """Ends after the slice in progress."""
        self._closing.set()
        self._thread.join()

    def recover(self) -> None:
        """Goes to where the stream stands; sends again what batches were cut off in.

        Raises StreamError CHECKPOINT_UNREADABLE, PIN_UNREADABLE, PIN_GONE, and what a batch raises.
        """
        delivery, spans = self._delivery, self._topics.ask(self._topics.spans)
        delivery.query = self._progress.identify()
        stands = position(self._spark, self._settings.checkpoint)
        planned = None
        if stands is None:
            self._at = beginnings(self._settings, spans)
            self._progress.begin(self._at)
        else:
            self._number, self._at, planned = stands.batch, stands.offsets, stands.planned
        newest = delivery.pins.newest()
        if planned is not None and delivery.recorded(self._number):
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
            planned = None
        if delivery.since is None:
            delivery.since = delivery.ends_before()
        self._at = self._all(spans)
        delivery.take_up_newest()

    def _cut_off(self) -> Pin | None:
        """Returns the pin of the next batch if it ran before."""
        delivery = self._delivery
        pin = delivery.pins.get(self._number)
        if pin is not None and delivery.since is not None and pin.since != delivery.since:
            # The batch before has been sent again, with all that this one may have sent.
            delivery.pins.remove(self._number)
            return None
        return pin

    def _send_again(self, pin: Pin | None, planned: Mapping[int, int]) -> None:
        delivery, number = self._delivery, self._number
        started, clock = dt.datetime.now(dt.UTC), time.monotonic()
        if pin is None:
            # Planned, and nothing of it has left.
            if delivery.since is None:
                delivery.since = delivery.ends_before()
            versions = dict(delivery.take_up_newest().compilation.versions)
            delivery.pins.put(number, Pin(versions, delivery.shaping, delivery.since, {}))
        else:
            delivery.plan_again(number, pin)
        live = delivery.with_known()
        carried = delivery.carried(live, number)
        topic, at = self._settings.topic, self._all(planned)
        ranges = [Range(topic, p, at[p], end) for p, end in planned.items() if end > at[p]]
        rows = delivery.deliver(live, carried, ByTasks(self._spark, self._fetch, ranges))
        delivery.record(delivery.delivered(number, live, carried, rows, started, clock))
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
            while not (self._closing.is_set() or self._stopping()):
                self._slice()
            self._await_records(0)
            if self._pinned is not None and self._pinned[0] == self._number:
                delivery.pins.remove(self._number)
        except BaseException as error:
            log.error("batch %d failed: %s", self._number, one_line(error))
            delivery.metrics.failed(error)
            self._error = error
        finally:
            self._closing.set()
            # What has left is to be on record.
            self._recorder.shutdown(wait=True)

    def _slice(self) -> None:
        delivery, number = self._delivery, self._number
        live = delivery.live
        assert live is not None and delivery.since is not None
        self._await_records(1)
        delivery.journal.wait_for_capacity()
        topic, most = self._settings.topic, self._settings.max_offsets_per_trigger
        if new := self._partitions - self._at.keys():
            log.info("topic %s has new partitions: %s", topic, sorted(new))
            self._at = self._all(new)
        share = max(1, most // max(1, len(self._at)))
        ranges = [Range(topic, p, at, at + share) for p, at in sorted(self._at.items())]
        until = {each.partition: each.until for each in ranges}
        versions = dict(live.compilation.versions)
        self._pin(number, Pin(versions, delivery.shaping, delivery.since, until))
        delivery.taken = live
        carried: Mapping[int, bytes] = {}
        if live.compilation.plan.state is not None:
            carried = delivery.carried(live, number) if self._kept is None else self._kept
        run = delivery.task(live, carried, follower(self._fetch, ranges, self._seconds), True)
        began = [each.first for each in ranges]

        # It names nothing of this module, which workers would import with all that a driver needs.
        def work(task: int) -> tuple[bytes, Reached]:
            reached = Reached(began[task])
            return packed(run(iter([(task, reached)])), REPORT), reached

        started, clock = dt.datetime.now(dt.UTC), time.monotonic()
        delivery.metrics.began(number)
        found = run_tasks(self._spark, work, len(ranges))
        rows = unpacked((report for report, _ in found), REPORT)
        for each, (_, reached) in zip(ranges, found, strict=True):
            self._at[each.partition] = reached.offset
            self._note_failure(each, reached.failure)
        done = delivery.delivered(number, live, carried, rows, started, clock)
        delivery.metrics.ended()
        if done.report.partitions:
            self._kept = done.kept or {}
            self._recording.append(self._recorder.submit(self._record_next, done, dict(self._at)))
            self._number += 1

    def _pin(self, number: int, pin: Pin) -> None:
        """Makes a pin durable before the first frame by it; one by which nothing was read may go.

        Under other versions nothing may leave before all else is on record: what is sent again
        after a crash is sent by one pin.
        """
        last = self._pinned
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

    def _note_failure(self, wanted: Range, failure: str) -> None:
        """Raises KafkaError BROKER_UNREACHABLE where a partition gives nothing for too long."""
        if not failure:
            self._failing.pop(wanted.partition, None)
            return
        now = time.monotonic()
        if wanted.partition not in self._failing:
            log.warning("partition %d of %s: %s", wanted.partition, wanted.topic, failure)
        seconds = now - self._failing.setdefault(wanted.partition, now)
        if seconds > self._fetch.patience:
            raise unreachable(wanted, seconds, failure)

    def _all(self, partitions: Iterable[int]) -> dict[int, int]:
        """Returns where the next slice begins, of these partitions, too: new ones at their
        start."""
        return dict.fromkeys(partitions, 0) | self._at

    def _look(self) -> None:
        while not self._closing.wait(PARTITION_SECONDS):
            try:
                self._partitions = frozenset(self._topics.end_offsets())
            except Exception as error:
                log.debug("no look at the partitions: %s", one_line(error))


def follower(options: FetchOptions, ranges: Sequence[Range], seconds: float) -> Source:
    """Returns the function by which a task that is given the number of a range, and what is told of
    it, follows that for so many seconds."""

    def follow(given: Iterator[tuple[int, Reached]]) -> Iterator[pa.RecordBatch]:
        for number, reached in given:
            context = TaskContext.get()
            again = context is not None and context.attemptNumber() > 0
            yield from client_of(options).follow(ranges[number], seconds, again, reached)

    return follow


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
