"""Versions of the tables that the next micro-batch is made from."""

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

#: Besides the tables' names: the version of ``links`` that says which links are ``up``. The rest of
#: ``links`` is of the version that the switches are ready for.
LINK_STATES = "link_states"

#: How old a look at tables on other storage may be when a batch begins, seconds.
FRESH = 1.0


class BatchVersions:
    """Versions for the stream of a topic.

    ``subscriptions`` are as they are now, and `subscription_seniority` is written before a version
    of them is used. The network and its trees are as `network_versions` says
    that all switches hold them, so that no stack names what a switch lacks; but which links are up
    is as of now, since an edit of that needs no switch. ``more`` tables are as they are now, too.
    sources: the tables that decide what switches hold; where switches match, subscriptions are
    among them, and the stream follows these.

    On a local path a look at all of them takes some 50 us, and each batch looks for itself: what is
    committed before a batch begins is live in it. Elsewhere a look takes tens of milliseconds, so
    it is taken while the batch before runs: what is committed `FRESH` seconds before a batch begins
    is live in it. Call `close` at the end.
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
        # Nothing was ready then: that is read again when one of these has another version.
        self._unready: tuple[int, Versions] | None = None
        self._warned = False
        self._beside: Worker | None = None
        self._ahead: Future[tuple[float, dict[str, int]]] | None = None

    def current(self) -> dict[str, int]:
        """The versions for a batch that begins now. For one thread. Raises TableError MISSING."""
        if self._tables.local:
            return self.poll()
        if self._beside is None:
            self._beside = self._threads.worker("versions")
        ahead, self._ahead = self._ahead, None
        if (
            ahead is None
            or ahead.exception()
            or self._threads.clock.monotonic() - ahead.result()[0] > FRESH
        ):
            ahead = self._beside.submit(self._timed)
        _, versions = ahead.result()
        self._ahead = self._beside.submit(self._timed)
        return versions

    def close(self) -> None:
        """End the looks beside."""
        if self._beside is not None:
            self._beside.close()

    def _timed(self) -> tuple[float, dict[str, int]]:
        began = self._threads.clock.monotonic()
        return began, self.poll()

    def poll(self) -> dict[str, int]:
        """The versions as they are in this moment. Not while another thread looks.

        Raises TableError MISSING.
        """
        # In this order: the links' state is not older than what is ready.
        network = self._network()
        return {
            **self._seniority.versions(),
            **{name: self._tables.version(name) for name in self._more},
            **network,
            LINK_STATES: self._tables.version("links"),
        }

    def announce(self, versions: Versions) -> None:
        """Before the first batch of all: keep on the switches what these versions need, or later
        ones. Call `current` again afterwards."""
        needed = network_part(versions, self._sources)
        if self._beside is None:
            self._versions.announce(self._topic, needed)
            return
        self._beside.submit(self._versions.announce, self._topic, needed).result()
        # It may have looked before.
        self._ahead = None

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
    """Returns, of a batch's versions, those of tables that switches are written from."""
    return {name: versions[name] for name in sources}
