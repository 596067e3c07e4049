"""Which versions of the tables the next micro-batch is made from."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from jobs.adapters.network_versions import SOURCES, TABLE, NetworkVersions
from jobs.adapters.tables import Tables
from udfs.switches.rollout import Versions

log = logging.getLogger(__name__)

#: Besides the tables' names: the version of ``links`` that says which links are ``up``. The rest of
#: ``links`` is of the version that the switches are ready for.
LINK_STATES = "link_states"


class BatchVersions:
    """Versions for the stream of a topic.

    ``subscriptions`` are as they are now. The network and its trees are as `network_versions` says
    that all switches hold them, so that no stack names what a switch lacks; but which links are up
    is as of now, since an edit of that needs no switch. ``more`` tables are as they are now, too.
    Asking costs a look at the log of each.
    """

    def __init__(self, tables: Tables, topic: str, more: Sequence[str] = ()) -> None:
        self._tables = tables
        self._more = more
        self._topic = topic
        self._versions = NetworkVersions(tables)
        self._ready: tuple[int, Versions] | None = None
        self._warned = False

    def current(self) -> dict[str, int]:
        """The versions for a batch that begins now. Raises TableError MISSING."""
        # In this order: the links' state is not older than what is ready.
        network = self._network()
        return {
            "subscriptions": self._tables.version("subscriptions"),
            **{name: self._tables.version(name) for name in self._more},
            **network,
            LINK_STATES: self._tables.version("links"),
        }

    def announce(self, versions: Versions) -> None:
        """Before the first batch of all: keep on the switches what these versions need, or later
        ones. Call `current` again afterwards."""
        self._versions.announce(self._topic, network_part(versions))

    def _network(self) -> Versions:
        version = self._tables.version(TABLE)
        if self._ready is not None and self._ready[0] == version:
            return self._ready[1]
        newest = {name: self._tables.version(name) for name in SOURCES}
        ready = self._versions.newest(newest)
        if ready is None:
            if not self._warned:
                log.warning(
                    "refresh_switches has not said yet that the switches are ready: frames may be "
                    "lost or go astray until it runs"
                )
                self._warned = True
            return newest
        self._ready = version, ready
        return ready


def network_part(versions: Versions) -> dict[str, int]:
    """Of a batch's versions those of tables that switches are written from."""
    return {name: versions[name] for name in SOURCES}
