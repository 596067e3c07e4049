"""Ctrl-C and SIGTERM for commands that send until they are told to end."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stackcast.udfs.stop_request import StopRequest


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """Yields an event that Ctrl-C and SIGTERM set, so that what was sent is flushed and counted."""
    stop = StopRequest()

    def handle(*_: object) -> None:
        stop.set()

    before: list[tuple[int, Callable[..., Any] | int | None]] = [
        (number, signal.signal(number, handle)) for number in (signal.SIGINT, signal.SIGTERM)
    ]
    try:
        yield stop
    finally:
        for number, handler in before:
            signal.signal(number, handler)
