"""A stream, its service and a network that loses, repeats, delays and reorders, for one receiver.

The reference of a sender: it follows docs/reference/sessions-and-summaries.md with plain integers
and lists, and shares no code with the receiver but the building of a packet.
"""

from __future__ import annotations

import heapq
import random
import struct
from dataclasses import dataclass, field

from stackcast.udfs.messages.recovery.receiver import Loss, Notification, Output, Receiver, State
from stackcast.udfs.messages.reference import build_packet

M = (1 << 64) - 1
GONE = M


def splitmix64(z: int) -> int:
    z = (z + 0x9E3779B97F4A7C15) & M
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M
    return z ^ (z >> 31)


def notification(session: bytes, sequence: int, count: int) -> bytes:
    """Its messages say where they belong."""
    return build_packet(session, sequence, [b"%d+%d" % (sequence, n) for n in range(count)])


def summary_bytes(
    session: bytes, begin: int, until: int, sent: dict[int, int], gone: bool = False
) -> bytes:
    """The summary of [begin, until) by ``sent``: number of messages by first sequence number."""
    mine = {s: c for s, c in sent.items() if begin <= s < until}
    number, last = len(mine), max(mine, default=0)
    sums = sum(splitmix64((s + c) & M) for s, c in mine.items()) & M
    if gone:
        number, last, sums = GONE, 0, 0
    return struct.pack(">10sQHQQQQ", session, until, 0, begin, number, last, sums)


@dataclass
class Stream:
    """What one session has sent to one host, and what the service can still tell."""

    session: bytes
    batches: list[dict[int, int]] = field(default_factory=list)
    ends: list[int] = field(default_factory=lambda: [0])
    #: How far the ledger is written; what is gone below.
    ledger: int = 0
    gone: int = 0
    most_datagrams: int = 4096

    @property
    def sent(self) -> dict[int, int]:
        return {s: c for batch in self.batches for s, c in batch.items()}

    def append(self, notifications: dict[int, int], until: int) -> int:
        """Another batch, [last end, until); its number."""
        self.batches.append(notifications)
        self.ends.append(until)
        return len(self.batches) - 1

    def datagrams(self, number: int) -> list[bytes]:
        """A batch as the stream sends it, its summary last."""
        batch = self.batches[number]
        begin, until = self.ends[number : number + 2]
        found = [notification(self.session, s, c) for s, c in sorted(batch.items())]
        return [*found, summary_bytes(self.session, begin, until, batch)]

    def answer(self, sequence: int, count: int) -> list[bytes]:
        """What the service sends for a request, its summary last."""
        if sequence >= self.ledger:
            return [summary_bytes(self.session, sequence, sequence, {})]
        if sequence < self.gone:
            return [summary_bytes(self.session, sequence, self.gone, {}, gone=True)]
        found: list[bytes] = []
        until, room = self.ledger, count
        sent = self.sent
        for s in sorted(s for s in sent if sequence <= s < self.ledger):
            if found and (sent[s] > room or len(found) >= self.most_datagrams):
                until = s
                break
            found.append(notification(self.session, s, sent[s]))
            room -= sent[s]
        return [*found, summary_bytes(self.session, sequence, until, sent)]


@dataclass
class Faults:
    """Of each datagram, in any direction: shares, and the longest delay in seconds."""

    loss: float = 0.0
    copies: float = 0.0
    delay: float = 0.0


class World:
    """Carries datagrams between streams and a receiver; its clock jumps to what comes next."""

    def __init__(
        self, receiver: Receiver, streams: list[Stream], faults: Faults, dice: random.Random
    ) -> None:
        self.receiver, self.faults, self.dice = receiver, faults, dice
        self.streams = {stream.session: stream for stream in streams}
        self.now = 0.0
        self.deliveries: list[Notification] = []
        self.losses: list[Loss] = []
        #: Sessions that caught up, the number below which each was complete, and what it had then.
        self.caught_up: list[tuple[bytes, int, set[int]]] = []
        self.requests = 0
        #: Where each session begins for the receiver: at a summary, or without one at what it has.
        self.begins: dict[bytes, int] = {}
        self._first: dict[bytes, int] = {}
        self._queue: list[tuple[float, int, str, bytes]] = []
        self._number = 0

    def send(self, datagram: bytes, kind: str = "stream") -> None:
        """``kind``: stream, answer or request."""
        copies = 0 if self.dice.random() < self.faults.loss else 1
        copies += self.dice.random() < self.faults.copies
        for _ in range(copies):
            self._number += 1
            delay = 0.0001 + self.dice.random() * self.faults.delay
            heapq.heappush(self._queue, (self.now + delay, self._number, kind, datagram))

    def run(self, until: float) -> None:
        """Let time pass."""
        while True:
            due = self.receiver.due()
            next_one = self._queue[0][0] if self._queue else float("inf")
            at = min(due, next_one)
            if at > until:
                break
            self.now = max(self.now, at)
            if next_one <= due:
                _, _, kind, datagram = heapq.heappop(self._queue)
                if kind == "request":
                    self._serve(datagram)
                else:
                    self._take(self.receiver.receive([datagram], self.now, kind == "answer"))
                    self._note(datagram)
            else:
                self._take(self.receiver.time(self.now))
                self._note()
        self.now = until

    def _note(self, datagram: bytes = b"") -> None:
        session, number, count = struct.unpack_from(">10sQH", datagram or bytes(20))
        if count:
            self._first[session] = min(number, self._first.get(session, number))
        for name, (state, _, _) in self.receiver.sessions().items():
            if name not in self.begins and state is not State.UNHEARD:
                by_summary = name == session and not count
                here = int.from_bytes(datagram[20:28]) if by_summary else self._first.get(name, 0)
                self.begins[name] = here

    def _serve(self, datagram: bytes) -> None:
        session, sequence, count = struct.unpack(">10sQH", datagram)
        if session in self.streams:
            for each in self.streams[session].answer(sequence, count):
                self.send(each, "answer")

    def _take(self, out: Output) -> None:
        self.deliveries += out.deliveries
        self.losses += out.losses
        for name, complete in out.caught_up:
            had = {n for session, n, _ in self.deliveries if session == name}
            self.caught_up.append((name, complete, had))
        self.requests += len(out.requests)
        for one in out.requests:
            self.send(struct.pack(">10sQH", one.session, one.sequence, one.count), "request")
