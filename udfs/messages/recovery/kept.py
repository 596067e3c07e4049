"""The notifications of one session that a receiver has and that no summary has confirmed yet."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from udfs.messages.summaries import Summary, splitmix64


class KeptNotifications:
    """Counts of messages by first sequence number, and datagrams of those that wait for their turn.

    ``counts`` is for reading; `add`, `remove` and `take` change it. Questions about a range cost
    one pass over what is kept after a change, and then a search.
    """

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self._datagrams: dict[int, bytes] = {}
        self._keys: NDArray[np.uint64] = np.zeros(0, np.uint64)
        # Sum of the digests before each, and of all.
        self._sums: NDArray[np.uint64] = np.zeros(1, np.uint64)

    def __len__(self) -> int:
        return len(self.counts)

    def add(self, sequence: int, count: int, datagram: bytes | None = None) -> None:
        """Keep one that is not kept; with its datagram where it is not delivered yet."""
        self.counts[sequence] = count
        if datagram is not None:
            self._datagrams[sequence] = datagram

    def remove(self, sequence: int) -> None:
        """Forget one that is kept."""
        del self.counts[sequence]
        self._datagrams.pop(sequence, None)
        self._keys = self._keys[:0]

    def number(self, until: int) -> int:
        """How many are below ``until``."""
        return int(np.searchsorted(self._sorted(), np.uint64(until)))

    def matches(self, summary: Summary) -> bool:
        """Whether those below the end of the summary are those that it speaks of.

        None may be below its beginning.
        """
        number = self.number(summary.until)
        if number != summary.notifications:
            return False
        last = int(self._keys[number - 1]) if number else 0
        digest = (int(self._sums[number]) - int(self._sums[0])) % (1 << 64)
        return last == summary.last and digest == summary.digest

    def middle(self) -> int:
        """A number with half of them below it; there is one at least."""
        return int(self._sorted()[len(self) // 2])

    def take(self, until: int) -> list[tuple[int, int, bytes]]:
        """Forget those below ``until``. Number, count, datagram of those that wait, ascending."""
        if not self.counts:
            return []
        number = self.number(until)
        waiting = []
        if self._datagrams:
            for sequence in self._keys[:number].tolist():
                count = self.counts.pop(sequence)
                datagram = self._datagrams.pop(sequence, None)
                if datagram is not None:
                    waiting.append((sequence, count, datagram))
        elif number == len(self.counts):
            self.counts.clear()
        else:
            for sequence in self._keys[:number].tolist():
                del self.counts[sequence]
        self._keys, self._sums = self._keys[number:], self._sums[number:]
        return waiting

    def _sorted(self) -> NDArray[np.uint64]:
        # Numbers only come, or go from the front, so as many as before are the same.
        size = len(self.counts)
        if self._keys.size != size:
            keys = np.fromiter(self.counts.keys(), np.uint64, size)
            counts = np.fromiter(self.counts.values(), np.uint64, size)
            order = np.argsort(keys)
            self._keys = keys[order]
            digests = splitmix64(self._keys + counts[order])
            self._sums = np.zeros(size + 1, np.uint64)
            np.cumsum(digests, out=self._sums[1:])
        return self._keys
