"""Monitoring of a stream that runs on a Spark session."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.places import qualified
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.checkpoint.hadoop_files import open_folder
from stackcast.jobs.adapters.checkpoint.progress import position
from stackcast.jobs.adapters.stream.watch import StreamWatch, WatchedTopic
from stackcast.jobs.adapters.tables.open_tables import open_tables


def watch_stream(
    spark: SparkSession,
    settings: Settings,
    topic: WatchedTopic,
    standstill: Callable[[], float] = lambda: 0.0,
) -> StreamWatch:
    """Return the monitoring of a stream; see `StreamWatch`."""
    places = {
        "tables": open_tables(spark, settings.tables).location,
        "checkpoint": qualified(spark, settings.checkpoint),
    }
    if settings.sink == "pcap":
        places["sink"] = settings.pcap_path
    start = partial(checkpoint_offsets, spark, settings)
    return StreamWatch(settings, topic, places, start, standstill)


def checkpoint_offsets(spark: SparkSession, settings: Settings) -> dict[int, int]:
    """Return, by partition, the offsets at which a checkpoint continues; empty if it is new."""
    stored = position(open_folder(spark, settings.checkpoint))
    return stored.offsets if stored is not None and stored.topic == settings.topic else {}
