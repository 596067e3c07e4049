"""The proof of receipts with all in memory at once: plain, and an oracle for the one in windows."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from stackcast.lab.proof.receipts import Receipt
from stackcast.lab.proof.recorded import Recorded
from stackcast.lab.proof.verdict import DeliveryVerdict, Fault
from stackcast.lab.proof.verification import Expectation
from stackcast.udfs.messages.sequence import Topic, session_id, split_sequence


def whole_verdict(
    expectation: Expectation,
    recorded: Sequence[Recorded],
    received: Mapping[str, Sequence[Receipt]],
    topic: str,
    since: int = 0,
    ordered: bool = True,
) -> DeliveryVerdict:
    """As `stackcast.lab.proof.checking.check_receipts`, of all records under all batches of the
    ledger."""
    return _Check(expectation, recorded, topic, since, ordered).run(received)


class _Notification(NamedTuple):
    """A receipt that is what its number says."""

    packet: tuple[bytes, int]
    group: int
    start: int
    count: int


class _Check:
    def __init__(
        self,
        expectation: Expectation,
        recorded: Sequence[Recorded],
        topic: Topic,
        since: int,
        ordered: bool,
    ) -> None:
        self._packets = expectation.packets
        self._receivers = expectation.receivers
        self._since = since
        self._ordered = ordered
        self._verdict = DeliveryVerdict(
            versions={one.batch.batch_id: one.versions for one in recorded},
            batches=sum(one.batch.batch_id >= since for one in recorded),
        )
        self._ranges: dict[bytes, list[tuple[int, int, Recorded]]] = defaultdict(list)
        for one in recorded:
            for partition, (start, until) in one.batch.offsets.items():
                self._ranges[session_id(topic, partition)].append((start, until, one))
        self._known: dict[tuple[bytes, int], Recorded | None] = {}
        self._groups: dict[tuple[bytes, int], dict[int, tuple[int, ...]]] = {}
        # What a number means: as the first receipt of it says, wherever that was.
        self._meaning: dict[tuple[bytes, int], tuple[bytes, ...]] = {}
        self._read: dict[Receipt, _Notification | str] = {}

    def run(self, received: Mapping[str, Sequence[Receipt]]) -> DeliveryVerdict:
        verdict = self._verdict
        verdict.hosts = len(received)
        own: dict[str, list[tuple[Receipt, _Notification]]] = {}
        for host, rows in received.items():
            own[host] = list(self._own(host, rows))
        self._all_there(own)
        if self._ordered:
            copies: dict[tuple[bytes, int], dict[str, dict[int, int]]] = {}
            for host, rows in own.items():
                self._in_order(host, rows, copies)
            self._copies(copies)
        return verdict

    def _batch(self, session: bytes, offset: int) -> Recorded | None:
        key = session, offset
        if key not in self._known:
            taken = (
                r for start, until, r in self._ranges.get(session, ()) if start <= offset < until
            )
            # Of two that took it, which is a fault of the ledger, the last counts.
            self._known[key] = max(taken, key=lambda r: r.batch.batch_id, default=None)
        return self._known[key]

    def _groups_of(self, packet: tuple[bytes, int]) -> dict[int, tuple[int, ...]]:
        """Places of the messages with the same receivers, by each of these places."""
        if packet not in self._groups:
            by_hosts: dict[frozenset[str], list[int]] = defaultdict(list)
            for place, hosts in enumerate(self._receivers[packet]):
                by_hosts[hosts].append(place)
            groups = {hosts: tuple(places) for hosts, places in by_hosts.items()}
            self._groups[packet] = {place: places for places in groups.values() for place in places}
        return self._groups[packet]

    def _owed_to(self, packet: tuple[bytes, int], place: int) -> frozenset[str]:
        batch = self._batch(*packet)
        hosts = self._receivers[packet][place]
        return hosts - batch.cut_off if batch is not None else frozenset()

    def _own(self, host: str, rows: Iterable[Receipt]) -> Iterator[tuple[Receipt, _Notification]]:
        """Yields what a host has a right to, as it came; all else is a fault."""
        for receipt in rows:
            if not receipt.messages:
                continue  # a heartbeat or a summary: no notification
            session, sequence, messages = receipt
            offset = split_sequence(sequence)[0]
            batch = self._batch(session, offset)
            if batch is not None and batch.batch.batch_id < self._since:
                continue
            number = None if batch is None else batch.batch.batch_id
            if receipt not in self._read:
                self._read[receipt] = self._notification(receipt, batch)
            found = self._read[receipt]
            if isinstance(found, str):
                kind = "unrecorded" if batch is None and session in self._ranges else "changed"
                self._verdict.add(Fault(kind, host, session, sequence, number, found))
                continue
            if self._meaning.setdefault((session, sequence), messages) != messages:
                count = len(self._meaning[session, sequence])
                what = f"{len(messages)} messages here, but {count} elsewhere"
                self._verdict.add(Fault("unlike", host, session, sequence, number, what))
                continue
            if host not in self._owed_to(found.packet, found.group):
                hosts = ", ".join(sorted(self._owed_to(found.packet, found.group)))
                what = f"expected at {hosts}"
                self._verdict.add(Fault("foreign", host, session, sequence, number, what))
                continue
            self._verdict.received += 1
            yield receipt, found

    def _notification(self, receipt: Receipt, batch: Recorded | None) -> _Notification | str:
        """Returns the notification that a receipt is, or in words why it is none."""
        session, sequence, messages = receipt
        offset, index = split_sequence(sequence)
        packet = session, offset
        if batch is None:
            known = session in self._ranges
            if known:
                return "its batch is not in the ledger"
            return "the session does not belong to the topic"
        if packet not in self._packets:
            return "the topic does not contain this packet"
        source = self._packets[packet]
        if index >= len(source):
            return f"the packet has only {len(source)} messages"
        if sequence != (offset << 26) | (index << 13):
            return "the sequence number does not belong to a first message"
        places = self._groups_of(packet)[index]
        start = places.index(index)
        if messages != tuple(source[place] for place in places[start : start + len(messages)]):
            return f"its {len(messages)} messages differ from those of this sequence number"
        return _Notification(packet, places[0], start, len(messages))

    def _all_there(self, own: Mapping[str, Sequence[tuple[Receipt, _Notification]]]) -> None:
        """Each host has all of each group of messages that it is owed."""
        cuts: dict[tuple[tuple[bytes, int], int], dict[int, int]] = defaultdict(dict)
        have: dict[tuple[str, tuple[bytes, int], int], dict[int, int]] = defaultdict(dict)
        for host, rows in own.items():
            for _, found in rows:
                cuts[found.packet, found.group][found.start] = found.count
                have[host, found.packet, found.group][found.start] = found.count
        distinct = 0
        for packet in self._packets:
            batch = self._batch(*packet)
            if batch is None or batch.batch.batch_id < self._since:
                continue
            for group, places in {p[0]: p for p in self._groups_of(packet).values()}.items():
                owed = self._owed_to(packet, group)
                if not owed:
                    continue
                pieces = sorted(cuts.get((packet, group), {}).items())
                for (start, count), (following, _) in itertools.pairwise(pieces):
                    if start + count > following:
                        what = f"{count} messages, but message {places[following]} is repeated"
                        self._fault("unlike", "", packet, places[start], what)
                for host in owed:
                    mine = have.get((host, packet, group), {})
                    distinct += len(mine)
                    covered = set[int]().union(*(range(s, s + n) for s, n in mine.items()))
                    self._verdict.owed += len(pieces) or 1
                    lacking = [n for n in range(len(places)) if n not in covered]
                    if lacking:
                        what = f"{len(lacking)} messages of this packet are missing"
                        self._fault("missing", host, packet, places[lacking[0]], what)
        self._verdict.repeats = self._verdict.received - distinct

    def _in_order(
        self,
        host: str,
        rows: Sequence[tuple[Receipt, _Notification]],
        copies: dict[tuple[bytes, int], dict[str, dict[int, int]]],
    ) -> None:
        """The order of each session at one host; counts copies by session and batch."""
        sessions: dict[bytes, list[int]] = defaultdict(list)
        for receipt, _ in rows:
            sessions[receipt.session].append(receipt.sequence)
        for session, arrived in sessions.items():
            line = sorted(set(arrived))
            place = {sequence: n for n, sequence in enumerate(line)}
            batch_of = [self._number(session, sequence) for sequence in line]
            first = {batch: n for n, batch in reversed(list(enumerate(batch_of)))}
            last = {batch: n for n, batch in enumerate(batch_of)}
            at = -1
            for sequence in arrived:
                new = place[sequence]
                batch = batch_of[new]
                before = None if at < 0 else batch_of[at]
                if new != at + 1 and not (batch == before and new == first[batch]):
                    what = "received first" if at < 0 else f"received after sequence {line[at]}"
                    self._verdict.add(Fault("order", host, session, sequence, batch, what))
                counts = copies.setdefault((session, batch), {}).setdefault(host, {})
                counts[sequence] = counts.get(sequence, 0) + 1
                at = new
            if at != last[batch_of[at]]:
                what = "the last attempt of the batch ends here, but an earlier one sent more"
                fault = Fault("order", host, session, line[at], batch_of[at], what)
                self._verdict.add(fault)

    def _copies(self, copies: Mapping[tuple[bytes, int], Mapping[str, Mapping[int, int]]]) -> None:
        for (session, batch), hosts in copies.items():
            by_packet: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
            for host, counts in hosts.items():
                for sequence, count in counts.items():
                    by_packet[split_sequence(sequence)[0]].append((count, sequence, host))
            fewest: tuple[int, int, str] | None = None
            for _, counted in sorted(by_packet.items()):
                if fewest is not None:
                    for count, sequence, host in counted:
                        if count > fewest[0]:
                            what = f"{count} copies, but {fewest[2]} has {fewest[0]} of {fewest[1]}"
                            self._verdict.add(Fault("copies", host, session, sequence, batch, what))
                fewest = min([*counted, *([fewest] if fewest is not None else [])])

    def _number(self, session: bytes, sequence: int) -> int:
        batch = self._batch(session, split_sequence(sequence)[0])
        assert batch is not None
        return batch.batch.batch_id

    def _fault(
        self, kind: str, host: str, packet: tuple[bytes, int], place: int, what: str
    ) -> None:
        session, offset = packet
        batch = self._batch(session, offset)
        number = None if batch is None else batch.batch.batch_id
        sequence = (offset << 26) | (place << 13)
        self._verdict.add(Fault(kind, host, session, sequence, number, what))
