"""Waiting for a stream or a table, without keeping the Spark busy that is to do the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import Settings
from jobs.adapters.stream.delivery import BatchDelivery
from jobs.adapters.stream.kafka import Topics
from jobs.adapters.stream.micro_batches import start
from jobs.adapters.tables.tables import Tables

_KNOWN: dict[tuple[str, str], tuple[int, list[dict[str, Any]]]] = {}


def polled(tables: Tables, name: str) -> list[dict[str, Any]]:
    """As `Tables.rows`, which takes half a second, but read again only where the table changed."""
    place, version = (tables.location, name), tables.version(name)
    if place not in _KNOWN or _KNOWN[place][0] != version:
        _KNOWN[place] = version, tables.rows(name)
    return _KNOWN[place][1]


def drain(spark: SparkSession, settings: Settings, *steps: Callable[[], None]) -> BatchDelivery:
    """Run the stream until its topic is drained, then each step and drain again, then stop.

    Raises StreamError where it ends by itself.
    """
    lifecycle = Lifecycle()
    query, delivery = start(spark, settings, lifecycle)
    topics = Topics(spark, settings)
    left = list(steps)
    looked: dict[int, int] | None = None

    def drained() -> bool:
        nonlocal looked
        # Asking Kafka takes a quarter of a second.
        if delivery.processed == looked:
            return False
        looked = dict(delivery.processed)
        if any(looked.get(p, 0) < end for p, end in topics.end_offsets().items()):
            return False
        if not left:
            return True
        left.pop(0)()
        looked = None
        return False

    try:
        lifecycle.run(query, drained)
        delivery.tell_rest()
    finally:
        delivery.close()
    return delivery
