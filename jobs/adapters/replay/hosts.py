"""Who asks: the host behind a request, by its address or by the name that it gives."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from jobs.adapters.app.settings import Settings
from jobs.adapters.tables.tables import Tables

TABLE = "hosts"
#: How old what is known of the table may get, seconds.
_SECONDS = 1.0


class Hosts:
    """Table ``hosts`` as it is now. For one thread."""

    def __init__(self, settings: Settings, tables: Tables) -> None:
        self._tables = tables
        self._by_name = settings.rerequest_identify == "name"
        self._head: tuple[str, int] | None = None
        self._looked = -_SECONDS
        self._names: Mapping[str, str] = {}

    def refresh(self) -> None:
        """Take what is new, once a second at most. Raises TableError MISSING, Spark's errors."""
        now = time.monotonic()
        if now - self._looked < _SECONDS:
            return
        head = self._tables.head(TABLE)
        if head != self._head:
            rows: list[dict[str, Any]] = self._tables.rows(TABLE, head[1])
            column = "host" if self._by_name else "ipv4"
            self._names = {row[column]: row["host"] for row in rows}
            self._head = head
        self._looked = now

    def identify(self, address: str, name: str) -> str | None:
        """The host that asks from an IPv4 address, or under a name; None if there is none."""
        return self._names.get(name if self._by_name else address)
