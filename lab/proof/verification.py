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
from functools import partial
from typing import NamedTuple

import networkx as nx
import numpy as np

from stackcast.lab.proof.receipts import Receipt, packet_receipt, receipt_bytes, receipts
from stackcast.lab.proof.rule_matches import Place, RuleMatches, event_columns
from stackcast.lab.proof.timeline import Timeline, keeps_state
from stackcast.udfs.errors import MessageError
from stackcast.udfs.filters.meaning.evaluate import matches_columns
from stackcast.udfs.filters.nodes import Node
from stackcast.udfs.filters.subscriptions import CheckedRule
from stackcast.udfs.messages.attributes.registry import Registry
from stackcast.udfs.messages.reference import read_message, read_packet
from stackcast.udfs.messages.sequence import Topic, sequence_number, session_id, split_sequence
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.network.network import Network
from stackcast.udfs.trees.broadcast import broadcast_trees

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
    what the publisher announced then; nothing: it may publish everything. sender: where there are
    several publishers, tells whose a message is.
    """

    batch_id: int
    offsets: Mapping[int, tuple[int, int]]
    rules: Sequence[CheckedRule]
    registry: Registry | None = None
    announced: Sequence[Node] = ()
    sender: SenderReader | None = None


class FoundMessage(NamedTuple):
    """A message of a record: as hosts receive it, its raw values by qualified name, or, where it
    has none, why it is a dead letter."""

    message: bytes
    event: Mapping[str, int]
    reason: str = ""


class _Event(NamedTuple):
    key: Key
    place: Place
    event: Mapping[str, int]


_NOBODY: frozenset[str] = frozenset()


class Sender(NamedTuple):
    """The publisher of a message, and, where it may not send it, why it is a dead letter; whole:
    so is its record, as one."""

    name: str
    reason: str = ""
    whole: bool = False


SenderReader = Callable[[int, int, FoundMessage], Sender]
"""Reads the publisher of a message: partition, offset, message."""

RecordReader = Callable[[bytes, Batch], Iterable[FoundMessage]]
"""Reads one record of a batch in plain Python. A record of which nothing can be trusted raises
MessageError, whose code is the reason."""


@dataclass
class Expectation:
    """The deliveries that must arrive, and counts of what they were derived from.

    deliveries: host -> how often each key must arrive there (a packet may hold equal messages).
    packets: (session, Kafka offset) -> all messages of that source packet, in their order.
    receivers: the same keys -> the hosts that each of these messages is owed to.
    senders: the same keys -> the publisher of each of these messages, where there are several.
    dead_letters: reason -> records or messages that do not decode and so reach nobody.
    payload_bytes: sum of the lengths of the sound source records.
    unprocessed: records that no batch took; nothing is expected of them.
    matches: rule -> the messages that it matched. fired: message -> the rules with state that it
    matched, which nobody can tell from the message alone.
    """

    deliveries: dict[str, Counter[Key]] = field(default_factory=lambda: defaultdict(Counter))
    packets: dict[tuple[bytes, int], tuple[bytes, ...]] = field(default_factory=dict)
    receivers: dict[tuple[bytes, int], list[frozenset[str]]] = field(default_factory=dict)
    senders: dict[tuple[bytes, int], list[str]] = field(default_factory=dict)
    dead_letters: Counter[str] = field(default_factory=Counter)
    messages_in: int = 0
    messages_matched: int = 0
    payload_bytes: int = 0
    unprocessed: int = 0
    matches: dict[str, RuleMatches] = field(default_factory=lambda: defaultdict(RuleMatches))
    fired: dict[Place, tuple[str, ...]] = field(default_factory=dict)

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
    topic: Topic,
    session: Callable[[int], bytes] | None = None,
    read: RecordReader | None = None,
    timeline: Timeline | None = None,
    count: bool = True,
) -> Expectation:
    """Works out what each host must receive of ``records``, rule by rule, message by message.

    records: (partition, Kafka offset, payload), in any order, each once.
    batches: a record counts under the rules of every batch that took its offset; in the order in
    which they ran. A host is owed a message once, however many of its rules match it.
    session: of a partition; by default that which the stream gives a partition of the ``topic``.
    read: what records are; by default MoldUDP64 packets of typed messages of ``specification``.
    timeline: of the records before these, and goes on with them. count: whether to fill in
    ``deliveries``, the largest part; ``receivers`` say the same a record at a time.
    """
    read = read or packet_reader(specification)
    timeline = timeline or Timeline(specification)
    expectation = Expectation()
    partitions: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for partition, offset, payload in records:
        partitions[partition].append((offset, payload))
    taken = {partition: np.zeros(len(rows), bool) for partition, rows in partitions.items()}
    offsets = {}
    for partition, rows in partitions.items():
        rows.sort()
        offsets[partition] = np.fromiter((offset for offset, _ in rows), "i8", len(rows))
    session = session or partial(session_id, topic)
    sessions = {p: session(p) for p in partitions}
    for batch in batches:
        kept = [rule for rule in batch.rules if keeps_state(rule)]
        timeline.begin(kept)
        names = [rule.id for rule in kept]
        chosen: list[tuple[int, int, bytes]] = []
        for partition in batch.offsets.keys() & partitions.keys():
            first, until = np.searchsorted(offsets[partition], batch.offsets[partition])
            taken[partition][first:until] = True
            chosen += ((partition, *row) for row in partitions[partition][first:until])
        stateless = [rule for rule in batch.rules if not keeps_state(rule)]
        events: list[_Event] = []
        for event in _events(chosen, batch, read, sessions, expectation):
            events.append(event)
            if len(events) == _EVENTS_A_BLOCK:
                _owe(events, stateless, timeline, names, expectation, count)
                events = []
        _owe(events, stateless, timeline, names, expectation, count)
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
        if batch.sender is not None:
            senders = [batch.sender(partition, offset, found) for found in messages]
            if senders and senders[0].whole:
                expectation.dead_letters[senders[0].reason] += 1
                continue
            messages = tuple(
                found._replace(reason=found.reason or sender.reason)
                for found, sender in zip(messages, senders, strict=True)
            )
            expectation.senders[session, offset] = [sender.name for sender in senders]
        expectation.packets[session, offset] = tuple(found.message for found in messages)
        expectation.receivers[session, offset] = [_NOBODY] * len(messages)
        expectation.payload_bytes += len(payload)
        expectation.messages_in += len(messages)
        for index, found in enumerate(messages):
            if found.reason:
                expectation.dead_letters[found.reason] += 1
            else:
                place = Place(partition, offset, index)
                yield _Event((session, offset, found.message), place, found.event)


def _owe(
    events: Sequence[_Event],
    rules: Sequence[CheckedRule],
    timeline: Timeline,
    names: Sequence[str],
    expectation: Expectation,
    counted: bool,
) -> None:
    """Add to ``expectation`` what rules, and those of the timeline, owe their hosts of events.

    rules: without state. names: of the timeline's.
    """
    count = len(events)
    conditions = [rule.condition for rule in rules]
    columns, present = event_columns([one.event for one in events], conditions)
    wanted: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(count, dtype=bool))
    for rule in rules:
        true = matches_columns(rule.condition, columns, present)
        for host in rule.receivers:
            wanted[host] |= true
        expectation.matches[rule.id].add(np.flatnonzero(true), lambda number: events[number].place)
    for i, one in enumerate(events if timeline.rules else ()):
        result = timeline.step(one.key[0], one.event)
        for host in result.receivers:
            wanted[host][i] = True
        if result.rules:
            fired = tuple(names[number] for number in result.rules)
            expectation.fired[one.place] = fired
            for name in fired:
                expectation.matches[name].add([i], lambda number: events[number].place)
    matched = np.zeros(count, dtype=bool)
    for host, mask in wanted.items():
        matched |= mask
        if counted:
            came = np.flatnonzero(mask).tolist()
            expectation.deliveries[host].update(events[i].key for i in came)
    expectation.messages_matched += int(matched.sum())
    sets: dict[frozenset[str], frozenset[str]] = {}
    for i in np.flatnonzero(matched).tolist():
        hosts = frozenset(host for host, mask in wanted.items() if mask[i])
        (session, offset, _), place, _ = events[i]
        expectation.receivers[session, offset][place.message] = sets.setdefault(hosts, hosts)


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
    that no usable link leads to costs nothing. publisher: of all records, or of those whose sender
    the expectation does not know.
    """
    graph = network.graph()
    paths: dict[str, dict[str, list[str]]] = {}

    def links(sender: str, host: str) -> int:
        """Links between them, 0 where none leads there."""
        if sender not in paths:
            # networkx takes None for "no such edge".
            paths[sender] = nx.single_source_dijkstra_path(
                graph, sender, weight=lambda _u, _v, e: e["weight"] if e["up"] else None
            )
        return len(paths[sender].get(host, (host,))) - 1

    total = 0
    for host, owed in expectation.deliveries.items():
        sizes: Counter[str] = Counter()
        framed = set()
        for (session, offset, message), count in owed.items():
            sender = expectation.senders.get((session, offset), [publisher])[0]
            sizes[sender] += (framing.message + len(message)) * count
            if (session, offset) not in framed:
                framed.add((session, offset))
                sizes[sender] += framing.frame
        total += sum(links(sender, host) * size for sender, size in sizes.items())
    return total


def broadcast_bytes(network: Network, expectation: Expectation, framing: Framing = PACKETS) -> int:
    """Returns bytes on links if the messages of each sound source packet went, in a plain frame, to
    every host.

    A frame counts once on every edge of the broadcast tree (WERNECKE 5.3.2).
    """
    size = sum(framing.size(messages) for messages in expectation.packets.values())
    return sum(len(tree.edges) * size for tree in broadcast_trees(network, 1))
