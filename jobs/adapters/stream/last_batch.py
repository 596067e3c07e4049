"""The last batch of a job that was asked to stop, and why it may be unable to end.

A task whose sink or broker does not answer waits for long before it fails, and Spark then tries it
again. A stream that runs can afford to wait, because the remote end may come back. A stream that
was asked to stop cannot: Kubernetes and systemd kill it after half a minute or a minute and a half.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.error_texts import own_error
from stackcast.jobs.adapters.app.lifecycle import POLL_SECONDS, stream_failed
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.udfs.errors import KafkaError, StackcastError
from stackcast.udfs.stop_request import StopRequest

#: Interval between two looks. Most batches end before the first one.
LOOK_SECONDS = 1.0
#: Tries of tasks that are examined in a stage.
MOST_TRIES = 1000
#: Time without an answer after which the brokers count as gone.
BROKER_SECONDS = 8.0


class LastBatch:
    """Finds out whether the batch in progress can still end.

    Args:
        spark: session that runs the tasks of the batch.
        topics: topics of the stream, if it reads one.
    """

    def __init__(self, spark: SparkSession, topics: Topics | None) -> None:
        self._spark = spark
        self._topics = topics
        self._next_look: float | None = None
        self._silent_since: float | None = None

    def check(self) -> StackcastError | None:
        """Cut the batch off if a task has failed by an error of ours, or no broker answers.

        The next start of the stream sends the batch again. If a task was lost with its worker,
        Spark's next try is awaited.

        Returns:
            StreamError FAILED with the error of the task, or the error of the broker; None if the
            batch may still end.
        """
        now = time.monotonic()
        if self._next_look is None:
            self._next_look = now + LOOK_SECONDS
        if now < self._next_look:
            return None
        error = self._task_error() or self._broker_error(now)
        self._next_look = time.monotonic() + LOOK_SECONDS
        if error is not None:
            self._spark.sparkContext.cancelAllJobs()
        return error

    @contextlib.contextmanager
    def ends_with(self, stopping: StopRequest) -> Iterator[None]:
        """Cuts off Spark jobs of the block that cannot end, once a stop was requested.

        This is for jobs without a stream, for which `Lifecycle.run` does it.

        Raises:
            StackcastError: the error that `check` has found, in place of Spark's.
        """
        ended, found = threading.Event(), []

        def look() -> None:
            while not ended.wait(POLL_SECONDS):
                if stopping.is_set() and (error := self.check()):
                    found.append(error)
                    return

        looking = threading.Thread(target=look, name="last batch", daemon=True)
        looking.start()
        try:
            yield
        except Exception as error:
            ended.set()
            looking.join()
            if found:
                raise found[0] from error
            raise
        finally:
            ended.set()

    def _task_error(self) -> StackcastError | None:
        """Returns our error by which a try of a task has failed whose stage still runs."""
        # A stage may end while it is examined.
        with contextlib.suppress(Py4JError):
            for text in self._failed_tries():
                if reason := own_error(text):
                    return stream_failed(reason)
        return None

    def _failed_tries(self) -> Iterator[str]:
        """Yields the errors of failed tries of tasks, by the store behind Spark's web page."""
        context: Any = self._spark.sparkContext
        store = context._jsc.sc().statusStore()
        for stage in context.statusTracker().getActiveStageIds():
            attempt = store.lastStageAttempt(stage).attemptId()
            tasks = store.taskList(stage, attempt, MOST_TRIES)
            for number in range(tasks.size()):
                message = tasks.apply(number).errorMessage()
                if message.isDefined():
                    yield str(message.get())

    def _broker_error(self, now: float) -> KafkaError | None:
        """Returns the error of brokers that have not answered since several looks."""
        if self._topics is None:
            return None
        try:
            self._topics.end_offsets()
        except KafkaError as error:
            if self._silent_since is None:
                self._silent_since = now
            silent = time.monotonic() - self._silent_since
            if silent >= BROKER_SECONDS:
                return error
        else:
            self._silent_since = None
        return None
