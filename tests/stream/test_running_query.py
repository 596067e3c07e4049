"""A Spark that cannot be told of a batch: a bound fails by name, a count is left out and said."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JError

from jobs.adapters.stream.running_query import RunningQuery
from udfs.errors import StreamError

pytestmark = pytest.mark.unit


class OtherSpark:
    """A version that lacks what is asked of a running query."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_: object) -> Any:
        return self

    def streamingQuery(self) -> Any:  # noqa: N802
        raise Py4JError("method uniqueSources does not exist")


def test_a_spark_without_limits_is_told_with_the_setting_that_goes_on():
    other: Any = OtherSpark()
    with pytest.raises(StreamError, match=r"LIMIT_NOT_TAKEN: .*maxBytesPerTrigger to 0"):
        RunningQuery(other, "id").limit_next(7)


def test_a_spark_without_counters_costs_one_line_of_the_log(caplog):
    other: Any = OtherSpark()
    query = RunningQuery(other, "id")
    query.count(3)
    query.count(4)
    (told,) = caplog.records
    assert "count no rows" in told.getMessage()
