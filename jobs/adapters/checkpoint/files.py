"""Small files of a checkpoint: each is complete or missing, also after a crash."""

from __future__ import annotations

from typing import Protocol

#: Number of newest batches whose files are retained by default.
RETAINED_BATCHES = 10


class Folder(Protocol):
    """A folder of small files, which is created together with its first file.

    A method that changes files raises OSError if the file system refuses the change.
    """

    def folder(self, name: str) -> Folder:
        """Return a folder inside this one. The name may be a path such as ``sources/0``."""

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it does not exist.

        Raises:
            StreamError: ``CHECKPOINT_UNREADABLE`` if the content does not match the checksum that
                Hadoop has stored with the file.
        """

    def names(self) -> list[str]:
        """Return the names of all files that do not begin with a dot, in any order."""

    def write(self, name: str, content: bytes) -> bool:
        """Create a file. After this method has returned, the file survives a power failure.

        Returns:
            False if a file with this name exists, which stays unchanged.
        """

    def replace(self, name: str, content: bytes) -> None:
        """Create a file as `write` does, instead of a file with the same name if one exists.

        After a crash, the file is missing, or has the old or the new content.
        """

    def sync(self, name: str) -> None:
        """Make a file survive a power failure that another program has written."""

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""

    def path(self, name: str = "") -> str:
        """Return the path of a file, or of the folder, for messages."""


class BatchFiles:
    """Files of batches in one folder, ``<batch><suffix>``.

    Args:
        folder: folder of the files.
        suffix: end of the names.
        retained: number of newest batches whose files remain; None: files remain until `remove`.
    """

    def __init__(
        self, folder: Folder, suffix: str = "", retained: int | None = RETAINED_BATCHES
    ) -> None:
        self._folder = folder
        self._suffix = suffix
        self._retained = retained

    def read(self, batch_id: int) -> bytes | None:
        """Return the content of a batch's file; None if it does not exist."""
        return self._folder.read(self._name(batch_id))

    def batches(self) -> list[int]:
        """Return the batches that have a file, in ascending order."""
        numbers = [
            name.removesuffix(self._suffix)
            for name in self._folder.names()
            if name.endswith(self._suffix)
        ]
        return sorted(int(number) for number in numbers if number.isdigit())

    def newest(self) -> int | None:
        """Return the last batch that has a file; None if there is no file."""
        return max(self.batches(), default=None)

    def write(self, batch_id: int, content: bytes) -> bool:
        """Create the file of a batch, and remove the file that is no longer retained.

        Returns:
            False if the batch has a file, which stays unchanged.
        """
        written = self._folder.write(self._name(batch_id), content)
        if written:
            self._remove_old(batch_id)
        return written

    def replace(self, batch_id: int, content: bytes) -> None:
        """Create the file of a batch, which may have one, as `write` does."""
        self._folder.replace(self._name(batch_id), content)
        self._remove_old(batch_id)

    def sync(self, batch_id: int) -> None:
        """Make the file of a batch survive a power failure that Spark has written."""
        self._folder.sync(self._name(batch_id))

    def remove(self, batch_id: int) -> None:
        """Remove the file of a batch if it exists."""
        self._folder.remove(self._name(batch_id))

    def path(self, batch_id: int) -> str:
        """Return the path of the file of a batch, for messages."""
        return self._folder.path(self._name(batch_id))

    def _remove_old(self, batch_id: int) -> None:
        if self._retained is not None:
            self._folder.remove(self._name(batch_id - self._retained))

    def _name(self, batch_id: int) -> str:
        return f"{batch_id}{self._suffix}"
