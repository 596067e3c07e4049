"""A mark in the folder of numba's cache: somebody compiled the kernels of the streams into it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def is_set() -> bool:
    """Returns True also where kernels have no folder of their own (``NUMBA_CACHE_DIR``)."""
    place = _place()
    return place is None or place.exists()


def put() -> None:
    """Sets the mark; where the folder takes none, whoever starts compiles again."""
    if place := _place():
        with suppress(OSError):
            place.touch()


def _place() -> Path | None:
    folder = os.environ.get("NUMBA_CACHE_DIR")
    return Path(folder, "compiled") if folder else None
