"""Summary progress after a batch: one file for each batch after which it is not complete.

Pins contain the progress before a batch. Without these files, the first batch after a crash would
omit what earlier summaries did not contain.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.checkpoint.files import RETAINED_BATCHES, BatchFiles, Folder
from stackcast.udfs.delivery.summary_progress import SummaryProgress
from stackcast.udfs.errors import StreamError


class SummaryProgressStore:
    """Summary progress by partition, in the checkpoint's folder ``stackcast-summary-progress``.

    A partition without an entry is complete: all hosts received summaries up to the end of the
    batch.
    """

    def __init__(self, checkpoint: Folder) -> None:
        self._files = BatchFiles(
            checkpoint.folder("stackcast-summary-progress"), ".json", retained=None
        )
        self._stored: set[int] | None = None

    def after(self, batch_id: int, ends: Mapping[int, int]) -> dict[int, SummaryProgress]:
        """Return the progress after a batch.

        Args:
            batch_id: number of the batch.
            ends: by partition, the offset at which the batch ended.

        Raises:
            StreamError: SUMMARIES_UNREADABLE.
        """
        text = self._files.read(batch_id)
        progress = {partition: SummaryProgress.complete(end) for partition, end in ends.items()}
        if text is None:
            return progress
        try:
            stored = {
                int(partition): SummaryProgress.unpacked(value)
                for partition, value in json.loads(text).items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StreamError(
                "SUMMARIES_UNREADABLE",
                f"{self._files.path(batch_id)} does not contain the progress of summaries "
                f"({error!r}), as can happen after a power failure: restore the file or remove "
                f"it. Without it, hosts to which batch {batch_id} sent no summary find a gap in "
                "their summaries and request it",
            ) from error
        # An interrupted attempt of the batch may have ended elsewhere.
        return progress | {p: each for p, each in stored.items() if ends.get(p) == each.until}

    def put(self, batch_id: int, progress: Mapping[int, SummaryProgress]) -> None:
        """Record the progress after a batch, and forget that of old batches.

        Raises:
            StreamError: SUMMARIES_NOT_WRITTEN. The batch then counts as failed, and runs again.
        """
        if self._stored is None:
            self._stored = set(self._files.batches())
        incomplete = {p: each.packed() for p, each in progress.items() if not each.is_complete}
        if incomplete:
            content = json.dumps(incomplete).encode()
            try:
                # A file exists already if the batch ran before.
                self._files.replace(batch_id, content)
            except OSError as error:
                raise StreamError(
                    "SUMMARIES_NOT_WRITTEN",
                    f"{self._files.path(batch_id)} could not be written: {one_line(error)}",
                ) from error
            self._stored.add(batch_id)
        for old in [batch for batch in self._stored if batch <= batch_id - RETAINED_BATCHES]:
            self.mark_complete(old)

    def mark_complete(self, batch_id: int) -> None:
        """Note that all hosts have received summaries up to the end of a batch."""
        self._files.remove(batch_id)
        if self._stored is not None:
            self._stored.discard(batch_id)
