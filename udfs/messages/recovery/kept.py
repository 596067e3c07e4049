"""The notifications of a session that a receiver keeps until a summary confirms them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.messages.summaries import Summary, splitmix64

#: Maximum taken notifications to remember for overlapping ranges; half of them go at a time.
MOST_PAST = 1 << 16


class KeptNotifications:
    """Counts of messages by first sequence number, and datagrams that are not delivered yet.

    Callers read ``counts`` and change it by `add`, `remove`, `take` and `restore`. After a change,
    the first question about a range sorts all kept notifications; later ones are searches.

    Attributes:
        known_from: from this number on, nothing was lost, so a range that differs from the taken
            notifications is wrong or incomplete.
        remembered_from: from this number on, taken notifications are remembered.
    """

    def __init__(self) -> None:
        self.known_from = 0
        self.remembered_from = 0
        self._past_keys: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._past_digests: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._past_counts: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self.counts: dict[int, int] = {}
        self._datagrams: dict[int, bytes] = {}
        self._keys: NDArray[np.uint64] = np.zeros(0, np.uint64)
        # Sum of the digests before each, and of all.
        self._sums: NDArray[np.uint64] = np.zeros(1, np.uint64)
        self._sorted_counts: NDArray[np.uint64] = np.zeros(0, np.uint64)

    def __len__(self) -> int:
        return len(self.counts)

    def add(self, sequence: int, count: int, datagram: bytes | None = None) -> None:
        """Keeps one that is not kept; with its datagram if it is not delivered yet."""
        self.counts[sequence] = count
        if datagram is not None:
            self._datagrams[sequence] = datagram

    def remove(self, sequence: int) -> None:
        """Forgets one that is kept."""
        del self.counts[sequence]
        self._datagrams.pop(sequence, None)
        self._keys = self._keys[:0]

    def number(self, until: int) -> int:
        """Counts those below ``until``."""
        return int(np.searchsorted(self._sorted(), np.uint64(until)))

    def matches(self, summary: Summary) -> bool:
        """Returns True if the notifications in the summary's range are those that it announces."""
        if summary.from_ < self.remembered_from:
            return False
        first = int(np.searchsorted(self._past_keys, np.uint64(summary.from_)))
        behind = int(np.searchsorted(self._past_keys, np.uint64(summary.until)))
        begin, number = self.number(summary.from_), self.number(summary.until)
        past = self._past_keys[first:behind]
        if past.size + number - begin != summary.notifications:
            return False
        keys = self._keys[begin:number] if number > begin else past
        last = int(keys[-1]) if keys.size else 0
        digest = int(self._sums[number]) - int(self._sums[begin])
        digest += int(self._past_digests[first:behind].sum(dtype=np.uint64))
        return last == summary.last and digest % (1 << 64) == summary.digest

    def took(self, sequence: int) -> bool:
        """Returns True if one was taken; it is not below ``remembered_from``."""
        at = int(np.searchsorted(self._past_keys, np.uint64(sequence)))
        return at < self._past_keys.size and int(self._past_keys[at]) == sequence

    def add_past(self, sequence: int, count: int) -> None:
        """Remembers one as taken that was not kept."""
        at = int(np.searchsorted(self._past_keys, np.uint64(sequence)))
        key, number = np.array([sequence], np.uint64), np.array([count], np.uint64)
        self._past_keys = np.insert(self._past_keys, at, key)
        self._past_counts = np.insert(self._past_counts, at, number)
        self._past_digests = np.insert(self._past_digests, at, splitmix64(key + number))

    def restore(self, from_: int) -> None:
        """Keeps again those that were taken from a number on, delivered as they are."""
        at = int(np.searchsorted(self._past_keys, np.uint64(from_)))
        keys, counts = self._past_keys[at:].tolist(), self._past_counts[at:].tolist()
        self.counts.update(zip(keys, counts, strict=True))
        self._keep_past(slice(at))
        self._keys = self._keys[:0]

    def middle(self) -> int:
        """Returns a number with half of them below it; there is one at least."""
        return int(self._sorted()[len(self) // 2])

    def take(self, until: int) -> list[tuple[int, int, bytes]]:
        """Takes those below ``until``; returns number, count, datagram of those that wait,
        ascending."""
        if not self.counts:
            return []
        number = self.number(until)
        self._remember(number)
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
        self._sorted_counts = self._sorted_counts[number:]
        return waiting

    def _remember(self, number: int) -> None:
        digests = self._sums[1 : number + 1] - self._sums[:number]
        self._past_keys = np.concatenate((self._past_keys, self._keys[:number]))
        self._past_digests = np.concatenate((self._past_digests, digests))
        counts = self._sorted_counts[:number]
        self._past_counts = np.concatenate((self._past_counts, counts))
        if self._past_keys.size > MOST_PAST:
            drop = self._past_keys.size - MOST_PAST // 2
            self.remembered_from = int(self._past_keys[drop - 1]) + 1
            self.known_from = max(self.known_from, self.remembered_from)
            self._keep_past(slice(drop, None))

    def _keep_past(self, part: slice) -> None:
        self._past_keys, self._past_counts = self._past_keys[part], self._past_counts[part]
        self._past_digests = self._past_digests[part]

    def _sorted(self) -> NDArray[np.uint64]:
        # Numbers only come, or go from the front, so as many as before are the same.
        size = len(self.counts)
        if self._keys.size != size:
            keys = np.fromiter(self.counts.keys(), np.uint64, size)
            counts = np.fromiter(self.counts.values(), np.uint64, size)
            order = np.argsort(keys)
            self._keys, self._sorted_counts = keys[order], counts[order]
            digests = splitmix64(self._keys + self._sorted_counts)
            self._sums = np.zeros(size + 1, np.uint64)
            np.cumsum(digests, out=self._sums[1:])
        return self._keys
