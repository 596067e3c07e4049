"""Answers to re-requests, put together from offset ranges of notifications; a cache of these; and
what keeps a host from taking more than its share: limits, turns, and cookies.

Sans I/O: a `RequestAnswer` says which offset it must go on with, and takes notifications that
somebody computed.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from hmac import compare_digest

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.messages.sequence import OFFSET_SHIFT
from stackcast.udfs.messages.summaries import COOKIE_SIZE, GONE, Request, Summary, digest
from stackcast.udfs.replay.notifications import Notifications

#: Datagrams of an answer, and their bytes, at most.
MOST_DATAGRAMS = 4096
MOST_BYTES = 4 << 20


@dataclass(frozen=True)
class Gone:
    """Offsets [from_, until) of a partition that cannot be computed any more; why: the reason."""

    from_: int
    until: int
    why: str
    size: int = 1000

    def serves(self, host: str) -> bool:
        """Returns True: it is the same for all hosts."""
        return bool(host)


Piece = Notifications | Gone


@dataclass
class RequestAnswer:
    """Puts together the datagrams that answer a request, and a summary of the range that they
    cover.

    offset: the next one that it needs. done: it needs none. outcome: ``answered``, ``gone``, or
    ``ahead`` where the ledger has nothing of the range yet. why: the reason that a range is gone.
    """

    host: str
    partition: int
    request: Request
    datagrams: list[bytes] = field(default_factory=list)
    done: bool = False
    outcome: str = "answered"
    why: str = ""

    def __post_init__(self) -> None:
        self.offset = self.request.sequence >> OFFSET_SHIFT
        #: First and last sequence number of the range that is covered, the last exclusive.
        self.from_ = self.until = self.request.sequence
        self._messages = max(1, self.request.count)
        self._bytes = MOST_BYTES
        self._sequence: list[NDArray[np.uint64]] = []
        self._counts: list[NDArray[np.int32]] = []
        #: Pieces that were computed for it.
        self.computed = 0

    @property
    def octets(self) -> int:
        """Bytes of the datagrams."""
        return MOST_BYTES - self._bytes

    def nothing(self, until: int) -> None:
        """Notes that nothing was sent from `offset` up to this one."""
        self.offset = until
        self.until = max(self.until, until << OFFSET_SHIFT)

    def take(self, piece: Piece) -> None:
        """Adds a piece that has `offset`, and serves the host."""
        if isinstance(piece, Gone):
            self._gone(piece)
            return
        places = piece.places(self.host)
        sequence = piece.sequence[places]
        begin = int(np.searchsorted(sequence, np.uint64(self.until)))
        places, sequence = places[begin:], sequence[begin:]
        counts = piece.messages[places]
        fits = self._fitting(piece, places, counts)
        chosen = places[:fits]
        found = piece.datagrams(chosen)
        self.datagrams += found
        self._bytes -= sum(map(len, found))
        self._messages -= int(counts[:fits].sum())
        self._sequence.append(sequence[:fits])
        self._counts.append(counts[:fits])
        if fits < len(places):
            self.until = int(sequence[fits])
            self.done = True
        else:
            self.nothing(piece.until)

    def end(self) -> None:
        """Ends the answer: there is nothing to go on with now."""
        self.done = True
        if self.until == self.from_ and self.outcome == "answered":
            self.outcome = "ahead"

    def summary(self) -> Summary:
        """Returns the summary of what the host should have when it has this answer."""
        session = self.request.session
        if self.outcome == "gone":
            return Summary(session, self.from_, self.until, GONE, 0, 0)
        sequence = np.concatenate([np.zeros(0, np.uint64), *self._sequence])
        counts = np.concatenate([np.zeros(0, np.int32), *self._counts])
        last = int(sequence[-1]) if sequence.size else 0
        return Summary(
            session, self.from_, self.until, sequence.size, last, digest(sequence, counts)
        )

    def _gone(self, piece: Gone) -> None:
        """Adds a range that is gone, unless others were found before it: those are an answer by
        themselves."""
        self.done = True
        if self.until == self.from_:
            self.outcome, self.why = "gone", piece.why
            self.nothing(piece.until)

    def _fitting(
        self, piece: Notifications, places: NDArray[np.int64], counts: NDArray[np.int32]
    ) -> int:
        """Returns how many of these still fit the answer; one at least if it is empty."""
        capacity = MOST_DATAGRAMS - len(self.datagrams)
        places, counts = places[:capacity], counts[:capacity]
        size = piece.sizes[places]
        fits = (np.cumsum(counts) <= self._messages) & (np.cumsum(size) <= self._bytes)
        number = int(fits.sum())
        return number if number or self.datagrams else min(1, places.size)


class Cookies:
    """Proves that whoever asks hears at the address that it asks from, without keeping anything.

    A cookie is a keyed digest of address and time: only who was sent it can send it back. secret:
    random bytes. Those of a period are taken until the end of the next. Source: RFC 9000, 8.1.3.
    """

    def __init__(self, secret: bytes, seconds: float = 300.0) -> None:
        self._secret = secret
        self._seconds = seconds

    def make(self, address: tuple[str, int], now: float) -> bytes:
        """Returns the cookie of an address at a time, `COOKIE_SIZE` bytes."""
        return self._of(address, int(now // self._seconds))

    def proves(self, cookie: bytes, address: tuple[str, int], now: float) -> bool:
        """Returns True if this address was sent this cookie, not long ago."""
        period = int(now // self._seconds)
        return any(compare_digest(cookie, self._of(address, each)) for each in (period, period - 1))

    def _of(self, address: tuple[str, int], period: int) -> bytes:
        text = f"{address[0]}:{address[1]} {period}".encode()
        return blake2b(text, key=self._secret, digest_size=COOKIE_SIZE).digest()


def turns(waiting: Iterable[tuple[str, int]], busy: Collection[str]) -> list[int]:
    """Returns the places of those that wait whose turn it is, in that order: one of each host.

    waiting: ``(host, ranges computed for it so far)``, in the order in which they came. Hosts that
    are ``busy`` wait. Who had the least comes first, so none waits for another's long answer.
    """
    first: dict[str, tuple[int, int]] = {}
    for place, (host, computed) in enumerate(waiting):
        if host not in busy:
            first[host] = min(first.get(host, (computed, place)), (computed, place))
    return [place for _, place in sorted(first.values())]


class PieceCache:
    """Keeps pieces by partition, which do not overlap; those not used for longest go first.

    limit: bytes that they may take; one piece is kept whatever its size.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._starts: dict[int, list[int]] = {}
        self._pieces: OrderedDict[tuple[int, int], Piece] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pieces)

    def find(self, partition: int, offset: int) -> Piece | None:
        """Returns the piece that has an offset, None if there is none."""
        starts = self._starts.get(partition, [])
        at = bisect_right(starts, offset) - 1
        if at < 0:
            return None
        key = partition, starts[at]
        if offset >= self._pieces[key].until:
            return None
        self._pieces.move_to_end(key)
        return self._pieces[key]

    def put(self, partition: int, piece: Piece) -> None:
        """Keeps a piece in place of all that overlap it."""
        starts = self._starts.setdefault(partition, [])
        overlapping = [
            start
            for start in starts
            if start < piece.until and piece.from_ < self._pieces[partition, start].until
        ]
        for start in overlapping:
            self._drop((partition, start))
        insort(starts, piece.from_)
        self._pieces[partition, piece.from_] = piece
        self._size += piece.size
        while self._size > self._limit and len(self._pieces) > 1:
            self._drop(next(iter(self._pieces)))

    def _drop(self, key: tuple[int, int]) -> None:
        self._size -= self._pieces.pop(key).size
        self._starts[key[0]].remove(key[1])


def network_prefix(address: str) -> str:
    """Returns the /24 that an IPv4 address is in, as text: the owner of a budget of challenges."""
    return f"{address.rpartition('.')[0]}.0/24"


class RateLimiter:
    """Limits each owner of a budget to ``rate`` per second and ``burst`` at once (token bucket).

    A host owns a budget of requests, and one of bytes that it is sent; a network prefix owns one of
    challenges.
    """

    def __init__(self, rate: float, burst: float, most: int = 100_000) -> None:
        self._rate, self._burst, self._most = rate, burst, most
        self._left: dict[str, tuple[float, float]] = {}

    def allows(self, owner: str, now: float) -> bool:
        """Returns True if an owner may ask at this time, seconds, and counts that request."""
        allowed = self.left(owner, now) >= 1
        self.spend(owner, now, int(allowed))
        return allowed

    def left(self, owner: str, now: float) -> float:
        """Returns what an owner has left at this time; below 0 where it spent more than it had."""
        left, since = self._left.get(owner, (self._burst, now))
        return min(self._burst, left + (now - since) * self._rate)

    def spend(self, owner: str, now: float, number: int) -> None:
        """Counts so many of an owner."""
        left = self.left(owner, now)
        if len(self._left) >= self._most and owner not in self._left:
            self._left.clear()
        self._left[owner] = left - number, now
