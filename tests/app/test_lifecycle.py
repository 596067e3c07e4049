"""A job that was asked to stop waits for a batch in progress, and for nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from stackcast.jobs.adapters.app.error_lines import own_error
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.udfs.errors import KafkaError, StreamError

pytestmark = pytest.mark.unit

PLANNING = {"isTriggerActive": True, "message": "Getting offsets from KafkaV2[Subscribe[itch.raw]]"}
SENDING = {"isTriggerActive": True, "message": "Processing new data"}
IDLE = {"isTriggerActive": False, "message": "Waiting for data to arrive"}


class Query:
    """A query whose status changes each time that its end is awaited; the last one stays.

    It ends when it is stopped, or with an error after its statuses.
    """

    def __init__(self, *statuses: dict[str, Any], error: BaseException | None = None) -> None:
        self._statuses = list(statuses)
        self._error = error
        self.isActive = True
        self.lastProgress = None

    @property
    def status(self) -> dict[str, Any]:
        return self._statuses[0]

    def awaitTermination(self, timeout: Any = None) -> None:  # noqa: N802 - Spark's name
        if len(self._statuses) > 1:
            self._statuses.pop(0)
        elif self._error is not None:
            self.isActive = False

    def exception(self) -> BaseException | None:
        return self._error

    def stop(self) -> None:
        self.isActive = False


@pytest.fixture
def stopping() -> Lifecycle:
    """A lifecycle of a job that was asked to stop."""
    lifecycle = Lifecycle()
    lifecycle.stopping.set()
    return lifecycle


def test_a_batch_in_progress_ends_before_the_query_is_stopped(stopping: Lifecycle) -> None:
    query = Query(SENDING, SENDING, SENDING, IDLE)
    stopping.run(query, lambda: False)
    assert query.status == IDLE and not query.isActive


def test_a_batch_that_is_only_planned_is_not_awaited(stopping: Lifecycle) -> None:
    """Spark asks a broker that is gone for minutes, and nothing of the batch has been sent."""
    query = Query(PLANNING)
    stopping.run(query, lambda: False)
    assert not query.isActive


def test_a_batch_that_fails_ends_the_job_with_its_error(stopping: Lifecycle) -> None:
    text = "SinkError: SINK.FRAME_TOO_LARGE: a frame of 9,000 bytes"
    query = Query(SENDING, SENDING, error=RuntimeError(text))
    with pytest.raises(StreamError, match=r"^STREAM\.FAILED: .*: SINK\.FRAME_TOO_LARGE: a frame"):
        stopping.run(query, lambda: False)


def test_ctrl_c_stops_the_query() -> None:
    query = Query(SENDING)

    def interrupted() -> bool:
        raise KeyboardInterrupt

    lifecycle = Lifecycle()
    with pytest.raises(KeyboardInterrupt):
        lifecycle.run(query, interrupted)
    assert lifecycle.interrupted and not query.isActive


def test_a_batch_that_was_cut_off_ends_the_job_with_the_reason(stopping: Lifecycle) -> None:
    query = Query(SENDING, SENDING, SENDING, error=RuntimeError("Job 5 cancelled"))
    reasons = [None, KafkaError("BROKER_UNREACHABLE", "gone"), None]
    with pytest.raises(KafkaError, match="gone"):
        stopping.run(query, lambda: False, lambda: reasons.pop(0))


def test_a_batch_that_ends_although_it_was_cut_off_is_no_error(stopping: Lifecycle) -> None:
    query = Query(SENDING, SENDING, IDLE)
    stopping.run(query, lambda: False, lambda: KafkaError("BROKER_UNREACHABLE", "gone"))


def test_a_batch_is_checked_only_after_a_stop_was_requested() -> None:
    lifecycle, query, rounds = Lifecycle(), Query(*[SENDING] * 9, IDLE), 0
    checked: list[int] = []

    def finished() -> bool:
        nonlocal rounds
        rounds += 1
        return rounds == 3

    def check() -> None:
        checked.append(rounds)

    lifecycle.run(query, finished, check)
    assert set(checked) == {3}


def test_the_last_of_our_errors_in_a_text_is_the_reason() -> None:
    text = (
        "org.apache.spark.SparkException: Traceback (most recent call last):\n"
        "stackcast.udfs.errors.KafkaError: KAFKA.FETCH_REFUSED: first\n"
        "During handling of the above exception, another exception occurred:\n"
        "stackcast.udfs.errors.SinkError: SINK.STALLED: second\n\tat org.apache.spark"
    )
    assert own_error(text) == "SINK.STALLED: second"
    assert own_error("java.io.EOFException: no more") == ""
