"""The core of the stream imports no library of Spark, Delta or Kafka."""

from __future__ import annotations

import subprocess
import sys

import pytest
from paths import ROOT

pytestmark = pytest.mark.unit

LIBRARIES = ("pyspark", "py4j", "delta", "deltalake", "kafka")
#: Packages that a simulation of the stream runs, without the modules with a real implementation.
PACKAGES = {
    "jobs/adapters/checkpoint": {"hadoop_files"},
    "jobs/adapters/planning": set[str](),
    "jobs/adapters/runtime": {"spark_engine"},
    "jobs/adapters/stream": {
        "failures",
        "last_batch",
        "spark_stream",
        "running_query",
        "spark_input",
        "spark_listeners",
        "spark_watch",
        "warm_up",
        "worker_daemon",
    },
}
#: Modules of other packages that a simulation runs, and that executors import.
MODULES = (
    "jobs.adapters.app.error_lines",
    "jobs.adapters.kafka.handoffs",
    "jobs.adapters.kafka.ranges",
    "jobs.adapters.kafka.record_source",
    "jobs.adapters.kafka.slices",
    "jobs.adapters.tables.tables",
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
    in_packages = []
    for package, real_implementations in PACKAGES.items():
        modules = {path.stem for path in (ROOT / package).glob("[a-z]*.py")}
        assert real_implementations < modules or not real_implementations
        in_packages += [
            f"{package.replace('/', '.')}.{module}"
            for module in sorted(modules - real_implementations)
        ]
    command = [sys.executable, "-c", PROGRAM, *in_packages, *MODULES]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
