"""Values reach the tasks, also where Spark encrypts its files and a value has large arrays."""

from __future__ import annotations

import subprocess
import sys

import pytest
from paths import ROOT

pytestmark = pytest.mark.integration

#: A session of its own: whether Spark encrypts is decided when its JVM starts. In the first value
#: no array is larger than what pickle puts into one frame.
PROGRAM = """
import sys
import numpy as np
from pyspark.sql import SparkSession
from stackcast.jobs.adapters.runtime.spark_engine import SparkEngine

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.ui.enabled", "false")
    .config("spark.io.encryption.enabled", sys.argv[1])
    .getOrCreate()
)
for size in (10, 1_000_000):
    columns = {"numbers": np.arange(size), "columns": np.ones((size, 2)).T}
    values = SparkEngine(spark).broadcast(columns)
    task = lambda _: (int(values.value["numbers"].sum()), int(values.value["columns"].sum()))
    print(size, *spark.sparkContext.parallelize([0], 1).map(task).first())
"""


@pytest.mark.parametrize("encrypted", ["true", pytest.param("false", marks=pytest.mark.long)])
def test_tasks_get_the_value(encrypted: str) -> None:
    output = subprocess.check_output(
        [sys.executable, "-c", PROGRAM, encrypted], cwd=ROOT, text=True, timeout=300
    )
    assert output.splitlines() == ["10 45 20", "1000000 499999500000 2000000"]
