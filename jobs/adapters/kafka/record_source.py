"""The source of a task's records, as a protocol: brokers, or memory in tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from stackcast.jobs.adapters.kafka.ranges import FetchProgress, Range
from stackcast.udfs.messages.buffers import Batch


class RecordReader(Protocol):
    """Reads records of partitions, see `stackcast.jobs.adapters.kafka.client.Fetcher`."""

    def batches(
        self, wanted: Range, reached: FetchProgress | None = None, again: bool = False
    ) -> Iterator[Batch]:
        """Yield the records of a range in order."""

    def follow(
        self, wanted: Range, seconds: float, again: bool, reached: FetchProgress
    ) -> Iterator[Batch]:
        """Yield records of a range as they arrive, for this time."""


class RecordSource(Protocol):
    """Gives a task the records of a topic. The driver sends it to the tasks."""

    def reader(self) -> RecordReader:
        """Return the reader of this process."""

    def runs_again(self) -> bool:
        """Return True if the task ran before, so that its records may have been sent."""
