"""Reports of batches: rows of the ledger and of the statistics, as a file in between.

The columns of a report are lists, or one value for all of its rows, so that ten thousand hosts cost
no Python step each.
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

#: In the order in which they are written: what the ledger knows of, the statistics have.
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
    """Rows of one table: ``same`` holds for each of them, ``columns`` one value for each."""

    count: int
    same: Mapping[str, Any]
    columns: Mapping[str, Sequence[Any]]

    def arrow(self) -> pa.Table:
        """As a table; a column is int64 where nothing else is said in `_TYPES`."""
        arrays = {
            name: pa.repeat(_scalar(name, value), self.count) for name, value in self.same.items()
        }
        for name, values in self.columns.items():
            arrays[name] = pa.array(values, _TYPES.get(name, pa.int64()))
        return pa.table(arrays)


@dataclass(frozen=True)
class Report:
    """Rows of one batch, by table.

    writer: who numbers the batches, so that each batch of each writer counts once.
    """

    writer: str
    batch_id: int
    tables: Mapping[str, Rows]

    def packed(self) -> bytes:
        # dataclasses.asdict would copy every list of receivers.
        tables = {name: vars(rows) for name, rows in self.tables.items()}
        return json.dumps(vars(self) | {"tables": tables}, default=_text).encode()

    @classmethod
    def unpacked(cls, content: bytes, name: str) -> Report:
        """Raises StreamError REPORT_UNREADABLE; ``name`` is that of the file."""
        try:
            held = json.loads(content)
            tables = {table: Rows(**rows) for table, rows in held.pop("tables").items()}
            return cls(**held, tables=tables)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StreamError(
                "REPORT_UNREADABLE",
                f"{name} cannot be read ({error!r}): restore the file or remove it. Without it, "
                "its batch is missing from egress_ledger and statistics, and hosts cannot "
                "request its notifications again",
            ) from error


def writer_of(query: str) -> str:
    """Returns who numbers the batches of a query, by its id, as reports and tables name it."""
    return f"stackcast-{query}"


class Reports:
    """The reports of a checkpoint, ``<checkpoint>/stackcast-reports/<batch>.json``."""

    def __init__(self, checkpoint: Folder) -> None:
        self._files = BatchFiles(checkpoint.folder(FOLDER), ".json", retained=None)

    def left(self) -> list[Report]:
        """Those that are there, in the order of batches. Raises StreamError REPORT_UNREADABLE."""
        found = []
        for batch in self._files.batches():
            content = self._files.read(batch)
            if content is not None:
                found.append(Report.unpacked(content, self._files.path(batch)))
        return found

    def partitions(self, batch_id: int) -> list[dict[str, Any]] | None:
        """Returns what a batch read, as its row of the ledger has it; None without a report.

        Raises StreamError REPORT_UNREADABLE.
        """
        content = self._files.read(batch_id)
        if content is None:
            return None
        report = Report.unpacked(content, self._files.path(batch_id))
        found: list[dict[str, Any]] = report.tables[LEDGER].columns["partitions"][0]
        return found

    def put(self, report: Report) -> None:
        """Write a report; one that is there is of an earlier try of the same batch, and goes.

        Raises StreamError REPORT_NOT_WRITTEN: the batch then counts as failed, and runs again.
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
        """Forget a report whose rows are in all tables."""
        self._files.remove(batch_id)


def merged(reports: Sequence[Report], table: str) -> pa.Table | None:
    """The rows of these reports in one table; None where there are none."""
    found = [
        rows.arrow()
        for report in reports
        if (rows := report.tables.get(table)) is not None and rows.count
    ]
    return pa.concat_tables(found, promote_options="default") if found else None


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
