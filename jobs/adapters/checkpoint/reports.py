"""Reports of batches: the rows of a batch for ledger and statistics, as a durable file.

A batch is complete when its report is durable. `stackcast.jobs.adapters.checkpoint.journal` writes
the rows to the tables later. The columns of a report are lists, or one value for all rows, so that
no Python statement runs per host.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.checkpoint.files import BatchFiles, Folder
from stackcast.jobs.adapters.tables.tables import DELIVERIES, LEDGER, PUBLICATIONS
from stackcast.udfs.errors import StreamError

#: Tables of a report, in the order in which they are written. The ledger is last, so statistics
#: are complete up to the last batch in the ledger.
TABLES = (DELIVERIES, PUBLICATIONS, LEDGER)
FOLDER = "stackcast-reports"

_TIME = pa.timestamp("us", "UTC")
_TYPES = {
    "topic": pa.string(),
    "topic_id": pa.string(),
    "generation": pa.int32(),
    "publisher": pa.string(),
    "subscriber": pa.string(),
    "receivers": pa.list_(pa.string()),
    "versions": pa.map_(pa.string(), pa.int64()),
    "settings": pa.map_(pa.string(), pa.string()),
    "partitions": pa.list_(
        pa.struct(
            [
                ("partition", pa.int32()),
                ("from_offset", pa.int64()),
                ("until_offset", pa.int64()),
                ("records", pa.int64()),
                ("first_sequence", pa.int64()),
                ("last_sequence", pa.int64()),
                ("leader_epoch", pa.int32()),
                ("ingress", pa.string()),
            ]
        )
    ),
    "started_at": _TIME,
    "recorded_at": _TIME,
    "seconds": pa.float64(),
}


@dataclass(frozen=True)
class Rows:
    """Rows of one table.

    Attributes:
        count: number of rows.
        same: by column, the value of all rows.
        columns: by column, one value per row.
    """

    count: int
    same: Mapping[str, Any]
    columns: Mapping[str, Sequence[Any]]

    def arrow(self) -> pa.Table:
        """Return the rows as an Arrow table. Columns that are not in `_TYPES` are int64."""
        arrays = {
            name: pa.repeat(_scalar(name, value), self.count) for name, value in self.same.items()
        }
        for name, values in self.columns.items():
            arrays[name] = pa.array(values, _TYPES.get(name, pa.int64()))
        return pa.table(arrays)


@dataclass(frozen=True)
class Report:
    """Rows of one batch.

    Attributes:
        writer: writer of the batch; see `writer_of`.
        batch_id: number of the batch among those of the writer. It counts once in each table.
        tables: rows by table.
    """

    writer: str
    batch_id: int
    tables: Mapping[str, Rows]

    def packed(self) -> bytes:
        """Return the content of a file, as JSON."""
        # dataclasses.asdict would copy every list of receivers.
        tables = {name: vars(rows) for name, rows in self.tables.items()}
        return json.dumps(vars(self) | {"tables": tables}, default=_text).encode()

    @classmethod
    def unpacked(cls, content: bytes, name: str) -> Report:
        """Return the report in the content of a file.

        Args:
            content: result of `packed`.
            name: path of the file, for the error.

        Raises:
            StreamError: REPORT_UNREADABLE.
        """
        try:
            values = json.loads(content)
            tables = {table: Rows(**rows) for table, rows in values.pop("tables").items()}
            return cls(**values, tables=tables)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StreamError(
                "REPORT_UNREADABLE",
                f"{name} cannot be read ({error!r}): restore the file or remove it. Without it, "
                "its batch is missing from egress_ledger and statistics, and hosts cannot "
                "request its notifications again",
            ) from error


def writer_of(query: str) -> str:
    """Return the name of a query as a writer in reports and tables.

    Args:
        query: id of the query, see `stackcast.jobs.adapters.checkpoint.progress.Progress.identify`.
    """
    return f"stackcast-{query}"


class Reports:
    """The reports of a checkpoint that are not in the tables yet.

    The files are ``<checkpoint>/stackcast-reports/<batch>.json``.
    """

    def __init__(self, checkpoint: Folder) -> None:
        self._files = BatchFiles(checkpoint.folder(FOLDER), ".json", retained=None)

    def pending(self) -> list[Report]:
        """Return all reports, in the order of their batches.

        Raises:
            StreamError: REPORT_UNREADABLE.
        """
        contents = [(batch, self._files.read(batch)) for batch in self._files.batches()]
        return [
            Report.unpacked(content, self._files.path(batch))
            for batch, content in contents
            if content is not None
        ]

    def partitions(self, batch_id: int) -> list[dict[str, Any]] | None:
        """Return the column ``partitions`` of a batch in the ledger; None without a report.

        Raises:
            StreamError: REPORT_UNREADABLE.
        """
        content = self._files.read(batch_id)
        if content is None:
            return None
        report = Report.unpacked(content, self._files.path(batch_id))
        partitions: list[dict[str, Any]] = report.tables[LEDGER].columns["partitions"][0]
        return partitions

    def put(self, report: Report) -> None:
        """Write a report. It replaces that of an earlier attempt of the same batch.

        Raises:
            StreamError: REPORT_NOT_WRITTEN. The batch then counts as failed, and runs again.
        """
        name = self._files.path(report.batch_id)
        content = report.packed()
        try:
            self._files.replace(report.batch_id, content)
        except OSError as error:
            raise StreamError(
                "REPORT_NOT_WRITTEN", f"{name} could not be written: {one_line(error)}"
            ) from error

    def remove(self, batch_id: int) -> None:
        """Remove a report whose rows are in all tables."""
        self._files.remove(batch_id)


def merge_rows(reports: Sequence[Report], table: str) -> pa.Table | None:
    """Return the rows of reports for one table; None if there are none."""
    parts = [
        rows.arrow()
        for report in reports
        if (rows := report.tables.get(table)) is not None and rows.count
    ]
    return pa.concat_tables(parts, promote_options="default") if parts else None


def _scalar(name: str, value: Any) -> Any:
    kind = _TYPES.get(name, pa.int64())
    if kind == _TIME and isinstance(value, str):
        value = dt.datetime.fromisoformat(value)
    if pa.types.is_map(kind) and value is not None:
        value = list(value.items())
    return pa.scalar(value, kind)


def _text(value: Any) -> str:
    if isinstance(value, dt.datetime):
        return value.isoformat()
    raise TypeError(f"a report cannot contain {value!r}")
