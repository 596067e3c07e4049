"""Messages of ``stackcast receive`` beside its output, and errors of a network that may pass."""

from __future__ import annotations

import time
from collections import Counter

import typer

from udfs.errors import printable

#: Between two lines about errors of one kind, seconds.
_QUIET_SECONDS = 30.0


def tell(text: str) -> None:
    """Writes a line to standard error."""
    typer.echo(printable(text), err=True)


class Failures:
    """Counts errors that end nothing, by what they kept from being done; says so now and then."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._said: dict[str, float] = {}

    def add(self, what: str, error: OSError) -> None:
        """Counts one."""
        self.counts[what] += 1
        now = time.monotonic()
        if now - self._said.get(what, -_QUIET_SECONDS) >= _QUIET_SECONDS:
            self._said[what] = now
            number = self.counts[what]
            tell(f"{what}: {error.strerror or error}; the stream goes on ({number:,} so far)")
