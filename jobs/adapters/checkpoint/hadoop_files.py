"""Files of a checkpoint on any file system that Hadoop supports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS
from stackcast.jobs.adapters.checkpoint.files import Folder
from stackcast.jobs.adapters.checkpoint.local_files import LocalFolder


def open_folder(spark: SparkSession, place: str) -> Folder:
    """Return a folder, which is accessed without the JVM if it is on this machine.

    Args:
        spark: session whose JVM accesses other file systems.
        place: path, with or without a scheme, as Hadoop's configuration understands it.
    """
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(place)
    files = path.getFileSystem(spark._jsc.hadoopConfiguration())
    if files.getScheme() == "file":
        return LocalFolder(Path(str(files.makeQualified(path).toUri().getPath())))
    return HadoopFolder(jvm, files, path)


class HadoopFolder:
    """A folder on a file system of Hadoop. Reads raise the errors of Spark.

    Args:
        jvm: view of the JVM.
        files: file system, an ``org.apache.hadoop.fs.FileSystem``.
        folder: path of the folder, an ``org.apache.hadoop.fs.Path``.
    """

    def __init__(self, jvm: Any, files: Any, folder: Any) -> None:
        self._jvm = jvm
        self._files = files
        self._folder = folder

    def folder(self, name: str) -> HadoopFolder:
        return HadoopFolder(self._jvm, self._files, self._path(name))

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
        statuses = self._files.listStatus(self._folder)
        names = [str(status.getPath().getName()) for status in statuses]
        return [name for name in names if name[0] != "."]

    def write(self, name: str, content: bytes) -> bool:
        with _os_errors():
            return self._publish(self._draft(name, content), name)

    def replace(self, name: str, content: bytes) -> None:
        with _os_errors():
            draft = self._draft(name, content)
            # Hadoop does not rename a file over another one.
            self._files.delete(self._path(name), False)
            if not self._publish(draft, name):
                raise FileExistsError("a file with this name already exists")

    def sync(self, name: str) -> None:
        """Do nothing, because Spark closes a file before it gives the file its name."""

    def remove(self, name: str) -> None:
        with _os_errors():
            self._files.delete(self._path(name), False)

    def path(self, name: str = "") -> str:
        return str(self._path(name))

    def _draft(self, name: str, content: bytes) -> Any:
        draft = self._path(f".{name}.draft")
        stream = self._files.create(draft, True)
        try:
            stream.write(content)
            # HDFS writes to the disk here. An object store has the whole file once it is closed.
            if stream.hasCapability("hsync"):
                stream.hsync()
        finally:
            stream.close()
        return draft

    def _publish(self, draft: Any, name: str) -> bool:
        return bool(self._files.rename(draft, self._path(name)))

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._folder, name) if name else self._folder


@contextmanager
def _os_errors() -> Iterator[None]:
    try:
        yield
    except SQL_ERRORS as error:
        raise OSError(one_line(error)) from error
