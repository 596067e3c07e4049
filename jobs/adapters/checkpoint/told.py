"""How far hosts were told by the summaries of a batch: a file of each that told some and not all.

Pins say where the summaries of a batch begin, and this where those of the next one do: without it a
batch after a crash would leave out what was not told.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.error_texts import one_line
from stackcast.jobs.adapters.checkpoint.files import FILE_ERRORS, KEPT, BatchFiles
from stackcast.udfs.delivery.told import Told
from stackcast.udfs.errors import StreamError


class ToldHosts:
    """Summary progress by partition, in the checkpoint's folder ``stackcast-summary-progress``.

    For a partition that is missing, all hosts received summaries up to the end of the batch."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._files = BatchFiles(
            spark, checkpoint, "stackcast-summary-progress", ".json", kept=None
        )
        self._there: set[int] | None = None

    def after(self, batch_id: int, ends: Mapping[int, int]) -> dict[int, Told]:
        """Returns how far hosts are told after a batch, which ``ends`` there.

        Raises StreamError SUMMARIES_UNREADABLE.
        """
        text = self._files.read(batch_id)
        found = {partition: Told.all(end) for partition, end in ends.items()}
        if text is None:
            return found
        try:
            held = {int(p): Told.unpacked(each) for p, each in json.loads(text).items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StreamError(
                "SUMMARIES_UNREADABLE",
                f"{self._files.name(batch_id)} does not contain the progress of summaries "
                f"({error!r}), as can happen after a power failure: restore the file or remove "
                f"it. Without it, hosts to which batch {batch_id} sent no summary find a gap in "
                "their summaries and request it",
            ) from error
        # A try that was cut off may have ended elsewhere.
        return found | {p: told for p, told in held.items() if ends.get(p) == told.until}

    def put(self, batch_id: int, told: Mapping[int, Told]) -> None:
        """Records how far hosts are told after a batch; forgets those long done.

        Raises StreamError TOLD_NOT_WRITTEN: the batch then counts as failed, and runs again.
        """
        if self._there is None:
            self._there = set(self._files.batches())
        some = {p: each.packed() for p, each in told.items() if not each.whole}
        if some:
            content = json.dumps(some).encode()
            try:
                # One is there if the batch ran before.
                if not self._files.write(batch_id, content):
                    self._files.remove(batch_id)
                    self._files.write(batch_id, content)
            except FILE_ERRORS as error:
                raise StreamError(
                    "TOLD_NOT_WRITTEN",
                    f"{self._files.name(batch_id)} could not be written: {one_line(error)}",
                ) from error
            self._there.add(batch_id)
        for done in [batch for batch in self._there if batch <= batch_id - KEPT]:
            self.all(done)

    def all(self, batch_id: int) -> None:
        """Takes that all hosts were told up to the end of a batch."""
        self._files.remove(batch_id)
        if self._there is not None:
            self._there.discard(batch_id)
