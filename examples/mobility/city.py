"""A city for the use case of STARE (I-A, IV): WiFi scanners, and devices that move past them.

Everything follows from a seed. Streets are straight lines between scanners; a device walks, rides
or drives at a speed of its own from one scanner to one that is near, stays for a while, and goes
on. Some stay where they are. A device sends probe requests, and whatever scanner is in range when
it does has seen it.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from movements import Scanner
from sightings import Report

PERIOD_S = 20
"""A scanner reports so often (STARE IV)."""
FEWEST, MOST = 10, 50
"""Devices in a report (STARE IV)."""
BETWEEN_EDGES = 400.0
"""Metres from the middle of an edge's scanners to the next edge's."""
_AROUND = 110.0
_RANGE = 45.0
_PROBE_S = 5.0
_MOVING = 26
#: Of pedestrians, bicycles and cars in a city, metres a second.
_SPEEDS = (1.4, 1.6, 4.5, 5.5, 9.0, 12.0)


@dataclass(frozen=True)
class City:
    """``edges`` on a square grid, ``edge1`` and so on, each with ``scanners``."""

    edges: int
    scanners: int
    seed: int

    def places(self) -> dict[str, Scanner]:
        """Returns all scanners by name, ``edge1-scanner1`` first."""
        columns = math.ceil(math.sqrt(self.edges))
        found = {}
        for edge in range(self.edges):
            x, y = edge % columns * BETWEEN_EDGES, edge // columns * BETWEEN_EDGES
            for number in range(self.scanners):
                angle = 2 * math.pi * (number / self.scanners + 1 / 8)
                name = f"edge{edge + 1}-scanner{number + 1}"
                found[name] = Scanner(
                    name,
                    f"edge{edge + 1}",
                    round(x + _AROUND * math.cos(angle), 1),
                    round(y + _AROUND * math.sin(angle), 1),
                )
        return found

    def reports(self, each: int) -> list[tuple[float, Report]]:
        """Returns ``each`` reports of every scanner, with their times in seconds, in that order.

        Scanners take turns within a period. A report has 10 to 50 devices, each once, with the
        last time at which it was seen.
        """
        places = list(self.places().values())
        dice = random.Random(self.seed)
        seen = self._seen(places, (each + 1) * PERIOD_S, dice)
        found = []
        for place, scanner in enumerate(places):
            offset = PERIOD_S * place / len(places)
            for number in range(1, each + 1):
                until = offset + number * PERIOD_S
                last = {
                    device: at
                    for at, device in seen[scanner.name]
                    if until - PERIOD_S <= at / 1000 < until
                }
                chosen = sorted(last.items())
                if len(chosen) > MOST:
                    chosen = sorted(dice.sample(chosen, MOST))
                found.append((until, Report(scanner.name, number, tuple(chosen))))
        return sorted(found, key=lambda timed: timed[0])

    def _seen(
        self, places: list[Scanner], seconds: int, dice: random.Random
    ) -> dict[str, list[tuple[int, str]]]:
        """Returns what each scanner sees: milliseconds and device, in order of time."""
        found: dict[str, list[tuple[int, str]]] = {scanner.name: [] for scanner in places}
        for place in places:
            for number in range(FEWEST + _MOVING):
                device = self._hashed(f"{place.name}/{number}")
                walk = _Walk(places, place, dice, number < FEWEST)
                at = dice.uniform(0, _PROBE_S)
                while at < seconds:
                    x, y = walk.at(at)
                    for scanner in places:
                        if math.dist((x, y), (scanner.x, scanner.y)) <= _RANGE:
                            found[scanner.name].append((int(at * 1000), device))
                    at += dice.uniform(0.5 * _PROBE_S, 1.5 * _PROBE_S)
        return {name: sorted(seen) for name, seen in found.items()}

    def _hashed(self, device: str) -> str:
        """A hash in place of a MAC address, of this city alone."""
        return hashlib.sha256(f"{self.seed}/{device}".encode()).hexdigest()[:16]


class _Walk:
    """The way of one device, looked at in order of time."""

    def __init__(
        self, places: list[Scanner], start: Scanner, dice: random.Random, stays: bool
    ) -> None:
        self._dice, self._places, self._stays = dice, places, stays
        self._speed = dice.choice(_SPEEDS) * dice.uniform(0.85, 1.15)
        self._legs = self._ways(start)
        self._leg = next(self._legs)

    def at(self, seconds: float) -> tuple[float, float]:
        while seconds >= self._leg[1]:
            self._leg = next(self._legs)
        began, ends, a, b = self._leg
        share = (seconds - began) / (ends - began)
        return a.x + share * (b.x - a.x), a.y + share * (b.y - a.y)

    def _ways(self, here: Scanner) -> Iterator[tuple[float, float, Scanner, Scanner]]:
        now = 0.0
        while True:
            until = math.inf if self._stays else now + self._dice.uniform(1, 30)
            yield now, until, here, here
            near = sorted(
                (p for p in self._places if p is not here),
                key=lambda p: math.dist((p.x, p.y), (here.x, here.y)),
            )
            target = self._dice.choice(near[: max(4, len(near) // 3)])
            takes = math.dist((target.x, target.y), (here.x, here.y)) / self._speed
            yield until, until + takes, here, target
            here, now = target, until + takes
