"""Ports for what a test starts and then speaks to."""

from __future__ import annotations

import itertools
import os
import random
import socket
from contextlib import suppress

#: Below those that the system gives away: whoever asks it for any port never gets one of them
#: between the moment at which it was found free and the one at which it is bound.
_FIRST, _LAST = 12_000, 32_000

_NUMBERS = itertools.cycle(range(_FIRST, _LAST))
for _ in range(random.Random(os.getpid()).randrange(_LAST - _FIRST)):
    next(_NUMBERS)


def free_port() -> int:
    """A port of loopback that nobody has, neither for TCP nor for UDP; never the same twice."""
    while True:
        port = next(_NUMBERS)
        with (
            socket.socket() as stream,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
            suppress(OSError),
        ):
            stream.bind(("127.0.0.1", port))
            datagrams.bind(("0.0.0.0", port))
            return port
