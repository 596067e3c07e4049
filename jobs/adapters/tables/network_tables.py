"""The tables that decide what switches hold, read at versions that belong together."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from stackcast.jobs.adapters.app.storage_errors import StorageError
from stackcast.jobs.adapters.tables.network_versions import SOURCES
from stackcast.jobs.adapters.tables.seniority import Seniority
from stackcast.jobs.adapters.tables.tables import SENIORITY, Tables
from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.labels import NARROW, LabelFormat
from stackcast.udfs.network.rows import network_from_rows, tree_from_row
from stackcast.udfs.network.virtual_tree import check_ids, stored
from stackcast.udfs.switches.rollout import NetworkVersion, Versions

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Older:
    """Contents of versions in use. gone: those among them that Delta cannot read ever again."""

    sources: list[NetworkVersion]
    gone: list[Versions]


class NetworkTables:
    """Keeps what it read until `forget`: a read takes up to a second, and is needed again.

    sources: the tables that decide, `SOURCES` and perhaps others. labels: the format of the
    network's stacks.
    """

    def __init__(
        self,
        tables: Tables,
        sources: Collection[str] = SOURCES,
        labels: LabelFormat = NARROW,
    ) -> None:
        self._tables = tables
        self._labels = labels
        self._sources = tuple(sources)
        self._seniority = Seniority(tables) if SENIORITY in sources else None
        self._read: dict[tuple[str, int], list[dict[str, Any]]] = {}
        self._sources_read: dict[frozenset[tuple[str, int]], NetworkVersion] = {}
        self._told: set[frozenset[tuple[str, int]]] = set()

    def current(self) -> dict[str, int]:
        """Returns versions of the sources, one after the other.

        `subscription_seniority` is written first, if it is a source and out of date.
        """
        ordered = {} if self._seniority is None else self._seniority.versions()
        return {name: self._tables.version(name) for name in self._sources} | ordered

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
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda item: self.rows(*item), wanted))

    def know(self, name: str, version: int, rows: list[dict[str, Any]]) -> None:
        """The rows of a version, from who wrote them."""
        self._read[name, version] = rows

    def forget(self, but: Collection[tuple[str, int]]) -> None:
        """Forget what was read ``but`` for these versions of tables."""
        self._read = {key: rows for key, rows in self._read.items() if key in but}
        kept = set(but)
        self._sources_read = {k: source for k, source in self._sources_read.items() if k <= kept}

    def source(self, versions: Versions) -> NetworkVersion:
        """Returns what the tables say. Raises NetworkError."""
        key = frozenset((name, versions[name]) for name in SOURCES)
        known = self._sources_read.get(key)
        if known is None:
            known = self._sources_read[key] = self._source(versions)
        return known

    def _source(self, versions: Versions) -> NetworkVersion:
        network = network_from_rows(
            self.rows("switches", versions["switches"]),
            self.rows("hosts", versions["hosts"]),
            self.rows("links", versions["links"]),
            self._labels,
        )
        trees = self.rows("virtual_trees", versions["virtual_trees"])
        found = [tree_from_row(row) for row in trees]
        check_ids(stored(found), network.labels)
        return NetworkVersion(network, found)

    def older(self, in_use: Iterable[Versions]) -> Older:
        """Returns what these versions say, in the same order.

        Left out are those whose rows make no network: no stream can use them, either. An error of
        storage that may pass is raised: what is in use is not known then.
        """
        found = Older([], [])
        for versions in in_use:
            try:
                found.sources.append(self.source(versions))
            except StorageError as error:
                if not error.gone:
                    raise
                found.gone.append(versions)
                self._tell(
                    versions,
                    "a batch may still use versions %s, which were deleted from Delta (%s). No "
                    "entry is removed from switches and no tree is retired until egress_ledger "
                    "contains a batch of newer versions. If no stream that used them is running "
                    "any longer, delete its rows from egress_ledger and network_versions",
                    error,
                )
            except NetworkError as error:
                self._tell(versions, "versions %s cannot be used: %s", error)
        return found

    def _tell(self, versions: Versions, text: str, why: object) -> None:
        """Once for the same versions."""
        key = frozenset(versions.items())
        if key not in self._told:
            self._told.add(key)
            log.warning(text, dict(versions), why)
