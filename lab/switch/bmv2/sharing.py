"""One compilation for all switches of a process that run the same program."""

from __future__ import annotations

import threading
from functools import lru_cache

from lab.switch.bmv2.program import Program, load_program

_lock = threading.Lock()
# As many as a change of programs needs at once, and some; a program may take megabytes.
_load = lru_cache(maxsize=4)(load_program)


def shared_program(config: bytes) -> Program:
    """As `load_program`, but the same bytes give the same object. May be called by any thread.

    What a switch holds is not in it, so switches can run it at the same time.
    """
    # Callers that come together, as refreshed switches do, wait for the first one's.
    with _lock:
        return _load(config)
