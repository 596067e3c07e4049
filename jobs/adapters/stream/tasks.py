"""Conversion of the reports of tasks to bytes, and back to a table."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa


def packed(report: Iterable[pa.RecordBatch], schema: pa.Schema) -> bytes:
    """Returns the rows of a task's report as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        for batch in report:
            stream.write_batch(batch)
    return bytes(sink.getvalue())


def unpacked(reports: Iterable[bytes], schema: pa.Schema) -> pa.Table:
    """Returns the rows that tasks have `packed`."""
    tables = [pa.ipc.open_stream(report).read_all() for report in reports]
    return pa.concat_tables([schema.empty_table(), *tables])
