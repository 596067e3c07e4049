"""Files of a checkpoint in memory, which a power failure can lose."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Disk(NamedTuple):
    """All files of one disk.

    Attributes:
        files: contents by path.
        durable: what a power failure leaves of the paths that have changed since they were last
            written to the disk: the old content, or None if there was no file.
    """

    files: dict[str, bytes]
    durable: dict[str, bytes | None]


class MemoryFolder:
    """A folder of a checkpoint, see `stackcast.jobs.adapters.checkpoint.files.Folder`."""

    def __init__(self, path: str = "checkpoint", disk: Disk | None = None) -> None:
        self._path = path
        self._disk = disk or Disk({}, {})

    def folder(self, name: str) -> MemoryFolder:
        return MemoryFolder(f"{self._path}/{name}", self._disk)

    def read(self, name: str) -> bytes | None:
        return self._disk.files.get(self.path(name))

    def names(self) -> list[str]:
        return [name for folder, name in map(_split, self._disk.files) if folder == self._path]

    def write(self, name: str, content: bytes) -> bool:
        if self.path(name) in self._disk.files:
            return False
        self.replace(name, content)
        return True

    def replace(self, name: str, content: bytes) -> None:
        self._disk.files[self.path(name)] = content
        self.sync(name)

    def sync(self, name: str) -> None:
        """Make a file durable, and with its folder the removal of other files."""
        for path in list(self._disk.durable):
            removed = _split(path)[0] == self._path and path not in self._disk.files
            if removed or path == self.path(name):
                del self._disk.durable[path]

    def remove(self, name: str) -> None:
        path = self.path(name)
        self._disk.durable.setdefault(path, self._disk.files.get(path))
        self._disk.files.pop(path, None)

    def path(self, name: str = "") -> str:
        return f"{self._path}/{name}" if name else self._path

    # For tests

    def write_unsynced(self, name: str, content: bytes) -> None:
        """Write a file as another program does, which does not make it durable."""
        path = self.path(name)
        self._disk.durable.setdefault(path, self._disk.files.get(path))
        self._disk.files[path] = content

    def lose_power(self, lost: Callable[[str], bool] = lambda path: True) -> None:
        """Undo changes that are not on the disk.

        Args:
            lost: whether the change of a path is lost; by default, all changes are.
        """
        for path, content in self._disk.durable.items():
            if not lost(path):
                continue
            self._disk.files.pop(path, None)
            if content is not None:
                self._disk.files[path] = content
        self._disk.durable.clear()


def _split(path: str) -> tuple[str, str]:
    folder, _, name = path.rpartition("/")
    return folder, name
