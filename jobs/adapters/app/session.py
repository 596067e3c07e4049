"""The Spark session of our jobs: what they cannot do without, whatever they run under."""

from __future__ import annotations

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

#: Without these our tables and kernels do not work, so a properties file cannot forget them.
REQUIRED = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
}


def start(name: str) -> SparkSession:
    """The session of the application ``name``; Delta is on, times are UTC."""
    builder = SparkSession.builder.appName(name)
    for key, value in REQUIRED.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session


def properties() -> list[tuple[str, str]]:
    """Spark properties as submitted, without starting a session."""
    # Without its JVM a SparkConf is empty, whatever spark-submit was given.
    SparkContext._ensure_initialized()
    pairs: list[tuple[str, str]] = SparkConf().getAll()
    return pairs
