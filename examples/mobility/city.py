"""A city for the use case of STARE (I-A, IV): WiFi scanners, and devices that move past them.

A seed determines everything. Streets are straight lines between scanners. A device walks, rides or
drives at a constant speed from one scanner to a nearby one, stays there for a while, and moves on;
some devices never move. A device sends probe requests, and all scanners in range see it then.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from movements import Scanner
from sightings import Report

#: Time between two reports of a scanner, in seconds (STARE IV).
PERIOD_S = 20
#: Smallest and largest number of devices in a report (STARE IV).
FEWEST, MOST = 10, 50
#: Distance between the centers of the scanners of two neighboring edges, in metres.
BETWEEN_EDGES = 400.0
#: Distance of a scanner from the center, and its range, in metres.
_AROUND, _RANGE = 110.0, 45.0
#: Mean time between two probe requests of a device, in seconds.
_PROBE_S = 5.0
#: Number of devices per scanner that move.
_MOVING = 26
#: Speeds of pedestrians, bicycles and cars, in metres per second.
_SPEEDS = (1.4, 1.6, 4.5, 5.5, 9.0, 12.0)


@dataclass(frozen=True)
class City:
    """A city with edges on a square grid, which are named ``edge1`` and so on.

    Attributes:
        edges: number of edges.
        scanners: number of scanners at each edge.
        seed: seed of everything else.
    """

    edges: int
    scanners: int
    seed: int

    def places(self) -> dict[str, Scanner]:
        """Return all scanners by name, ``edge1-scanner1`` first."""
        columns = math.ceil(math.sqrt(self.edges))
        scanners = {}
        for edge in range(self.edges):
            x, y = edge % columns * BETWEEN_EDGES, edge // columns * BETWEEN_EDGES
            for number in range(self.scanners):
                angle = 2 * math.pi * (number / self.scanners + 1 / 8)
                name = f"edge{edge + 1}-scanner{number + 1}"
                scanners[name] = Scanner(
                    name,
                    f"edge{edge + 1}",
                    round(x + _AROUND * math.cos(angle), 1),
                    round(y + _AROUND * math.sin(angle), 1),
                )
        return scanners

    def reports(self, count: int) -> list[tuple[float, Report]]:
        """Return reports of all scanners with their times in seconds, ordered by time.

        The scanners report one after the other within a period. A report has 10 to 50 devices, each
        with the last time at which it was seen.

        Args:
            count: number of reports of each scanner.
        """
        places = list(self.places().values())
        dice = random.Random(self.seed)
        seen = self._seen(places, (count + 1) * PERIOD_S, dice)
        reports = []
        for place, scanner in enumerate(places):
            offset = PERIOD_S * place / len(places)
            for number in range(1, count + 1):
                until = offset + number * PERIOD_S
                last = {
                    device: time
                    for time, device in seen[scanner.name]
                    if until - PERIOD_S <= time / 1000 < until
                }
                chosen = sorted(last.items())
                if len(chosen) > MOST:
                    chosen = sorted(dice.sample(chosen, MOST))
                reports.append((until, Report(scanner.name, number, tuple(chosen))))
        return sorted(reports, key=lambda timed: timed[0])

    def _seen(
        self, places: list[Scanner], seconds: int, dice: random.Random
    ) -> dict[str, list[tuple[int, str]]]:
        """Return time in milliseconds and device of what each scanner sees, ordered by time."""
        sightings: dict[str, list[tuple[int, str]]] = {scanner.name: [] for scanner in places}
        for place in places:
            for number in range(FEWEST + _MOVING):
                device = self._hashed(f"{place.name}/{number}")
                walk = _Walk(places, place, dice, number < FEWEST)
                time = dice.uniform(0, _PROBE_S)
                while time < seconds:
                    x, y = walk.position(time)
                    for scanner in places:
                        if math.dist((x, y), (scanner.x, scanner.y)) <= _RANGE:
                            sightings[scanner.name].append((int(time * 1000), device))
                    time += dice.uniform(0.5 * _PROBE_S, 1.5 * _PROBE_S)
        return {name: sorted(seen) for name, seen in sightings.items()}

    def _hashed(self, device: str) -> str:
        """Return a hash, used instead of a MAC address, that depends on the seed."""
        return hashlib.sha256(f"{self.seed}/{device}".encode()).hexdigest()[:16]


class _Walk:
    """The path of one device. Positions must be requested in order of time."""

    def __init__(
        self, places: list[Scanner], start: Scanner, dice: random.Random, stays: bool
    ) -> None:
        self._dice, self._places, self._stays = dice, places, stays
        self._speed = dice.choice(_SPEEDS) * dice.uniform(0.85, 1.15)
        self._legs = self._generate_legs(start)
        self._leg = next(self._legs)

    def position(self, seconds: float) -> tuple[float, float]:
        """Return east and north in metres at a time."""
        while seconds >= self._leg[1]:
            self._leg = next(self._legs)
        start, end, a, b = self._leg
        share = (seconds - start) / (end - start)
        return a.x + share * (b.x - a.x), a.y + share * (b.y - a.y)

    def _generate_legs(self, scanner: Scanner) -> Iterator[tuple[float, float, Scanner, Scanner]]:
        """Yield start, end, origin and target of each stay and each move."""
        time = 0.0
        while True:
            until = math.inf if self._stays else time + self._dice.uniform(1, 30)
            yield time, until, scanner, scanner
            x, y = scanner.x, scanner.y
            near = sorted(
                (p for p in self._places if p is not scanner),
                key=lambda p: math.dist((p.x, p.y), (x, y)),
            )
            target = self._dice.choice(near[: max(4, len(near) // 3)])
            seconds = math.dist((target.x, target.y), (x, y)) / self._speed
            yield until, until + seconds, scanner, target
            scanner, time = target, until + seconds
