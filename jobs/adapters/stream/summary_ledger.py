"""The summaries of a running stream: their progress, their schedule, and those that are due."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.checkpoint.leader_epochs import recorded_partitions
from stackcast.jobs.adapters.checkpoint.pins import Pin, Pins
from stackcast.jobs.adapters.checkpoint.reports import Reports
from stackcast.jobs.adapters.checkpoint.summary_progress import SummaryProgressStore
from stackcast.jobs.adapters.stream.summary_schedule import SummarySchedule
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.delivery.summary_progress import SummaryAssignment, SummaryProgress
from stackcast.udfs.messages.sequence import Topic

log = logging.getLogger(__name__)

Send = Callable[[Sequence[int], SummaryAssignment], Mapping[int, SummaryProgress]]
"""Sends the summaries of partitions, and returns the progress after them."""


class SummaryLedger:
    """Summary progress of all partitions.

    Args:
        topic: topic of the stream.
        pins: pins of batches, which contain the progress before them.
        reports: reports of batches that are not in the tables yet.
        tables: tables of the stream.
        store: progress after recorded batches.
        schedule: times of summaries to all hosts.
    """

    def __init__(
        self,
        topic: Topic,
        pins: Pins,
        reports: Reports,
        tables: Tables,
        store: SummaryProgressStore,
        schedule: SummarySchedule,
    ) -> None:
        self._topic = topic
        self._pins = pins
        self._reports = reports
        self._tables = tables
        self._store = store
        self._schedule = schedule
        self._progress: dict[int, SummaryProgress] = {}
        self._last_recorded: int | None = None

    @property
    def progress(self) -> dict[int, SummaryProgress]:
        """Progress by partition after the last batch."""
        return self._progress

    def restore(self) -> None:
        """Read the progress before the first batch of this run.

        Offsets may have gaps there, from transactions and compaction. The ranges of summaries
        nevertheless leave no gap.
        """
        last = self._pins.newest()
        self._progress = {} if last is None else self.before(*last) | self._recorded(last[0])

    def restore_before(self, batch_id: int, pin: Pin) -> None:
        """Go back to the progress before a batch that runs again."""
        self._progress = dict(self.before(batch_id, pin))

    def before(self, batch_id: int, pin: Pin) -> dict[int, SummaryProgress]:
        """Return the progress before a batch, given its pin. The previous batch is recorded."""
        return pin.since | self._recorded(batch_id - 1) if pin.ahead else pin.since

    def assignment(self, everyone: bool) -> SummaryAssignment:
        """Return the summaries that the tasks of the next batch send."""
        return SummaryAssignment(self._progress, everyone)

    def take_turn(self, length: float = 0.0) -> bool:
        """Decide whether the next batch sends summaries to all hosts; see `SummarySchedule`."""
        return self._schedule.take_turn(length)

    def pass_turn(self) -> None:
        """Leave the turn to the next batch; see `SummarySchedule.pass_turn`."""
        self._schedule.pass_turn()

    def advance(self, ends: Mapping[int, int], sent: Mapping[int, SummaryProgress]) -> None:
        """Set the progress after a batch.

        Args:
            ends: by partition, the offset at which the batch ended.
            sent: by partition, the progress that its tasks have reported.
        """
        complete = {p: SummaryProgress.complete(end) for p, end in ends.items()}
        self._progress = self._progress | complete | dict(sent)

    def record(self, batch_id: int, sent: Mapping[int, SummaryProgress]) -> None:
        """Make the progress after a batch durable.

        Raises:
            StreamError: SUMMARIES_NOT_WRITTEN.
        """
        self._store.put(batch_id, sent)
        self._last_recorded = batch_id

    def record_complete(self, batch_id: int) -> None:
        """Make durable that all hosts have received summaries up to the end of a batch."""
        self._store.mark_complete(batch_id)

    def is_overdue(self) -> bool:
        """Return True if hosts have waited too long for summaries. Call this regularly."""
        return self._schedule.is_overdue(self._progress)

    def flush(self, send: Send) -> None:
        """Send summaries to the hosts without one, while no batch runs.

        Errors are only logged. Hosts without a summary request it, and a host that gets a summary
        twice gets the same one.
        """
        partitions = sorted(p for p, each in self._progress.items() if not each.is_complete)
        if not partitions:
            return
        try:
            self._progress = self._progress | dict(send(partitions, self.assignment(True)))
            self._schedule.mark_sent()
            if self._last_recorded is not None:
                self._store.mark_complete(self._last_recorded)
        except Exception as error:
            log.warning("the last summaries could not be sent: %s", one_line(error))

    def _recorded(self, batch_id: int) -> dict[int, SummaryProgress]:
        """Return the progress after a recorded batch, of the partitions that it has read."""
        rows = recorded_partitions(self._reports, self._tables, self._topic, batch_id)
        return self._store.after(batch_id, {row["partition"]: row["until_offset"] for row in rows})
