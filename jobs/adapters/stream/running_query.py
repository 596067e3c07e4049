"""Corrections of a running ``StreamingQuery``, for which Spark has no public methods."""

from __future__ import annotations

import logging
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.settings import PREFIX
from stackcast.udfs.errors import StreamError

log = logging.getLogger(__name__)


class RunningQuery:
    """Informs Spark about a batch in progress; see `micro_batches.BatchQuery`.

    Args:
        spark: session that runs the query.
        query: id of the query.
        bypassed: whether tasks fetch the records, so that Spark's source does not count them.
    """

    def __init__(self, spark: SparkSession, query: str, bypassed: bool) -> None:
        jvm: Any = spark._jvm
        self._read_limit = jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit
        self._query = spark._jsparkSession.streams().get(query)
        self._counts = bypassed

    def limit_next(self, records: int) -> None:
        """Set the maximum records of the next batch. A partition with records gets at least one.

        Raises:
            StreamError: LIMIT_UNSUPPORTED if this version of Spark has no such limit.
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
        """Add records that Spark's source has not counted to the progress report of this batch."""
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
