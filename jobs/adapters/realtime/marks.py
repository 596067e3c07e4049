"""Rows of `egress_ledger` that say which versions a real-time stream uses, and nothing else.

`refresh_switches` takes from switches what no stream names any more, and knows it by that table.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Mapping
from typing import Any

from jobs.adapters.app.error_texts import SQL_ERRORS, one_line
from jobs.adapters.tables.tables import Tables

log = logging.getLogger(__name__)

LEDGER = "egress_ledger"
_COUNTS = ("packets", "messages", "matched", "frames", "bytes", "dead_letters")


class Marks:
    """Writes one row for each versions in use, beside the caller. Rows have no partitions and
    count nothing: what was sent is in the ledger's topic."""

    def __init__(self, tables: Tables, topic: str) -> None:
        self._tables = tables
        self._topic = topic
        self._marked: Mapping[str, int] = {}
        self._thread: threading.Thread | None = None

    def put(self, number: int, versions: Mapping[str, int]) -> None:
        """Say that all workers use these versions, if that is not said yet."""
        if versions == self._marked or (self._thread is not None and self._thread.is_alive()):
            return
        self._thread = threading.Thread(
            target=self._write, args=(number, dict(versions)), name="marks", daemon=True
        )
        self._thread.start()

    def _write(self, number: int, versions: dict[str, int]) -> None:
        row: dict[str, Any] = {
            **dict.fromkeys(self._tables.read(LEDGER).columns),
            "batch_id": number,
            "topic": self._topic,
            "partitions": [],
            "versions": versions,
            **dict.fromkeys(_COUNTS, 0),
            "started_at": dt.datetime.now(dt.UTC),
            "seconds": 0.0,
        }
        try:
            self._tables.append(LEDGER, [row])
            self._marked = versions
        except SQL_ERRORS as error:
            log.error("table %s could not be written: %s", LEDGER, one_line(error))
