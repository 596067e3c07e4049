"""A memo of a switch's runs, to be repeated with frames that it would treat the same.

A program is a function of the bytes that its parser looked at, the ingress port, perhaps the
frame's length, and its tables, unless it reads or writes something else (then its run is not kept).
So two frames with the same port and the same such bytes fare alike, whatever follows in them: the
copies are those of the first, with the rest of the second frame in place of that of the first.
"""

from __future__ import annotations

# Runs that a switch remembers; beyond, it forgets all and starts anew.
_LIMIT = 1 << 14
# Bytes by which frames are told apart before it is known how many their parser looks at. Any number
# is right; with these, all headers up to the count of a header stack are in it.
_HEAD = 16
# Different numbers of bytes looked at among frames of one head; what has more is not kept.
_SPANS = 16


class CachedRun:
    """The effect of one frame's run, in a form that can be repeated with another frame.

    ``copies``: ``(port, made, kept, size)``: the bytes ``made``, then the frame from offset
    ``kept`` on, all cut to ``size`` bytes unless None. ``counted``: ``(cell, grown)``: a counter's
    cell ``[packets, bytes]`` that was raised by one packet, and by the frame's length and ``grown``
    bytes. ``passes``: runs of the ingress. ``dropped``: why it was dropped, if it was.
    """

    __slots__ = ("copies", "counted", "dropped", "passes")

    def __init__(self) -> None:
        self.copies: list[tuple[int, bytes, int, int | None]] = []
        self.counted: list[tuple[list[int], int]] = []
        self.passes = 0
        self.dropped = ""

    def count(self, frame: bytes) -> None:
        """Raise the counters as the run of ``frame`` does."""
        size = len(frame)
        for cell, grown in self.counted:
            cell[0] += 1
            cell[1] += size + grown

    def outcome(self, frame: bytes) -> list[tuple[int, bytes]]:
        """Returns the copies of ``frame``."""
        return [
            (port, made + frame[kept:] if size is None else (made + frame[kept:])[:size])
            for port, made, kept, size in self.copies
        ]


class FlowCache:
    """Runs by what they depended on. `clear` it whenever a table or a group changes."""

    def __init__(self, limit: int = _LIMIT) -> None:
        self.hits = 0
        self._limit = limit
        # By port and head: how many bytes were looked at, and whether the length mattered.
        self._spans: dict[tuple[int, bytes], list[tuple[int, bool]]] = {}
        self._runs: dict[tuple[int, bytes, int], CachedRun] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def find(self, port: int, frame: bytes) -> CachedRun | None:
        """Returns the run of an equal frame, or None."""
        for span, by_length in self._spans.get((port, frame[:_HEAD]), ()):
            run = self._runs.get((port, frame[:span], len(frame) if by_length else -1))
            if run is not None:
                self.hits += 1
                return run
        return None

    def keep(self, port: int, frame: bytes, span: int, by_length: bool, run: CachedRun) -> None:
        """Remember the run of ``frame``, which depended on its first ``span`` bytes and, if
        ``by_length``, on its length."""
        if len(self._runs) >= self._limit:
            self.clear()
        # A frame that ends before what was looked for is not the start of a longer one.
        by_length = by_length or span > len(frame)
        spans = self._spans.setdefault((port, frame[:_HEAD]), [])
        if (span, by_length) not in spans:
            if len(spans) >= _SPANS:
                return
            spans.append((span, by_length))
        self._runs[port, frame[:span], len(frame) if by_length else -1] = run

    def clear(self) -> None:
        """Forget everything."""
        self._spans.clear()
        self._runs.clear()
