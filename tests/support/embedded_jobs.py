"""Jobs with a lab of their own, in the Spark session of the tests: no JVM starts for a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from waiting import still_runs

from stackcast.jobs.adapters.app import session
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings

Job = Callable[[Settings, Lifecycle], int]


class SharedSparkLifecycle(Lifecycle):
    """Lifecycle of a job in this process, which leaves its signals and its JVM alone."""

    def __enter__(self) -> Lifecycle:
        return self

    def hold_jvm(self, spark: SparkSession) -> None:
        pass


def properties(settings: Mapping[str, object]) -> list[tuple[str, str]]:
    """Returns Spark properties of settings without their common prefix."""
    return [(f"spark.stackcast.{key}", str(value)) for key, value in settings.items()]


def arguments(options: Mapping[str, object]) -> list[str]:
    """Return the command line of options of the lab."""
    return [word for key, value in options.items() for word in (f"--{key}", str(value))]


def run(
    job: Job,
    settings: Mapping[str, object],
    monkeypatch: pytest.MonkeyPatch,
    lifecycle: Lifecycle | None = None,
) -> int:
    """Run a job, which must not stop the session, and return its exit code."""
    monkeypatch.setattr(session, "stop", lambda spark: None)
    read = Settings.read([*session.properties(), *properties(settings)])
    return job(read, lifecycle or SharedSparkLifecycle())


def children(pid: int) -> set[int]:
    """Returns the process ids of the children of a process that still run."""
    lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return {int(child) for child in " ".join(lists).split() if still_runs(int(child))}
