"""The encoder: from a receiver set to header stacks (WERNECKE 5.2.7).

A stack is right by construction. Given a delivery tree and a set of virtual trees in the
stack, every switch on the way must send out of its children's ports and no other: what the
virtual trees lack there becomes a hop label, what they have too much a stop label. So
virtual trees may overlap or close cycles between them: those ports are too much. So are ports
towards failed links, which switches keep in their trees
(`stackcast.udfs.network.virtual_tree.tree_ports`): a stop label prunes each where the notification
would come by, whether the link is down or up again.

What there is to choose are the delivery tree and the virtual trees. ``greedy`` is Algorithm 5.1.
``refined`` begins with its answer, among others, and makes it shorter
(`stackcast.udfs.trees.kernels.refined`), so its stacks never have more labels; of more than 512
stored trees it looks at 32, with many receivers at more, and Algorithm 5.1 is ended early, as the
text allows, after the half of them that come first in its order
(`stackcast.udfs.trees.kernels.candidates`). ``quick`` takes the plain Steiner tree and the stored
trees that pay on it: one search, for networks where one a stored tree takes too long.

Where one stack would be too long, its delivery tree is cut into pieces
(`stackcast.udfs.trees.kernels.cut`), and the receivers of each get a stack: one that begins with
the stored trees of the whole (`stackcast.udfs.trees.kernels.refined.resumed`), or that of Algorithm
5.1 where it is shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.labels import HOP, MAX_LABELS, STOP, TREE, TypedLabels
from stackcast.udfs.network.network import Host, Network
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.trees.kernels.arrays import EncodingTask, Work
from stackcast.udfs.trees.kernels.cut import cut
from stackcast.udfs.trees.kernels.encode import (
    GREEDY,
    LISTED,
    PART,
    QUICK,
    REFINED,
    SHORTEST,
    encode_branch,
)
from stackcast.udfs.trees.kernels.encode import encode as run_encode
from stackcast.udfs.trees.kernels.stack import MOST_TREES
from stackcast.udfs.trees.steiner import check_receivers
from stackcast.udfs.trees.stored_trees import StoredTrees
from stackcast.udfs.trees.switch_graph import SwitchGraph

Algorithm = Literal["refined", "greedy", "quick"]
_ALGORITHMS = {"greedy": GREEDY, "refined": REFINED, "quick": QUICK}
Edges = tuple[tuple[str, str], ...]
_Result = TypeVar("_Result")

#: Delivery trees that the refined algorithm tries at each step, by links that the searches look at.
#: Where a network has more links than this, refined is quick.
_EFFORT = 12_000
_MOST_EFFORT = 64
#: Up to so many stored trees the refined algorithm looks at all; of more, an index chooses so many,
#: and some more for each receiver beyond a few.
ALL_UP_TO, LOOKED_AT = 512, 32
FEW_RECEIVERS, MORE_EACH = 10, 12
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Encoding:
    """One header stack and what it does.

    labels: as wide as the network's, trees first, then hops and stops by their switch's distance
    from the publisher: those that are used first stand first. receivers: sorted host names. edges:
    ``(u, v)`` as the notification flows, the publisher's link first.
    """

    labels: tuple[int, ...]
    receivers: tuple[str, ...]
    edges: Edges


@dataclass(frozen=True)
class Size:
    """Counts the parts of one stack.

    trees: ids of the stored trees that it names. hops, stops: its labels of these types.
    switch_links: links between switches that carry it. crossings: its labels on each link that
    carries the stack, the publisher's among them, added up; hops and stops leave it on the way.
    ways: links from the publisher to each receiver, added up over receivers.
    greedy: labels of Algorithm 5.1's stack, 0 where none was looked for.
    """

    trees: tuple[int, ...]
    hops: int
    stops: int
    switch_links: int
    crossings: int
    ways: int
    greedy: int = 0

    @property
    def labels(self) -> int:
        return len(self.trees) + self.hops + self.stops


def stack_too_long(host: str, labels: int, publisher: str, most: int) -> NetworkError:
    """Returns the error ``STACK_TOO_LONG``: one host alone needs more labels than a stack holds."""
    return NetworkError(
        "STACK_TOO_LONG",
        f"receiver {host!r} alone needs {labels} labels from {publisher!r}, but a header stack "
        f"holds at most {most}",
        host=host,
    )


class Encoder:
    """Encodes receiver sets of one publisher over one network and its active trees.

    ``graph`` and ``stored``, of this network and these trees, are made if not given: encoders of
    many publishers may share them. All encoders of a graph are for one thread.
    ``max_labels`` None: stacks of any length, to compare with; no switch would take them.
    Equally good choices differ by publisher, so that publishers spread over the network.

    Raises NetworkError ``UNKNOWN_HOST`` (publisher), ``BAD_SIZE`` (``max_labels`` outside 1..64)
    and what trees raise that do not fit the network (``UNKNOWN_LINK``, ``DUPLICATE_TREE``,
    ``BAD_TREE_ID``).
    """

    def __init__(
        self,
        network: Network,
        publisher: str,
        trees: Iterable[VirtualTree],
        max_labels: int | None = MAX_LABELS,
        algorithm: Algorithm = "refined",
        graph: SwitchGraph | None = None,
        stored: StoredTrees | None = None,
    ) -> None:
        if max_labels is None:
            max_labels = len(network.links) + MOST_TREES
        elif not 0 < max_labels <= MAX_LABELS:
            raise NetworkError(
                "BAD_SIZE",
                f"the maximum stack length is {max_labels}, but switches parse "
                f"1..{MAX_LABELS} labels",
            )
        self._network = network
        self._max_labels = max_labels
        self._graph = graph or SwitchGraph(network)
        self._stored = stored or StoredTrees(network, self._graph, trees)
        self._send_from(publisher)
        self._effort = min(_MOST_EFFORT, _EFFORT // max(1, len(self._graph.links.source)))
        if algorithm == "refined" and not self._effort:
            algorithm = "quick"
        self._algorithm = _ALGORITHMS[algorithm]

    def of(self, publisher: str) -> Encoder:
        """Returns the encoder of another publisher, which shares all else with this one. Raises
        NetworkError ``UNKNOWN_HOST``."""
        made = copy(self)
        made._send_from(publisher)
        return made

    def _send_from(self, publisher: str) -> None:
        self._source = self._network.host(publisher)
        self._root = self._graph.index[self._source.switch]
        self._rotation = _rank(self._network, self._source)
        number = len(self._stored.ids)
        self._order = np.roll(np.arange(number, dtype=np.int64), -(self._rotation % max(number, 1)))

    def encode(self, receivers: frozenset[str]) -> list[Encoding]:
        """Returns stacks that bring a notification to each receiver exactly once, to nobody else.

        No receivers, no stack. More than one only where a stack would exceed ``max_labels``;
        their receivers are disjoint then (WERNECKE 3.4.1).

        Raises NetworkError ``UNKNOWN_HOST``, ``PUBLISHER_AS_RECEIVER``, ``UNREACHABLE``
        (by usable links) and ``STACK_TOO_LONG`` (one receiver alone exceeds ``max_labels``).
        """
        return [encoding for _, encoding in self._stacks(receivers, self._encoding)]

    def delivery_trees(self, receivers: frozenset[str]) -> list[Edges]:
        """Returns the edges of each of these stacks. Raises as :meth:`encode`."""
        return [edges for _, edges in self._stacks(receivers, self._edges)]

    def sizes(self, receivers: frozenset[str]) -> list[Size]:
        """Returns the sizes of the stacks of :meth:`encode`, in the same order. Raises as it
        does."""
        return [size for size, _ in self._stacks(receivers, lambda hosts, size: None)]

    def _hosts(self, receivers: frozenset[str]) -> list[Host]:
        check_receivers(self._network, self._source.name, receivers)
        return [self._network.host(name) for name in sorted(receivers)]

    def _stacks(
        self, receivers: frozenset[str], read: Callable[[list[Host], Size], _Result]
    ) -> list[tuple[Size, _Result]]:
        """Returns of each stack its size and what ``read`` makes of it while it stands in the
        memory."""
        hosts = self._hosts(receivers)
        if not hosts:
            return []
        return self._parts(hosts, read)

    def _parts(
        self, hosts: list[Host], read: Callable[[list[Host], Size], _Result]
    ) -> list[tuple[Size, _Result]]:
        size = self._run(hosts, self._algorithm)
        if size.labels > self._max_labels:
            return self._split(hosts, size, read)
        whole = [(size, read(hosts, size))]
        if len(hosts) == 1 or size.greedy <= self._max_labels:
            return whole
        # One stack here and several of greedy's: those may yet have fewer labels in all.
        size = self._run(hosts, LISTED)
        with suppress(NetworkError):
            return min(whole, self._split(hosts, size, read), key=_labels)
        return whole

    def _split(
        self, hosts: list[Host], size: Size, read: Callable[[list[Host], Size], _Result]
    ) -> list[tuple[Size, _Result]]:
        """Encodes parts of ``hosts``, whose stack of this size stands in the memory and is too
        long: pieces of its delivery tree, those that are still too long cut again, and those of
        fewest labels joined while they fit."""
        self._check_long(hosts, size)
        size, encode = self._part_encoder(hosts, size)
        parts: list[tuple[Size, list[Host], _Result]] = []
        waiting = self._cut(hosts, size)
        while waiting:
            some = waiting.pop()
            size = encode(some)
            if size.labels > self._max_labels and len(some) == 1:
                # What is made for the whole set may be a detour for one.
                size = self._run(some, QUICK if self._algorithm == QUICK else REFINED)
            if size.labels <= self._max_labels:
                parts.append((size, some, read(some, size)))
            else:
                self._check_long(some, size)
                waiting += self._cut(some, size)
        while len(parts) > 1:
            parts.sort(key=lambda part: part[0].labels)
            (first, some, _), (second, others, _) = parts[:2]
            apart = first.labels + second.labels
            # One way to both spares some labels, but hardly more.
            if 2 * apart > 3 * self._max_labels:
                break
            both = some + others
            size = encode(both)
            if size.labels > self._max_labels:
                break
            parts[:2] = [(size, both, read(both, size))]
        if self._algorithm == QUICK:
            return [(size, result) for size, _, result in parts]
        return [self._plain_or(*part, read) for part in parts]

    def _part_encoder(
        self, hosts: list[Host], size: Size
    ) -> tuple[Size, Callable[[list[Host]], Size]]:
        """Returns what encodes some of ``hosts``, whose stack has this size, and the size of the
        stack whose delivery tree is to be cut, in the memory. Greedy and refined have the same, so
        they have the same parts."""
        if self._algorithm == QUICK:
            # Steiner trees are deep, and each stack has the way to its branch in it.
            size = self._run(hosts, SHORTEST)
            members = self._work.members[: size.switch_links + 1].copy()
            tree = members, self._work.parent[members]
            return size, lambda some: self._run(some, QUICK, within=tree)
        trees = np.searchsorted(self._stored.ids, size.trees)
        return size, lambda some: self._run(some, PART, begun=trees)

    def _plain_or(
        self,
        size: Size,
        hosts: list[Host],
        result: _Result,
        read: Callable[[list[Host], Size], _Result],
    ) -> tuple[Size, _Result]:
        """Returns the stack of Algorithm 5.1 for a part instead of the given one where it is
        shorter; for greedy, which is there to compare with, wherever it fits."""
        greedy = self._algorithm == GREEDY
        plain = self._run(hosts, GREEDY if greedy else LISTED)
        if plain.labels < size.labels or (greedy and plain.labels <= self._max_labels):
            return plain, read(hosts, plain)
        return replace(size, greedy=plain.labels), result

    def _cut(self, hosts: list[Host], size: Size) -> list[list[Host]]:
        """Cuts ``hosts`` into two parts or more, by pieces of the delivery tree of the stack of
        this size, which stands in the memory; hosts of one switch into halves."""
        switches = [self._graph.index[host.switch] for host in hosts]
        room = self._max_labels
        while room:
            found = cut(self._graph.links, self._work, size.switch_links + 1, room)
            parts: dict[int, list[Host]] = {}
            for host, piece in zip(hosts, found[switches].tolist(), strict=True):
                parts.setdefault(piece, []).append(host)
            if len(parts) > 1:
                return list(parts.values())
            room //= 2
        return [hosts[: len(hosts) // 2], hosts[len(hosts) // 2 :]]

    def _check_long(self, hosts: list[Host], size: Size) -> None:
        if len(hosts) == 1:
            raise stack_too_long(hosts[0].name, size.labels, self._source.name, self._max_labels)

    def _run(
        self,
        hosts: Sequence[Host],
        algorithm: int,
        within: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
        begun: NDArray[np.int64] = _NONE,
    ) -> Size:
        """Encodes into the memory; ``within``: members and parents of a delivery tree to encode
        on; ``begun``: of a part, numbers of the stored trees to begin with."""
        work = self._work
        work.wanted[:] = 0
        for host in hosts:
            word, bit = self._graph.word_of(self._graph.index[host.switch], host.port)
            work.wanted[word] |= bit
        terminals = _NONE
        if within is None:
            terminals = self._graph.switches_of(np.flatnonzero(work.wanted))
        entry_word, entry = self._graph.word_of(self._root, self._source.port)
        task = EncodingTask(
            self._graph.links,
            self._stored.forest,
            work,
            self._root,
            entry,
            entry_word,
            terminals,
            self._rotation,
            self._order,
            self._effort,
            ALL_UP_TO,
            LOOKED_AT + MORE_EACH * max(0, len(hosts) - FEW_RECEIVERS),
        )
        trees = np.empty(MOST_TREES, np.int64)
        if within is not None:
            found = encode_branch(task, *within, trees)
        else:
            found = run_encode(task, trees, algorithm, self._max_labels, begun)
        count, number, hops, stops, crossings, ways, first = found
        if count < 0:
            raise self._graph.unreachable(self._root, terminals.tolist())
        ids = tuple(self._stored.ids[at] for at in trees[:number].tolist())
        return Size(ids, hops, stops, count - 1, crossings, ways, first)

    @property
    def _work(self) -> Work:
        return self._graph.work

    def _encoding(self, hosts: list[Host], size: Size) -> Encoding:
        """Reads the stack of this size that stands in the memory."""
        work, form = self._work, self._network.labels
        assert isinstance(form, TypedLabels)
        words = self._graph.words_of(work.members[: size.switch_links + 1])
        needed, flood, ingress = work.needed[words], work.flood[words], work.ingress[words]
        hops, stops = needed & ~flood, flood & ~(needed | ingress)
        which, ids = self._graph.links_of(words, hops, stops)
        labels = [form.label(TREE, number) for number in size.trees]
        labels += form.labels(np.where(which == 0, HOP, STOP), ids)
        hosts = sorted(hosts, key=lambda host: host.name)
        return Encoding(tuple(labels), tuple(host.name for host in hosts), self._edges(hosts, size))

    def _edges(self, hosts: list[Host], size: Size) -> Edges:
        """Reads the delivery tree of the stack that stands in the memory."""
        work, names, links = self._work, self._graph.names, self._graph.links
        members = work.members[: size.switch_links + 1]
        between = zip(
            (names[u] for u in links.source[work.parent[members[1:]]].tolist()),
            (names[v] for v in members[1:].tolist()),
            strict=True,
        )
        return (
            (self._source.name, self._source.switch),
            *between,
            *((host.switch, host.name) for host in hosts),
        )


def _labels(parts: list[tuple[Size, _Result]]) -> int:
    return sum(size.labels for size, _ in parts)


def _rank(network: Network, source: Host) -> int:
    """Returns the publisher's number among the hosts of its role."""
    return [host.name for host in network.hosts.values() if host.role == source.role].index(
        source.name
    )
