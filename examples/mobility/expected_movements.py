"""Brute force beside the trackers: what each should hold and find, from scanners' reports alone.

Shares nothing with `movements`: no columns, no replicas, each device by itself.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

Place = tuple[str, float, float]
"""Edge of a scanner, and where it is: metres to the east, and to the north."""
Moved = tuple[str, int, str, str]
"""Device, milliseconds, and the scanners before and after."""


@dataclass(frozen=True)
class Expected:
    """Of all reports: ``held`` by edge what its state says, by device ``(milliseconds,
    scanner)``."""

    places: Mapping[str, Place]
    held: Mapping[str, Mapping[str, list[tuple[int, str]]]]

    def movements(
        self, edges: Collection[str], touching: str = ""
    ) -> dict[Moved, tuple[float, float]]:
        """Returns speed and bearing by movement, as who knows these edges' states should find
        them; ``touching``: only those into this edge, or out of it."""
        found = {}
        for device in sorted({name for edge in edges for name in self.held[edge]}):
            seen = sorted(each for edge in edges for each in self.held[edge].get(device, ()))
            for (earlier, a), (later, b) in pairwise(seen):
                here, there = self.places[a], self.places[b]
                if here[0] == there[0] or earlier == later:
                    continue
                if touching and touching not in (here[0], there[0]):
                    continue
                east, north = there[1] - here[1], there[2] - here[2]
                speed = math.sqrt(east * east + north * north) / ((later - earlier) / 1000)
                bearing = (90 - math.degrees(math.atan2(north, east))) % 360
                found[device, later, a, b] = speed, bearing
        return found


def expected(
    places: Mapping[str, Place],
    reports: Iterable[tuple[str, Iterable[tuple[str, int]]]],
    kept_ms: int,
) -> Expected:
    """Works out what every tracker should end with.

    reports: scanner, and its devices with their times. kept_ms: how much older than a tracker's
    latest a sighting may be.
    """
    sightings = [
        (places[scanner][0], device, at, scanner)
        for scanner, devices in reports
        for device, at in devices
    ]
    latest: dict[str, int] = {}
    for edge, _, at, _ in sightings:
        latest[edge] = max(at, latest.get(edge, 0))
    held: dict[str, dict[str, list[tuple[int, str]]]] = {edge: {} for edge, _, _ in places.values()}
    for edge, device, at, scanner in sightings:
        if at >= latest[edge] - kept_ms:
            held[edge].setdefault(device, []).append((at, scanner))
    return Expected(
        places, {e: {d: sorted(s) for d, s in found.items()} for e, found in held.items()}
    )


def differences(
    wanted: Mapping[Moved, tuple[float, float]], found: Iterable[Mapping[str, Any]]
) -> dict[str, int]:
    """Counts movements that are missing, that nobody made (``extra``), and whose speed or direction
    is another (``wrong``). found: rows of device, at, origin, target, speed, bearing; doubled ones
    are ``extra``."""
    left = dict(wanted)
    counts = {"missing": 0, "extra": 0, "wrong": 0}
    for row in found:
        key = (row["device"], int(row["at"]), row["origin"], row["target"])
        want = left.pop(key, None)
        if want is None:
            counts["extra"] += 1
            continue
        turned = abs((row["bearing"] - want[1] + 180) % 360 - 180)
        if not math.isclose(row["speed"], want[0], rel_tol=1e-6) or turned > 1e-6:
            counts["wrong"] += 1
    counts["missing"] = len(left)
    return counts
