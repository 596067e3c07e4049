"""The proof that nothing was lost, wrong, or sent to others, whatever crashed meanwhile.

`stackcast.lab.proof.verification` works out what each host is owed, by brute force. This module
holds every datagram that the hosts wrote down against it; `stackcast.lab.proof.ledger` holds the
ledger against the topic. Unlike `stackcast.lab.proof.verification.compare` it allows for batches
that ran again, and for nothing else:

- **owed**: a notification is the messages of one source packet that have the same receivers, or a
  run of them, under the sequence number of the first. A host has each that it is owed at least
  once, and no other. All copies of a notification, at all hosts, are the same bytes.
- **order**: a *try* of a batch is what a host got of it in one go. A session is, at each host, the
  batches in their order, and each batch one try or more: every try begins with the first
  notification that the batch owes the host and goes on without a gap, a try that breaks off is
  followed by another one of the same batch, and the last try of a batch is whole.
- **copies**: a try sends what is earlier before what is later. So no host has more copies of a
  notification than another has of one of an earlier source packet of the same batch and session.
- **ledger**: batches are numbered without a gap, and the offsets of each partition follow each
  other: no record of the topic was left out or taken twice.

From the receipts alone one thing cannot be told: a try that broke off may have broken off one
source packet earlier.

A window of offsets is looked at a time (`stackcast.lab.proof.recorded.Window`), so memory is
bounded by its size, not by the topic's: receipts are sorted into windows on disk
(`stackcast.lab.proof.arrivals`), and `stackcast.lab.proof.order` carries from one window to the
next what order and copies need. The verdict is the same whatever the size.
"""

from __future__ import annotations

import bisect
import itertools
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from stackcast.lab.proof.arrivals import Arrival, Arrivals
from stackcast.lab.proof.order import Order, Owned
from stackcast.lab.proof.receipts import Receipt
from stackcast.lab.proof.recorded import Recorded, Takers, Window, windows, with_state
from stackcast.lab.proof.verdict import DeliveryVerdict, Fault
from stackcast.lab.proof.verification import Expectation
from stackcast.udfs.messages.sequence import Topic, session_id, split_sequence

#: Offsets that are looked at together, by default: some 1 GB where packets of ten messages go to
#: sixteen hosts.
WINDOW = 10_000

Expect = Callable[[Window], Expectation]
"""What hosts are owed of a window's records; asked of one window after another, in their order."""


def check_receipts(
    expect: Expect,
    recorded: Sequence[Recorded],
    received: Mapping[str, Iterable[Receipt]],
    topic: Topic,
    since: int = 0,
    ordered: bool = True,
    window: int = WINDOW,
    pruned: bool = False,
) -> DeliveryVerdict:
    """Hold what hosts wrote down, in the order of its arrival, against what they were owed.

    expect: as `Expect` says; windows before ``since`` are asked for where rules keep state alone.
    recorded: the batches of the ledger, in their order. received: read once, host by host. since:
    batches before this one, and what hosts have of them, are not looked at. ordered: whether order
    and number of copies count; not where a lossy network was repaired afterwards. window: offsets
    that are looked at together. pruned: switches match, so that a notification is a source packet
    without the messages that its host is not owed, under the number of the packet.
    """
    verdict = DeliveryVerdict(
        versions={one.batch.batch_id: one.versions for one in recorded},
        hosts=len(received),
        batches=sum(one.batch.batch_id >= since for one in recorded),
    )
    with (
        tempfile.TemporaryDirectory(prefix="stackcast-proof-") as folder,
        Arrivals(Path(folder)) as arrivals,
    ):
        made = _PrunedCheck if pruned else _Check
        check = made(recorded, [*received], topic, since, verdict)
        cut = [*windows(recorded, window)]
        check.sort(received.values(), cut, arrivals)
        order = Order(verdict, arrivals.close_input(), recorded, check.hosts, topic)
        stateful = bool(with_state(recorded, since))
        for number, each in enumerate(cut):
            counts = any(one.batch.batch_id >= since for one in each.recorded)
            if counts or stateful:
                expectation = expect(each)
            if not counts:
                continue
            owned = check.window(each, expectation, arrivals.window(number))
            if ordered:
                order.window(each, owned)
        if ordered:
            order.end()
    return verdict


class _Notification(NamedTuple):
    """A receipt that is what its number says."""

    packet: tuple[bytes, int]
    group: int
    start: int
    count: int


class _Check:
    """Receipts, sorted into windows; then of each window, who owns what, and what is missing."""

    def __init__(
        self,
        recorded: Sequence[Recorded],
        hosts: Sequence[str],
        topic: Topic,
        since: int,
        verdict: DeliveryVerdict,
    ) -> None:
        self.hosts = hosts
        self._recorded = recorded
        self._topic = topic
        self._since = since
        self._verdict = verdict
        self._takers = Takers(recorded, topic)

    def sort(
        self,
        received: Iterable[Iterable[Receipt]],
        cut: Sequence[Window],
        arrivals: Arrivals,
    ) -> None:
        """Sorts what hosts wrote down into windows; what is of none is a fault."""
        starts = [(window.partition, window.start) for window in cut]
        for host, rows in enumerate(received):
            for receipt in rows:
                if not receipt.messages:
                    continue  # a heartbeat or a summary: no notification
                session, sequence, _ = receipt
                offset = split_sequence(sequence)[0]
                partition = self._takers.partition(session)
                if partition is None:
                    what = "the session does not belong to the topic"
                    fault = Fault("changed", self.hosts[host], session, sequence, None, what)
                    self._verdict.add(fault)
                    continue
                place = self._takers.place(partition, offset)
                if place is None:
                    what = "its batch is not in the ledger"
                    fault = Fault("unrecorded", self.hosts[host], session, sequence, None, what)
                    self._verdict.add(fault)
                elif self._recorded[place].batch.batch_id >= self._since:
                    window = bisect.bisect_right(starts, (partition, offset)) - 1
                    arrivals.put(window, host, partition, receipt)

    def window(
        self, window: Window, expectation: Expectation, arrivals: Iterable[Arrival]
    ) -> list[Owned]:
        """Returns what hosts have a right to, as it came; all else is a fault, and so is what they
        lack."""
        self._expectation = expectation
        self._partition = window.partition
        self._session = session_id(self._topic, window.partition)
        self._groups: dict[int, dict[int, tuple[int, ...]]] = {}
        # What a number means: as the first receipt of it says, wherever that was.
        meaning: dict[int, tuple[bytes, ...]] = {}
        read: dict[Receipt, _Notification | str] = {}
        owned: list[Owned] = []
        cuts: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        have: dict[tuple[str, int, int], dict[int, int]] = defaultdict(dict)
        for number, visit, receipt in arrivals:
            host = self.hosts[number]
            sequence, messages = receipt.sequence, receipt.messages
            if receipt not in read:
                read[receipt] = self._notification(receipt)
            found = read[receipt]
            if isinstance(found, str):
                self._fault("changed", host, sequence, found)
                continue
            offset = found.packet[1]
            if meaning.setdefault(sequence, messages) != messages:
                what = f"{len(messages)} messages here, but {len(meaning[sequence])} elsewhere"
                self._fault("unlike", host, sequence, what)
                continue
            hosts = self._owed_to(offset, found.group)
            if host not in hosts:
                self._fault("foreign", host, sequence, f"expected at {', '.join(sorted(hosts))}")
                continue
            owned.append(Owned(number, visit, sequence, self._place(offset)))
            cuts[offset, found.group][found.start] = found.count
            have[host, offset, found.group][found.start] = found.count
        self._verdict.received += len(owned)
        self._all_there(cuts, have)
        self._verdict.repeats += len(owned) - sum(map(len, have.values()))
        return owned

    def _place(self, offset: int) -> int:
        place = self._takers.place(self._partition, offset)
        assert place is not None
        return place

    def _groups_of(self, offset: int) -> dict[int, tuple[int, ...]]:
        """Places of the messages with the same receivers, by each of these places."""
        if offset not in self._groups:
            by_hosts: dict[frozenset[str], list[int]] = defaultdict(list)
            for place, hosts in enumerate(self._expectation.receivers[self._session, offset]):
                by_hosts[hosts].append(place)
            groups = {hosts: tuple(places) for hosts, places in by_hosts.items()}
            self._groups[offset] = {place: places for places in groups.values() for place in places}
        return self._groups[offset]

    def _owed_to(self, offset: int, place: int) -> frozenset[str]:
        hosts = self._expectation.receivers[self._session, offset][place]
        return hosts - self._recorded[self._place(offset)].cut_off

    def _notification(self, receipt: Receipt) -> _Notification | str:
        """Returns the notification that a receipt is, or in words why it is none."""
        session, sequence, messages = receipt
        offset, index = split_sequence(sequence)
        packet = session, offset
        if packet not in self._expectation.packets:
            return "the topic does not contain this packet"
        source = self._expectation.packets[packet]
        if index >= len(source):
            return f"the packet has only {len(source)} messages"
        if sequence != (offset << 26) | (index << 13):
            return "the sequence number does not belong to a first message"
        places = self._groups_of(offset)[index]
        start = places.index(index)
        if messages != tuple(source[place] for place in places[start : start + len(messages)]):
            return f"its {len(messages)} messages differ from those of this sequence number"
        return _Notification(packet, places[0], start, len(messages))

    def _all_there(
        self,
        cuts: Mapping[tuple[int, int], Mapping[int, int]],
        have: Mapping[tuple[str, int, int], Mapping[int, int]],
    ) -> None:
        """Each host has all of each group of messages that it is owed.

        cuts, have: of each group, by its offset and first message, the notifications that it came
        in, start and number of messages: anywhere, and at each host.
        """
        for session, offset in self._expectation.packets:
            if session != self._session:
                continue
            if self._recorded[self._place(offset)].batch.batch_id < self._since:
                continue
            for group, places in {p[0]: p for p in self._groups_of(offset).values()}.items():
                owed = self._owed_to(offset, group)
                if not owed:
                    continue
                pieces = sorted(cuts.get((offset, group), {}).items())
                for (start, count), (following, _) in itertools.pairwise(pieces):
                    if start + count > following:
                        what = f"{count} messages, but message {places[following]} is repeated"
                        self._fault("unlike", "", offset << 26 | places[start] << 13, what)
                self._verdict.owed += len(owed) * (len(pieces) or 1)
                for host in owed:
                    mine = have.get((host, offset, group), {})
                    covered = set[int]().union(*(range(s, s + n) for s, n in mine.items()))
                    lacking = [n for n in range(len(places)) if n not in covered]
                    if lacking:
                        what = f"{len(lacking)} messages of this packet are missing"
                        self._fault("missing", host, offset << 26 | places[lacking[0]] << 13, what)

    def _fault(self, kind: str, host: str, sequence: int, what: str) -> None:
        batch = self._recorded[self._place(split_sequence(sequence)[0])].batch.batch_id
        self._verdict.add(Fault(kind, host, self._session, sequence, batch, what))


class _PrunedCheck(_Check):
    """The same of packets that switches have taken messages off."""

    def window(
        self, window: Window, expectation: Expectation, arrivals: Iterable[Arrival]
    ) -> list[Owned]:
        self._expectation = expectation
        self._partition = window.partition
        self._session = session_id(self._topic, window.partition)
        self._owed_of: dict[int, dict[str, tuple[bytes, ...]]] = {}
        owned: list[Owned] = []
        have: set[tuple[str, int]] = set()
        for number, visit, receipt in arrivals:
            host = self.hosts[number]
            offset = split_sequence(receipt.sequence)[0]
            wrong = self._wrong(host, offset, receipt)
            if wrong:
                self._fault(wrong[0], host, receipt.sequence, wrong[1])
                continue
            owned.append(Owned(number, visit, receipt.sequence, self._place(offset)))
            have.add((host, offset))
        self._verdict.received += len(owned)
        self._verdict.repeats += len(owned) - len(have)
        for session, offset in expectation.packets:
            if session != self._session:
                continue
            if self._recorded[self._place(offset)].batch.batch_id < self._since:
                continue
            for host, wanted in self._owed(offset).items():
                self._verdict.owed += 1
                if (host, offset) not in have:
                    what = f"{len(wanted)} messages of this packet are missing"
                    self._fault("missing", host, offset << 26, what)
        return owned

    def _wrong(self, host: str, offset: int, receipt: Receipt) -> tuple[str, str] | None:
        """Returns what is wrong with a receipt, as a kind of fault and in words; None: nothing."""
        source = self._expectation.packets.get((self._session, offset))
        if source is None:
            return "changed", "the topic does not contain this packet"
        if receipt.sequence != offset << 26:
            return "changed", "the sequence number does not belong to a packet"
        wanted = self._owed(offset).get(host, ())
        if receipt.messages == wanted:
            return None
        rest = iter(source)
        if not all(message in rest for message in receipt.messages):
            return (
                "changed",
                f"its {len(receipt.messages)} messages differ from those of this packet",
            )
        rest = iter(wanted)
        if all(message in rest for message in receipt.messages):
            return "changed", f"only {len(receipt.messages)} of the {len(wanted)} expected messages"
        return "foreign", f"{len(receipt.messages)} messages, but {len(wanted)} are expected"

    def _owed(self, offset: int) -> dict[str, tuple[bytes, ...]]:
        """What hosts are owed of a packet."""
        if offset not in self._owed_of:
            found: dict[str, list[bytes]] = defaultdict(list)
            for place, message in enumerate(self._expectation.packets[self._session, offset]):
                # No switch sends out of the port that a packet came in by.
                sent_by = self._expectation.senders.get((self._session, offset))
                for host in self._owed_to(offset, place):
                    if sent_by is None or host != sent_by[place]:
                        found[host].append(message)
            self._owed_of[offset] = {host: tuple(each) for host, each in found.items()}
        return self._owed_of[offset]
