"""Pinned versions of a micro-batch, written before its first frame leaves.

Spark runs a batch again after a crash. With the versions on record it is computed from the same
tables, so the same frames go out with the same numbers (design, section 5).
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession

from udfs.errors import TableError

KEPT = 10


class Pins:
    """One small JSON file a batch, in ``<checkpoint>/stackcast-pins``."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._jvm: Any = spark._jvm
        self._folder = self._jvm.org.apache.hadoop.fs.Path(checkpoint + "/stackcast-pins")
        configuration = spark._jsc.hadoopConfiguration()
        self._files = self._folder.getFileSystem(configuration)

    def get(self, batch_id: int) -> dict[str, int] | None:
        """Versions that an earlier try of this batch used, or None."""
        path = self._path(batch_id)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        versions: dict[str, int] = json.loads(text)
        return versions

    def newest(self) -> dict[str, int] | None:
        """Versions of the last batch on record, or None."""
        if not self._files.exists(self._folder):
            return None
        names = [str(f.getPath().getName()) for f in self._files.listStatus(self._folder)]
        batches = [int(n.removesuffix(".json")) for n in names if n[0].isdigit()]
        return self.get(max(batches)) if batches else None

    def put(self, batch_id: int, versions: dict[str, int]) -> None:
        """Record the versions of a batch that is about to run; forget one long done.

        Raises TableError PIN_NOT_WRITTEN: without a pin nothing of a batch may leave, and one that
        is there already stands, since its batch may have sent frames.
        """
        path = self._path(batch_id)
        if self._files.exists(path):
            raise TableError("PIN_NOT_WRITTEN", f"batch {batch_id} has its versions in {path}")
        # Written beside and renamed, so that a crash leaves a whole file or none.
        draft = self._jvm.org.apache.hadoop.fs.Path(self._folder, f".{batch_id}.draft")
        stream = self._files.create(draft, True)
        try:
            stream.write(json.dumps(versions).encode())
        finally:
            stream.close()
        if not self._files.rename(draft, path):
            raise TableError("PIN_NOT_WRITTEN", f"{draft} could not be renamed to {path}")
        self._files.delete(self._path(batch_id - KEPT), False)

    def _path(self, batch_id: int) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._folder, f"{batch_id}.json")
