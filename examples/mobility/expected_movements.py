"""Brute force: the states and movements that each tracker should have, from the reports alone.

The module shares no code with `movements`: it uses no columns and no replicas, and follows one
device at a time.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

#: Edge of a scanner, and its position: metres to the east and to the north.
Place = tuple[str, float, float]
#: Device, time in milliseconds, and the scanners before and after.
Moved = tuple[str, int, str, str]


@dataclass(frozen=True)
class Expected:
    """The states that follow from all reports.

    Attributes:
        places: place of each scanner.
        held: by edge and device, the sightings in the state as ``(milliseconds, scanner)``.
    """

    places: Mapping[str, Place]
    held: Mapping[str, Mapping[str, list[tuple[int, str]]]]

    def movements(
        self, edges: Collection[str], touching: str = ""
    ) -> dict[Moved, tuple[float, float]]:
        """Return speed and bearing of each movement that the states of some edges contain.

        Args:
            edges: names of the edges.
            touching: an edge; only movements into it or out of it are returned. Empty for all.
        """
        result = {}
        for device in sorted({name for edge in edges for name in self.held[edge]}):
            seen = sorted(
                sighting for edge in edges for sighting in self.held[edge].get(device, ())
            )
            for (earlier, a), (later, b) in pairwise(seen):
                origin, target = self.places[a], self.places[b]
                if origin[0] == target[0] or earlier == later:
                    continue
                if touching and touching not in (origin[0], target[0]):
                    continue
                east, north = target[1] - origin[1], target[2] - origin[2]
                speed = math.sqrt(east * east + north * north) / ((later - earlier) / 1000)
                bearing = (90 - math.degrees(math.atan2(north, east))) % 360
                result[device, later, a, b] = speed, bearing
        return result


def expected(
    places: Mapping[str, Place],
    reports: Iterable[tuple[str, Iterable[tuple[str, int]]]],
    kept_ms: int,
) -> Expected:
    """Compute the final state of every tracker.

    Args:
        places: place of each scanner.
        reports: scanners, and their devices with times.
        kept_ms: largest age of a sighting in milliseconds, relative to a tracker's latest one.
    """
    sightings = [
        (places[scanner][0], device, time, scanner)
        for scanner, devices in reports
        for device, time in devices
    ]
    latest: dict[str, int] = {}
    for edge, _, time, _ in sightings:
        latest[edge] = max(time, latest.get(edge, 0))
    states: dict[str, dict[str, list[tuple[int, str]]]] = {
        edge: {} for edge, _, _ in places.values()
    }
    for edge, device, time, scanner in sightings:
        if time >= latest[edge] - kept_ms:
            states[edge].setdefault(device, []).append((time, scanner))
    return Expected(
        places, {e: {d: sorted(s) for d, s in state.items()} for e, state in states.items()}
    )


def differences(
    expected_movements: Mapping[Moved, tuple[float, float]], rows: Iterable[Mapping[str, Any]]
) -> dict[str, int]:
    """Count movements that are missing, extra, or wrong in speed or direction.

    Args:
        expected_movements: speed and bearing of each movement.
        rows: rows of device, at, origin, target, speed and bearing; duplicates are extra.
    """
    remaining = dict(expected_movements)
    counts = {"missing": 0, "extra": 0, "wrong": 0}
    for row in rows:
        key = (row["device"], int(row["at"]), row["origin"], row["target"])
        movement = remaining.pop(key, None)
        if movement is None:
            counts["extra"] += 1
            continue
        turned = abs((row["bearing"] - movement[1] + 180) % 360 - 180)
        if not math.isclose(row["speed"], movement[0], rel_tol=1e-6) or turned > 1e-6:
            counts["wrong"] += 1
    counts["missing"] = len(remaining)
    return counts
