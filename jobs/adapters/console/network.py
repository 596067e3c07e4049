"""The network as a map shows it: what stands where, what crosses each link, and what each switch,
link and host is about."""

from __future__ import annotations

import datetime as dt
import heapq
import ipaddress
import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.console.reading import Folded, Head, Reading, Row
from stackcast.jobs.adapters.planning.plans import NETWORK
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock, utc
from stackcast.jobs.adapters.tables.tables import DROPS, LIVE, PUBLICATIONS, REREQUESTS, TREES
from stackcast.udfs.errors import ConsoleError
from stackcast.udfs.network.drawing import cables, drawing
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.publishers import sending, several
from stackcast.udfs.network.rows import network_from_rows, tree_from_row
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.trees.link_loads import WAYS, LinkLoads
from stackcast.udfs.trees.publications import Publication, by_entry

#: Over which "now" is taken, seconds; rows of statistics come within two.
NOW_SECONDS = 10.0
#: Sets of receivers that are followed through the network, those of most bytes.
MOST_SETS = 3_000
#: Rows of a detail.
SHOWN = 50

Key = tuple[str, frozenset[str]]
#: Ends of a link, as bytes flow.
Pair = tuple[str, str]


@dataclass
class Sent:
    """Sums of notifications to one set of receivers; bytes are those of their datagrams."""

    notifications: int = 0
    messages: int = 0
    bytes: int = 0

    def add(self, notifications: int, messages: int, size: int) -> None:
        self.notifications += notifications
        self.messages += messages
        self.bytes += size

    def since(self, before: Sent) -> Sent:
        """Returns what came since."""
        return Sent(
            self.notifications - before.notifications,
            self.messages - before.messages,
            self.bytes - before.bytes,
        )


class PublishedSoFar:
    """Follows table ``publication_statistics``. For any thread."""

    def __init__(self, reading: Reading, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._reading = reading
        self._lock = threading.Lock()
        self._head: Head | None = None
        self._sums: dict[Key, Sent] = {}
        self._recent: deque[tuple[dt.datetime, Key, tuple[int, int, int]]] = deque()

    def refresh(self) -> tuple[dict[Key, Sent], dict[Key, Sent]]:
        """Returns sums by publisher and receivers of all that is on record, and of the last
        `NOW_SECONDS`. Raises TableError MISSING."""
        with self._lock:
            self._head, rows, anew = self._reading.grown(PUBLICATIONS, self._head)
            if anew:
                self._sums.clear()
                self._recent.clear()
            for row in sorted(rows, key=lambda row: row["recorded_at"]):
                key = row["publisher"], frozenset(row["receivers"])
                counts = row["notifications"], row["messages"], row["datagram_bytes"]
                self._sums.setdefault(key, Sent()).add(*counts)
                self._recent.append((row["recorded_at"], key, counts))
            since = utc(self._clock) - dt.timedelta(seconds=NOW_SECONDS)
            while self._recent and self._recent[0][0] < since:
                self._recent.popleft()
            recent: dict[Key, Sent] = {}
            for _, key, counts in self._recent:
                recent.setdefault(key, Sent()).add(*counts)
            copied = {key: Sent(**vars(sent)) for key, sent in self._sums.items()}
            return copied, recent


class NetworkView:
    """Reads the network, its trees and what was published. For any thread.

    geography: longitude and latitude of switches, where they are known.
    """

    def __init__(
        self,
        reading: Reading,
        settings: Settings,
        geography: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        self._reading = reading
        self._settings = settings
        self._geography = geography
        self._published = PublishedSoFar(reading)
        self._counting = threading.Lock()
        self._counted: dict[Key, Sent] | None = None
        self._carried: Counter[Pair] = Counter()
        self._drops = Folded(reading, DROPS, lambda row: (row["switch"], row["reason"]), _newer)
        self._asked = Folded(reading, REREQUESTS, lambda row: str(row["subscriber"]), _together)

    def versions(self) -> list[int]:
        """Returns versions of what `drawn` reads: it is the same while these are the same."""
        return [self._reading.tables.version(name) for name in (*NETWORK, TREES)]

    def network(self) -> Network:
        """Returns the network as its tables have it. Raises NetworkError, TableError."""

        def read() -> Network:
            switches, hosts, links = map(self._reading.rows, NETWORK)
            return network_from_rows(switches, hosts, links, self._settings.labels)

        return self._reading.of(NETWORK, "network", read)

    def trees(self) -> list[VirtualTree]:
        """Returns all rows of table ``virtual_trees``, by id."""
        rows = self._reading.rows(TREES)
        return sorted(map(tree_from_row, rows), key=lambda tree: tree.id)

    def publications(self) -> list[Publication]:
        """Returns what was published so far, as it enters the network."""
        return self._entering(self._published.refresh()[0].items())

    def drawn(self) -> dict[str, Any]:
        """Returns ``nodes`` and ``links`` as `stackcast.udfs.network.drawing` has them, and
        ``trees``."""
        nodes = self._reading.of(
            NETWORK, "drawing", lambda: drawing(self.network(), self._geography)
        )
        trees = [
            {
                "id": tree.id,
                "strategy": tree.strategy,
                "state": tree.state,
                "edges": [list(pair) for pair in sorted(tree.edges)],
            }
            for tree in self.trees()
            if tree.state != "retired"
        ]
        return {**nodes, "trees": trees, "versions": self.versions()}

    def loads(self) -> dict[str, Any]:
        """Returns bytes of each link of `drawn`, both ways together: ``now`` a second, over the
        last ``seconds``; ``stackcast``, ``unicast`` and ``broadcast`` since the first batch on
        record; and ``covered``, the share of all bytes that is of the sets followed.

        By the network and its trees as they are now. Raises NetworkError, TableError.
        """
        loads = self._loads()
        so_far, recent = self._published.refresh()
        followed = _heaviest(so_far)
        whole = sum(sent.bytes for sent in so_far.values())
        since = loads.of(self._entering(followed))
        now = loads.of(self._entering(recent.items()))[0] / NOW_SECONDS
        sums = dict(zip(WAYS, (self._both_ways(row) for row in since), strict=True))
        return {
            "now": self._both_ways(now),
            **sums,
            "seconds": NOW_SECONDS,
            "covered": sum(of.bytes for _, of in followed) / whole if whole else 1.0,
        }

    def bytes_so_far(self) -> dict[Pair, int]:
        """Returns bytes that each directed link of the network has carried since the first call,
        what came between two calls along the network and its trees as they are at the second.

        Raises NetworkError, TableError.
        """
        with self._counting:
            loads = self._loads()
            so_far, _ = self._published.refresh()
            before = so_far if self._counted is None else self._counted
            new = {key: sent.since(before.get(key, Sent())) for key, sent in so_far.items()}
            grown = {key: sent for key, sent in new.items() if sent.bytes > 0}
            self._counted = so_far
            row = loads.of(self._entering(_heaviest(grown)))[0]
            for pair, size in zip(loads.pairs, row.tolist(), strict=True):
                self._carried[pair] += int(size)
            return {pair: self._carried[pair] for pair in loads.pairs}

    def links_up(self) -> dict[Pair, bool]:
        """Returns of each directed link of `bytes_so_far` whether it can be used, as the map."""
        usable = cables(self.network())
        return {pair: usable[min(pair), max(pair)] for pair in self._loads().pairs}

    def switch(self, name: str) -> dict[str, Any]:
        """Returns what a switch is about. Raises ConsoleError UNKNOWN_NODE."""
        network = self.network()
        if name not in network.switches:
            raise _unknown(name)
        rows = self._reading.of(
            ("switch_entries",),
            "entries by switch",
            lambda: Counter(
                (row["switch"], row["table_name"]) for row in self._reading.rows("switch_entries")
            ),
        )
        checked = [row for row in self._reading.rows("switch_status") if row["switch"] == name]
        switch = network.switches[name]
        touching = [t for t in self.trees() if any(name in pair for pair in t.edges)]
        return {
            "name": name,
            "layer": switch.layer,
            "device_id": switch.device_id,
            "entries": {table: n for (of, table), n in sorted(rows.items()) if of == name},
            "trees": [{"id": t.id, "strategy": t.strategy, "state": t.state} for t in touching],
            "status": max(checked, key=lambda row: row["checked_at"], default=None),
            "drops": [
                {"reason": reason, "packets": row["packets"], "counted_at": row["counted_at"]}
                for (of, reason), row in sorted(self._drops.read().items())
                if of == name
            ],
            "links": [
                {"port": link.port, "to": link.neighbor, "up": network.usable(link)}
                for link in network.links
                if link.switch == name
            ],
        }

    def link(self, u: str, v: str) -> dict[str, Any]:
        """Returns what a link is about: ``up`` as for the map, ``down`` the ends from where table
        ``links`` has it down, ``trees``, and each of its ``ways`` with the ``cables`` that it has.

        Raises ConsoleError UNKNOWN_NODE.
        """
        loads, network = self._loads(), self.network()
        so_far, recent = self._published.refresh()
        since = loads.of(self._entering(_heaviest(so_far)))
        now = loads.of(self._entering(recent.items()))[0] / NOW_SECONDS
        ways = []
        for at, pair in enumerate(loads.pairs):
            if set(pair) != {u, v}:
                continue
            ways.append(
                {
                    "from": pair[0],
                    "to": pair[1],
                    "now": now[at],
                    **{way: int(row[at]) for way, row in zip(WAYS, since, strict=True)},
                    "cables": [
                        {"id": x.id, "port": x.port, "weight": x.weight, "up": network.usable(x)}
                        for x in network.links
                        if (x.switch, x.neighbor) == pair
                    ],
                }
            )
        if not ways:
            raise _unknown(f"{u} to {v}")
        crossing = [t for t in self.trees() if {(u, v), (v, u)} & t.edges]
        trees = [{"id": t.id, "strategy": t.strategy, "state": t.state} for t in crossing]
        rows = [x for x in network.links if {x.switch, x.neighbor} == {u, v}]
        return {
            "up": any(map(network.usable, rows)),
            "down": list(dict.fromkeys(x.switch for x in rows if not x.up)),
            "ways": ways,
            "trees": trees,
        }

    def host(self, name: str) -> dict[str, Any]:
        """Returns what a host is about. Raises ConsoleError UNKNOWN_NODE."""
        network = self.network()
        if name not in network.hosts:
            raise _unknown(name)
        host = network.hosts[name]
        so_far, recent = self._published.refresh()

        def sums(found: Mapping[Key, Sent]) -> dict[str, int]:
            mine = [sent for (_, hosts), sent in found.items() if name in hosts]
            return {
                "notifications": sum(sent.notifications for sent in mine),
                "messages": sum(sent.messages for sent in mine),
                "bytes": sum(sent.bytes for sent in mine),
            }

        live = [row for row in self._reading.rows(LIVE) if row["subscriber"] == name]
        return {
            "name": name,
            "role": host.role,
            "switch": host.switch,
            "port": host.port,
            "ipv4": str(ipaddress.IPv4Address(host.ipv4)),
            "total": sums(so_far),
            "now": {key: value / NOW_SECONDS for key, value in sums(recent).items()},
            "asked": self._asked.read().get(name),
            "subscriptions": len(live),
            "rules": [{"id": row["id"], "filter": row["filter"]} for row in live[:SHOWN]],
        }

    def _loads(self) -> LinkLoads:
        return self._reading.of(
            (*NETWORK, TREES),
            "loads",
            lambda: LinkLoads(self.network(), self.trees(), self._settings.max_labels),
        )

    def _both_ways(self, row: NDArray[Any]) -> list[float]:
        """Sums of the two ways of each link, in the order of the drawing's."""

        def make() -> NDArray[np.int64]:
            number = {pair: at for at, pair in enumerate(cables(self.network()))}
            return np.array([number[min(p), max(p)] for p in self._loads().pairs], np.int64)

        places = self._reading.of((*NETWORK, TREES), "places of pairs", make)
        found: list[float] = np.bincount(places, row).round(1).tolist()
        return found

    def _entering(self, of: Iterable[tuple[Key, Sent]]) -> list[Publication]:
        named = self._settings.publisher
        publishers = sending(self.network(), named) if several(named) else ()
        made = [
            Publication(publisher, hosts, sent.notifications, sent.bytes)
            for (publisher, hosts), sent in of
        ]
        return by_entry(made, publishers)


def _newer(before: Row | None, row: Row) -> Row:
    return row if before is None or row["counted_at"] >= before["counted_at"] else before


def _together(before: Row | None, row: Row) -> Row:
    """Sums of what a host asked for again, and when it did so last."""
    if before is None:
        return row
    counts = ("requests", "notifications", "bytes", "unavailable", "rejected")
    last = max(before["recorded_at"], row["recorded_at"])
    return {**row, **{name: before[name] + row[name] for name in counts}, "recorded_at": last}


def _heaviest(sums: Mapping[Key, Sent]) -> list[tuple[Key, Sent]]:
    return heapq.nlargest(MOST_SETS, sums.items(), key=lambda item: item[1].bytes * len(item[0][1]))


def _unknown(name: str) -> ConsoleError:
    return ConsoleError(
        "UNKNOWN_NODE", f"the network has no switch, host or link {name!r}", name=name
    )
