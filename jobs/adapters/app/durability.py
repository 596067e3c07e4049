"""Makes files and folders of this machine survive a power failure."""

from __future__ import annotations

import os
from pathlib import Path


def sync(*paths: Path) -> None:
    """Write the content of files, and the names in folders, from memory to the disk.

    Raises:
        OSError: a path does not exist, or the disk has failed.
    """
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
