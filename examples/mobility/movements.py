"""Computes movements from sightings: origin, target, direction and speed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from sightings import Sighting


@dataclass(frozen=True)
class Scanner:
    """A WiFi scanner.

    Attributes:
        name: name of the scanner.
        edge: edge cloud that it belongs to.
        x: metres to the east.
        y: metres to the north.
    """

    name: str
    edge: str
    x: float
    y: float


@dataclass(frozen=True, order=True)
class Movement:
    """Movement of a device that one scanner saw, and then a scanner of another edge.

    Attributes:
        device: hash of the device.
        at: time of the second sighting, in milliseconds.
        origin: scanner of the first sighting.
        target: scanner of the second sighting.
        speed: metres per second along the straight line.
        bearing: direction in degrees; 0 is north and 90 is east.
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
    """Return the movements between edges in some sightings, in order.

    A device has moved if scanners of two edges saw it one after the other. Two sightings in the
    same millisecond, which overlapping ranges cause, have no direction and are ignored. Sightings
    of scanners that are not in ``scanners`` are ignored as well.

    Args:
        sightings: sightings of each tracker by device.
        scanners: scanners by name.
    """
    names = list(scanners)
    indexes = {name: index for index, name in enumerate(names)}
    rows = [
        (device, time, indexes[scanner])
        for by_device in sightings
        for device, seen in by_device.items()
        for time, scanner in seen
        if scanner in indexes
    ]
    if not rows:
        return []
    devices, times, places = zip(*rows, strict=True)
    labels, device = np.unique(np.array(devices), return_inverse=True)
    time, place = np.array(times, np.int64), np.array(places, np.int64)
    order = np.lexsort((place, time, device))
    device, time, place = device[order], time[order], place[order]
    edges = np.unique([scanners[name].edge for name in names], return_inverse=True)[1]
    x = np.array([scanners[name].x for name in names])
    y = np.array([scanners[name].y for name in names])
    before, after = place[:-1], place[1:]
    moved = (device[1:] == device[:-1]) & (edges[before] != edges[after]) & (time[1:] > time[:-1])
    chosen = np.flatnonzero(moved)
    before, after = before[chosen], after[chosen]
    east, north = x[after] - x[before], y[after] - y[before]
    speeds = np.hypot(east, north) * 1000 / (time[chosen + 1] - time[chosen])
    bearings = np.degrees(np.arctan2(east, north)) % 360
    return [
        Movement(
            str(labels[device[i]]), int(time[i + 1]), names[a], names[b], float(s), float(bearing)
        )
        for i, a, b, s, bearing in zip(chosen, before, after, speeds, bearings, strict=True)
    ]


def touching(
    found: Iterable[Movement], edge: str, scanners: Mapping[str, Scanner]
) -> list[Movement]:
    """Return the movements into an edge or out of it."""
    return [m for m in found if edge in (scanners[m.origin].edge, scanners[m.target].edge)]


def neighbours(scanners: Iterable[Scanner], within: float) -> dict[str, tuple[str, ...]]:
    """Return the neighbours of each edge, whose centers are at most ``within`` metres away."""
    by_edge: dict[str, list[Scanner]] = {}
    for scanner in scanners:
        by_edge.setdefault(scanner.edge, []).append(scanner)
    centers = {
        edge: (sum(s.x for s in group) / len(group), sum(s.y for s in group) / len(group))
        for edge, group in by_edge.items()
    }
    return {
        edge: tuple(
            other
            for other, other_center in centers.items()
            if other != edge and math.dist(center, other_center) <= within
        )
        for edge, center in centers.items()
    }
