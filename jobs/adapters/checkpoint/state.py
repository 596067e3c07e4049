"""State of rules between batches, with one file per batch in the checkpoint.

A batch starts from the state that the previous batch has recorded. So a batch that runs again after
a crash starts from the same state, and sends the same frames. Nothing is read or written if no rule
keeps state.
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
    """State cells after each batch, in the checkpoint's folder ``stackcast-state``.

    The cells of a partition are packed by `stackcast.udfs.filters.matching.carried`.
    """

    def __init__(self, checkpoint: Folder) -> None:
        self._files = BatchFiles(checkpoint.folder("stackcast-state"), ".bin")
        self._last: tuple[int, dict[int, bytes]] | None = None
        self._names: frozenset[str] = frozenset()

    def before(self, batch_id: int) -> dict[int, bytes]:
        """Return the state before a batch, by partition. It is empty if none was recorded.

        Raises:
            StreamError: STATE_UNREADABLE.
        """
        if self._last is not None and self._last[0] == batch_id - 1:
            return self._last[1]
        content = self._files.read(batch_id - 1)
        if content is None:
            return {}
        try:
            state = unpack_sources(content)
            for packed in state.values():
                unpack(packed)
        except StreamError as error:
            raise StreamError(
                "STATE_UNREADABLE",
                f"{self._files.path(batch_id - 1)} cannot be read: {error.message}; restore the "
                f"file or remove it. Without it, batch {batch_id} begins with empty state cells",
            ) from error
        return state

    def merged(
        self,
        before: Mapping[int, bytes],
        rows: Iterable[Mapping[str, Any]],
        names: Collection[str],
    ) -> dict[int, bytes]:
        """Return the state after a batch, by partition.

        Args:
            before: state before the batch.
            rows: reports of kind ``state``. A partition without a report keeps its state.
            names: identities of the cells of the batch's rules. Other cells are dropped.

        Raises:
            StreamError: PARTITION_SPLIT. The batch then counts as failed, and runs again.
        """
        rows = list(rows)
        reports = Counter(row["partition"] for row in rows)
        ((partition, tasks),) = reports.most_common(1) or ((0, 0),)
        if tasks > 1:
            raise StreamError(
                "PARTITION_SPLIT",
                f"{tasks} tasks processed parts of partition {partition}, but rules with state "
                "need one task that processes it in order: do not set minPartitions or "
                "maxRecordsPerPartition for the Kafka source",
            )
        state = dict(before)
        identities = frozenset(names)
        if identities != self._names:
            # Partitions without records drop their cells, too.
            state = {number: retain(packed, identities) for number, packed in state.items()}
        self._names = identities
        return state | {row["partition"]: row["cells"] for row in rows}

    def put(self, batch_id: int, state: dict[int, bytes]) -> None:
        """Record the state after a batch.

        Raises:
            StreamError: STATE_NOT_WRITTEN. The batch then counts as failed, and runs again.
        """
        try:
            # A batch that runs again replaces its file.
            self._files.replace(batch_id, pack_sources(state))
        except OSError as error:
            raise StreamError(
                "STATE_NOT_WRITTEN",
                f"{self._files.path(batch_id)} could not be written: {one_line(error)}",
            ) from error
        self._last = (batch_id, state)
