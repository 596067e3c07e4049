"""Meters of v1model: two rates, three colors (RFC 2698), each a bucket of tokens."""

from __future__ import annotations

import time
from collections.abc import Sequence

GREEN, YELLOW, RED = 0, 1, 2


class MeterArray:
    """Meters by index; green where no rates were given.

    ``by_bytes``: the rates are bytes a second, not packets.
    """

    def __init__(self, size: int, by_bytes: bool) -> None:
        self.size = size
        self._by_bytes = by_bytes
        self._buckets: dict[int, list[list[float]]] = {}

    def set_rates(self, index: int, rates: Sequence[tuple[float, float]]) -> None:
        """``(rate a second, burst)`` of the committed and the peak bucket; none: green again."""
        now = time.monotonic()
        self._buckets.pop(index, None)
        if rates:
            self._buckets[index] = [[rate, burst, burst, now] for rate, burst in rates]

    def execute(self, index: int, size: int) -> int:
        """The color of a packet of ``size`` bytes."""
        buckets = self._buckets.get(index)
        if buckets is None:
            return GREEN
        now = time.monotonic()
        need = size if self._by_bytes else 1
        # The peak first: a packet beyond it takes nothing from the committed rate.
        for color, bucket in zip((RED, YELLOW), reversed(buckets), strict=False):
            rate, burst, tokens, last = bucket
            tokens = min(burst, tokens + (now - last) * rate)
            bucket[3] = now
            bucket[2] = tokens if tokens < need else tokens - need
            if tokens < need:
                return color
        return GREEN

    def reset(self) -> None:
        self._buckets.clear()
