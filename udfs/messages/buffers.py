"""Buffers for compiled loops: records as columns, and read-only arrays of one type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Batch:
    """Holds n records of a topic as columns, all read-only.

    partition: int32[n]. offset: int64[n]. borders: int64[n + 1], of the values in content: uint8[];
    a null is an empty value. time: int64[n], microseconds since 1970; None where there is none.
    publisher: binary[n], what a header of each record says, null without it; None where nobody
    asked.
    """

    partition: NDArray[np.int32]
    offset: NDArray[np.int64]
    borders: NDArray[np.int64]
    content: NDArray[np.uint8]
    time: NDArray[np.int64] | None = None
    publisher: pa.Array | None = None

    @classmethod
    def of_arrow(cls, batch: pa.RecordBatch) -> Batch:
        """Makes one of columns partition (int32), offset (int64), value (binary), and timestamp and
        publisher (binary) if they are there.

        Nothing is copied where offsets of values are int64, as with
        spark.sql.execution.arrow.useLargeVarTypes.
        """
        values = batch.column("value")
        if values.null_count:
            values = values.fill_null(b"")
        _, offsets, content = values.buffers()
        width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
        borders = np.frombuffer(offsets, width)[values.offset : values.offset + len(values) + 1]
        time = None
        if "timestamp" in batch.schema.names:
            times = batch.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            time = np.asarray(times.fill_null(0))
        return cls(
            read_only(batch.column("partition").to_numpy(), np.int32),
            read_only(batch.column("offset").to_numpy(), np.int64),
            # Arrow may leave out the offsets of an array without records.
            read_only(borders if borders.size else np.zeros(1), np.int64),
            read_only(np.frombuffer(b"" if content is None else content, np.uint8), np.uint8),
            time,
            batch.column("publisher") if "publisher" in batch.schema.names else None,
        )

    def to_arrow(self) -> pa.RecordBatch:
        """Returns the columns that `of_arrow` reads; timestamp and publisher if they are there."""
        borders = (self.borders - self.borders[0]).astype(np.int32)
        content = self.content[int(self.borders[0]) : int(self.borders[-1])]
        buffers = [None, pa.py_buffer(borders), pa.py_buffer(np.ascontiguousarray(content))]
        columns = {
            "partition": pa.array(self.partition),
            "offset": pa.array(self.offset),
            "value": pa.Array.from_buffers(pa.binary(), len(self), buffers),
        }
        if self.time is not None:
            columns["timestamp"] = pa.array(self.time).cast(pa.timestamp("us", "UTC"))
        if self.publisher is not None:
            columns["publisher"] = self.publisher.cast(pa.binary())
        return pa.RecordBatch.from_pydict(columns)

    def __len__(self) -> int:
        """Returns how many records there are."""
        return self.offset.size


def read_only(array: NDArray[Any], dtype: type[np.generic]) -> NDArray[Any]:
    """Returns a read-only contiguous view, a copy only where the type differs.

    Arrow's buffers are read-only, and one type of input is one compilation.
    """
    view = np.ascontiguousarray(array, dtype)
    if view.flags.writeable:
        view = view.view()
        view.flags.writeable = False
    return view
