"""The log of a Delta table in a folder of this machine: its version, its id and its commits."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path

from stackcast.jobs.adapters.tables.tables import Action

#: Length of the name of a commit: a number of 20 digits and ``.json``.
_NAME_LENGTH = 25


class FolderLog:
    """The log of a table. For several threads.

    The first call lists the log. Later calls continue from the last known commit, so their time
    does not depend on the length of the log. The table may be deleted and created again at any
    time, and old commits may be removed.

    Args:
        table: folder of the table.
    """

    def __init__(self, table: Path) -> None:
        self._folder = table / "_delta_log"
        self._lock = threading.Lock()
        self._version: int | None = None
        self._mark: tuple[int, ...] | None = None
        self._id: str | None = None

    def version(self) -> int | None:
        """Return the number of the newest commit, or None if there is no table."""
        with self._lock:
            return self._update()

    def id(self) -> str | None:
        """Return Delta's id of the table from its first commit, or None if that was removed."""
        with self._lock:
            if self._update() is not None and self._id is None:
                for action in self.commit(0):
                    self._id = action.get("metaData", {}).get("id", self._id)
            return self._id

    def commit(self, version: int) -> Sequence[Action]:
        """Return the actions of a commit; empty if it does not exist or is damaged."""
        try:
            return parse_commit(self._path(version).read_text())
        except (OSError, ValueError):
            return ()

    def _update(self) -> int | None:
        version = self._version
        # Each commit is written once: if the file is the same, the table is the same.
        if version is None or self._mark_of(version) != self._mark:
            self._id = None
            version = self._newest_listed()
        while version is not None and self._path(version + 1).exists():
            version += 1
        self._version = version
        self._mark = None if version is None else self._mark_of(version)
        return version

    def _newest_listed(self) -> int | None:
        try:
            names = [path.name for path in self._folder.iterdir() if path.suffix == ".json"]
        except (FileNotFoundError, NotADirectoryError):
            return None
        numbers = (name.removesuffix(".json") for name in names if len(name) == _NAME_LENGTH)
        return max((int(number) for number in numbers if number.isdigit()), default=None)

    def _mark_of(self, version: int) -> tuple[int, ...] | None:
        try:
            status = self._path(version).stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _path(self, version: int) -> Path:
        return self._folder / f"{version:020d}.json"


def parse_commit(text: str) -> Sequence[Action]:
    """Return the actions in the text of a commit; empty if the text is damaged."""
    try:
        return [json.loads(line) for line in text.splitlines() if line]
    except ValueError:
        return ()
