"""What CAMUS and its slides tell of latency, put so that clocks and machines drop out of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
Point = tuple[float, float]
"""A share of the messages of interest, and µs that they arrived within."""


@dataclass(frozen=True)
class Told:
    """A point of either curve, of the same time or of the same share. source: where."""

    source: str
    switch: Point
    host: Point

    @property
    def same_time(self) -> bool:
        return self.switch[1] == self.host[1]

    @property
    def measure(self) -> str:
        """What is compared, in words."""
        part = "all" if self.switch[0] == 1 else f"{100 * self.switch[0]:g} %"
        if self.same_time:
            return (
                "share that the host's filter has delivered when the switch's filter has "
                f"delivered {part}"
            )
        return (
            f"time until {part} are delivered with the host's filter, relative to the switch's "
            "filter"
        )

    @property
    def value(self) -> float:
        """The text's figure of the measure."""
        return self.host[0] if self.same_time else self.host[1] / self.switch[1]

    def seen(self, switch: Times, host: Times) -> float:
        """Returns the measure of two runs: their times, in any unit that they share."""
        share = self.switch[0]
        if self.same_time:
            until = quantile(switch, share)
            return float(np.count_nonzero(host <= until) / len(host))
        return quantile(host, share) / quantile(switch, share)


TOLD = {
    "synthetic, 5 %": Told("CAMUS 4", (0.995, 20.0), (0.965, 20.0)),
    "synthetic, 1 %": Told("slides", (0.99, 20.0), (0.99, 500.0)),
    "Nasdaq, 0.5 %": Told("CAMUS 4", (1.0, 50.0), (1.0, 300.0)),
    "Nasdaq, 0.1 %": Told("slides", (1.0, 100.0), (0.84, 100.0)),
}
"""By workload. Of the worst case there is a picture in the slides and no figure."""

SHARES = (0.05, 0.25, 0.5, 0.75, 0.84, 0.9, 0.95, 0.965, 0.98, 0.99, 0.995, 0.999, 1.0)
"""Shares whose times are kept of each curve."""


def quantile(took: Times, share: float) -> float:
    """Returns the least time within which so many are."""
    return float(np.quantile(took, share, method="inverted_cdf"))


def curve(took: Times) -> list[tuple[float, float]]:
    """Returns the curve as (time, share), without shares that so few messages cannot tell apart."""
    return [(quantile(took, s), s) for s in SHARES if s == 1 or (1 - s) * len(took) >= 1]
