"""Start and end of a job: signals, and the stream that it runs.

SIGTERM ends a job after the batch in progress. Ctrl-C ends it at once, or after the slice in
progress if it runs in real time.

``spark-submit`` is a JVM with the Python program as its child, and a signal may reach either or
both. A JVM that receives one normally begins its shutdown, in which executors no longer report
failed tasks (SPARK-20904): a Spark job with a task that fails would never end. Therefore
`Lifecycle` replaces the signal handlers of the JVM. They only ask the Python program to stop, and
the JVM ends after it.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import math
import signal
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.error_lines import own_error
from stackcast.jobs.adapters.app.running_stream import RunningStream
from stackcast.jobs.adapters.app.session import runs_in_driver
from stackcast.udfs.errors import StackcastError, StreamError
from stackcast.udfs.stop_request import StopAsked, StopRequest

log = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.1
#: Interval between two looks at the clock.
TICK_SECONDS = 1.0
#: Time that a query without a batch has to stop.
STOP_SECONDS = 5.0
#: Signals that make a JVM begin its shutdown.
JVM_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: Spark's status message while it plans a batch. Nothing of that batch has been sent.
_PLANNING = "Getting offsets"


class Lifecycle:
    """A context manager around a whole job, on the main thread.

    Inside it, SIGTERM sets `stopping`, and SIGINT raises KeyboardInterrupt.

    Attributes:
        stopping: set once the job was asked to stop.
        jvm_signal: number of the last signal that the JVM received; 0 if it received none.
        interrupted: whether Ctrl-C cuts off a batch in progress.
    """

    def __init__(self) -> None:
        self.stopping = StopRequest()
        self.jvm_signal = 0
        self.interrupted = False
        #: Wall clock time at which everything was last seen to run; the longest pause that Spark
        #: tolerates, and the pause that was noticed, in seconds.
        self._ticked, self._bearable, self._still = 0.0, math.inf, 0.0
        self._ended = threading.Event()
        self._at_boundary = False
        #: Gives the JVM its own signal handlers back.
        self._jvm_handlers = ExitStack()

    def __enter__(self) -> Lifecycle:
        # If the JVM is killed, this program must end too, and with it the processes of the lab.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        self._take_signals()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(Py4JError, OSError):
            self._jvm_handlers.close()
        self._ended.set()

    def hold_jvm(self, spark: SparkSession) -> None:
        """Keep the JVM alive until this program ends, whatever signal it receives.

        From now on, a pause of the program or its JVM is noticed, too.
        """
        self._take_signals()  # a SparkContext installs its own handler for SIGINT
        self._jvm_handlers.close()
        context: Any = spark.sparkContext
        ensure_callback_server_started(context._gateway)
        java_signal = context._jvm.sun.misc.Signal
        for number in JVM_SIGNALS:
            its_signal = java_signal(number.name.removeprefix("SIG"))
            previous = java_signal.handle(its_signal, _JvmHandler(self, number))
            self._jvm_handlers.callback(java_signal.handle, its_signal, previous)
        self._notice_standstill(context)

    def jvm_signalled(self, number: int) -> None:
        """Note that the JVM has received a signal, and ask the job to stop."""
        self.jvm_signal = number
        self.stopping.set()

    def _notice_standstill(self, context: Any) -> None:
        """Ask the job to stop after a pause that was longer than Spark tolerates.

        This program and its JVM are paused while they are stopped or their machine is suspended. If
        executors are in the driver, Spark has given them up by then and cannot take them back; ten
        minutes later it would end the JVM with exit code 56. A cluster starts other executors.
        """
        if not runs_in_driver(context.master):
            return
        conf = context._jsc.sc().conf()
        # Spark compares the wall clock with the time of the last heartbeat.
        limit = float(conf.getTimeAsSeconds("spark.network.timeout", "120s")) - float(
            conf.getTimeAsSeconds("spark.executor.heartbeatInterval", "10s")
        )

        def tick() -> None:
            while not self._ended.wait(TICK_SECONDS):
                try:
                    context._jvm.System.currentTimeMillis()
                except (Py4JError, OSError):
                    return
                if self.stood_still:
                    log.error("%s", self._standstill())
                    self.stopping.set()
                    return
                self._ticked = time.time()

        self._ticked, self._bearable = time.time(), limit
        threading.Thread(target=tick, name="standstill", daemon=True).start()

    @property
    def stood_still(self) -> float:
        """Duration of a pause that was longer than Spark tolerates, in seconds; 0 if none was.

        The value is correct from the first moment after the pause.
        """
        gap = time.time() - self._ticked
        if gap > self._bearable and not self._still:
            self._still = gap
        return self._still

    def check_standstill(self) -> None:
        """Raise StreamError STALLED after a pause longer than Spark tolerates."""
        if self.stood_still:
            raise self._standstill()

    def _standstill(self) -> StreamError:
        return StreamError(
            "STALLED",
            f"the driver was paused for {self.stood_still:.0f} s by a signal, a suspended machine "
            "or a clock that was set forward, so Spark gives up its executor: the job shuts down "
            "cleanly; start it again to continue",
        )

    def boundary(self) -> None:
        """End the query if a stop was requested; call this first in every batch.

        At this point the previous batch is committed, and nothing of this one has been sent.
        """
        if self.stopping.is_set():
            self._at_boundary = True
            raise StopAsked

    def run(
        self,
        query: RunningStream,
        finished: Callable[[], bool],
        check_batch: Callable[[], StackcastError | None] = lambda: None,
    ) -> None:
        """Wait until the query fails, ``finished`` returns True, or a stop is requested.

        The query is stopped between batches: a batch in progress ends first, and its offsets are
        committed, so that the next start does not send it again.

        Args:
            query: the stream, which runs.
            finished: called several times per second.
            check_batch: called several times per second while a stop waits for the batch in
                progress; returns why that batch cannot end, after it has cut the batch off.

        Raises:
            StreamError: FAILED with the reason of a query that has failed, or STALLED.
            StackcastError: the error of ``check_batch``, if the query has failed after it.
        """
        cut_off: StackcastError | None = None
        try:
            while query.isActive and not self.stopping.is_set() and not finished():
                _wait(query)
            if self.stopping.is_set():
                log.warning("asked to stop: the job ends after the batch in progress")
            self.stopping.set()
            while query.isActive and _sends(query):
                _wait(query)
                cut_off = check_batch() or cut_off
        except KeyboardInterrupt:
            self.interrupted = True
            # The interrupt may have broken the connection to the JVM; the next call has a new one.
            with contextlib.suppress(Py4JError, OSError):
                stop_query(query)
            raise
        finally:
            # Also after Ctrl-C, because a Spark that stops first logs long errors of the query.
            stop_query(query)
        error = query.exception()
        if error is not None and not self._at_boundary:
            raise cut_off or _clear(error)
        self.check_standstill()

    def _take_signals(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: self.stopping.set())
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _wait(query: RunningStream) -> None:
    # If the query has failed, this raises, and `query.exception` returns a better error afterwards.
    with contextlib.suppress(StreamingQueryException):
        query.awaitTermination(POLL_SECONDS)


def _sends(query: RunningStream) -> bool:
    """Whether a batch is in progress of which something may have been sent."""
    status = query.status
    planning = status.get("message", "").startswith(_PLANNING)
    return bool(status["isTriggerActive"]) and not planning


def stop_query(query: RunningStream) -> None:
    """Stop a query, and wait until it has ended.

    A query that waits for a silent broker takes up to a minute to end. Nothing of a batch is in
    progress then, so it is left alone.
    """
    if _sends(query):
        query.stop()
        return

    def stop() -> None:
        with contextlib.suppress(Py4JError, OSError):  # the JVM ends under a query that is left
            query.stop()

    stopping = threading.Thread(target=stop, name="stop", daemon=True)
    stopping.start()
    stopping.join(STOP_SECONDS)


def _clear(error: BaseException) -> StreamError:
    """Returns the reason of a failed query: our own error if Spark's text contains one."""
    text = str(error)
    if not isinstance(error, StreamingQueryException):
        text = "".join(traceback.format_exception(error))
    reason = own_error(text)
    return stream_failed(
        reason or str(error).split("=== Streaming Query ===", maxsplit=1)[0].strip()
    )


def stream_failed(reason: str) -> StreamError:
    """Returns the error of a stream that has ended by itself."""
    return StreamError("FAILED", f"the stream has ended: {reason}")


class _JvmHandler:
    """A Java signal handler that calls `Lifecycle.jvm_signalled`."""

    def __init__(self, lifecycle: Lifecycle, number: int) -> None:
        self._lifecycle = lifecycle
        self._number = number

    def handle(self, _signal: Any) -> None:
        self._lifecycle.jvm_signalled(self._number)

    class Java:
        implements = ("sun.misc.SignalHandler",)
