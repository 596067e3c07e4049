"""A version that is not supported, and a missing extra: one line that says what to install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from paths import ROOT

from stackcast import requirements
from stackcast.jobs.adapters.app import application
from stackcast.udfs.errors import RequirementError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("version", [(3, 11, 0), (3, 12, 5), (3, 13, 9)])
def test_these_versions_of_python_are_supported(version: tuple[int, ...]) -> None:
    requirements.check_python(version)


@pytest.mark.parametrize("version", ["3, 10, 14", "3, 14, 0"])
def test_another_python_is_one_line_with_version_and_range(version: str) -> None:
    program = f"import sys; sys.version_info = ({version}, 'final', 0); import stackcast"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert f"REQUIREMENT.PYTHON: this is Python {version.replace(', ', '.')}, but" in line
    assert "Python 3.11 or newer, below 3.14" in line


@pytest.mark.parametrize(
    ("package", "version", "requirement"),
    [
        ("pyspark", "4.1.0", "== 4.2.0"),
        ("pyspark", "4.3.0.dev1", "== 4.2.0"),
        ("pandas", "2.2.3", ">= 2.3, < 3"),
        ("pandas", "3.0.0", ">= 2.3, < 3"),
    ],
)
def test_another_spark_or_pandas_ends_a_job_with_one_line(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    package: str,
    version: str,
    requirement: str,
) -> None:
    module = ModuleType(package)
    module.__version__ = version  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, package, module)
    monkeypatch.setattr(application, "set_up", lambda: None)
    assert application.run(lambda settings, lifecycle: 0) == application.FAILED
    (record,) = caplog.records
    assert record.getMessage() == (
        f"REQUIREMENT.PACKAGE: this is {package} {version}, but Stackcast needs {package} "
        f"{requirement}: pip install '{package}{requirement.replace(' ', '')}'"
    )


def test_versions_of_this_environment_are_supported() -> None:
    requirements.check_packages()


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("""echo 'openjdk version "11.0.2" 2019-01-15' >&2""", "Java 11"),
        ("""echo 'java version "1.8.0_392"' >&2""", "Java 1"),
        ("echo broken; exit 1", "Java (unknown)"),
    ],
)
def test_another_java_is_named_with_the_range(tmp_path: Path, script: str, version: str) -> None:
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    with pytest.raises(RequirementError) as caught:
        requirements.check_java(str(java))
    assert caught.value.code == "REQUIREMENT.JAVA"
    assert f"{java} is {version}, but Stackcast needs Java 17 or newer" in str(caught.value)


@pytest.mark.integration
def test_a_job_that_starts_its_own_jvm_names_the_java(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    done = subprocess.run(
        [sys.executable, ROOT / "jobs" / "create_tables.py"],
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"REQUIREMENT.JAVA: {java} is Java 11, but Stackcast needs Java 17 or newer" in line


def test_no_java(tmp_path: Path) -> None:
    with pytest.raises(RequirementError, match=r"no program .*: install Java 17 or newer"):
        requirements.check_java(str(tmp_path / "java"))


def test_a_missing_extra_gives_the_command_of_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    requirements.require_extra("console", "jobs/console.py")
    monkeypatch.setitem(requirements.EXTRAS, "console", ("json", "no_such_package"))
    with pytest.raises(RequirementError) as caught:
        requirements.require_extra("console", "spark.stackcast.metrics.port")
    assert str(caught.value) == (
        "REQUIREMENT.MISSING_EXTRA: spark.stackcast.metrics.port needs no_such_package: "
        "pip install 'stackcast[console]'"
    )
