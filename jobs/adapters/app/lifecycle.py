"""Ends a job: after the batch in progress on SIGTERM, at once on Ctrl-C, and never half.

``spark-submit`` is a JVM with the Python program as its child, and a signal may reach either. A
hook holds the JVM back until the Python side has finished, whichever of the two was signalled.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import re
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from udfs.errors import StreamError
from udfs.stop_request import StopRequest

log = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.1
#: Above Spark's own hooks, which would stop the context under the batch in progress.
HOOK_PRIORITY = 1000
HOOK_SECONDS = 600
ANSWER_SECONDS = 0.3


class Lifecycle:
    """Knows whether the job was asked to stop; keeps the JVM alive until it has.

    A context manager around the whole job, on the main thread. Inside it SIGTERM sets `stopping`
    and SIGINT raises KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.stopping = StopRequest()
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
        """Make the JVM wait for this program's end before it goes down on a signal."""
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

    def boundary(self) -> None:
        """Call first in every batch: ends the query here when a stop was asked for.

        The batch before is committed by then, and nothing of this one has been sent.
        """
        if self.stopping.is_set():
            self._at_boundary = True
            raise StopAsked

    def run(self, query: StreamingQuery, finished: Callable[[], bool]) -> None:
        """Wait until the query fails, ``finished()``, or a stop is asked for.

        Raises StreamError FAILED with the reason, in our own words where it was ours.

        The query is stopped between batches: one in progress ends first, and its offsets are
        committed, so that the next start does not send it again.
        """
        while query.isActive and not self.stopping.is_set() and not finished():
            _wait(query)
        if self.stopping.is_set():
            log.warning("asked to stop: ending after the batch in progress")
        self.stopping.set()
        while query.isActive and query.status["isTriggerActive"]:
            _wait(query)
        query.stop()
        error = query.exception()
        if error is not None and not self._at_boundary:
            raise _clear(error)

    def _take_signals(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: self.stopping.set())
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _wait(query: StreamingQuery) -> None:
    # Where the query has failed this raises, and so does `query.exception` afterwards, better.
    with contextlib.suppress(StreamingQueryException):
        query.awaitTermination(POLL_SECONDS)


def _clear(error: StreamingQueryException) -> StreamError:
    """The reason of a failed query: our own line if there is one in all that Spark tells.

    Of several the last: Python tells a cause before what was made of it.
    """
    text = str(error)
    ours = re.findall(r"Error: ([A-Z][A-Z0-9]+\.[A-Z0-9_]+: .*)", text)
    reason = ours[-1] if ours else text.split("=== Streaming Query ===", maxsplit=1)[0].strip()
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
