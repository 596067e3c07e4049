"""A mark in the folder of numba's cache: what a stream of packets needs is compiled there."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

#: Of all kernels, which ``spark-submit.sh`` sets, and of those that workers compiled.
_ALL, _PACKETS = ".compiled", ".compiled-packets"


def is_set() -> bool:
    """Returns True also where kernels have no folder of their own (``NUMBA_CACHE_DIR``)."""
    folder = os.environ.get("NUMBA_CACHE_DIR")
    return not folder or any(Path(folder, name).exists() for name in (_ALL, _PACKETS))


def put() -> None:
    """Sets the mark of workers; where the folder takes none, whoever starts compiles again."""
    if folder := os.environ.get("NUMBA_CACHE_DIR"):
        with suppress(OSError):
            Path(folder, _PACKETS).touch()
