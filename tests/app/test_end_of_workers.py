"""Workers that wait for a task are gone before Spark closes their sockets."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
import pytest
from still_runs import still_runs
from waiting import until

from jobs.adapters.app.session import end_workers

pytestmark = pytest.mark.integration


def processes(spark) -> set[int]:
    """Of the workers, by what two tasks say."""

    def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch({"id": pa.array([os.getpid()] * batch.num_rows, pa.int64())})

    return {row.id for row in spark.range(0, 2, 1, 2).mapInArrow(tell, "id long").collect()}


def test_workers_that_wait_end_and_others_begin_where_there_is_work_again(spark):
    before = processes(spark)
    assert all(map(still_runs, before))
    end_workers(spark)
    until(lambda: not any(map(still_runs, before)), seconds=10)
    assert not before & processes(spark)
