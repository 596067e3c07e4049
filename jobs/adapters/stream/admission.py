"""How much a micro-batch takes at most, in records and in bytes.

Spark's Kafka source counts records alone, and nobody knows their sizes before they are read: so the
limit of records that it plans the next batch by follows from the sizes of those before it.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from jobs.adapters.app.settings import PREFIX
from udfs.errors import StreamError

GROWTH = 16
"""How many times the records of the batch before a batch may have: a few small ones say little of
those that come after them."""


class Admission:
    """Bounds the next batch; ``records`` is the most that it may have.

    most_records, most_bytes (of the records' values): of any batch; 0 bytes bound nothing. largest:
    bytes of the largest record that the topic takes, by which the first batch is bounded.
    """

    def __init__(self, most_records: int, most_bytes: int, largest: int) -> None:
        self._most_records = most_records
        self._most_bytes = most_bytes
        self._first = self._bounded(1, largest)
        self.records = self._first

    def seen(self, records: int, size: int) -> bool:
        """Takes what a batch had, ``size`` in bytes; tells whether the limit is another now."""
        before = self.records
        if records:
            self.records = min(self._bounded(records, size), max(self._first, GROWTH * records))
        return self.records != before

    def _bounded(self, records: int, size: int) -> int:
        """Returns how many records are of ``most_bytes`` if so many have so many bytes."""
        if not self._most_bytes:
            return self._most_records
        fitting = self._most_bytes * records // max(1, size)
        return max(1, min(self._most_records, fitting))


def limit_next(spark: SparkSession, query: str, records: int) -> None:
    """Has Spark plan the next batch of a query, by its id, with so many records at most.

    A partition that has any gets one at least. For the query's own thread. Raises StreamError
    LIMIT_NOT_TAKEN: Spark has no public way, and another version may have none.
    """
    jvm: Any = spark._jvm
    try:
        execution = spark._jsparkSession.streams().get(query).streamingQuery()
        limits = execution.uniqueSources()
        limit = jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.maxRows(records)
        getattr(execution, "uniqueSources_$eq")(limits.updated(limits.keys().head(), limit))
    except (Py4JError, TypeError) as error:
        raise StreamError(
            "LIMIT_NOT_TAKEN",
            f"this version of Spark takes no limit for its next batch ({error}): set "
            f"{PREFIX}maxBytesPerTrigger to 0, and batches are bounded by their records alone",
        ) from error
