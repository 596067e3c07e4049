"""The query that operators are told to alert on finds the switches that are out of step now."""

from __future__ import annotations

import datetime as dt
import re

import pytest
from paths import ROOT
from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

GUIDE = ROOT / "docs" / "how-to" / "monitor-a-deployment.md"


def test_the_alert_on_switches_looks_at_the_newest_row_of_each_that_there_is(spark: SparkSession):
    (query,) = re.findall(r"Switches are out of sync\. \| `([^`]+)`", GUIDE.read_text())

    def row(switch: str, second: int, in_sync: bool) -> tuple[object, ...]:
        at = dt.datetime.fromtimestamp(second, dt.UTC)
        return switch, in_sync, [] if in_sync else [f"error {second}"], at

    rows = [
        row("mended", 1, False),
        row("mended", 2, True),
        row("broken", 2, False),
        row("broken", 1, True),
        row("removed", 1, False),
    ]
    columns = "switch string, in_sync boolean, errors array<string>, checked_at timestamp"
    status = spark.createDataFrame(rows, columns)
    status.createOrReplaceTempView("alert_status")
    switches = spark.createDataFrame([("mended",), ("broken",)], "switch string")
    switches.createOrReplaceTempView("alert_switches")
    query = query.replace("switch_status", "alert_status").replace(
        "FROM switches", "FROM alert_switches"
    )
    (found,) = spark.sql(query).collect()
    assert found["switch"] == "broken" and found["errors"] == ["error 2"]
