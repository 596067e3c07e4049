"""The proof that every host received exactly what it subscribed to.

It does not trust the product: what must arrive is worked out by brute force, from the source
records, a plain reader of them and the syntax trees of the rules, which the interpreter runs where
they keep state. Compiled tables, decode kernels, matcher, trees and stacks have no part in it. What
did arrive is read from the files that the hosts wrote.

A delivery is known by *(session, Kafka offset, message bytes)*, the key that the sequence number
of a frame carries to its receivers.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import networkx as nx
import numpy as np

from lab.proof.receipts import Receipt, packet_receipt, receipt_bytes, receipts
from lab.proof.timeline import Timeline, keeps_state
from udfs.errors import MessageError
from udfs.filters.meaning.evaluate import fields_of, matches_columns
from udfs.filters.nodes import Node
from udfs.filters.subscriptions import CheckedRule
from udfs.messages.attributes.registry import Registry
from udfs.messages.reference import read_message, read_packet
from udfs.messages.sequence import sequence_number, session_id, split_sequence
from udfs.messages.specification import Specification
from udfs.network.network import Network
from udfs.trees.broadcast import broadcast_trees

__all__ = [
    "PACKETS",
    "Batch",
    "Expectation",
    "FoundMessage",
    "Framing",
    "Key",
    "Receipt",
    "RecordReader",
    "Tallies",
    "Tally",
    "broadcast_bytes",
    "compare",
    "expected",
    "packet_reader",
    "packet_receipt",
    "receipt_bytes",
    "receipts",
    "unicast_bytes",
]

_EVENTS_A_BLOCK = 65_536
"""Decoded events are dictionaries, about 1 KB each: only so many are held at a time."""

Key = tuple[bytes, int, bytes]
"""(session, Kafka offset, message bytes)."""


@dataclass(frozen=True)
class Batch:
    """One micro-batch: the offsets that it took, and the rules that were live in it.

    offsets: partition -> (from, until), ``until`` not included, as in the egress ledger.
    registry: the attributes that it knew, where its records are attribute/value events. announced:
    what the publisher announced then; nothing: it may publish everything.
    """

    batch_id: int
    offsets: Mapping[int, tuple[int, int]]
    rules: Sequence[CheckedRule]
    registry: Registry | None = None
    announced: Sequence[Node] = ()


class FoundMessage(NamedTuple):
    """A message of a record: as hosts receive it, its raw values by qualified name, or, where it
    has none, why it is a dead letter."""

    message: bytes
    event: Mapping[str, int]
    reason: str = ""


class _Event(NamedTuple):
    key: Key
    index: int
    event: Mapping[str, int]


_NOBODY: frozenset[str] = frozenset()

RecordReader = Callable[[bytes, Batch], Iterable[FoundMessage]]
"""Reads one record of a batch in plain Python. A record of which nothing can be trusted raises
MessageError, whose code is the reason."""


@dataclass
class Expectation:
    """The deliveries that must arrive, and counts of what they were derived from.

    deliveries: host -> how often each key must arrive there (a packet may hold equal messages).
    packets: (session, Kafka offset) -> all messages of that source packet, in their order.
    receivers: the same keys -> the hosts that each of these messages is owed to.
    dead_letters: reason -> records or messages that do not decode and so reach nobody.
    payload_bytes: sum of the lengths of the sound source records.
    unprocessed: records that no batch took; nothing is expected of them.
    """

    deliveries: dict[str, Counter[Key]] = field(default_factory=lambda: defaultdict(Counter))
    packets: dict[tuple[bytes, int], tuple[bytes, ...]] = field(default_factory=dict)
    receivers: dict[tuple[bytes, int], list[frozenset[str]]] = field(default_factory=dict)
    dead_letters: Counter[str] = field(default_factory=Counter)
    messages_in: int = 0
    messages_matched: int = 0
    payload_bytes: int = 0
    unprocessed: int = 0

    @property
    def total(self) -> int:
        """Deliveries over all hosts."""
        return sum(counter.total() for counter in self.deliveries.values())


@dataclass
class Tally:
    """Counts of messages at one host, or over all hosts.

    missing: arrived less often than expected. extra: never expected here.
    duplicates: expected here, arrived more often than that.
    out_of_order: datagrams whose Kafka offset lies before one that this host had from the
    same session. misnumbered: datagrams whose sequence number does not name the place of their
    messages in the source packet.
    """

    expected: int = 0
    received: int = 0
    missing: int = 0
    extra: int = 0
    duplicates: int = 0
    out_of_order: int = 0
    misnumbered: int = 0

    @property
    def exact(self) -> bool:
        """All that was expected, nothing else, in order, under the right numbers."""
        return not (
            self.missing or self.extra or self.duplicates or self.out_of_order or self.misnumbered
        )

    def counts(self) -> dict[str, int]:
        """Returns the counts by name."""
        return {item.name: getattr(self, item.name) for item in fields(Tally)}


@dataclass
class Tallies(Tally):
    """The sum over all hosts, and each host by itself."""

    hosts: dict[str, Tally] = field(default_factory=dict)

    def rows(self) -> list[dict[str, object]]:
        """Returns one dictionary a host, ``host`` first, for tables and for the report."""
        return [{"host": host, **tally.counts()} for host, tally in self.hosts.items()]


# --- what must arrive ---------------------------------------------------------------------------


def expected(
    records: Iterable[tuple[int, int, bytes]],
    batches: Sequence[Batch],
    specification: Specification,
    topic: str,
    session: bytes | None = None,
    read: RecordReader | None = None,
) -> Expectation:
    """Works out what each host must receive of ``records``, rule by rule, message by message.

    records: (partition, Kafka offset, payload), in any order, each once.
    batches: a record counts under the rules of every batch that took its offset; in the order in
    which they ran. A host is owed a message once, however many of its rules match it.
    session: of all packets; by default that which the stream gives a partition of the ``topic``.
    read: what records are; by default MoldUDP64 packets of typed messages of ``specification``.
    """
    read = read or packet_reader(specification)
    expectation = Expectation()
    partitions: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for partition, offset, payload in records:
        partitions[partition].append((offset, payload))
    taken = {partition: np.zeros(len(rows), bool) for partition, rows in partitions.items()}
    offsets = {}
    for partition, rows in partitions.items():
        rows.sort()
        offsets[partition] = np.fromiter((offset for offset, _ in rows), "i8", len(rows))
    timeline = Timeline(specification)
    sessions = {p: session or session_id(topic, p) for p in partitions}
    for batch in batches:
        timeline.begin([rule for rule in batch.rules if keeps_state(rule)])
        chosen: list[tuple[int, int, bytes]] = []
        for partition in batch.offsets.keys() & partitions.keys():
            first, until = np.searchsorted(offsets[partition], batch.offsets[partition])
            taken[partition][first:until] = True
            chosen += ((partition, *row) for row in partitions[partition][first:until])
        stateless = (rule for rule in batch.rules if not keeps_state(rule))
        conditions = [(rule.condition, rule.receivers) for rule in stateless]
        events: list[_Event] = []
        for event in _events(chosen, batch, read, sessions, expectation):
            events.append(event)
            if len(events) == _EVENTS_A_BLOCK:
                _owe(events, conditions, timeline, expectation)
                events = []
        _owe(events, conditions, timeline, expectation)
    expectation.unprocessed = sum(int((~mask).sum()) for mask in taken.values())
    return expectation


def packet_reader(specification: Specification) -> RecordReader:
    """Reads MoldUDP64 packets of typed messages."""

    def read(record: bytes, _: Batch) -> Iterator[FoundMessage]:
        # All of the packet, before any of it counts.
        return map(found, read_packet(record)[2])

    def found(message: bytes) -> FoundMessage:
        try:
            return FoundMessage(message, read_message(specification, message))
        except MessageError as error:
            return FoundMessage(message, {}, error.what.lower())

    return read


def _events(
    records: Iterable[tuple[int, int, bytes]],
    batch: Batch,
    read: RecordReader,
    sessions: Mapping[int, bytes],
    expectation: Expectation,
) -> Iterator[_Event]:
    """The events of the sound records; counts everything else in ``expectation``."""
    for partition, offset, payload in records:
        try:
            messages = tuple(read(payload, batch))
        except MessageError as error:
            expectation.dead_letters[error.what.lower()] += 1
            continue
        session = sessions[partition]
        expectation.packets[session, offset] = tuple(found.message for found in messages)
        expectation.receivers[session, offset] = [_NOBODY] * len(messages)
        expectation.payload_bytes += len(payload)
        expectation.messages_in += len(messages)
        for index, found in enumerate(messages):
            if found.reason:
                expectation.dead_letters[found.reason] += 1
            else:
                yield _Event((session, offset, found.message), index, found.event)


def _owe(
    events: Sequence[_Event],
    conditions: Sequence[tuple[Node, Sequence[str]]],
    timeline: Timeline,
    expectation: Expectation,
) -> None:
    """Add to ``expectation`` what the rules owe their hosts of ``events``."""
    count = len(events)
    columns: dict[str, np.ndarray] = {}
    present: dict[str, np.ndarray] = {}
    for name in sorted({name for node, _ in conditions for name in fields_of(node)}):
        columns[name] = np.fromiter((one.event.get(name, 0) for one in events), "u8", count)
        present[name] = np.fromiter((name in one.event for one in events), "?", count)
    wanted: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(count, dtype=bool))
    for condition, receivers in conditions:
        true = matches_columns(condition, columns, present)
        for host in receivers:
            wanted[host] |= true
    for i, one in enumerate(events if timeline.rules else ()):
        for host in timeline.receivers(one.key[0], one.event):
            wanted[host][i] = True
    matched = np.zeros(count, dtype=bool)
    for host, mask in wanted.items():
        matched |= mask
        expectation.deliveries[host].update(events[i].key for i in np.flatnonzero(mask).tolist())
    expectation.messages_matched += int(matched.sum())
    sets: dict[frozenset[str], frozenset[str]] = {}
    for i in np.flatnonzero(matched).tolist():
        hosts = frozenset(host for host, mask in wanted.items() if mask[i])
        (session, offset, _), index, _ = events[i]
        expectation.receivers[session, offset][index] = sets.setdefault(hosts, hosts)


# --- the comparison -----------------------------------------------------------------------------


def compare(
    expectation: Expectation, received: Mapping[str, Sequence[Receipt]], pruned: bool = False
) -> Tallies:
    """Hold what arrived against what had to arrive, as multisets of keys, host by host.

    pruned: datagrams are source packets without some of their messages, under the number of the
    packet, in place of an offset; as from switches that match.
    """
    outcome = Tallies()
    for host in sorted(expectation.deliveries.keys() | received.keys(), key=_natural):
        tally = _compare_host(
            expectation.deliveries.get(host, Counter()),
            received.get(host, ()),
            expectation.packets,
            pruned,
        )
        outcome.hosts[host] = tally
        for name, count in tally.counts().items():
            setattr(outcome, name, getattr(outcome, name) + count)
    return outcome


def _natural(name: str) -> list[str | int]:
    """Sort key under which h2 comes before h10; text and numbers take turns in it."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def _compare_host(
    owed: Counter[Key],
    datagrams: Sequence[Receipt],
    packets: Mapping[tuple[bytes, int], Sequence[bytes]],
    pruned: bool,
) -> Tally:
    tally = Tally(expected=owed.total())
    arrived: Counter[Key] = Counter()
    latest: dict[bytes, int] = {}
    for session, sequence, messages in datagrams:
        if not messages:
            continue  # heartbeat or end of session: MoldUDP64's own, no notification
        offset, index = (sequence, 0) if pruned else split_sequence(sequence)
        arrived.update((session, offset, message) for message in messages)
        tally.out_of_order += offset < latest.get(session, offset)
        latest[session] = max(offset, latest.get(session, offset))
        source = packets.get((session, offset), ())[index:]
        first = bool(source) and (pruned or source[0] == messages[0])
        whole = pruned or sequence == sequence_number(offset, index)
        tally.misnumbered += not (first and whole and _within(messages, source))
    tally.received = arrived.total()
    for key, count in arrived.items():
        due = owed.get(key, 0)
        if not due:
            tally.extra += count
        else:
            tally.duplicates += max(0, count - due)
    tally.missing = sum(max(0, due - arrived[key]) for key, due in owed.items())
    return tally


def _within(messages: Iterable[bytes], source: Iterable[bytes]) -> bool:
    """Are ``messages`` a subsequence of ``source``?"""
    rest = iter(source)
    return all(message in rest for message in messages)


# --- what other ways of delivery would have cost ------------------------------------------------


class Framing(NamedTuple):
    """Bytes of a plain frame beside its messages: of the frame, and of each message."""

    frame: int
    message: int

    def size(self, messages: Iterable[bytes]) -> int:
        """Returns bytes of a frame with these messages."""
        return self.frame + sum(self.message + len(message) for message in messages)


PACKETS = Framing(14 + 20 + 8 + 20, 2)
"""MoldUDP64 over Ethernet, IPv4 and UDP."""


def unicast_bytes(
    network: Network, publisher: str, expectation: Expectation, framing: Framing = PACKETS
) -> int:
    """Returns bytes on links if each host were sent its messages by itself, along a shortest path.

    Unicast at its best: all messages that a host is owed of one source packet share one plain
    frame. A frame counts once on every link from the publisher's host to the receiver's; a host
    that no usable link leads to costs nothing.
    """
    paths = nx.single_source_dijkstra_path(
        network.graph(),
        publisher,
        # networkx takes None for "no such edge".
        weight=lambda _u, _v, edge: edge["weight"] if edge["up"] else None,
    )
    total = 0
    for host, owed in expectation.deliveries.items():
        if host not in paths:
            continue
        frames = {(session, offset) for session, offset, _ in owed}
        size = len(frames) * framing.frame + sum(
            (framing.message + len(message)) * count for (_, _, message), count in owed.items()
        )
        total += (len(paths[host]) - 1) * size
    return total


def broadcast_bytes(network: Network, expectation: Expectation, framing: Framing = PACKETS) -> int:
    """Returns bytes on links if the messages of each sound source packet went, in a plain frame, to
    every host.

    A frame counts once on every edge of the broadcast tree (WERNECKE 5.3.2).
    """
    size = sum(framing.size(messages) for messages in expectation.packets.values())
    return sum(len(tree.edges) * size for tree in broadcast_trees(network, 1))
