"""The tables that decide what switches hold, read at versions that belong together."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Any

from jobs.adapters.network_versions import SOURCES
from jobs.adapters.sql_errors import SQL_ERRORS, one_line
from jobs.adapters.switch_sessions import side_by_side
from jobs.adapters.tables import Tables
from udfs.errors import NetworkError
from udfs.switches.rollout import Source, Versions
from udfs.trees.rows import network_from_rows, tree_from_row

log = logging.getLogger(__name__)


class NetworkTables:
    """Keeps what it read until `forget`: a read takes up to a second, and is needed again.

    sources: the tables that decide, `SOURCES` and perhaps others.
    """

    def __init__(self, tables: Tables, sources: Collection[str] = SOURCES) -> None:
        self._tables = tables
        self._sources = tuple(sources)
        self._read: dict[tuple[str, int], list[dict[str, Any]]] = {}

    def current(self) -> dict[str, int]:
        """Versions of the sources, one after the other."""
        return {name: self._tables.version(name) for name in self._sources}

    def consistent(self) -> dict[str, int]:
        """Versions of the sources that were current all at one time."""
        versions = self.current()
        while (again := self.current()) != versions:
            versions = again
        return versions

    def rows(self, name: str, version: int) -> list[dict[str, Any]]:
        """Rows of any table as of a version."""
        known = self._read.get((name, version))
        if known is None:
            known = self._read[name, version] = self._tables.rows(name, version)
        return known

    def prefetch(self, wanted: Iterable[tuple[str, int]]) -> None:
        """Read side by side: most of a read is waiting for one small Spark job after the other."""
        side_by_side(lambda item: self.rows(*item), wanted)

    def know(self, name: str, version: int, rows: list[dict[str, Any]]) -> None:
        """The rows of a version, from who wrote them."""
        self._read[name, version] = rows

    def forget(self, but: Collection[tuple[str, int]]) -> None:
        """Forget what was read ``but`` for these versions of tables."""
        self._read = {key: rows for key, rows in self._read.items() if key in but}

    def source(self, versions: Versions) -> Source:
        """What the tables say. Raises NetworkError."""
        network = network_from_rows(
            *(self.rows(name, versions[name]) for name in ("switches", "hosts", "links"))
        )
        trees = self.rows("virtual_trees", versions["virtual_trees"])
        return Source(network, [tree_from_row(row) for row in trees])

    def source_or_none(self, versions: Versions) -> Source | None:
        """None where these versions cannot be read or used any more: by no stream, either."""
        try:
            return self.source(versions)
        except SQL_ERRORS as error:
            log.warning("versions %s cannot be read any more: %s", dict(versions), one_line(error))
        except NetworkError as error:
            log.warning("versions %s cannot be used: %s", dict(versions), error)
        return None
