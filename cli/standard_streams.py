"""Standard streams that may be closed, for example by a service manager or by ``<&-``."""

from __future__ import annotations

import os
import sys
from typing import BinaryIO


def fill() -> None:
    """Open /dev/null in place of each standard stream that is closed.

    Writing to such a stream is not an error, and no file or socket gets its number. Reading from
    standard input remains an error.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def standard_input() -> BinaryIO:
    """Return standard input as a stream of bytes. Raises OSError if it is closed."""
    if sys.stdin is None:
        raise OSError("standard input is closed: give the name of a file")
    return sys.stdin.buffer
