"""The records of slices, which are written while the next slices run."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from stackcast.jobs.adapters.checkpoint.progress import Progress
from stackcast.jobs.adapters.runtime.engine import Engine
from stackcast.jobs.adapters.stream.batch_recorder import BatchRecorder, BatchResult
from stackcast.jobs.adapters.stream.metrics import StreamMetrics
from stackcast.jobs.adapters.stream.progress_reports import ProgressReports, RecordedBatch

#: Maximum seconds for which the record of a slice waits until the next slice has begun. Both use
#: the interpreter of the driver, and events wait for the slice.
RECORD_DELAY = 0.1


class SliceRecorder:
    """Records slices in their order, in the background.

    Args:
        batches: records finished batches.
        progress: progress of the checkpoint.
        reports: progress reports of this run.
        metrics: metrics of the stream.
        engine: threads and clock of the driver.
    """

    def __init__(
        self,
        batches: BatchRecorder,
        progress: Progress,
        reports: ProgressReports,
        metrics: StreamMetrics,
        engine: Engine,
    ) -> None:
        self._batches = batches
        self._progress = progress
        self._reports = reports
        self._metrics = metrics
        self._engine = engine
        self._clock = engine.clock
        self._worker = engine.worker("record")
        #: Records of the last slices, until they are complete.
        self._pending: list[Future[None]] = []
        #: Set while a slice waits for these.
        self._record_now = engine.clock.event()
        self._last_recorded = -1

    def start_after(self, batch_id: int) -> None:
        """Set the number of the last batch that is recorded."""
        self._last_recorded = batch_id

    def submit(
        self, result: BatchResult, ends: Mapping[int, int], stages: Mapping[str, float]
    ) -> None:
        """Record a slice after all slices before it. If one of these fails, do not record it.

        Args:
            result: the slice, which has ended.
            ends: by partition, the offset at which the next slice begins.
            stages: duration of its stages in seconds, by name.
        """
        self._pending.append(self._worker.submit(self._record_next, result, ends, stages))

    def await_records(self, pending: int) -> None:
        """Return when at most this number of slices are not recorded.

        Raises:
            StackcastError: a slice could not be recorded; see `BatchRecorder.record`.
        """
        while len(self._pending) > pending:
            self._record_now.set()
            self._pending.pop(0).result()
        self._record_now.clear()

    def complete_before(self, results: Future[Any]) -> bool:
        """Return True when all slices are recorded, or False when a running slice ends first.

        Args:
            results: results of the running slice.

        Raises:
            StackcastError: a slice could not be recorded; see `BatchRecorder.record`.
        """
        while self._pending:
            either: list[Future[Any]] = [results, self._pending[0]]
            self._engine.wait(either)
            if results.done():
                return False
            self._pending.pop(0).result()
        return True

    def close(self) -> None:
        """Return after all slices that have ended are recorded."""
        self._worker.close()

    def _record_next(
        self, result: BatchResult, ends: Mapping[int, int], stages: Mapping[str, float]
    ) -> None:
        self._record_now.wait(RECORD_DELAY)
        # After a slice that could not be recorded, no other may be.
        if self._last_recorded != result.batch_id - 1:
            return
        start = self._clock.monotonic()
        self._record(result, ends)
        self._last_recorded = result.batch_id
        seconds = {**stages, "record": self._clock.monotonic() - start}
        self._reports.recorded(
            RecordedBatch(
                *(result.batch_id, result.started, result.seconds, seconds, result.report, ends)
            )
        )

    def _record(self, result: BatchResult, ends: Mapping[int, int]) -> None:
        self._progress.plan(result.batch_id, ends)
        self._batches.record(result)
        self._progress.done(result.batch_id)
        self._metrics.recorded(result.batch_id, result.seconds)
