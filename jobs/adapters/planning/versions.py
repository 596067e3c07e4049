"""Versions of the tables for the next batch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future

from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS, Threads, Worker
from stackcast.jobs.adapters.tables.network_versions import SOURCES, TABLE, NetworkVersions
from stackcast.jobs.adapters.tables.seniority import Seniority
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.switches.rollout import Versions

log = logging.getLogger(__name__)

#: Key of the version of ``links`` from which the column ``up`` is read. Other columns are read from
#: the version for which switches are ready.
LINK_STATES = "link_states"

#: Maximum age of versions on remote storage at the start of a batch, in seconds.
FRESH = 1.0


class BatchVersions:
    """Finds versions of the tables for the batches of a topic.

    Rules have their current version, and `subscription_seniority` is written before it is used. The
    network and its trees have the newest version for which all switches are ready, according to
    `network_versions`. So no stack contains a label that a switch does not know. The column ``up``
    of links is current, because switches do not depend on it.

    On a local path, it takes 50 us to read all versions, and each batch reads them: commits before
    its start are live in it. On remote storage, this takes tens of milliseconds, so versions are
    read while the previous batch runs: commits `FRESH` seconds before the start are live.

    Args:
        tables: tables of the stream.
        topic: topic of the stream.
        more: further tables, whose current versions are used.
        sources: tables that determine the entries of switches. If switches match, rules are
            among them.
        threads: threads of the driver.
    """

    def __init__(
        self,
        tables: Tables,
        topic: str,
        more: Sequence[str] = (),
        sources: Sequence[str] = SOURCES,
        threads: Threads = SYSTEM_THREADS,
    ) -> None:
        self._tables = tables
        self._more = more
        self._sources = sources
        self._topic = topic
        self._threads = threads
        self._versions = NetworkVersions(tables, threads.clock)
        self._seniority = Seniority(tables)
        self._ready: tuple[int, Versions] | None = None
        # Versions without a ready network. They are read again when one of them changes.
        self._unready: tuple[int, Versions] | None = None
        self._warned = False
        self._worker: Worker | None = None
        self._prefetched: Future[tuple[float, dict[str, int]]] | None = None

    def current(self) -> dict[str, int]:
        """Return the versions for a batch that begins now. For one thread.

        Raises:
            TableError: MISSING.
        """
        if self._tables.local:
            return self.poll()
        if self._worker is None:
            self._worker = self._threads.worker("versions")
        ahead, self._prefetched = self._prefetched, None
        if (
            ahead is None
            or ahead.exception()
            or self._threads.clock.monotonic() - ahead.result()[0] > FRESH
        ):
            ahead = self._worker.submit(self._timed)
        _, versions = ahead.result()
        self._prefetched = self._worker.submit(self._timed)
        return versions

    def close(self) -> None:
        """Return after reads in progress have ended."""
        if self._worker is not None:
            self._worker.close()

    def _timed(self) -> tuple[float, dict[str, int]]:
        began = self._threads.clock.monotonic()
        return began, self.poll()

    def poll(self) -> dict[str, int]:
        """Read the current versions. Only one thread may do so at a time.

        Raises:
            TableError: MISSING.
        """
        # This order ensures that the state of links is not older than the network.
        network = self._network()
        return {
            **self._seniority.versions(),
            **{name: self._tables.version(name) for name in self._more},
            **network,
            LINK_STATES: self._tables.version("links"),
        }

    def announce(self, versions: Versions) -> None:
        """Make switches retain the entries for these versions, before the first batch of a stream.

        Call `current` again afterwards.
        """
        needed = network_part(versions, self._sources)
        if self._worker is None:
            self._versions.announce(self._topic, needed)
            return
        self._worker.submit(self._versions.announce, self._topic, needed).result()
        # It may be older than the announcement.
        self._prefetched = None

    def _network(self) -> Versions:
        version = self._tables.version(TABLE)
        if self._ready is not None and self._ready[0] == version:
            return self._ready[1]
        newest = {name: self._tables.version(name) for name in self._sources}
        if self._unready == (version, newest):
            return newest
        ready = self._versions.newest(newest)
        if ready is None:
            if not self._warned:
                log.warning(
                    "no version of the network is marked as ready by refresh_switches: frames "
                    "may be lost or reach wrong hosts until it runs"
                )
                self._warned = True
            self._unready = version, newest
            return newest
        self._ready = version, ready
        return ready


def network_part(versions: Versions, sources: Sequence[str] = SOURCES) -> dict[str, int]:
    """Return the versions of the tables from which the entries of switches are made."""
    return {name: versions[name] for name in sources}
