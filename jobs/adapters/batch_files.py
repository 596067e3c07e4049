"""Small files beside Spark's own in the checkpoint, one a micro-batch, whole or not at all."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

#: How many batches back a file stays.
KEPT = 10


class BatchFiles:
    """The files of a folder of the checkpoint, ``<checkpoint>/<folder>/<batch><suffix>``.

    On any file system that Hadoop knows, through the JVM.
    """

    def __init__(self, spark: SparkSession, checkpoint: str, folder: str, suffix: str) -> None:
        self._jvm: Any = spark._jvm
        self._suffix = suffix
        self._folder = self._jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/{folder}")
        configuration = spark._jsc.hadoopConfiguration()
        self._files = self._folder.getFileSystem(configuration)

    def read(self, batch_id: int) -> bytes | None:
        """What was written for a batch, or None."""
        path = self._path(batch_id)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def newest(self) -> int | None:
        """The last batch that has a file, or None."""
        if not self._files.exists(self._folder):
            return None
        names = [str(f.getPath().getName()) for f in self._files.listStatus(self._folder)]
        return max(
            (int(n.removesuffix(self._suffix)) for n in names if n[0].isdigit()), default=None
        )

    def write(self, batch_id: int, content: bytes) -> bool:
        """Write the file of a batch, which has none, and forget one long done.

        False if it could not get its name, as there is one.
        """
        # Written beside and renamed, so that a crash leaves a whole file or none.
        draft = self._jvm.org.apache.hadoop.fs.Path(self._folder, f".{batch_id}.draft")
        stream = self._files.create(draft, True)
        try:
            stream.write(content)
        finally:
            stream.close()
        if not self._files.rename(draft, self._path(batch_id)):
            return False
        self._files.delete(self._path(batch_id - KEPT), False)
        return True

    def remove(self, batch_id: int) -> None:
        """Remove the file of a batch, if there is one."""
        self._files.delete(self._path(batch_id), False)

    def name(self, batch_id: int) -> str:
        """Where the file of a batch is."""
        return str(self._path(batch_id))

    def _path(self, batch_id: int) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._folder, f"{batch_id}{self._suffix}")
