"""The core of the stream imports no library of Spark, Delta or Kafka."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.unit

LIBRARIES = ("pyspark", "py4j", "delta", "deltalake", "kafka")
#: Modules that a simulation of the stream runs, and that executors import.
MODULES = (
    "jobs.adapters.kafka.handoffs",
    "jobs.adapters.kafka.ranges",
    "jobs.adapters.kafka.record_source",
    "jobs.adapters.kafka.slices",
    "jobs.adapters.runtime.clock",
    "jobs.adapters.runtime.engine",
    "jobs.adapters.runtime.threads",
    "jobs.adapters.stream.input",
    "jobs.adapters.stream.summary_schedule",
    "jobs.adapters.stream.tasks",
    "udfs.delivery.deliver",
    "udfs.delivery.summary_progress",
)
PROGRAM = f"""
import importlib, sys
for module in sys.argv[1:]:
    importlib.import_module(f"stackcast.{{module}}")
    loaded = [name for name in {LIBRARIES} if name in sys.modules]
    if loaded:
        sys.exit(f"{{module}} imports {{loaded}}")
"""


def test_modules_of_the_core_import_no_library_of_an_external_system() -> None:
    command = [sys.executable, "-c", PROGRAM, *MODULES]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
