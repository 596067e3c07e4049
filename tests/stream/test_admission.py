"""Limits of micro-batches in records and bytes, and versions of Spark without such limits."""

from __future__ import annotations

from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JError

from stackcast.jobs.adapters.stream.admission import GROWTH, Admission
from stackcast.jobs.adapters.stream.running_query import RunningQuery
from stackcast.udfs.errors import StreamError

pytestmark = pytest.mark.unit

USUAL = 1 << 20


@examples(200)
@given(
    most_records=st.integers(1, 100_000),
    most_bytes=st.integers(1, 1 << 40),
    batches=st.lists(st.tuples(st.integers(0, 50_000), st.integers(0, USUAL)), max_size=8),
)
def test_the_next_batch_is_as_large_as_earlier_batches_permit(most_records, most_bytes, batches):
    admission = Admission(most_records, most_bytes, USUAL)
    first = admission.records
    assert first == 1 or first * USUAL <= most_bytes
    for records, record_bytes in batches:
        before = admission.records
        batch = min(records, before)
        changed = admission.adapt(batch, batch * record_bytes)
        limit = admission.records
        assert changed == (limit != before)
        assert 1 <= limit <= most_records
        if batch:
            assert limit == 1 or limit * record_bytes <= most_bytes
            assert limit <= max(first, GROWTH * batch)
            # The limit is not smaller than necessary.
            assert (
                limit in (most_records, max(first, GROWTH * batch))
                or (limit + 1) * record_bytes > most_bytes
            )
        else:
            assert limit == before


def test_without_a_limit_of_bytes_every_batch_may_have_the_maximum_of_records():
    admission = Admission(70, 0, USUAL)
    assert admission.records == 70
    assert not admission.adapt(3, 1 << 50)
    assert admission.records == 70


class OtherSpark:
    """A version of Spark without the methods of a running query."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_: object) -> Any:
        return self

    def streamingQuery(self) -> Any:  # noqa: N802
        raise Py4JError("method uniqueSources does not exist")


def test_without_limits_in_spark_the_error_names_the_setting_to_change():
    spark: Any = OtherSpark()
    with pytest.raises(StreamError, match=r"LIMIT_UNSUPPORTED: .*maxBytesPerTrigger to 0"):
        RunningQuery(spark, "id", bypassed=True).limit_next(7)


def test_without_counters_in_spark_the_log_has_one_warning(caplog):
    spark: Any = OtherSpark()
    query = RunningQuery(spark, "id", bypassed=True)
    query.count(3)
    query.count(4)
    (message,) = caplog.messages
    assert "do not contain numbers of rows" in message


def test_records_that_spark_counts_are_not_added_again(caplog):
    spark: Any = OtherSpark()
    RunningQuery(spark, "id", bypassed=False).count(3)
    assert not caplog.messages
