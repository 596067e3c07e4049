"""Handover of a partition from the task of one slice to the task of the next one.

The task of a slice that was started ahead waits until the previous task has stopped, and begins
where that has stopped:

    task of slice 7    hold ── reads records ── write(handoff), release
    task of slice 8            read ············ waits ······▶ handoff ── hold ── reads records ──

A task that dies releases its place without a handoff.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from stackcast.udfs.delivery.summary_progress import SummaryProgress


class Handoff(NamedTuple):
    """What a task leaves to the next task of its partition.

    Attributes:
        offset: offset at which the next task begins.
        epoch: epoch of the leader from which all records before it were read.
        progress: summary progress up to there, if it is known.
    """

    offset: int
    epoch: int
    progress: SummaryProgress | None


class HandoffKey(NamedTuple):
    """Place of the handoff of a task.

    Attributes:
        run: name of the stream since its start.
        partition: number of the partition.
        slice_number: number of the slice in this run.
    """

    run: str
    partition: int
    slice_number: int

    def earlier(self, slices: int = 1) -> HandoffKey:
        """Return the place of the task that ran this number of slices before."""
        return self._replace(slice_number=self.slice_number - slices)


class Handoffs(Protocol):
    """Handoffs between the tasks of one machine."""

    def read(self, key: HandoffKey) -> Handoff | None:
        """Wait while a task holds this place, and return its handoff.

        Returns:
            The handoff; None if no task was here, or if it has died.
        """

    def hold(self, key: HandoffKey) -> AbstractContextManager[Callable[[Handoff], None]]:
        """Hold a place until the block ends, and forget the task two slices before.

        Returns:
            A context manager that provides the function to write the handoff.
        """
