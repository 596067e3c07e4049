"""The Spark session of our jobs: what they cannot do without, whatever they run under."""

from __future__ import annotations

import os
import time
from typing import Any

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


def start(name: str) -> SparkSession:
    """The session of the application ``name``; Delta is on, times are UTC."""
    builder = SparkSession.builder.appName(name)
    for key, value in REQUIRED.items():
        builder = builder.config(key, value)
    if _SECRET in os.environ:
        builder = builder.config("spark.authenticate.secret", os.environ[_SECRET])
    session: SparkSession = builder.getOrCreate()
    return session


def properties() -> list[tuple[str, str]]:
    """Spark properties as submitted, without starting a session."""
    # Without its JVM a SparkConf is empty, whatever spark-submit was given.
    SparkContext._ensure_initialized()
    pairs: list[tuple[str, str]] = SparkConf().getAll()
    return pairs


def slots(spark: SparkSession, wanted: int = 0, patience: float = 30.0, pause: float = 1.0) -> int:
    """Returns how many tasks can run at once.

    Executors of a cluster register after the session is there: it waits until there are ``wanted``
    slots, by default until their number stays the same for a ``pause``, and ``patience`` seconds at
    most. Both are in seconds.
    """
    context: Any = spark.sparkContext
    if context.master.startswith("local"):
        return int(context.defaultParallelism)
    deadline, before = time.monotonic() + patience, 0
    while time.monotonic() < deadline:
        # The driver is among them.
        registered = int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1
        now = int(context.defaultParallelism) if registered else 0
        enough = now >= wanted if wanted else now == before
        if now and enough:
            return now
        before = now
        time.sleep(pause)
    return int(context.defaultParallelism)
