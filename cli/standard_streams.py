"""Standard streams that may be closed, as a service manager or ``<&-`` leaves them."""

from __future__ import annotations

import os
import sys
from typing import BinaryIO


def fill() -> None:
    """Opens /dev/null where a standard stream is closed: writing there is no error, and no file or
    socket gets its number. Standard input stays closed to readers."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def standard_input() -> BinaryIO:
    """Returns standard input, of bytes. Raises OSError where it is closed."""
    if sys.stdin is None:
        raise OSError("standard input is closed: name a file")
    return sys.stdin.buffer
