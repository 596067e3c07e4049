"""Offsets that have a record, as runs without a gap: few numbers for many records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

#: ``from_offset`` up to ``until_offset``, which is not included.
SCHEMA = pa.schema(
    [("partition", pa.int32()), ("from_offset", pa.int64()), ("until_offset", pa.int64())]
)


def offset_runs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the runs of each batch of columns partition (int32) and offset (int64): rows of one
    partition are ascending. For ``mapInArrow``."""
    for batch in batches:
        partition = np.asarray(batch.column("partition"))
        offset = np.asarray(batch.column("offset"))
        first = np.flatnonzero(
            np.diff(partition, prepend=-1).astype(bool) | (np.diff(offset, prepend=-2) != 1)
        )
        if not len(first):
            continue
        last = np.append(first[1:], len(offset)) - 1
        columns = partition[first], offset[first], offset[last] + 1
        yield pa.RecordBatch.from_arrays([pa.array(each) for each in columns], schema=SCHEMA)
