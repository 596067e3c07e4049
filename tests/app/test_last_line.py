"""The last line of a job that fails is its own error, whatever Spark was doing."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash_world import Program

from stackcast.jobs.adapters.app import application

pytestmark = pytest.mark.integration

#: Fails while tasks run, as a stream does whose start finds an error while workers load kernels.
FAILS = """
import contextlib, sys, threading, time
from stackcast.jobs.adapters.app import application, session
from stackcast.udfs.errors import StreamError

def slow(batches):
    for batch in batches:
        time.sleep(600)
        yield batch

def work(settings, lifecycle):
    spark = session.start("failing")
    lifecycle.hold_jvm(spark)
    def run():
        with contextlib.suppress(Exception):
            spark.range(0, 2, 1, 2).mapInArrow(slow, "id long").collect()
    threading.Thread(target=run, daemon=True).start()
    tracker = spark.sparkContext.statusTracker()
    def running():
        stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
        return sum(stage.numActiveTasks for stage in stages if stage)
    while running() < 2:
        time.sleep(0.05)
    raise StreamError("FAILED", "the reason")

sys.exit(application.run(work))
"""


def test_spark_writes_nothing_after_the_error_of_a_job_nor_does_java_before_it(tmp_path: Path):
    script = tmp_path / "failing.py"
    script.write_text(FAILS)
    options = "--master local[2] --driver-memory 512m pyspark-shell"
    program = Program(tmp_path, str(script), PYSPARK_SUBMIT_ARGS=options)
    assert program.end() == application.FAILED
    (line,) = program.output.splitlines()
    assert line.endswith("ERROR   stackcast: STREAM.FAILED: the reason")
