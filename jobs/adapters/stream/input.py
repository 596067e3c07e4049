"""The records of a batch on their way to the tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from stackcast.jobs.adapters.kafka.ranges import NO_EPOCH, Range
from stackcast.jobs.adapters.kafka.record_source import RecordSource
from stackcast.jobs.adapters.runtime.engine import Engine
from stackcast.jobs.adapters.stream.tasks import RangeTask, SummaryTask, unpacked
from stackcast.udfs.delivery.deliver import Source, Work
from stackcast.udfs.errors import StreamError


class Records(Protocol):
    """The records of a batch.

    Attributes:
        epochs: by partition, the epoch of the leader from which it was read, after `through`.
    """

    epochs: dict[int, int]

    def planned(self, epochs: Mapping[int, int]) -> None:
        """Set the epoch of the leader of each partition when the batch was planned."""

    def through(self, work: Callable[[Source], Work], schema: pa.Schema) -> pa.Table:
        """Run tasks on the records.

        Args:
            work: returns the work of a task, given the source that makes its records.
            schema: schema of the rows that a task yields.

        Returns:
            The rows of all tasks.
        """


@dataclass
class ByTasks:
    """Ranges of offsets, each of which is read by a task.

    Attributes:
        engine: runs the tasks.
        source: source of the records.
        ranges: ranges of the batch.
        epochs: see `Records`.
    """

    engine: Engine
    source: RecordSource
    ranges: Sequence[Range]
    epochs: dict[int, int] = field(default_factory=dict)

    def planned(self, epochs: Mapping[int, int]) -> None:
        self.ranges = [
            each._replace(epoch=epochs.get(each.partition, NO_EPOCH)) for each in self.ranges
        ]

    def through(self, work: Callable[[Source], Work], schema: pa.Schema) -> pa.Table:
        """Run the tasks; see `Records.through`.

        Raises:
            StreamError: TASK_LOST.
        """
        task = RangeTask(self.ranges, self.source, work, schema)
        results = self.engine.run(task, len(self.ranges))
        for requested, (_, progress) in zip(self.ranges, results, strict=True):
            if progress.lost:
                raise lost_task(requested.topic, requested.partition)
            epoch = self.epochs.get(requested.partition, NO_EPOCH)
            self.epochs[requested.partition] = max(progress.epoch, epoch)
        return unpacked((report for report, _ in results), schema)


@dataclass
class WithoutRecords:
    """Partitions whose tasks read nothing, and only send summaries.

    Attributes:
        engine: runs the tasks.
        partitions: numbers of the partitions.
        epochs: see `Records`.
    """

    engine: Engine
    partitions: Sequence[int]
    epochs: dict[int, int] = field(default_factory=dict)

    def planned(self, epochs: Mapping[int, int]) -> None:
        """Ignore the leaders, from which nothing is read."""

    def through(self, work: Callable[[Source], Work], schema: pa.Schema) -> pa.Table:
        task = SummaryTask(self.partitions, work, schema)
        return unpacked(self.engine.run(task, len(self.partitions)), schema)


def lost_task(topic: str, *partitions: int) -> StreamError:
    """Return the error for tasks that cannot be run again."""
    numbers = ", ".join(map(str, sorted(partitions)))
    return StreamError(
        "TASK_LOST",
        f"a task that read partition {numbers} of {topic} was lost, and it is unknown how many "
        "records it had read: start the stream again, which then sends all records again that "
        "are not in the ledger",
    )
