"""Broadcasts of Spark, also where Spark encrypts them."""

from __future__ import annotations

import pickle
from typing import Any

from pyspark import Broadcast, SparkContext
from pyspark.sql import SparkSession


class _Packed:
    """A value that is pickled as a call of ``pickle.loads``, so a task gets the value itself."""

    def __init__(self, value: Any) -> None:
        self._pickled = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._pickled,)


def broadcast(spark: SparkSession, value: Any) -> Broadcast[Any]:
    """Send a value to all executors once.

    If Spark encrypts its files, pyspark writes a broadcast in chunks, and fails on buffers such as
    those of large numpy arrays. Bytes do not have this fault.

    Args:
        spark: the session.
        value: what tasks get; in an encrypted broadcast, the driver cannot read it from the handle.
    """
    context: SparkContext = spark.sparkContext
    encrypted = getattr(context, "_encryption_enabled", False)
    return context.broadcast(_Packed(value) if encrypted else value)
