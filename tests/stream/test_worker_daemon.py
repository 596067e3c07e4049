"""New Python workers of Spark already contain the modules and kernels of tasks."""

from __future__ import annotations

import gc
import socket
import sys
from typing import BinaryIO

import pytest
from pyspark import daemon, worker
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.runtime.spark_engine import SparkEngine
from stackcast.jobs.adapters.stream import worker_daemon

pytestmark = pytest.mark.integration


def test_a_new_worker_contains_the_modules_of_tasks_and_excludes_them_from_garbage_collection(
    spark: SparkSession,
) -> None:
    def loaded(_: int) -> tuple[bool, int]:
        return "stackcast.jobs.adapters.stream.tasks" in sys.modules, gc.get_freeze_count()

    for has_modules, frozen in SparkEngine(spark).run(loaded, 2):
        assert has_modules
        assert frozen > 50_000


def test_the_settings_name_this_daemon(spark: SparkSession) -> None:
    assert spark.conf.get("spark.python.daemon.module") == worker_daemon.__name__


def test_a_worker_whose_connection_spark_has_closed_ends_without_a_traceback(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Spark sets this variable.
    monkeypatch.setenv("PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE", "1")
    worker_end, spark_end = socket.socketpair()

    def answer(_: BinaryIO, output: BinaryIO) -> None:
        output.write(b"results")
        spark_end.close()

    monkeypatch.setattr(worker, "main", answer)
    with pytest.raises(BrokenPipeError):
        daemon.worker(worker_end, True)
    worker_end, spark_end = socket.socketpair()
    assert worker_daemon.quiet(daemon.worker)(worker_end, True) == 1
    assert "Traceback" not in capfd.readouterr().err
