"""Commands that read settings of a deployment report errors before they start a JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stackcast.cli.main import app
from stackcast.cli.spark_properties import start_with
from stackcast.udfs.errors import SettingsError

SPARK = (("explain", "--sequence", "1", "--partition", "0"), ("states", "show"))
SPARK += (("switch", "shell", "s1"),)
KAFKA = (
    ("itch", "publish", "--generate", "1"),
    ("attributes", "publish", "--sensors", "1", "--topic", "t"),
    ("states", "controller", "--address", "10.0.0.1"),
)


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    # No command may find the JVM of another test.
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)


def error(*words: str) -> str:
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, SettingsError), result.output
    return str(result.exception)


@pytest.mark.unit
@pytest.mark.parametrize("command", (*SPARK, *KAFKA), ids=lambda words: "-".join(words[:2]))
def test_an_unreadable_properties_file_is_one_line_with_its_name(
    command: tuple[str, ...], tmp_path: Path
):
    for path, reason in ((tmp_path / "none.conf", "no such file"), (tmp_path, "is a directory")):
        message = error(*command, "--properties-file", str(path))
        assert message.startswith("SETTINGS.UNREADABLE_FILE: properties file")
        assert str(path) in message and reason in message and "\n" not in message


@pytest.mark.unit
@pytest.mark.parametrize("command", SPARK, ids=lambda words: words[0])
def test_settings_of_the_file_are_checked(command: tuple[str, ...], tmp_path: Path):
    file = tmp_path / "mine.conf"
    file.write_text("spark.stackcast.topc trades\n")
    assert "did you mean spark.stackcast.topic?" in error(*command, "--properties-file", str(file))


@pytest.mark.unit
def test_spark_reads_the_file_when_it_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    file = tmp_path / "my own.conf"
    file.write_text("spark.stackcast.topic trades\n")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "")
    start_with(file)
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == f"--properties-file '{file}' pyspark-shell"


@pytest.mark.integration
@pytest.mark.parametrize("command", SPARK, ids=lambda words: words[0])
def test_without_java_a_command_prints_one_line(command: tuple[str, ...]):
    program = [sys.executable, "-m", "stackcast.cli.main", *command]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("REQUIREMENT.JAVA: there is no program 'java': install Java 17 or newer")
