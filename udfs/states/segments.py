"""Updates of a state as segments: cut, put together again in order, and what of them is missing."""

from __future__ import annotations

from collections.abc import Iterator

from stackcast.udfs.errors import StateError
from stackcast.udfs.states.messages import (
    MOST_BYTES,
    SEGMENT_BYTES,
    UPDATES,
    StateHeader,
    is_later,
)

WINDOW = 4096
"""So many updates after the last whole one are held; later ones are asked for in their time."""
REORDERED = 0.02
"""What is missing may come by itself so long, seconds."""
ASK_AGAIN = 0.25


def cut(
    vnf: int, update: int, data: bytes, first: int = 1, count: int = 0
) -> list[tuple[StateHeader, bytes]]:
    """Cuts one update into segments with their headers: ``count`` from ``first`` on, or with 0 all.

    An empty update is one empty segment. Raises StateError ``TOO_LARGE``: over 4,095 segments.
    """
    check_size(data)
    total = segments(len(data))
    until = min(first + count, total + 1) if count else total + 1
    return [
        (
            StateHeader(vnf, update, total, number),
            data[(number - 1) * SEGMENT_BYTES : number * SEGMENT_BYTES],
        )
        for number in range(first, until)
    ]


def check_size(data: bytes) -> None:
    """Raises StateError ``TOO_LARGE`` for an update of over 4,095 segments."""
    if len(data) > MOST_BYTES:
        raise StateError(
            "TOO_LARGE",
            f"the update has {len(data)} bytes, but at most {MOST_BYTES} fit in 4,095 segments",
        )


def segments(size: int) -> int:
    """Returns how many segments an update of so many bytes has."""
    return max(1, -(-size // SEGMENT_BYTES))


def after(update: int, steps: int = 1) -> int:
    """Returns the update number so many steps later, or earlier."""
    return (update + steps) % UPDATES


class Stream:
    """Puts the updates of one publisher of one state together, from segments in any order.

    Each update comes out of :meth:`pop` once, whole, and after the one before it. ``through`` is
    the last that came out or was passed over, ``last`` the last that is known to exist.
    ``skipped`` counts updates that were passed over.
    """

    def __init__(self, through: int) -> None:
        self.through = self.last = through
        self.skipped = 0
        #: Since when its next update is missing, for who waits; None if nothing is.
        self.waits_since: float | None = None
        #: Of updates that are missing: when to ask for them, and how much there was of them.
        self._due: dict[int, tuple[float, int]] = {}
        self._partial: dict[int, dict[int, bytes]] = {}
        self._totals: dict[int, int] = {}

    def announce(self, update: int) -> None:
        """Learns that an update exists."""
        if is_later(update, self.last):
            self.last = update

    def take(self, header: StateHeader, data: bytes) -> str:
        """Takes a segment. Returns the reason why it is dropped, empty if it is not.

        ``bad_message``: it is no segment of an update, or contradicts one before; ``duplicate``;
        ``too_far``: more than `WINDOW` updates ahead.
        """
        full = len(data) == SEGMENT_BYTES
        if not header.total or (header.segment < header.total and not full):
            return "bad_message"
        if not is_later(header.update, self.through):
            return "duplicate"
        if (header.update - self.through) % UPDATES > WINDOW:
            return "too_far"
        if self._totals.setdefault(header.update, header.total) != header.total:
            return "bad_message"
        held = self._partial.setdefault(header.update, {})
        if header.segment in held:
            return "duplicate"
        held[header.segment] = data
        self.announce(header.update)
        return ""

    def pop(self) -> Iterator[tuple[int, bytes]]:
        """Yields the next updates that are whole, in order."""
        while self._is_whole(following := after(self.through)):
            yield self._leave_with(following)

    def skip(self, first: int) -> None:
        """Passes over all updates before ``first``, which nobody has any more."""
        before = after(first, -1)
        if is_later(before, self.through):
            self.skipped += (before - self.through) % UPDATES
            self.through = before
            for update in [u for u in self._partial if not is_later(u, before)]:
                del self._partial[update], self._totals[update]
            self.announce(before)

    def skip_missing(self) -> bool:
        """Passes over what is missing before the next whole update. False if there is none."""
        whole = [update for update in self._partial if self._is_whole(update)]
        if not whole:
            return False
        self.skip(min(whole, key=lambda update: (update - self.through) % UPDATES))
        return True

    def wanted(self, now: float, most: int) -> list[tuple[int, int, int]]:
        """Returns what to ask for now, as `missing` does: what was missing `REORDERED` seconds ago,
        and of the last update only if nothing of it came meanwhile; again after `ASK_AGAIN`."""
        found, due = [], dict[int, tuple[float, int]]()
        for gap in self.missing(most):
            update = gap[0]
            there = len(self._partial.get(update, ()))
            at, before = self._due.get(update, (now + REORDERED, there))
            if update == self.last and there != before:
                at = now + REORDERED
            if now >= at:
                found.append(gap)
            due[update] = at, there
        for update, _, _ in found:
            due[update] = now + ASK_AGAIN, due[update][1]
        self._due = due
        return found

    def missing(self, most: int) -> list[tuple[int, int, int]]:
        """Returns at most so many gaps, earliest first, and as many of the last update, which may
        be all that anybody still has: update, first segment, how many.

        Of an update of which no segment is there: 1 and 0, all of them.
        """
        gaps: list[tuple[int, int, int]] = []
        update = self.through
        while update != self.last and len(gaps) < most:
            update = after(update)
            gaps += self._gaps(update)
        last = self._gaps(self.last) if update != self.last else []
        return gaps[:most] + last[:most]

    def _gaps(self, update: int) -> list[tuple[int, int, int]]:
        held = self._partial.get(update)
        if held is None:
            return [(update, 1, 0)]
        gaps: list[tuple[int, int, int]] = []
        run = 0
        for segment in range(1, self._totals[update] + 2):
            if segment <= self._totals[update] and segment not in held:
                run += 1
            elif run:
                gaps.append((update, segment - run, run))
                run = 0
        return gaps

    def _is_whole(self, update: int) -> bool:
        return len(self._partial.get(update, ())) == self._totals.get(update, -1)

    def _leave_with(self, update: int) -> tuple[int, bytes]:
        held = self._partial.pop(update)
        total = self._totals.pop(update)
        self.through = update
        return update, b"".join(held[segment] for segment in range(1, total + 1))
