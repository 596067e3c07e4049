"""The log of a partition in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stackcast.jobs.adapters.kafka.admin import LogOffset
from stackcast.udfs.messages.buffers import Batch


class Record(NamedTuple):
    """A record with its time in microseconds since 1970 and the epoch of its leader."""

    offset: int
    value: bytes
    time: int
    epoch: int
    publisher: str | None = None


@dataclass
class Log:
    """The log of a partition.

    Attributes:
        records: its records, by ascending offset.
        start: offset of the first record that was not deleted.
        end: offset of the next record.
        epoch: epoch of its leader.
        open: offset of the first record of an open transaction, if there is one.
    """

    records: list[Record] = field(default_factory=list)
    start: int = 0
    end: int = 0
    epoch: int = 0
    open: int | None = None

    def divergence(self, read: LogOffset) -> int | None:
        """Return the offset from which on the log differs from what was read, if it does."""
        if read.epoch > self.epoch:
            return 0
        later = [record.offset for record in self.records if record.epoch > read.epoch]
        end = min(later, default=self.end)
        return end if end < read.offset else None


def batch_of(partition: int, records: Sequence[Record]) -> Batch:
    """Return records of a partition as columns."""
    values = [record.value for record in records]
    return Batch(
        np.full(len(records), partition, np.int32),
        np.array([record.offset for record in records], np.int64),
        np.cumsum([0, *map(len, values)], dtype=np.int64),
        np.frombuffer(b"".join(values), np.uint8),
        np.array([record.time for record in records], np.int64),
        pa.array([record.publisher and record.publisher.encode() for record in records]),
    )
