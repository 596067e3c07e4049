"""Small files of the checkpoint, one a batch, whole or not at all."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS
from stackcast.jobs.adapters.app.places import sync
from stackcast.udfs.errors import StreamError

#: What reading and writing raises, as on a full disk.
FILE_ERRORS = (*SQL_ERRORS, OSError)

#: How many batches back a file stays, where nothing else is said.
KEPT = 10


class Folder(Protocol):
    """A folder of small files by name; it is made with its first file."""

    def read(self, name: str) -> bytes | None:
        """Returns the content of a file, or None.

        Raises StreamError CHECKPOINT_UNREADABLE where it is not what Hadoop's checksum beside it
        is of.
        """

    def names(self) -> list[str]:
        """Returns the names of all files, in no order."""

    def write(self, name: str, content: bytes) -> bool:
        """Write a file that is not there; False if it could not get its name, as one is.

        When it returns, the file is durable: a power failure leaves it whole. Raises one of
        `FILE_ERRORS` where it cannot be written.
        """

    def sync(self, name: str) -> None:
        """Makes a file durable that somebody else has written. Raises as `write`."""

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    def path(self, name: str) -> str:
        """Returns where a file is, for people."""


class LocalFolder:
    """On a file system of this machine, by the system's own calls: a tenth of the time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> bytes | None:
        try:
            content = (self._folder / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        sums = self._folder / f".{name}.crc"
        if sums.exists() and not _is_of(sums.read_bytes(), content):
            raise StreamError(
                "CHECKPOINT_UNREADABLE",
                f"{self.path(name)} does not match its checksum in {sums}, so one of them is "
                "damaged: restore both files, or remove the checksum if the file is intact",
            )
        return content

    def names(self) -> list[str]:
        try:
            return [path.name for path in self._folder.iterdir()]
        except FileNotFoundError:
            return []

    def write(self, name: str, content: bytes) -> bool:
        # Written beside and given its name, so that a crash leaves a whole file or none.
        draft = self._folder / f".{name}.draft"
        try:
            draft.write_bytes(content)
        except FileNotFoundError:
            self._folder.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(content)
            sync(self._folder.parent)
        if (self._folder / name).exists():
            return False
        # First what is in it, then its name: else that might be there with nothing behind it.
        sync(draft)
        self._forget_sum(name)
        draft.rename(self._folder / name)
        sync(self._folder)
        return True

    def sync(self, name: str) -> None:
        sync(self._folder / name, self._folder)

    def remove(self, name: str) -> None:
        self._forget_sum(name)
        (self._folder / name).unlink(missing_ok=True)

    def path(self, name: str) -> str:
        return str(self._folder / name)

    def _forget_sum(self, name: str) -> None:
        """Hadoop's checksum of a file that it wrote must not be taken for that of another."""
        (self._folder / f".{name}.crc").unlink(missing_ok=True)


class HadoopFolder:
    """On any file system that Hadoop knows, through the JVM."""

    def __init__(self, spark: SparkSession, folder: Any, files: Any) -> None:
        self._jvm: Any = spark._jvm
        self._folder = folder
        self._files = files

    def read(self, name: str) -> bytes | None:
        path = self._path(name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def names(self) -> list[str]:
        if not self._files.exists(self._folder):
            return []
        return [str(f.getPath().getName()) for f in self._files.listStatus(self._folder)]

    def write(self, name: str, content: bytes) -> bool:
        draft = self._path(f".{name}.draft")
        stream = self._files.create(draft, True)
        try:
            stream.write(content)
            # On HDFS this is the disk's; an object store has all or nothing when it is closed.
            if stream.hasCapability("hsync"):
                stream.hsync()
        finally:
            stream.close()
        return bool(self._files.rename(draft, self._path(name)))

    def sync(self, name: str) -> None:
        """Spark closes a file before it names it, and there is nothing to add to that."""

    def remove(self, name: str) -> None:
        self._files.delete(self._path(name), False)

    def path(self, name: str) -> str:
        return str(self._path(name))

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._folder, name)


def _is_of(sums: bytes, content: bytes) -> bool:
    """Tells whether a ``.crc`` of Hadoop's is of this content: ``crc``, 0, the bytes of a chunk u32
    and the CRC-32 of each chunk, big-endian."""
    size = int.from_bytes(sums[4:8])
    if sums[:4] != b"crc\0" or not size:
        return False
    chunks = (content[at : at + size] for at in range(0, len(content), size))
    return sums[8:] == b"".join(zlib.crc32(chunk).to_bytes(4) for chunk in chunks)


def open_folder(spark: SparkSession, place: str) -> Folder:
    """A folder, with or without a scheme, as Hadoop's configuration understands it."""
    jvm: Any = spark._jvm
    configuration = spark._jsc.hadoopConfiguration()
    path = jvm.org.apache.hadoop.fs.Path(place)
    files = path.getFileSystem(configuration)
    if files.getScheme() == "file":
        return LocalFolder(Path(str(files.makeQualified(path).toUri().getPath())))
    return HadoopFolder(spark, path, files)


class BatchFiles:
    """The files of a folder of the checkpoint, ``<checkpoint>/<folder>/<batch><suffix>``.

    kept: how many batches back a file stays; None: until it is removed.
    """

    def __init__(
        self,
        spark: SparkSession,
        checkpoint: str,
        folder: str,
        suffix: str,
        kept: int | None = KEPT,
    ) -> None:
        self._folder = open_folder(spark, f"{checkpoint}/{folder}")
        self._suffix = suffix
        self._kept = kept

    def read(self, batch_id: int) -> bytes | None:
        """Returns what was written for a batch, or None."""
        return self._folder.read(self._name(batch_id))

    def batches(self) -> list[int]:
        """Returns the batches that have a file, ascending."""
        numbers = [
            name.removesuffix(self._suffix)
            for name in self._folder.names()
            if name.endswith(self._suffix)
        ]
        return sorted(int(number) for number in numbers if number.isdigit())

    def newest(self) -> int | None:
        """The last batch that has a file, or None."""
        return max(self.batches(), default=None)

    def write(self, batch_id: int, content: bytes) -> bool:
        """Write the file of a batch, which has none, and forget one long done.

        False if it could not get its name, as there is one.
        """
        if not self._folder.write(self._name(batch_id), content):
            return False
        if self._kept is not None:
            self._folder.remove(self._name(batch_id - self._kept))
        return True

    def sync(self, batch_id: int) -> None:
        """Makes the file of a batch durable that Spark has written."""
        self._folder.sync(self._name(batch_id))

    def remove(self, batch_id: int) -> None:
        """Remove the file of a batch, if there is one."""
        self._folder.remove(self._name(batch_id))

    def name(self, batch_id: int) -> str:
        """Returns where the file of a batch is."""
        return self._folder.path(self._name(batch_id))

    def _name(self, batch_id: int) -> str:
        return f"{batch_id}{self._suffix}"
