"""A marker file in the cache folder of numba: the kernels of packet streams are compiled there."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

#: Markers for all kernels, which ``spark-submit.sh`` writes, and for those that workers compiled.
_ALL, _PACKETS = ".compiled", ".compiled-packets"


def is_set() -> bool:
    """Return whether the kernels are compiled, or ``NUMBA_CACHE_DIR`` is not set."""
    folder = os.environ.get("NUMBA_CACHE_DIR")
    return not folder or any(Path(folder, name).exists() for name in (_ALL, _PACKETS))


def put() -> None:
    """Write the marker of workers. Without it, the next start compiles the kernels again."""
    if folder := os.environ.get("NUMBA_CACHE_DIR"):
        with suppress(OSError):
            Path(folder, _PACKETS).touch()
