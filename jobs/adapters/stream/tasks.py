"""Numbered tasks of a batch, as the driver sends them to the executors.

Workers import this module, so it imports nothing that only the driver needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from stackcast.jobs.adapters.kafka.handoffs import Handoffs
from stackcast.jobs.adapters.kafka.ranges import FetchProgress, Range
from stackcast.jobs.adapters.kafka.record_source import RecordSource
from stackcast.jobs.adapters.kafka.slices import SliceSpec, TaskProgress, follow
from stackcast.udfs.delivery.deliver import Source, Work
from stackcast.udfs.delivery.summary_progress import SummaryChannel
from stackcast.udfs.messages.buffers import Batch


@dataclass(frozen=True)
class SliceTask:
    """Task of a slice: it follows a partition and delivers its records.

    Attributes:
        spec: work of the slice.
        source: source of the records.
        handoffs: handoffs between the tasks of a machine.
        work: returns the work of a task with these records.
        schema: schema of its report.
    """

    spec: SliceSpec
    source: RecordSource
    handoffs: Handoffs
    work: Callable[[Source], Work]
    schema: pa.Schema

    def __call__(self, number: int) -> tuple[bytes, TaskProgress]:
        """Run a task, and return its packed report and its progress."""
        progress = TaskProgress()

        def records(_: Iterator[int], channel: SummaryChannel) -> Iterator[Batch]:
            return follow(self.source, self.handoffs, self.spec, number, progress, channel)

        return packed(self.work(records)(iter([number])), self.schema), progress


@dataclass(frozen=True)
class RangeTask:
    """Task of a batch whose end is known: it reads a range and delivers its records.

    Attributes:
        ranges: offsets to read, one range per task.
        source: source of the records.
        work: returns the work of a task with these records.
        schema: schema of its report.
    """

    ranges: Sequence[Range]
    source: RecordSource
    work: Callable[[Source], Work]
    schema: pa.Schema

    def __call__(self, number: int) -> tuple[bytes, FetchProgress]:
        """Run a task, and return its packed report and its progress."""
        requested = self.ranges[number]
        progress = FetchProgress(requested.first)

        def records(_: Iterator[int], channel: SummaryChannel) -> Iterator[Batch]:
            return self.source.reader().batches(requested, progress, self.source.runs_again())

        return packed(self.work(records)(iter([number])), self.schema), progress


@dataclass(frozen=True)
class SummaryTask:
    """Task that reads no records, and sends the summaries of a partition.

    Attributes:
        partitions: numbers of the partitions, one per task.
        work: returns the work of a task.
        schema: schema of its report.
    """

    partitions: Sequence[int]
    work: Callable[[Source], Work]
    schema: pa.Schema

    def __call__(self, number: int) -> bytes:
        """Run a task, and return its packed report."""

        def records(_: Iterator[int], channel: SummaryChannel) -> Iterator[Batch]:
            channel.claim(self.partitions[number])
            return iter(())

        return packed(self.work(records)(iter([number])), self.schema)


def packed(report: Iterable[pa.RecordBatch], schema: pa.Schema) -> bytes:
    """Return the rows of a task's report as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        for batch in report:
            stream.write_batch(batch)
    return bytes(sink.getvalue())


def unpacked(reports: Iterable[bytes], schema: pa.Schema) -> pa.Table:
    """Return the rows of reports from `packed`."""
    tables = [pa.ipc.open_stream(report).read_all() for report in reports]
    return pa.concat_tables([schema.empty_table(), *tables])
