"""The benchmark of rules over a DataFrame compares ways that give the same results."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession

from benchmarks import dataframes

# tests/filters/test_match_rows.py protects match and matching.
pytestmark = pytest.mark.long


def test_all_ways_give_the_same_and_are_compared_with_match(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    table = dataframes.trades(spark, 1000, 2)
    frames = dataframes.ways(table, dataframes.drawn_rules())
    for frame in frames.values():
        assert frame.columns == [*table.columns, "rules", "receivers"]
    for row in frames["match"].collect():
        numbers = range(int(row.stock.removeprefix("S")), 1000, 100)
        assert row.rules == [str(n) for n in numbers if row.price > n * 9973 % 1000]
    dataframes.measure(frames, rows=1000)
    first, *lines = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["batch"] == {"rows": 1000}
    assert [line["name"] for line in lines] == [*frames] and lines[0]["ratio"] == 1
