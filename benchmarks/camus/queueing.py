"""A queue with one server, first come, first served: what a host does with what reaches it.

A publisher hands packets to its interface in bursts; the interface sends them at the rate of the
link, 25 Gb/s in CAMUS 4; a switch passes all of them on, or those of interest, each cut to its
messages of interest; the host takes a time for each packet. Times on the way that
are the same for every packet are left out: they move a curve, and do not bend it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.camus.workloads import BLOCK, HEADERS, Drawn, bursts

GIGABITS = 25.0
"""Of the text's link."""
ON_THE_WIRE = 4 + 20
"""Bytes of a frame beside its own: checksum, and preamble with the gap behind it."""

Times = NDArray[np.float64]


def waits(arrivals: Times, services: Times) -> Times:
    """Returns how long each waits before its service begins: float64[n], Lindley's recursion.

    arrivals: float64[n], ascending. services: float64[n]. All in the same unit.
    """
    steps = services[:-1] - np.diff(arrivals)
    sums = np.concatenate(([0.0], np.cumsum(steps)))
    return sums - np.minimum.accumulate(sums)


def wire_ns(sizes: NDArray[np.int64]) -> Times:
    """Returns the ns that packets of so many messages take on the text's link."""
    return (HEADERS + BLOCK * sizes + ON_THE_WIRE) * 8 / GIGABITS


@dataclass(frozen=True)
class Load:
    """What the text leaves open. burst: packets that the publisher hands over at once, in the mean.
    packet_ns: that the host takes for a packet. link: share of the time that the link is busy."""

    burst: float
    packet_ns: float
    link: float

    def packets_per_second(self, drawn: Drawn) -> float:
        """Returns the rate that keeps the link so busy."""
        return self.link / float(wire_ns(drawn.sizes).mean()) * 1e9

    def host(self, drawn: Drawn) -> float:
        """Returns the share of its time that a host is busy with that filters by itself."""
        return self.packets_per_second(drawn) * self.packet_ns / 1e9


def latencies(drawn: Drawn, at: Load, switch: bool, seed: int = 1) -> Times:
    """Returns ns from hand-over to the end of the host's work, of each message of interest.

    switch: it filters there, else at the host. Both ways have the same packets at the same times.
    """
    random = np.random.default_rng(seed)
    first = bursts(len(drawn.sizes), at.burst, random.random)
    gap = 1e9 / at.packets_per_second(drawn)
    if drawn.times is None:
        between = gap * len(drawn.sizes) / (len(first) - 1)
        begin = np.cumsum(random.exponential(between, len(first) - 1))
        handed = np.repeat(begin, np.diff(first))
    else:
        # A file's own times, quicker or slower, so that the link is as busy as is asked.
        own = (drawn.times - drawn.times[0]).astype(np.float64)
        handed = own * (gap * len(own) / max(own[-1], 1.0))
    on_wire = wire_ns(drawn.sizes)
    arrived = handed + waits(handed, on_wire) + on_wire
    kept = drawn.kept
    comes = kept > 0 if switch else np.ones(len(kept), bool)
    services = np.full(np.count_nonzero(comes), at.packet_ns)
    done = arrived.copy()
    done[comes] += waits(arrived[comes], services) + services
    return np.repeat(done - handed, kept)


def within(took: Times, ns: float) -> float:
    """Returns the share that took at most so long."""
    return float(np.count_nonzero(took <= ns) / len(took))
