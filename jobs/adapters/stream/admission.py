"""How much a micro-batch takes at most, in records and in bytes, and how Spark is told.

Spark's Kafka source counts records alone, and nobody knows their sizes before they are read: so the
limit of records that it plans the next batch by follows from the sizes of those before it.
"""

from __future__ import annotations

import logging
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.error_texts import one_line
from stackcast.jobs.adapters.app.settings import PREFIX
from stackcast.udfs.errors import StreamError

log = logging.getLogger(__name__)

GROWTH = 16
"""How many times the records of the batch before a batch may have: a few small ones say little of
those that come after them."""


class Admission:
    """Bounds the next batch; ``records`` is the most that it may have.

    most_records, most_bytes (of the records' values): of any batch; 0 bytes bound nothing. usual:
    bytes of a record by which the first batch is bounded.
    """

    def __init__(self, most_records: int, most_bytes: int, usual: int) -> None:
        self._most_records = most_records
        self._most_bytes = most_bytes
        self._first = self._bounded(1, usual)
        self.records = self._first

    def seen(self, records: int, size: int) -> bool:
        """Takes what a batch had, ``size`` in bytes; tells whether the limit is another now."""
        before = self.records
        if records:
            self.records = min(self._bounded(records, size), max(self._first, GROWTH * records))
        return self.records != before

    def _bounded(self, records: int, size: int) -> int:
        """Returns how many records are of ``most_bytes`` if so many have so many bytes."""
        if not self._most_bytes or not size:
            return self._most_records
        return max(1, min(self._most_records, self._most_bytes * records // size))


class RunningQuery:
    """Tells Spark of a batch while it runs, for which Spark has no public way.

    query: id of the query whose batch it is.
    """

    def __init__(self, spark: SparkSession, query: str) -> None:
        jvm: Any = spark._jvm
        self._read_limit = jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit
        self._query = spark._jsparkSession.streams().get(query)
        self._counts = True

    def limit_next(self, records: int) -> None:
        """Has Spark plan the next batch with so many records at most.

        A partition that has any gets one at least. Raises StreamError LIMIT_UNSUPPORTED where this
        version of Spark has no such limit.
        """
        try:
            execution = self._query.streamingQuery()
            limits = execution.uniqueSources()
            limits = limits.updated(limits.keys().head(), self._read_limit.maxRows(records))
            getattr(execution, "uniqueSources_$eq")(limits)
        except (Py4JError, TypeError) as error:
            raise StreamError(
                "LIMIT_UNSUPPORTED",
                "this version of Spark does not support a limit for its next batch "
                f"({one_line(error)}): set {PREFIX}maxBytesPerTrigger to 0, so that batches are "
                "limited by their number of records only",
            ) from error

    def count(self, records: int) -> None:
        """Counts records of this batch that came past Spark's source, so that its reports of
        progress have them."""
        if not self._counts:
            return
        try:
            leaves = self._query.streamingQuery().lastExecution().executedPlan().collectLeaves()
            leaves.head().metrics().apply("numOutputRows").add(records)
        except (Py4JError, TypeError) as error:
            self._counts = False
            log.warning(
                "Spark's progress reports do not contain numbers of rows: %s", one_line(error)
            )
