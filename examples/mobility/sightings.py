"""What a WiFi scanner reports, and the state that a tracker keeps of it and replicates.

A report is JSON, as in STARE IV: ``{"scanner", "number", "devices": [[device, milliseconds], …]}``,
a device by the hash of its MAC address. A tracker's state is JSON, too, and whole, as a replica is
sure of the last update alone: ``{"published": nanoseconds since 1970, "devices": {device:
[[milliseconds, scanner], …]}}``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from stackcast.udfs.errors import StateError

KEPT_MS = 600_000
"""A sighting is kept until one of the same tracker is so much later."""

Sighting = tuple[int, str]
"""When, in milliseconds, and by which scanner."""


@dataclass(frozen=True)
class Report:
    """A scanner's report: each device that it saw since the last one, and when."""

    scanner: str
    number: int
    devices: tuple[tuple[str, int], ...]

    def pack(self) -> bytes:
        devices = [list(device) for device in self.devices]
        text = {"scanner": self.scanner, "number": self.number, "devices": devices}
        return json.dumps(text, separators=(",", ":")).encode()


def read_report(line: bytes) -> Report:
    """Reads a report. Raises StateError ``BAD_SIGHTINGS``."""
    try:
        found = json.loads(line)
        devices = tuple((str(device), int(at)) for device, at in found["devices"])
        return Report(str(found["scanner"]), int(found["number"]), devices)
    except (ValueError, KeyError, TypeError) as error:
        raise StateError("BAD_SIGHTINGS", f"no report of a scanner: {error!r}") from None


@dataclass
class Sightings:
    """The sightings of one tracker's scanners: by device, in order of time."""

    kept_ms: int = KEPT_MS
    of: dict[str, list[Sighting]] = field(default_factory=dict)
    latest: int = 0

    def add(self, report: Report) -> None:
        """Takes a report; lets go of what is older than `KEPT_MS`."""
        for device, at in report.devices:
            seen = self.of.setdefault(device, [])
            seen.append((at, report.scanner))
            seen.sort()
            self.latest = max(self.latest, at)
        first = self.latest - self.kept_ms
        if first > 0:
            kept = {name: [s for s in seen if s[0] >= first] for name, seen in self.of.items()}
            self.of = {name: seen for name, seen in kept.items() if seen}

    def pack(self, published: int) -> bytes:
        """Returns the state, as published at this time."""
        text = {"published": published, "devices": self.of}
        return json.dumps(text, separators=(",", ":")).encode()


def read_state(data: bytes) -> tuple[int, dict[str, list[Sighting]]]:
    """Returns when a state was published, and its sightings. Raises StateError
    ``BAD_SIGHTINGS``."""
    try:
        found = json.loads(data)
        devices = {
            str(device): [(int(at), str(scanner)) for at, scanner in seen]
            for device, seen in found["devices"].items()
        }
        return int(found["published"]), devices
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateError("BAD_SIGHTINGS", f"no state of a tracker: {error!r}") from None
