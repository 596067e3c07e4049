"""Tasks of a stream and tasks that prepare its workers run in the same Python processes."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.runtime.spark_engine import SparkEngine

pytestmark = pytest.mark.integration


def test_tasks_of_sql_and_of_rdds_have_workers_of_one_daemon(spark: SparkSession):
    def daemons(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"id": [os.getppid()] * batch.num_rows})

    of_sql = spark.range(0, 2, 1, 2).mapInArrow(daemons, "id long").collect()
    assert {row.id for row in of_sql} == set(SparkEngine(spark).run(lambda _: os.getppid(), 2))
