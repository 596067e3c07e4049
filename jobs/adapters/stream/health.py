"""The health of a stream, computed from what its batches and its monitor have recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stackcast.jobs.adapters.app.health import Health

#: Time without an answer after which the broker counts as unreachable, in seconds.
BROKER_SECONDS = 15.0
#: A batch that runs for longer hangs, or has far too much to do.
BATCH_SECONDS = 120.0
#: Time without an answer after which Spark counts as hanging, in seconds.
SPARK_SECONDS = 60.0
#: Newer tables should be live before that.
PENDING_SECONDS = 30.0
#: Batches that may be missing in ledger and statistics: half of those at which the stream waits.
JOURNAL_BATCHES = 32
#: Maximum age of a batch that is missing in ledger and statistics, in seconds.
JOURNAL_SECONDS = 60.0


class BatchTime(NamedTuple):
    """A batch, and when it started or ended by the monotonic clock."""

    number: int
    time: float


@dataclass
class StreamStatus:
    """State of a stream for `/health`. Times are those of the monotonic clock.

    Attributes:
        running: the batch in progress and its start.
        last: the last batch that was recorded and its end.
        versions: versions of the tables from which the plan in use was made.
        refused_versions: versions of tables that cannot be used; None if all can be used.
        failure: code of the error of the last batch; empty if it succeeded.
        dead: description of the last batches if all their records are dead letters; otherwise
            empty.
        single_dead_record: whether ``dead`` is about a single record.
        offsets: by partition, the offset after the last record that was sent.
        pending_since: time at which newer tables were first seen that are not live yet.
        journal_batches: batches that are not in ledger and statistics yet.
        journal_since: time at which the oldest of them ended.
    """

    running: BatchTime | None = None
    last: BatchTime | None = None
    versions: dict[str, int] = field(default_factory=dict)
    refused_versions: dict[str, int] | None = None
    failure: str = ""
    dead: str = ""
    single_dead_record: bool = False
    offsets: dict[int, int] = field(default_factory=dict)
    pending_since: float | None = None
    journal_batches: int = 0
    journal_since: float | None = None

    def running_for(self, time: float) -> float:
        """Return for how many seconds the batch in progress has been running."""
        running = self.running
        return _elapsed(None if running is None else running.time, time)

    def pending_for(self, time: float) -> float:
        """Return for how many seconds newer tables have been waiting to become live."""
        return _elapsed(self.pending_since, time)

    def journal_age(self, time: float) -> float:
        """Return the age in seconds of the oldest batch that is not in the ledger yet."""
        return _elapsed(self.journal_since, time)


def _elapsed(since: float | None, time: float) -> float:
    return 0.0 if since is None else max(0.0, time - since)


@dataclass(frozen=True)
class Observation:
    """Result of a poll of Spark, Kafka and the disks. Times are those of the monotonic clock.

    Attributes:
        time: when the poll ended.
        active: whether the query runs.
        broker_time: when the broker last answered.
        broker_error: why the broker did not answer.
        lag: by partition, the number of records that were not sent yet.
        full: places whose disks are almost full.
        slow: reasons why the stream is slow or partly stopped, each with a remedy.
    """

    time: float
    active: bool
    broker_time: float
    broker_error: str = ""
    lag: Mapping[int, int] = field(default_factory=dict)
    full: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()


def health_of(observation: Observation | None, status: StreamStatus, time: float) -> Health:
    """Return the health of a stream without asking Spark or the broker.

    Each of these problems makes `/health` return status 503:

    - No query runs, or none has started yet.
    - A batch has been running for more than `BATCH_SECONDS`, or the last batch failed.
    - The broker has not answered for `BROKER_SECONDS`, or Spark for `SPARK_SECONDS`.
    - A transaction has held back a partition for too long.
    - In real time, the topic has more partitions than Spark has slots.
    - All records of the last batches, and more than one, were dead letters.

    Tables that cannot be used or are not live yet, rows that the ledger does not have yet, a disk
    that fills up and a single dead record are only remarks, because frames are still sent.

    Args:
        observation: result of the last poll; None before the first one.
        status: state that the batches have recorded.
        time: current time of the monotonic clock.
    """
    problems = _observed_problems(observation, time) + _batch_problems(status, time)
    remarks = _remarks(observation, status, time)
    if status.dead:
        (remarks if status.single_dead_record else problems).append(status.dead)
    return Health(tuple(problems), tuple(remarks), _facts(observation, status, time))


def _observed_problems(observation: Observation | None, time: float) -> list[str]:
    if observation is None:
        return ["the stream is starting"]
    problems = []
    if not observation.active:
        problems.append("the query is not running")
    if time - observation.time > SPARK_SECONDS:
        problems.append(f"Spark has not answered for {time - observation.time:.0f} s")
    if not _broker_reachable(observation, time):
        seconds = time - observation.broker_time
        reason = observation.broker_error or "no answer"
        problems.append(f"the broker has not answered for {seconds:.0f} s: {reason}")
    return [*problems, *observation.slow]


def _broker_reachable(observation: Observation, time: float) -> bool:
    return time - observation.broker_time <= BROKER_SECONDS


def _batch_problems(status: StreamStatus, time: float) -> list[str]:
    problems, running = [], status.running
    if running is not None and time - running.time > BATCH_SECONDS:
        problems.append(f"batch {running.number} has been running for {time - running.time:.0f} s")
    if status.failure:
        problems.append(f"the last batch failed: {status.failure}")
    return problems


def _remarks(observation: Observation | None, status: StreamStatus, time: float) -> list[str]:
    remarks = []
    if observation is not None:
        remarks += [f"the disk of {place} is almost full" for place in observation.full]
    if status.refused_versions is not None:
        remarks.append("the newest tables cannot be used, so the last valid ones remain live")
    if (seconds := status.pending_for(time)) > PENDING_SECONDS:
        remarks.append(f"newer tables have been waiting to become live for {seconds:.0f} s")
    age = status.journal_age(time)
    if status.journal_batches > JOURNAL_BATCHES or age > JOURNAL_SECONDS:
        remarks.append(
            f"{status.journal_batches} batches are not in the ledger yet, the oldest of them for "
            f"{age:.0f} s"
        )
    return remarks


def _facts(observation: Observation | None, status: StreamStatus, time: float) -> dict[str, Any]:
    running, last = status.running, status.last
    lag = {} if observation is None else dict(observation.lag)
    return {
        "last_batch": None if last is None else last.number,
        "last_batch_age_seconds": None if last is None else round(time - last.time, 1),
        "running_batch": None if running is None else running.number,
        "running_seconds": round(status.running_for(time), 1),
        "versions": status.versions,
        "refused_versions": status.refused_versions,
        "broker_reachable": observation is not None and _broker_reachable(observation, time),
        "sink_ok": not status.failure.startswith("SINK."),
        "lag": sum(lag.values()) if lag else None,
        "lag_by_partition": lag,
        "batches_not_in_ledger": status.journal_batches,
    }
