"""Ends a job: after the batch in progress on SIGTERM; on Ctrl-C at once, or after what a stream in
real time has in hand; and never half.

``spark-submit`` is a JVM with the Python program as its child, and a signal may reach either. A
hook holds the JVM back until the Python side has finished, whichever of the two was signalled.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import math
import re
import signal
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, Protocol

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from jobs.adapters.app.session import runs_in_driver
from udfs.errors import StreamError
from udfs.stop_request import StopRequest

log = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.1
#: Between two looks at the clock.
TICK_SECONDS = 1.0
#: Above Spark's own hooks, which would stop the context under the batch in progress.
HOOK_PRIORITY = 1000
HOOK_SECONDS = 600
ANSWER_SECONDS = 0.3


class RunningStream(Protocol):
    """Stream that runs: Spark's ``StreamingQuery``, or what does as much of it."""

    @property
    def isActive(self) -> bool: ...  # noqa: N802 - Spark's names
    @property
    def status(self) -> Any: ...
    @property
    def lastProgress(self) -> Any: ...  # noqa: N802
    def awaitTermination(self, timeout: Any = None) -> Any: ...  # noqa: N802
    def exception(self) -> BaseException | None: ...
    def stop(self) -> None: ...


class Lifecycle:
    """Knows whether the job was asked to stop; keeps the JVM alive until it has.

    A context manager around the whole job, on the main thread. Inside it SIGTERM sets `stopping`
    and SIGINT raises KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.stopping = StopRequest()
        #: When all was seen to run, by the wall clock; how long it may not, and was not, seconds.
        self._ticked, self._bearable, self._still = 0.0, math.inf, 0.0
        self._ended = threading.Event()
        self._held = threading.Event()
        self._at_boundary = False
        self._remove_hook: Callable[[], Any] | None = None

    def __enter__(self) -> Lifecycle:
        # If the JVM dies hard, this program (and with it the lab's processes) must not live on.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        self._take_signals()
        return self

    def __exit__(self, *_: object) -> None:
        if self._remove_hook is not None:
            # While the JVM is going down it refuses to forget the hook, and then waits in it.
            with contextlib.suppress(Py4JError, OSError):
                self._remove_hook()
        self._ended.set()
        if self._held.is_set():
            time.sleep(ANSWER_SECONDS)  # or this program ends before its answer is with the JVM

    def hold_jvm(self, spark: SparkSession) -> None:
        """Make the JVM wait for this program's end before it goes down on a signal; from now on a
        standstill of either is noticed."""
        self._take_signals()  # a SparkContext installs its own handler for SIGINT
        if self._remove_hook is not None:
            self._remove_hook()
        context: Any = spark.sparkContext
        ensure_callback_server_started(context._gateway)
        jvm = context._jvm
        hook = jvm.java.lang.Thread(_Hook(self.stopping, self._held, self._ended))
        hooks = jvm.org.apache.hadoop.util.ShutdownHookManager.get()
        hooks.addShutdownHook(
            hook, HOOK_PRIORITY, HOOK_SECONDS, jvm.java.util.concurrent.TimeUnit.SECONDS
        )
        self._remove_hook = lambda: hooks.removeShutdownHook(hook)
        self._notice_standstill(context)

    def _notice_standstill(self, context: Any) -> None:
        """Asks the job to stop where this program or its JVM stands still for longer than Spark
        bears: stopped, suspended, or on a machine that was.

        Where executors are in the driver, Spark has then given them up and cannot take them back;
        ten minutes later it would end the JVM with exit code 56. A cluster gives others.
        """
        if not runs_in_driver(context.master):
            return
        conf = context._jsc.sc().conf()
        # By the last heartbeat that Spark had, and by the wall clock, as Spark goes by that.
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
        """How long the driver stood still, seconds; 0 where it was never longer than Spark bears.

        True in the first moment after it, too.
        """
        gap = time.time() - self._ticked
        if gap > self._bearable and not self._still:
            self._still = gap
        return self._still

    def check_standstill(self) -> None:
        """Raises StreamError STOOD_STILL where the job was asked to stop for that."""
        if self.stood_still:
            raise self._standstill()

    def _standstill(self) -> StreamError:
        return StreamError(
            "STOOD_STILL",
            f"the driver stood still for {self.stood_still:.0f} s, by a signal, a suspended "
            "machine or a clock set forward, and Spark gives up its executor: ending in order. "
            "Start again, and it goes on",
        )

    def boundary(self) -> None:
        """Call first in every batch: ends the query here when a stop was asked for.

        The batch before is committed by then, and nothing of this one has been sent.
        """
        if self.stopping.is_set():
            self._at_boundary = True
            raise StopAsked

    def run(self, query: RunningStream, finished: Callable[[], bool]) -> None:
        """Wait until the query fails, ``finished()``, or a stop is asked for.

        Raises StreamError FAILED with the reason, in our own words where it was ours, STOOD_STILL.

        The query is stopped between batches: one in progress ends first, and its offsets are
        committed, so that the next start does not send it again.
        """
        try:
            while query.isActive and not self.stopping.is_set() and not finished():
                _wait(query)
        except KeyboardInterrupt:
            # Or Spark goes down under it, and tells so at length.
            query.stop()
            raise
        if self.stopping.is_set():
            log.warning("asked to stop: ending after the batch in progress")
        self.stopping.set()
        while query.isActive and query.status["isTriggerActive"]:
            _wait(query)
        query.stop()
        error = query.exception()
        if error is not None and not self._at_boundary:
            raise _clear(error)
        self.check_standstill()

    def _take_signals(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: self.stopping.set())
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _wait(query: RunningStream) -> None:
    # Where the query has failed this raises, and so does `query.exception` afterwards, better.
    with contextlib.suppress(StreamingQueryException):
        query.awaitTermination(POLL_SECONDS)


def _clear(error: BaseException) -> StreamError:
    """The reason of a failed query: our own line if there is one in all that Spark tells.

    Of several the last: Python tells a cause before what was made of it.
    """
    text = str(error)
    if not isinstance(error, StreamingQueryException):
        text = "".join(traceback.format_exception(error))
    ours = re.findall(r"Error: ([A-Z][A-Z0-9]+\.[A-Z0-9_]+: .*)", text)
    reason = (
        ours[-1] if ours else str(error).split("=== Streaming Query ===", maxsplit=1)[0].strip()
    )
    return StreamError("FAILED", f"the stream has ended: {reason}")


class StopAsked(Exception):  # noqa: N818 - not an error
    """Ends a query between two batches; not an error."""


class _Hook:
    """A Java Runnable: asks the program to stop, returns when it has."""

    def __init__(
        self, stopping: StopRequest, held: threading.Event, ended: threading.Event
    ) -> None:
        self._stopping = stopping
        self._held = held
        self._ended = ended

    def run(self) -> None:
        self._held.set()
        self._stopping.set()
        self._ended.wait(HOOK_SECONDS)

    class Java:
        implements = ("java.lang.Runnable",)
