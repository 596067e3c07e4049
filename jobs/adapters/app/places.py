"""Places of files as Hadoop's configuration understands them."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app import session


def qualified(spark: SparkSession, place: str) -> str:
    """Returns a place with scheme and host where its path alone leads elsewhere than to this
    machine, as the default file system is HDFS, say; else as it is."""
    if "/" not in place or "://" in place or place.startswith("file:"):
        return place
    hadoop: Any = spark._jvm.org.apache.hadoop.fs
    configuration = session.hadoop_configuration(spark)
    if hadoop.FileSystem.getDefaultUri(configuration).getScheme() == "file":
        return place
    path = hadoop.Path(place)
    return str(path.getFileSystem(configuration).makeQualified(path).toString())
