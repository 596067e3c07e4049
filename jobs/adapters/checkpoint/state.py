"""State that rules keep from micro-batch to micro-batch: a file a batch in the checkpoint.

A batch starts from the file of the batch before, so one that runs again after a crash computes the
same frames. Where rules keep no state, no file is read or written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.checkpoint.files import BatchFiles, Folder
from stackcast.udfs.errors import StreamError
from stackcast.udfs.filters.matching.carried import pack_sources, retain, unpack, unpack_sources


class CarriedState:
    """Packed cells by partition (``stackcast.udfs.filters.matching.carried``), in the checkpoint's
    folder ``stackcast-state``."""

    def __init__(self, checkpoint: Folder) -> None:
        self._files = BatchFiles(checkpoint.folder("stackcast-state"), ".bin")
        self._last: tuple[int, dict[int, bytes]] | None = None
        self._names: frozenset[str] = frozenset()

    def before(self, batch_id: int) -> dict[int, bytes]:
        """The state that a batch begins with: none where the batch before kept none.

        Raises StreamError STATE_UNREADABLE.
        """
        if self._last is not None and self._last[0] == batch_id - 1:
            return self._last[1]
        content = self._files.read(batch_id - 1)
        if content is None:
            return {}
        try:
            found = unpack_sources(content)
            for packed in found.values():
                unpack(packed)
        except StreamError as error:
            raise StreamError(
                "STATE_UNREADABLE",
                f"{self._files.path(batch_id - 1)} cannot be read: {error.message}; restore the "
                f"file or remove it. Without it, batch {batch_id} begins with empty state cells",
            ) from error
        return found

    def merged(
        self,
        before: Mapping[int, bytes],
        rows: Iterable[Mapping[str, Any]],
        names: Collection[str],
    ) -> dict[int, bytes]:
        """Returns what is kept after a batch.

        ``rows``: reports of kind ``state``. Partitions without one keep what they had. ``names``:
        identities of the cells of the batch's rules; others are dropped. Raises StreamError
        PARTITION_SPLIT: the batch then counts as failed, and runs again.
        """
        rows = list(rows)
        (most,) = Counter(row["partition"] for row in rows).most_common(1) or ((0, 0),)
        if most[1] > 1:
            raise StreamError(
                "PARTITION_SPLIT",
                f"{most[1]} tasks processed parts of partition {most[0]}, but rules with state "
                "need one task that processes it in order: do not set minPartitions or "
                "maxRecordsPerPartition for the Kafka source",
            )
        kept = dict(before)
        live = frozenset(names)
        if live != self._names:
            # Idle partitions too: a cell lives as long as the rules of each batch name it.
            kept = {partition: retain(packed, live) for partition, packed in kept.items()}
        self._names = live
        return kept | {row["partition"]: row["cells"] for row in rows}

    def put(self, batch_id: int, kept: dict[int, bytes]) -> None:
        """Records what is kept after a batch.

        Raises StreamError STATE_NOT_WRITTEN: the batch then counts as failed, and runs again.
        """
        try:
            # A batch that runs again replaces its file.
            self._files.replace(batch_id, pack_sources(kept))
        except OSError as error:
            raise StreamError(
                "STATE_NOT_WRITTEN",
                f"{self._files.path(batch_id)} could not be written: {one_line(error)}",
            ) from error
        self._last = (batch_id, kept)
