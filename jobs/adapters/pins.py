"""Pinned versions of a micro-batch, written before its first frame leaves.

Spark runs a batch again after a crash. With the versions on record it is computed from the same
tables, so the same frames go out with the same numbers (design, section 5).
"""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from jobs.adapters.batch_files import BatchFiles
from udfs.errors import TableError


class Pins:
    """One small JSON file a batch, in ``<checkpoint>/stackcast-pins``."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._files = BatchFiles(spark, checkpoint, "stackcast-pins", ".json")

    def get(self, batch_id: int) -> dict[str, int] | None:
        """Versions that an earlier try of this batch used, or None."""
        text = self._files.read(batch_id)
        if text is None:
            return None
        versions: dict[str, int] = json.loads(text)
        return versions

    def newest(self) -> dict[str, int] | None:
        """Versions of the last batch on record, or None."""
        batch = self._files.newest()
        return None if batch is None else self.get(batch)

    def put(self, batch_id: int, versions: dict[str, int]) -> None:
        """Record the versions of a batch that is about to run; forget one long done.

        Raises TableError PIN_NOT_WRITTEN: without a pin nothing of a batch may leave, and one that
        is there already stands, since its batch may have sent frames.
        """
        if self._files.read(batch_id) is not None:
            raise TableError(
                "PIN_NOT_WRITTEN",
                f"batch {batch_id} has its versions in {self._files.name(batch_id)}",
            )
        if not self._files.write(batch_id, json.dumps(versions).encode()):
            raise TableError(
                "PIN_NOT_WRITTEN", f"{self._files.name(batch_id)} could not get its name"
            )
