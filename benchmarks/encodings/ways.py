"""What one notification takes, by each way to say where it goes and to bring it there.

A frame is followed switch by switch as the forwarding model says. Delays are those of WERNECKE
3.5.5: 0.1 ms to feed a frame in and in each switch, 0.01 ms for each pass beyond the first, 2 ms in
a broker. ``queued`` is the same with queues: passes beyond the first wait for the switch's one way
back to its parser, and frames for the link that they leave by, of `RATE`; `BURST` notifications
come at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import ceil

from stackcast.udfs.network.labels import SwitchTables
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.paths import next_links
from stackcast.udfs.network.source_routes import SourceRoute
from stackcast.udfs.network.stored_routes import StoredRoute
from stackcast.udfs.stacks.forwarding import forward
from stackcast.udfs.switches.ports import SUBSET
from stackcast.udfs.switches.stack_entries import LABELS_A_PASS

FEED_IN, SWITCH, PASS, BROKER = 0.1, 0.1, 0.01, 2.0
RATE = 100_000  # bits a millisecond: 100 Mbit/s
BURST = 10
ETHERNET, COUNT = 14, 2

Edge = tuple[str, str]


@dataclass(frozen=True)
class Taken:
    """What one notification takes.

    header: bytes at the source, of all its frames. header_links, load: bytes of header, and all
    bytes, on all links. frames: that the publisher sends. packets: transmissions. lookups, passes:
    labels that switches look up, and passes, over all switches. delay, queued: ms until the last
    receiver has it. hosts: copies that each host gets.
    """

    header: int
    header_links: int
    load: int
    frames: int
    packets: int
    lookups: int
    passes: int
    delay: float
    queued: float
    hosts: Mapping[str, int]


def passes(tables: SwitchTables, port: int, labels: Sequence[int]) -> int:
    """Returns the passes that a stack takes in a switch, by the programs' arithmetic."""
    copies = forward(tables, port, tuple(labels))
    subsets = len({(out - 1) // SUBSET for out, _ in copies})
    scan = ceil(len(labels) / LABELS_A_PASS)
    found = scan + (subsets if subsets > 1 else 0)
    if isinstance(tables.labels, SourceRoute):
        own = [tables.labels.id_of(label) in tables.own for label in labels]
        runs = sum(mine and not before for mine, before in zip(own, [False, *own], strict=False))
        # With predictive pruning a run ends where the next begins, else where no label is own.
        last = not tables.labels.reactive or own[-1]
        found += max(runs - last, 0)
    elif isinstance(tables.labels, StoredRoute):
        # A copy that loses labels goes through all of them once more.
        cut = sum(left is not None and len(left) < len(labels) for _, left in copies)
        found += cut * scan
    return found


def by_stacks(
    network: Network,
    tables: Mapping[str, SwitchTables],
    publisher: str,
    stacks: Iterable[Sequence[int]],
    datagram: int,
) -> Taken:
    """Follows the frames of one notification. datagram: bytes of IPv4 and what is in it."""
    size = network.labels.size
    ends = {(link.switch, link.port): link for link in network.links}
    source = network.hosts[publisher]
    stacks = [tuple(stack) for stack in stacks]
    first = sum(COUNT + size * len(stack) for stack in stacks)
    header_links = packets = lookups = rounds = load = 0
    hosts: dict[str, int] = {}
    last = 0.0

    def head(labels: Sequence[int] | None) -> int:
        return COUNT + size * len(labels) if labels else 0

    for number, stack in enumerate(stacks, 1):
        waiting = [(FEED_IN * number, source.switch, source.port, stack)]
        header_links += head(stack)
        load += ETHERNET + head(stack) + datagram
        packets += 1
        while waiting:
            time, switch, port, labels = waiting.pop()
            taken = passes(tables[switch], port, labels)
            lookups += len(labels)
            rounds += taken
            out_at = time + SWITCH + PASS * (taken - 1)
            for out, left in forward(tables[switch], port, labels):
                link = ends[switch, out]
                packets += 1
                header_links += head(left)
                load += ETHERNET + head(left) + datagram
                if link.neighbor_port is None:
                    hosts[link.neighbor] = hosts.get(link.neighbor, 0) + 1
                    last = max(last, out_at)
                else:
                    assert left is not None
                    waiting.append((out_at, link.neighbor, link.neighbor_port, left))
    queued = _queued(network, tables, publisher, stacks, datagram)
    return Taken(
        first, header_links, load, len(stacks), packets, lookups, rounds, last, queued, hosts
    )


def _queued(
    network: Network,
    tables: Mapping[str, SwitchTables],
    publisher: str,
    stacks: Sequence[tuple[int, ...]],
    datagram: int,
) -> float:
    """Returns when the last receiver has the last of `BURST` notifications, in ms."""
    size = network.labels.size
    ends = {(link.switch, link.port): link for link in network.links}
    source = network.hosts[publisher]
    events: list[tuple[float, int, str, int, tuple[int, ...]]] = []
    count = 0
    for number in range(BURST):
        for at, stack in enumerate(stacks, 1):
            count += 1
            begins = FEED_IN * (number * len(stacks) + at)
            heappush(events, (begins, count, source.switch, source.port, stack))
    back: dict[str, float] = {}
    busy: dict[Edge, float] = {}
    known: dict[tuple[str, int, tuple[int, ...]], tuple[int, object]] = {}
    last = 0.0
    while events:
        time, _, switch, port, labels = heappop(events)
        key = switch, port, labels
        if key not in known:
            known[key] = passes(tables[switch], port, labels), forward(tables[switch], port, labels)
        rounds, copies = known[key]
        ready = time
        if rounds > 1:
            ready = max(time, back.get(switch, 0.0)) + PASS * (rounds - 1)
            back[switch] = ready
        for out, left in copies:  # type: ignore[attr-defined]
            link = ends[switch, out]
            length = ETHERNET + datagram + (COUNT + size * len(left) if left else 0)
            edge = switch, link.neighbor
            sent = max(ready + SWITCH, busy.get(edge, 0.0)) + 8 * length / RATE
            busy[edge] = sent
            if link.neighbor_port is None:
                last = max(last, sent)
            else:
                count += 1
                heappush(events, (sent, count, link.neighbor, link.neighbor_port, left))
    return last


def cut_to_subtrees(
    network: Network, stacks: Iterable[tuple[Sequence[int], Sequence[Edge]]], whole: Taken
) -> Taken:
    """Counts what virtual-tree stacks of hops alone would take if each copy carried the labels of
    the subtree behind it and no other (predictive pruning, which WERNECKE 5.2.5 declines).

    stacks: labels and edges, parents first. A label before the subtree of each further child, as
    wide as any, says where it begins. Each copy of a fork goes through its switch once more for all
    labels of the stack, as those of stored routes do. Delays are left out.
    """
    size = network.labels.size
    header = header_links = lookups = rounds = 0
    for labels, edges in stacks:
        used = Counter(link.switch for link in map(network.link_of, labels) if link)
        children: dict[str, list[str]] = {}
        for u, v in edges:
            if v in network.switches:
                children.setdefault(u, []).append(v)
        below: dict[str, int] = {}
        for _, v in reversed(edges):
            if v in network.switches:
                onward = children.get(v, [])
                separators = max(len(onward) - 1, 0)
                below[v] = used[v] + separators + sum(below[w] for w in onward)
        for _, v in edges:
            if v in network.switches:
                header_links += COUNT + size * below[v] if below[v] else 0
                scan = ceil(below[v] / LABELS_A_PASS)
                copies = len(children.get(v, []))
                lookups += below[v]
                rounds += scan * (1 + (copies if copies > 1 else 0))
        header += COUNT + size * below[edges[0][1]]
    return replace(
        whole, header=header, header_links=header_links, lookups=lookups, passes=rounds,
        load=whole.load - whole.header_links + header_links, delay=float("nan"),
        queued=float("nan"),
    )  # fmt: skip


def by_edges(
    network: Network,
    edges: Sequence[Edge],
    datagram: int,
    header: int = 0,
    broker: Callable[[str, int], bool] = lambda switch, copies: False,
    groups: bool = False,
) -> Taken:
    """Counts a notification along a tree, its edges parents first, the publisher's link first.

    header: bytes on every link but those to hosts. broker: whether a switch, by the number of its
    copies, sends to a broker, which sends each copy back to it, or with ``groups`` one for all.
    """
    copies: dict[str, int] = {}
    for u, _ in edges:
        copies[u] = copies.get(u, 0) + 1
    at: dict[str, float] = {edges[0][0]: 0.0}
    packets = header_links = load = 0
    last = 0.0
    for u, v in edges:
        carried = header if v in network.switches else 0
        packets += 1
        header_links += carried
        load += ETHERNET + carried + datagram
        at[v] = at[u] + (FEED_IN if u in network.hosts else SWITCH)
        if v in network.switches and broker(v, copies.get(v, 0)):
            there = 2 if groups else 1 + copies[v]
            packets += there
            load += there * (ETHERNET + datagram)
            # To the broker, in it, and through the switch once more.
            at[v] += SWITCH + BROKER
        elif v in network.hosts:
            last = max(last, at[v])
    hosts = {v: 1 for _, v in edges if v in network.hosts}
    return Taken(
        header, header_links, load, 1, packets, 0, sum(v in network.switches for _, v in edges),
        last, float("nan"), hosts,
    )  # fmt: skip


def together(parts: Sequence[Taken]) -> Taken:
    """Adds up the frames of one notification, which the publisher feeds in one after the other."""
    hosts: dict[str, int] = {}
    for part in parts:
        hosts |= part.hosts
    return Taken(
        *(
            sum(getattr(part, name) for part in parts)
            for name in ("header", "header_links", "load", "frames", "packets", "lookups", "passes")
        ),
        delay=max(part.delay + FEED_IN * at for at, part in enumerate(parts)),
        queued=float("nan"),
        hosts=hosts,
    )


class Paths:
    """The shortest paths from one publisher, as routes take them."""

    def __init__(self, network: Network, publisher: str) -> None:
        self._network = network
        self._publisher = network.hosts[publisher]
        self._onward = next_links(network)

    def to(self, host: str) -> list[Edge]:
        goal, at = self._network.hosts[host].switch, self._publisher.switch
        path = [(self._publisher.name, at)]
        while at != goal:
            link = self._onward[at, goal]
            path.append((at, link.neighbor))
            at = link.neighbor
        return [*path, (at, host)]

    def tree(self, hosts: Iterable[str]) -> list[Edge]:
        """Returns the paths to all of them, each edge once, where they part and meet again as
        well."""
        return list(dict.fromkeys(edge for host in sorted(hosts) for edge in self.to(host)))


def rooted(edges: Sequence[Edge]) -> Iterator[Edge]:
    """Yields the edges of a tree that leads to each node once, in their order."""
    seen = {edges[0][0]}
    for u, v in edges:
        if v not in seen:
            seen.add(v)
            yield u, v
