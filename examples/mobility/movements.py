"""From sightings to movements: from which place to which, in which direction, how fast."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from sightings import Sighting


@dataclass(frozen=True)
class Scanner:
    """A scanner at ``x`` to the east and ``y`` to the north, metres; ``edge``: whose it is."""

    name: str
    edge: str
    x: float
    y: float


@dataclass(frozen=True, order=True)
class Movement:
    """A device was seen by ``origin``, and next by ``target``, of another edge, at ``at`` ms.

    speed: metres a second along the straight line. bearing: degrees, 0 north, 90 east.
    """

    device: str
    at: int
    origin: str
    target: str
    speed: float
    bearing: float


def movements(
    sightings: Iterable[Mapping[str, list[Sighting]]], scanners: Mapping[str, Scanner]
) -> list[Movement]:
    """Returns the movements between edges that these sightings together tell, in order.

    A device moved where two sightings of it, with none between, are of scanners of two edges. Two
    at the same millisecond, as where ranges overlap, say nothing of a direction.

    Sightings of scanners that are not in ``scanners`` are passed over.
    """
    names = list(scanners)
    number = {name: at for at, name in enumerate(names)}
    rows = [
        (device, at, number[scanner])
        for each in sightings
        for device, seen in each.items()
        for at, scanner in seen
        if scanner in number
    ]
    if not rows:
        return []
    devices, times, places = zip(*rows, strict=True)
    labels, device = np.unique(np.array(devices), return_inverse=True)
    at, place = np.array(times, np.int64), np.array(places, np.int64)
    order = np.lexsort((place, at, device))
    device, at, place = device[order], at[order], place[order]
    edges = np.unique([scanners[name].edge for name in names], return_inverse=True)[1]
    x = np.array([scanners[name].x for name in names])
    y = np.array([scanners[name].y for name in names])
    before, after = place[:-1], place[1:]
    moved = (device[1:] == device[:-1]) & (edges[before] != edges[after]) & (at[1:] > at[:-1])
    chosen = np.flatnonzero(moved)
    before, after = before[chosen], after[chosen]
    east, north = x[after] - x[before], y[after] - y[before]
    speeds = np.hypot(east, north) * 1000 / (at[chosen + 1] - at[chosen])
    bearings = np.degrees(np.arctan2(east, north)) % 360
    return [
        Movement(
            str(labels[device[i]]), int(at[i + 1]), names[a], names[b], float(s), float(bearing)
        )
        for i, a, b, s, bearing in zip(chosen, before, after, speeds, bearings, strict=True)
    ]


def touching(
    found: Iterable[Movement], edge: str, scanners: Mapping[str, Scanner]
) -> list[Movement]:
    """Returns the movements into an edge or out of it."""
    return [m for m in found if edge in (scanners[m.origin].edge, scanners[m.target].edge)]


def neighbours(scanners: Iterable[Scanner], within: float) -> dict[str, tuple[str, ...]]:
    """Returns for each edge the others whose middle is ``within`` so many metres of its own."""
    of: dict[str, list[Scanner]] = {}
    for scanner in scanners:
        of.setdefault(scanner.edge, []).append(scanner)
    middles = {
        edge: (sum(s.x for s in each) / len(each), sum(s.y for s in each) / len(each))
        for edge, each in of.items()
    }
    return {
        edge: tuple(
            other
            for other, there in middles.items()
            if other != edge and math.dist(middle, there) <= within
        )
        for edge, middle in middles.items()
    }
