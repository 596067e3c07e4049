"""Messages of ``stackcast receive`` on standard error, and network errors that it survives."""

from __future__ import annotations

import time
from collections import Counter

import typer

from stackcast.udfs.errors import printable

#: Shortest time between two lines about errors of the same activity, in seconds.
_QUIET_SECONDS = 30.0


def tell(text: str) -> None:
    """Write a line to standard error."""
    typer.echo(printable(text), err=True)


class Failures:
    """Counts errors that end nothing, by the activity that failed, and reports some of them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._reported: dict[str, float] = {}

    def add(self, activity: str, error: OSError) -> None:
        """Count an error."""
        self.counts[activity] += 1
        moment = time.monotonic()
        if moment - self._reported.get(activity, -_QUIET_SECONDS) >= _QUIET_SECONDS:
            self._reported[activity] = moment
            number = self.counts[activity]
            tell(f"{activity}: {error.strerror or error}; the stream continues ({number:,} so far)")
