"""Counts of one task: records, messages and frames of each partition, frames of each template."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.delivery import kernels
from stackcast.udfs.errors import StreamError
from stackcast.udfs.messages.buffers import Batch
from stackcast.udfs.messages.moldudp64 import Messages
from stackcast.udfs.messages.sequence import MAX_OFFSET, Topic, session_id
from stackcast.udfs.stacks.frame import Frames


class Counts:
    """Counts by partition, and by partition and template, without a Python statement per record.

    Args:
        topic: topic of all partitions.
        digests: whether to compute ``last`` and ``digest``.

    Attributes:
        partitions: int32[p], partition of each row, in order of arrival.
        sessions: uint8[p, 10], session of each partition.
        by_template: int64[p, t, 3], frames, messages and bytes.
        last, digest: uint64[p, t], see `kernels.count`.
    """

    def __init__(self, topic: Topic, digests: bool) -> None:
        self.topic = topic
        self._digests = digests
        self.partitions = np.zeros(0, np.int32)
        self.sessions = np.zeros((0, 10), np.uint8)
        self._totals = np.zeros((0, len(kernels.TOTALS)), np.int64)
        self.by_template = np.zeros((0, 0, 3), np.int64)
        self.last = np.zeros((0, 0), np.uint64)
        self.digest = np.zeros((0, 0), np.uint64)

    def rows(self, partition: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the row of each record, int32[n].

        Args:
            partition: int32[n], partition of each record.
        """
        while True:
            rows: NDArray[np.int32]
            rows, missing = kernels.rows_of(partition, self.partitions)
            if missing < 0:
                return rows
            session = np.frombuffer(session_id(self.topic, missing), np.uint8)
            self.partitions = np.append(self.partitions, np.int32(missing))
            self.sessions = np.concatenate((self.sessions, session.reshape(1, 10)))
            self._grow(self.by_template.shape[1])

    def add(
        self,
        rows: NDArray[np.int32],
        batch: Batch,
        messages: Messages,
        delivery: NDArray[np.int32],
        frames: Frames,
        templates: int,
    ) -> None:
        """Count a batch.

        Args:
            rows: int32[n], result of `rows`.
            batch: the records.
            messages: their messages.
            delivery: int32[m], delivery of each message.
            frames: the frames.
            templates: number of templates.

        Raises:
            StreamError: OFFSETS_EXHAUSTED if an offset does not fit sequence numbers.
        """
        if templates > self.by_template.shape[1]:
            self._grow(templates)
        largest = kernels.count(
            rows,
            batch.offset,
            batch.borders,
            messages.count,
            messages.packet,
            delivery,
            frames.offsets,
            frames.template,
            frames.packet,
            frames.messages,
            frames.sequence,
            self._totals,
            self.by_template,
            self.last,
            self.digest,
        )
        if largest > MAX_OFFSET:
            raise StreamError(
                "OFFSETS_EXHAUSTED",
                f"topic {self.topic.name} has reached offset {largest}, but sequence numbers can "
                f"represent offsets only up to {MAX_OFFSET}: publish to a topic with another name",
                offset=largest,
            )

    def span(self, row: int) -> tuple[int, int]:
        """Return the first offset of a row, and the offset after its last one."""
        from_, until = self._totals[row, :2].tolist()
        return from_, until

    def totals(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield each partition and its totals, named as columns of
        `stackcast.udfs.delivery.deliver.REPORT`."""
        for partition, row in zip(self.partitions.tolist(), self._totals.tolist(), strict=True):
            total: dict[str, Any] = dict(zip(kernels.TOTALS, row, strict=True))
            if not total["frames"]:
                total |= {"first_sequence": None, "last_sequence": None}
            yield partition, total

    def _grow(self, templates: int) -> None:
        """Add zeros for new partitions and templates."""
        count = self.partitions.size
        self._totals = _grown(self._totals, (count, len(kernels.TOTALS)))
        self.by_template = _grown(self.by_template, (count, templates, 3))
        if self._digests:
            self.last = _grown(self.last, (count, templates))
            self.digest = _grown(self.digest, (count, templates))
        else:
            self.last = self.digest = np.zeros((count, 0), np.uint64)


def _grown(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    grown = np.zeros(shape, array.dtype)
    grown[tuple(map(slice, array.shape))] = array
    return grown
