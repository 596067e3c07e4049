"""Detection of a last batch that cannot end after a job was asked to stop.

If its sink or broker does not answer, a task waits for a long time before it fails, and Spark then
retries it. A running stream can wait, because the remote end may recover. A stream that was asked
to stop cannot: Kubernetes kills it after 30 seconds and systemd after 90 seconds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.error_lines import own_error
from stackcast.jobs.adapters.app.lifecycle import POLL_SECONDS, stream_failed
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS, Threads
from stackcast.udfs.errors import KafkaError, StackcastError
from stackcast.udfs.stop_request import StopRequest

#: Interval between two checks, in seconds. Most batches end before the first one.
LOOK_SECONDS = 1.0
#: Maximum number of tasks that are examined in a stage.
MOST_TRIES = 1000
#: Time without an answer after which the brokers count as unreachable, in seconds.
BROKER_SECONDS = 8.0


class LastBatch:
    """Determines whether the batch in progress can still end.

    Args:
        spark: session that runs the tasks of the batch.
        topics: topics of the stream; None if it reads none.
        threads: threads of the driver.
    """

    def __init__(
        self,
        spark: SparkSession,
        topics: Topics | None,
        threads: Threads = SYSTEM_THREADS,
    ) -> None:
        self._spark = spark
        self._topics = topics
        self._threads = threads
        self._clock = threads.clock
        self._next_look: float | None = None
        self._silent_since: float | None = None

    def check(self) -> StackcastError | None:
        """Cancel the batch if a task failed with an error of Stackcast, or no broker answers.

        The next start of the stream sends the batch again. If a task was lost with its worker, the
        batch is not canceled, because Spark retries the task.

        Returns:
            StreamError FAILED with the error of the task, or the error of the broker; None if the
            batch may still end.
        """
        time = self._clock.monotonic()
        if self._next_look is None:
            self._next_look = time + LOOK_SECONDS
        if time < self._next_look:
            return None
        error = self._task_error() or self._broker_error(time)
        self._next_look = self._clock.monotonic() + LOOK_SECONDS
        if error is not None:
            self._spark.sparkContext.cancelAllJobs()
        return error

    @contextlib.contextmanager
    def ends_with(self, stopping: StopRequest) -> Iterator[None]:
        """Cancel Spark jobs of the block that cannot end after a stop was requested.

        This is for jobs without a stream; for streams, `Lifecycle.run` calls `check`.

        Raises:
            StackcastError: the error that `check` returned, instead of Spark's error.
        """
        reasons: list[StackcastError] = []

        def check() -> float | None:
            if stopping.is_set() and (reason := self.check()):
                reasons.append(reason)
                return None
            return POLL_SECONDS

        poll = self._threads.poll("last batch", check, POLL_SECONDS)
        try:
            yield
        except Exception as error:
            poll.close()
            if reasons:
                raise reasons[0] from error
            raise
        finally:
            poll.close(0)

    def _task_error(self) -> StackcastError | None:
        """Return the error of Stackcast with which an attempt failed whose stage still runs."""
        # A stage may end while it is examined.
        with contextlib.suppress(Py4JError):
            for text in self._failed_attempts():
                if reason := own_error(text):
                    return stream_failed(reason)
        return None

    def _failed_attempts(self) -> Iterator[str]:
        """Yield the errors of failed attempts from the store of Spark's web interface."""
        context: Any = self._spark.sparkContext
        store = context._jsc.sc().statusStore()
        for stage in context.statusTracker().getActiveStageIds():
            attempt = store.lastStageAttempt(stage).attemptId()
            tasks = store.taskList(stage, attempt, MOST_TRIES)
            for number in range(tasks.size()):
                message = tasks.apply(number).errorMessage()
                if message.isDefined():
                    yield str(message.get())

    def _broker_error(self, time: float) -> KafkaError | None:
        """Return the error of brokers that have not answered for `BROKER_SECONDS`."""
        if self._topics is None:
            return None
        try:
            self._topics.end_offsets()
        except KafkaError as error:
            if self._silent_since is None:
                self._silent_since = time
            if self._clock.monotonic() - self._silent_since >= BROKER_SECONDS:
                return error
        else:
            self._silent_since = None
        return None
