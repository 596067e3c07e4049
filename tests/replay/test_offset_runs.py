"""Offsets as runs: as many numbers as there are gaps, not as there are records."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.replay.offset_runs import offset_runs

pytestmark = pytest.mark.unit

RECORDS = st.sets(st.tuples(st.integers(0, 2), st.integers(0, 40))).map(sorted)


@given(RECORDS, st.integers(1, 9))
def test_runs_are_the_offsets_that_are_there_and_no_others(
    records: list[tuple[int, int]], rows: int
) -> None:
    batches = [
        pa.RecordBatch.from_arrays(
            [
                pa.array([p for p, _ in part], pa.int32()),
                pa.array([o for _, o in part], pa.int64()),
            ],
            names=["partition", "offset"],
        )
        for part in (records[at : at + rows] for at in range(0, len(records), rows))
    ]
    runs = [tuple(row.values()) for batch in offset_runs(batches) for row in batch.to_pylist()]
    assert [(p, o) for p, start, until in runs for o in range(start, until)] == records
    # None could be joined with the next, but for the ends of batches.
    joined = sum(a[0] == b[0] and a[2] == b[1] for a, b in itertools.pairwise(runs))
    assert joined < max(1, len(batches))
