"""Buffers for compiled loops: views of Arrow columns and read-only arrays of one type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def binary_buffers(values: pa.Array) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Returns offsets (n + 1) and bytes of a binary column, no copy. A null counts as empty.

    Offsets are int32, or int64 with spark.sql.execution.arrow.useLargeVarTypes.
    """
    if values.null_count:
        values = values.fill_null(b"")
    _, offsets, content = values.buffers()
    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    starts = np.frombuffer(offsets, dtype=width)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(content, dtype=np.uint8) if content is not None else np.zeros(0, np.uint8)
    return starts, data


def read_only(array: NDArray[Any], dtype: type[np.generic]) -> NDArray[Any]:
    """Returns a read-only contiguous view, a copy only where the type differs.

    Arrow's buffers are read-only, and one type of input is one compilation.
    """
    view = np.ascontiguousarray(array, dtype).view()
    view.flags.writeable = False
    return view
