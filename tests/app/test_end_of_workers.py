"""Python workers that wait for a task end before Spark closes their sockets."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
import pytest
from waiting import still_runs, until

from stackcast.jobs.adapters.app.session import end_workers

pytestmark = pytest.mark.integration


def processes(spark) -> set[int]:
    """Returns the process ids of the workers, as two tasks report them."""

    def report(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch({"id": pa.array([os.getpid()] * batch.num_rows, pa.int64())})

    return {row.id for row in spark.range(0, 2, 1, 2).mapInArrow(report, "id long").collect()}


@pytest.mark.long
def test_workers_that_wait_end_and_new_ones_start_for_new_tasks(spark):
    before = processes(spark)
    assert all(map(still_runs, before))
    end_workers(spark)
    until(lambda: not any(map(still_runs, before)))
    assert not before & processes(spark)
