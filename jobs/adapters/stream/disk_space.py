"""Which of the places that a job writes to have no room left."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

#: With less than this nothing can be written that is worth a name.
LEAST = 1 << 20


def full(places: Mapping[str, str]) -> list[str]:
    """Of ``places``, what they are for -> path, those without room, in words.

    Only folders of this machine are looked at; one that is not there yet counts as its parent.
    """
    return [
        f"{name} ({path}: {left} bytes are left)"
        for name, path in places.items()
        if (left := _left(path)) is not None and left < LEAST
    ]


def _left(path: str) -> int | None:
    path = path.removeprefix("file://").removeprefix("file:")
    if "://" in path or "/" not in path:
        return None  # elsewhere, or the name of a schema
    folder = Path(path)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
