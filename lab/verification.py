"""Did every host receive exactly what it subscribed to?

The answer does not trust the product: what must arrive is worked out by brute force, from the
source records, the plain reference decoder and the syntax trees of the rules, which the
interpreter runs where they keep state. Compiled tables, decode kernels, matcher, trees and stacks
have no part in it. What did arrive is read from the
files that the hosts wrote.

A delivery is known by *(session, Kafka offset, message bytes)*, the key that the sequence number
of a frame carries to its receivers (design, section 5).
"""

from __future__ import annotations

import re
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NamedTuple

import networkx as nx
import numpy as np

from lab.timeline import Timeline, keeps_state
from udfs.errors import LabError, MessageError
from udfs.filters.meaning.evaluate import fields_of, matches_columns
from udfs.filters.nodes import Node
from udfs.filters.subscriptions import CheckedRule
from udfs.messages.reference import read_message, read_packet
from udfs.messages.sequence import session_id, split_sequence
from udfs.messages.specification import Field, Specification
from udfs.trees.broadcast import broadcast_trees
from udfs.trees.network import Network

PLAIN_HEADERS = 14 + 20 + 8
"""Bytes before the payload of an ordinary UDP frame: Ethernet, IPv4, UDP."""

MOLD_HEADER = 20
_MOLD_LENGTH = 2
_EVENTS_A_BLOCK = 65_536
"""Decoded events are dictionaries, about 1 KB each: only so many are held at a time."""

Key = tuple[bytes, int, bytes]
"""(session, Kafka offset, message bytes)."""


@dataclass(frozen=True)
class Batch:
    """What one micro-batch took, and the rules that were live in it.

    offsets: partition -> (from, until), ``until`` not included, as in the egress ledger.
    """

    batch_id: int
    offsets: Mapping[int, tuple[int, int]]
    rules: Sequence[CheckedRule]


@dataclass
class Expectation:
    """What must arrive, and counts of what it was derived from.

    deliveries: host -> how often each key must arrive there (a packet may hold equal messages).
    packets: (session, Kafka offset) -> all messages of that source packet, in their order.
    dead_letters: reason -> records or messages that do not decode and so reach nobody.
    payload_bytes: sum of the lengths of the sound source packets.
    unprocessed: records that no batch took; nothing is expected of them.
    """

    deliveries: dict[str, Counter[Key]] = field(default_factory=lambda: defaultdict(Counter))
    packets: dict[tuple[bytes, int], tuple[bytes, ...]] = field(default_factory=dict)
    dead_letters: Counter[str] = field(default_factory=Counter)
    messages_in: int = 0
    messages_matched: int = 0
    payload_bytes: int = 0
    unprocessed: int = 0

    @property
    def total(self) -> int:
        """Deliveries over all hosts."""
        return sum(counter.total() for counter in self.deliveries.values())


class Receipt(NamedTuple):
    """One datagram as a host received it."""

    session: bytes
    sequence: int
    messages: tuple[bytes, ...]


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
        """The counts by name."""
        return {item.name: getattr(self, item.name) for item in fields(Tally)}


@dataclass
class Outcome(Tally):
    """The sum over all hosts, and each host by itself."""

    hosts: dict[str, Tally] = field(default_factory=dict)

    def rows(self) -> list[dict[str, object]]:
        """One dictionary a host, ``host`` first, for tables and for the report."""
        return [{"host": host, **tally.counts()} for host, tally in self.hosts.items()]


# --- what must arrive ---------------------------------------------------------------------------


def expected(
    records: Iterable[tuple[int, int, bytes]],
    batches: Sequence[Batch],
    specification: Specification,
    topic: str,
    session: bytes | None = None,
) -> Expectation:
    """What each host must receive of ``records``, rule by rule, message by message.

    records: (partition, Kafka offset, payload), in any order, each once.
    batches: a record counts under the rules of every batch that took its offset; in the order in
    which they ran. A host is owed a message once, however many of its rules match it.
    session: of all packets; by default that which the stream gives a partition of the ``topic``.
    """
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
        names = sorted({name for node, _ in conditions for name in fields_of(node)})
        asked = [specification.field(name) for name in names]
        events: list[tuple[Key, dict[str, int]]] = []
        for event in _events(chosen, specification, sessions, expectation):
            events.append(event)
            if len(events) == _EVENTS_A_BLOCK:
                _owe(events, conditions, asked, timeline, expectation)
                events = []
        _owe(events, conditions, asked, timeline, expectation)
    expectation.unprocessed = sum(int((~mask).sum()) for mask in taken.values())
    return expectation


def _events(
    records: Iterable[tuple[int, int, bytes]],
    specification: Specification,
    sessions: Mapping[int, bytes],
    expectation: Expectation,
) -> Iterator[tuple[Key, dict[str, int]]]:
    """The events of the sound packets; counts everything else in ``expectation``."""
    for partition, offset, payload in records:
        try:
            messages = tuple(read_packet(payload)[2])
        except MessageError as error:
            expectation.dead_letters[error.what.lower()] += 1
            continue
        session = sessions[partition]
        expectation.packets[session, offset] = messages
        expectation.payload_bytes += len(payload)
        expectation.messages_in += len(messages)
        for message in messages:
            try:
                yield (session, offset, message), read_message(specification, message)
            except MessageError as error:
                expectation.dead_letters[error.what.lower()] += 1


def _owe(
    events: Sequence[tuple[Key, dict[str, int]]],
    conditions: Sequence[tuple[Node, Sequence[str]]],
    asked: Sequence[Field],
    timeline: Timeline,
    expectation: Expectation,
) -> None:
    """Add to ``expectation`` what the rules owe their hosts of ``events``."""
    count = len(events)
    columns: dict[str, np.ndarray] = {}
    present: dict[str, np.ndarray] = {}
    for one in asked:
        name = one.qualified
        columns[name] = np.fromiter((event.get(name, 0) for _, event in events), "u8", count)
        if one.header not in present:
            present[one.header] = np.fromiter((name in event for _, event in events), "?", count)
    wanted: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(count, dtype=bool))
    for condition, receivers in conditions:
        true = matches_columns(condition, columns, present)
        for host in receivers:
            wanted[host] |= true
    for i, ((session, _, _), event) in enumerate(events if timeline.rules else ()):
        for host in timeline.receivers(session, event):
            wanted[host][i] = True
    matched = np.zeros(count, dtype=bool)
    for host, mask in wanted.items():
        matched |= mask
        expectation.deliveries[host].update(events[i][0] for i in np.flatnonzero(mask).tolist())
    expectation.messages_matched += int(matched.sum())


# --- what did arrive ----------------------------------------------------------------------------


def receipts(folder: Path) -> dict[str, list[Receipt]]:
    """What each host wrote to ``folder/receipts/<host>.mold``, in order of arrival.

    A file is a run of records: length u16 big-endian, then a MoldUDP64 packet. A datagram that
    is no MoldUDP64 packet becomes a receipt of the empty session with the datagram as its one
    message, so that it counts as extra. Raises LabError NO_RECEIPTS, TRUNCATED_RECEIPTS.
    """
    directory = Path(folder) / "receipts"
    if not directory.is_dir():
        raise LabError("NO_RECEIPTS", f"{directory}: no such folder; did the hosts start?")
    return {
        path.stem: [_receipt(datagram) for datagram in _datagrams(path)]
        for path in sorted(directory.glob("*.mold"))
    }


def _datagrams(path: Path) -> Iterator[bytes]:
    data = path.read_bytes()
    at = 0
    while at < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if at + 2 > len(data) or end > len(data):
            raise LabError(
                "TRUNCATED_RECEIPTS",
                f"{path}: the record at byte {at} is cut off; the host ended before it was flushed",
            )
        yield data[at + 2 : end]
        at = end


def _receipt(datagram: bytes) -> Receipt:
    try:
        session, sequence, messages = read_packet(datagram)
    except MessageError:
        return Receipt(b"", 0, (datagram,))
    return Receipt(session, sequence, tuple(messages))


def receipt_bytes(receipt: Receipt) -> bytes:
    """One record of a receipts file: the inverse of what :func:`receipts` reads."""
    packet = struct.pack(">10sQH", receipt.session, receipt.sequence, len(receipt.messages))
    packet += b"".join(struct.pack(">H", len(message)) + message for message in receipt.messages)
    return struct.pack(">H", len(packet)) + packet


# --- the comparison -----------------------------------------------------------------------------


def compare(
    expectation: Expectation, received: Mapping[str, Sequence[Receipt]], pruned: bool = False
) -> Outcome:
    """Hold what arrived against what had to arrive, as multisets of keys, host by host.

    pruned: datagrams are source packets without some of their messages, under the number of the
    packet, in place of an offset; as from switches that match.
    """
    outcome = Outcome()
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
        tally.misnumbered += not (first and _within(messages, source))
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


def unicast_bytes(network: Network, publisher: str, expectation: Expectation) -> int:
    """Bytes on links if each host were sent its messages by itself, along a shortest path.

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
        size = len(frames) * (PLAIN_HEADERS + MOLD_HEADER) + sum(
            (_MOLD_LENGTH + len(message)) * count for (_, _, message), count in owed.items()
        )
        total += (len(paths[host]) - 1) * size
    return total


def broadcast_bytes(network: Network, expectation: Expectation) -> int:
    """Bytes on links if each sound source packet went whole, in a plain frame, to every host.

    A frame counts once on every edge of the broadcast tree (WERNECKE 5.3.2).
    """
    size = len(expectation.packets) * PLAIN_HEADERS + expectation.payload_bytes
    return sum(len(tree.edges) * size for tree in broadcast_trees(network, 1))
