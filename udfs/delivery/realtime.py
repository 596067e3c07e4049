"""Real-time mode in a worker: records leave as frames as they come, by plans that change meanwhile.

A task lives as long as a long batch. What it must know from outside, and tell, goes over a
`Channel`: plans that come while it runs, and reports of what it sent. It yields nothing, since rows
that a Python function yields reach nobody for seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from queue import Empty, Queue
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from udfs.delivery.plan import Plan
from udfs.delivery.sink import Sink
from udfs.delivery.task import Task
from udfs.trees.header_stacks import HeaderStacks

#: Between two reports of a task, seconds.
REPORT_SECONDS = 1.0
#: How long a task waits for a record before it looks around.
TICK_SECONDS = 0.05
#: How long a task that was told to stop waits to be ended.
STOP_SECONDS = 10.0
#: Most batches (of one record each) that wait in a worker, and that are taken together.
MOST_WAITING = 2048


@dataclass(frozen=True)
class LocalValue:
    """A value in place of a broadcast."""

    value: HeaderStacks


@dataclass(frozen=True)
class LivePlan:
    """A plan as workers get it; number: its place among the stream's plans, rising."""

    number: int
    plan: Plan
    header_stacks: LocalValue


class TaskReport(NamedTuple):
    """Reports the frames that a task sent by one plan: rows of :data:`udfs.columns.REPORT`.

    number: of the plan. started_at: seconds since 1970, of the first record; seconds: until the
    last frame was handed over.
    """

    number: int
    started_at: float
    seconds: float
    rows: list[dict[str, Any]]


class Channel(Protocol):
    """A task's connection to the driver. None of these waits, except ``begin`` and ``await_lease``.

    ``begin`` opens it for a task and gives, by partition, the offset before which everything has
    been sent. plan: the newest. ``use``: frames leave by this plan or newer ones from here on.
    ``await_lease`` returns once frames may leave: not while the driver has been silent for long, or
    takes no reports. stopping: nothing more may be sent. ``end``: the task sends nothing more;
    its reports are on their way.
    """

    def begin(self) -> Mapping[int, int]: ...
    @property
    def plan(self) -> LivePlan: ...
    @property
    def stopping(self) -> bool: ...
    def use(self, number: int) -> None: ...
    def await_lease(self) -> None: ...
    def report(self, report: TaskReport) -> None: ...
    def end(self) -> None: ...


def deliver_at_once(
    open_channel: Callable[[], Channel],
    topic: str,
    open_sink: Callable[[], Sink],
    samples: int,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for ``mapInArrow``, with columns as of :func:`udfs.columns.deliver`.

    Every record's frames are handed over, the sink flushed, before the next are looked at. At most
    ``samples`` dead letters are reported with their bytes for each report. Rules must keep no
    state.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        channel = open_channel()
        sent = channel.begin()
        task = None
        try:
            sink = open_sink()
            try:
                task = LiveTask(channel, sink, topic, samples, sent)
                for batch in gathered(batches):
                    task.add(batch)
                task.finish()
            except Exception:
                # Who stops the stream cuts it off.
                if not channel.stopping:
                    raise
            finally:
                sink.close()
        finally:
            if task is None or not task.over:
                channel.end()
        if channel.stopping:
            # Spark ends this process now; an answer would only find its end of the channel closed.
            time.sleep(STOP_SECONDS)
        yield from ()

    return run


class LiveTask:
    """Sends what comes by the newest plan, and reports every second.

    ``sent``: by partition, the offset before which records are passed over. A stop ends it for
    good: what comes afterwards is passed over, and not reported. over: whether it has ended.
    """

    def __init__(
        self, channel: Channel, sink: Sink, topic: str, samples: int, sent: Mapping[int, int]
    ) -> None:
        self._channel = channel
        self._sink = sink
        self._topic = topic
        self._samples = samples
        self._until = dict(sent)
        self._behind = dict(sent)
        self.over = False
        self._live = channel.plan
        channel.use(self._live.number)
        self._started = self._began = self._ended = 0.0
        self._task = self._new_task()

    def add(self, batch: pa.RecordBatch | None) -> None:
        """Sends the frames of these records; None says only that time has passed."""
        if self.over:
            return
        self._channel.await_lease()
        if self._channel.stopping:
            self.finish()
            return
        live = self._channel.plan
        if live is not self._live:
            self._report()
            self._live = live
            self._channel.use(live.number)
            self._task = self._new_task()
        elif self._started and time.monotonic() - self._began >= REPORT_SECONDS:
            self._report()
            self._task = self._new_task()
        if batch is not None and self._behind:
            batch = self._rest(batch)
        if batch is None or not batch.num_rows:
            return
        if not self._started:
            # The clock of the day may be set back meanwhile: ages are of another.
            self._started, self._began = time.time(), time.monotonic()
        frames = self._task.add(batch)
        if len(frames):
            self._sink.send(frames.data, frames.offsets)
            self._sink.flush()
        self._ended = time.monotonic()

    def finish(self) -> None:
        """Reports what is not reported yet; nothing is sent from here on."""
        if not self.over:
            self._channel.await_lease()
            self._report()
            self.over = True
            self._channel.end()

    def _new_task(self) -> Task:
        live = self._live
        return Task(live.plan, live.header_stacks, self._topic, self._samples, {}, self._until)

    def _report(self) -> None:
        if not self._started:
            return
        summaries = self._task.summaries()
        if summaries is not None:
            self._sink.send(*summaries)
            self._sink.flush()
        rows = self._task.rows()
        seconds = self._ended - self._began
        self._channel.report(TaskReport(self._live.number, self._started, seconds, rows))
        self._until |= {
            row["partition"]: row["until_offset"] for row in rows if row["kind"] == "partition"
        }
        self._started = self._began = self._ended = 0.0

    def _rest(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the records that were not sent before."""
        partition = batch.column("partition").to_numpy()
        offset = batch.column("offset").to_numpy()
        until = np.array([self._behind.get(p, 0) for p in partition.tolist()], np.int64)
        new = offset >= until
        for p in set(partition[new].tolist()):
            # Offsets rise within a partition.
            self._behind.pop(p, None)
        return batch if new.all() else batch.filter(pa.array(new))


def gathered(
    batches: Iterator[pa.RecordBatch], tick: float = TICK_SECONDS
) -> Iterator[pa.RecordBatch | None]:
    """Yields the same records, in batches of all that are waiting; None if none came for a while.

    Spark hands over a batch when it is full, so in real-time mode batches have one record. A thread
    reads them, so that a burst costs the work of a few batches. Raises what ``batches`` raises.
    """
    waiting: Queue[pa.RecordBatch | _End] = Queue(MOST_WAITING)

    def read() -> None:
        try:
            for batch in batches:
                waiting.put(batch)
        except BaseException as error:
            waiting.put(_End(error))
        else:
            waiting.put(_End(None))

    threading.Thread(target=read, name="records", daemon=True).start()
    while True:
        try:
            taken = [waiting.get(timeout=tick)]
        except Empty:
            yield None
            continue
        while len(taken) < MOST_WAITING and not isinstance(taken[-1], _End):
            try:
                taken.append(waiting.get_nowait())
            except Empty:
                break
        records = [batch for batch in taken if not isinstance(batch, _End)]
        if records:
            yield records[0] if len(records) == 1 else pa.concat_batches(records)
        last = taken[-1]
        if isinstance(last, _End):
            if last.error is not None:
                raise last.error
            return


class _End(NamedTuple):
    error: BaseException | None
