"""The Spark session of our jobs: what they cannot do without, whatever they run under."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

#: Without these our tables and kernels do not work, so a properties file cannot forget them.
REQUIRED = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
}
#: Variable by which a worker of a standalone cluster tells the secret to a driver that it starts;
#: Spark asks such a driver for the property.
_SECRET = "_SPARK_AUTH_SECRET"


def start(name: str, others: Mapping[str, str] | None = None) -> SparkSession:
    """The session of the application ``name``; Delta is on, times are UTC. others: properties of
    this application."""
    builder = SparkSession.builder.appName(name)
    for key, value in {**(others or {}), **REQUIRED}.items():
        builder = builder.config(key, value)
    if _SECRET in os.environ:
        builder = builder.config("spark.authenticate.secret", os.environ[_SECRET])
    session: SparkSession = builder.getOrCreate()
    return session


def stop(spark: SparkSession) -> None:
    """Stop a session, after its streams and workers.

    A stream whose session stops under it fails with a long error.
    """
    with contextlib.suppress(Py4JError, OSError):
        for query in spark.streams.active:
            query.stop()
    end_workers(spark)
    spark.stop()


def end_workers(spark: SparkSession) -> None:
    """Ends the driver's Python workers, for a job that has no more tasks.

    Spark closes their sockets before it ends them: a worker that waits for a task then answers into
    the one that is closed, and prints a traceback of the pipe that broke.
    """
    with contextlib.suppress(Py4JError, OSError):
        jvm: Any = spark.sparkContext._jvm
        driver = str(jvm.java.lang.ProcessHandle.current().pid())
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                # After the name, which may have parentheses: state, parent.
                parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
                if parent == driver and b"pyspark.daemon" in (process / "cmdline").read_bytes():
                    # It takes its workers with it.
                    os.kill(int(process.name), signal.SIGTERM)


class LateSession:
    """Stands for a session that starts when something is asked of it: an application that finds its
    tables in a folder mostly does without. For any thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._session: SparkSession | None = None

    @property
    def _jvm(self) -> Any:
        """The JVM, which is there before a session is: Kafka's client needs none."""
        SparkContext._ensure_initialized()
        return SparkContext._jvm

    def __getattr__(self, name: str) -> Any:
        with self._lock:
            if self._session is None:
                self._session = start(self._name)
        return getattr(self._session, name)


def properties() -> list[tuple[str, str]]:
    """Spark properties as submitted, without starting a session."""
    # Without its JVM a SparkConf is empty, whatever spark-submit was given.
    SparkContext._ensure_initialized()
    pairs: list[tuple[str, str]] = SparkConf().getAll()
    return pairs


def runs_in_driver(master: str) -> bool:
    """Tells whether tasks run in the driver's own process.

    Executors of ``local-cluster[...]`` are processes of their own. master: ``spark.master``.
    """
    return master.partition("[")[0] == "local"


def slots(
    spark: SparkSession,
    wanted: int = 0,
    patience: float = 30.0,
    pause: float = 1.0,
    given_up: Callable[[], bool] = lambda: False,
) -> int:
    """Returns how many tasks can run at once; 0 where there is no executor.

    Executors of a cluster register after the session is there: it waits until there are ``wanted``
    slots, by default until their number stays the same for a ``pause``, and ``patience`` seconds at
    most, or until the wait is ``given_up``. Both are in seconds.
    """
    local = runs_in_driver(spark.sparkContext.master)
    deadline, before = time.monotonic() + patience, 0
    while True:
        now = _slots_now(spark)
        enough = now >= wanted if wanted else now and now == before
        if local or enough or time.monotonic() >= deadline or given_up():
            return now
        before = now
        time.sleep(pause)


def _slots_now(spark: SparkSession) -> int:
    """Not Spark's ``defaultParallelism``, which is 2 at least, with fewer slots and with none."""
    context: Any = spark.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    return int(context.maxNumConcurrentTasks(profile))
