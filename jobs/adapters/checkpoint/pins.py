"""Pinned versions of a micro-batch, written before its first frame leaves.

Spark runs a batch again after a crash. With the versions on record it is computed from the same
tables, so the same frames go out with the same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from jobs.adapters.app.error_texts import one_line
from jobs.adapters.checkpoint.files import FILE_ERRORS, BatchFiles
from udfs.errors import StackcastError, StreamError, TableError

#: Key of the settings that shape bytes, beside the versions in a file.
SETTINGS = "settings"


class Pins:
    """One small JSON file a batch, in ``<checkpoint>/stackcast-pins``."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._files = BatchFiles(spark, checkpoint, "stackcast-pins", ".json")

    def get(self, batch_id: int) -> dict[str, int] | None:
        """Versions that an earlier try of this batch used, or None."""
        text = self._files.read(batch_id)
        if text is None:
            return None
        held: dict[str, Any] = json.loads(text)
        del held[SETTINGS]
        return held

    def settings(self, batch_id: int) -> dict[str, str]:
        """Settings that shaped the bytes of that try, which is on record."""
        found: dict[str, str] = json.loads(self._files.read(batch_id) or b"")[SETTINGS]
        return found

    def newest(self) -> dict[str, int] | None:
        """Versions of the last batch on record, or None."""
        batch = self._files.newest()
        return None if batch is None else self.get(batch)

    def put(self, batch_id: int, versions: Mapping[str, int], settings: Mapping[str, str]) -> None:
        """Record the versions of a batch that is about to run; forget one long done.

        settings: as `jobs.adapters.checkpoint.identity.shaping` has them.

        Raises TableError PIN_NOT_WRITTEN: without a pin nothing of a batch may leave, and one that
        is there already stands, since its batch may have sent frames.
        """
        if self._files.read(batch_id) is not None:
            raise TableError(
                "PIN_NOT_WRITTEN",
                f"batch {batch_id} has its versions in {self._files.name(batch_id)}",
            )
        name = self._files.name(batch_id)
        held = {**versions, SETTINGS: dict(settings)}
        try:
            written = self._files.write(batch_id, json.dumps(held).encode())
        except FILE_ERRORS as error:
            raise TableError("PIN_NOT_WRITTEN", f"{name}: {one_line(error)}") from error
        if not written:
            raise TableError("PIN_NOT_WRITTEN", f"{name} could not get its name")

    def useless(self, batch_id: int, error: TableError) -> StackcastError:
        """Returns the error to raise where a batch cannot be computed from the versions that it is
        pinned to."""
        if error.what != "VERSION_GONE":
            return error
        return StreamError(
            "PIN_GONE",
            f"batch {batch_id} was cut off and cannot be computed again as it was: "
            f"{error.message}. To send it by the tables of now, remove "
            f"{self._files.name(batch_id)}: hosts may then get other bytes under numbers that "
            "they have seen, and should take the first",
        )
