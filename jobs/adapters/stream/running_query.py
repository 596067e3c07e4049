"""What a batch tells Spark of itself while it runs, for which Spark has no public way."""

from __future__ import annotations

import logging
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from jobs.adapters.app.error_texts import one_line
from jobs.adapters.app.settings import PREFIX
from udfs.errors import StreamError

log = logging.getLogger(__name__)


class RunningQuery:
    """A query that runs, by its id: for the function that it calls with each batch."""

    def __init__(self, spark: SparkSession, query: str) -> None:
        jvm: Any = spark._jvm
        self._read_limit = jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit
        self._query = spark._jsparkSession.streams().get(query)
        self._counts = True

    def limit_next(self, records: int) -> None:
        """Has Spark plan the next batch with so many records at most.

        A partition that has any gets one at least. Raises StreamError LIMIT_NOT_TAKEN where this
        version of Spark has no such limit.
        """
        try:
            execution = self._query.streamingQuery()
            limits = execution.uniqueSources()
            limits = limits.updated(limits.keys().head(), self._read_limit.maxRows(records))
            getattr(execution, "uniqueSources_$eq")(limits)
        except (Py4JError, TypeError) as error:
            raise StreamError(
                "LIMIT_NOT_TAKEN",
                f"this version of Spark takes no limit for its next batch ({one_line(error)}): "
                f"set {PREFIX}maxBytesPerTrigger to 0, and only records bound a batch",
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
            log.warning("Spark's reports of progress count no rows: %s", one_line(error))
