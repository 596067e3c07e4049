"""The part of a slice that one task reads: a partition, from where the previous task stopped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stackcast.jobs.adapters.kafka.handoffs import Handoff, HandoffKey, Handoffs
from stackcast.jobs.adapters.kafka.ranges import FetchProgress, Range
from stackcast.jobs.adapters.kafka.record_source import RecordSource
from stackcast.udfs.delivery.summary_progress import SummaryChannel
from stackcast.udfs.errors import KafkaError
from stackcast.udfs.messages.buffers import Batch


class SliceSpec(NamedTuple):
    """Work of the tasks of a slice, one task per range.

    Attributes:
        run: name of the stream since its start.
        number: number of the slice in this run.
        ranges: offsets that the tasks may read.
        seconds: time for which they read.
        share: maximum number of records per task if the slice was started ahead: its tasks then
            begin where the tasks of the previous slice stop. None if they begin with their ranges.
    """

    run: str
    number: int
    ranges: Sequence[Range]
    seconds: float
    share: int | None = None

    @property
    def ahead(self) -> bool:
        """True if the slice was started before the previous one had ended."""
        return self.share is not None


@dataclass
class TaskProgress(FetchProgress):
    """Progress of a task of a slice.

    Attributes:
        first: offset at which the task began; None if it never began.
        truncated: offset to which Kafka has truncated what was read before; None if it has not.
    """

    offset: int = -1
    first: int | None = None
    truncated: int | None = None


def follow(
    source: RecordSource,
    handoffs: Handoffs,
    spec: SliceSpec,
    task: int,
    progress: TaskProgress,
    channel: SummaryChannel,
) -> Iterator[Batch]:
    """Yield the records of a task of a slice as they arrive.

    If Kafka has truncated the log, ``progress`` contains it instead of an error. Spark would run a
    failed task again, and after its new beginning the log may seem intact.

    Args:
        source: source of the records.
        handoffs: handoffs between the tasks of this machine.
        spec: work of the slice.
        task: number of the task, and of its range.
        progress: gets the progress of the task.
        channel: connection to the sender of the task's summaries.

    Raises:
        KafkaError: see `stackcast.jobs.adapters.kafka.client.Fetcher.follow`.
    """
    requested, again = spec.ranges[task], source.runs_again()
    key = HandoffKey(spec.run, requested.partition, spec.number)
    summaries = None
    if spec.share is not None:
        begin = handoffs.read(key.earlier())
        if begin is None:
            progress.lost = again
            return
        until = min(requested.until, begin.offset + spec.share)
        requested = requested._replace(first=begin.offset, until=until, epoch=begin.epoch)
        summaries = begin.progress
    if again and (end := handoffs.read(key)) is not None:
        # The next task has begun where the earlier attempt ended.
        requested = requested._replace(until=end.offset)
    progress.first = progress.offset = requested.first
    progress.epoch = requested.epoch
    channel.claim(requested.partition, summaries)
    with handoffs.hold(key) as write:
        try:
            yield from source.reader().follow(requested, spec.seconds, again, progress)
        except KafkaError as error:
            if error.what != "LOG_TRUNCATED":
                raise
            progress.truncated = error.fields["end"]
        summaries = channel.progress_after(requested.partition)
        write(Handoff(progress.offset, progress.epoch, summaries))
