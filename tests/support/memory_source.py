"""The records of a topic in memory, as tasks read them under a virtual clock."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from memory_kafka import MemoryKafka
from memory_log import Log, Record, batch_of
from virtual_time import VirtualTime

from stackcast.jobs.adapters.kafka.admin import LogOffset
from stackcast.jobs.adapters.kafka.ranges import NO_EPOCH, FetchProgress, Range
from stackcast.udfs.errors import KafkaError
from stackcast.udfs.messages.buffers import Batch


class MemorySource:
    """A `RecordSource` and its reader.

    Args:
        kafka: cluster of the topic.
        time: clock and threads of the simulation.
        size: maximum number of records per batch of columns.
    """

    def __init__(self, kafka: MemoryKafka, time: VirtualTime, size: int = 4) -> None:
        self._kafka = kafka
        self._time = time
        self._size = size

    def reader(self) -> MemorySource:
        return self

    def runs_again(self) -> bool:
        return False

    def batches(
        self, wanted: Range, reached: FetchProgress | None = None, again: bool = False
    ) -> Iterator[Batch]:
        reached = reached or FetchProgress(wanted.first)
        reached.offset, reached.epoch = wanted.first, wanted.epoch
        while reached.offset < wanted.until:
            records = self._take(wanted, reached)
            assert records, f"{wanted} has no record at offset {reached.offset}"
            yield batch_of(wanted.partition, records)

    def follow(
        self, wanted: Range, seconds: float, again: bool, reached: FetchProgress
    ) -> Iterator[Batch]:
        deadline = self._time.monotonic() + seconds
        log = self._kafka.log(wanted.topic, wanted.partition)
        while reached.offset < wanted.until:
            records = self._take(wanted, reached)
            if records:
                yield batch_of(wanted.partition, records)
                continue
            remaining = deadline - self._time.monotonic()
            arrived = partial(_ends_elsewhere, log, reached.offset)
            if remaining <= 0 or not self._time.block(arrived, remaining):
                return

    def _take(self, wanted: Range, reached: FetchProgress) -> list[Record]:
        """Return the next records of a range, and move the progress behind them."""
        log, offset = self._kafka.log(wanted.topic, wanted.partition), reached.offset
        # Without an epoch, Kafka only compares offsets.
        epoch = log.epoch if reached.epoch == NO_EPOCH else reached.epoch
        end = log.divergence(LogOffset(offset, epoch))
        if end is not None:
            raise KafkaError("LOG_TRUNCATED", f"the log diverged at offset {end}", end=end)
        reached.epoch = log.epoch
        until = min(wanted.until, log.end, offset + self._size)
        reached.offset = max(offset, until)
        return log.records[offset - log.start : until - log.start]


def _ends_elsewhere(log: Log, offset: int) -> bool:
    return log.end != offset
