"""Reports of WiFi scanners, and the state that a tracker computes from them and replicates.

A report is JSON, as in STARE IV: ``{"scanner", "number", "devices": [[device, milliseconds], …]}``,
where a device is the hash of its MAC address. The state of a tracker is JSON, too: ``{"published":
nanoseconds since 1970, "devices": {device: [[milliseconds, scanner], …]}}``. Each update has the
whole state, because a replica may skip all updates except the last.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from stackcast.udfs.errors import StateError

#: Largest age of a sighting, relative to the latest one of the same tracker, in milliseconds.
KEPT_MS = 600_000

#: Time in milliseconds, and scanner.
Sighting = tuple[int, str]


@dataclass(frozen=True)
class Report:
    """A report of a scanner.

    Attributes:
        scanner: name of the scanner.
        number: number of the report.
        devices: devices since the previous report, each with the time in milliseconds.
    """

    scanner: str
    number: int
    devices: tuple[tuple[str, int], ...]

    def pack(self) -> bytes:
        """Return the report as JSON."""
        devices = [list(device) for device in self.devices]
        text = {"scanner": self.scanner, "number": self.number, "devices": devices}
        return json.dumps(text, separators=(",", ":")).encode()


def read_report(line: bytes) -> Report:
    """Read a report. Raises StateError BAD_SIGHTINGS."""
    try:
        row = json.loads(line)
        devices = tuple((str(device), int(time)) for device, time in row["devices"])
        return Report(str(row["scanner"]), int(row["number"]), devices)
    except (ValueError, KeyError, TypeError) as error:
        raise StateError("BAD_SIGHTINGS", f"not a report of a scanner: {error!r}") from None


@dataclass
class Sightings:
    """The sightings of the scanners of one tracker.

    Attributes:
        kept_ms: largest age of a sighting in milliseconds.
        of: sightings by device, ordered by time.
        latest: time of the latest sighting in milliseconds.
    """

    kept_ms: int = KEPT_MS
    of: dict[str, list[Sighting]] = field(default_factory=dict)
    latest: int = 0

    def add(self, report: Report) -> None:
        """Add a report, and remove sightings that have become too old."""
        for device, time in report.devices:
            seen = self.of.setdefault(device, [])
            seen.append((time, report.scanner))
            seen.sort()
            self.latest = max(self.latest, time)
        first = self.latest - self.kept_ms
        if first > 0:
            newer = {name: [s for s in seen if s[0] >= first] for name, seen in self.of.items()}
            self.of = {name: seen for name, seen in newer.items() if seen}

    def pack(self, published: int) -> bytes:
        """Return the state as JSON.

        Args:
            published: time in nanoseconds since 1970.
        """
        text = {"published": published, "devices": self.of}
        return json.dumps(text, separators=(",", ":")).encode()


def read_state(data: bytes) -> tuple[int, dict[str, list[Sighting]]]:
    """Return the time at which a state was published, and its sightings.

    Raises:
        StateError: BAD_SIGHTINGS.
    """
    try:
        row = json.loads(data)
        devices = {
            str(device): [(int(time), str(scanner)) for time, scanner in seen]
            for device, seen in row["devices"].items()
        }
        return int(row["published"]), devices
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateError("BAD_SIGHTINGS", f"not a state of a tracker: {error!r}") from None
