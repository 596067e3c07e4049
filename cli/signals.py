"""Ctrl-C and SIGTERM for commands that run until they are stopped."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stackcast.udfs.stop_request import StopRequest


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """Yield an event that Ctrl-C and SIGTERM set, so that a command can flush what it sent."""
    stop = StopRequest()

    def handle(*_: object) -> None:
        stop.set()

    previous: list[tuple[int, Callable[..., Any] | int | None]] = [
        (number, signal.signal(number, handle)) for number in (signal.SIGINT, signal.SIGTERM)
    ]
    try:
        yield stop
    finally:
        for number, handler in previous:
            signal.signal(number, handler)


def log_to_stderr() -> None:
    """Send log records to standard error with time and level."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
