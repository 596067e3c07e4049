"""The first command of the README: what is missing is one clear line, what is there is not redone.

Every run has a PATH, a HOME and a folder for the environment of its own; the real one is never
written.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
#: Where the environment of these tests is (see spark-submit.sh).
REAL_VAR = Path(os.environ.get("STACKCAST_VAR") or ROOT / "var")
PYTHON = str(Path(sys.base_prefix) / "bin" / "python3")
TOOLS = "awk bash cat cksum cp dirname env flock grep head ls mkdir rm sed tee tr uname"

JAVA_17 = """echo 'openjdk version "17.0.9" 2023-10-17' >&2"""
ROOMY = "echo 'Filesystem 1024-blocks Used Available'; echo 'disk 99999999 1 99999998 1% /'"


class Machine:
    """A machine with the tools every Unix has, and what a test puts in ``bin``."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.var = folder / "var"
        self.home = folder / "home"
        self.bin.mkdir()
        self.home.mkdir()
        for tool in TOOLS.split():
            found = shutil.which(tool)
            if found:
                (self.bin / tool).symlink_to(found)

    def program(self, name: str, script: str) -> Path:
        """A fake program on the PATH."""
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!{shutil.which('sh')}\n{script}\n")
        path.chmod(0o755)
        return path

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        # From scratch, so that nothing of this machine's set-up helps.
        fresh = {"PATH": str(self.bin), "HOME": str(self.home), "STACKCAST_VAR": str(self.var)}
        return subprocess.run(
            [self.bin / "bash", ROOT / "spark-submit.sh", *arguments],
            env=fresh | environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine that has all it needs but a network and an environment."""
    made = Machine(tmp_path)
    made.program("java", JAVA_17)
    made.program("df", ROOMY)
    return made


@pytest.fixture(scope="module")
def nowhere() -> str:
    """A port of this machine where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def last_line(done: subprocess.CompletedProcess[str], lines: int = 1) -> str:
    """The line that says what is wrong; there is no more than that, after ``lines`` of progress."""
    assert done.returncode != 0 and done.stdout == ""
    said = done.stderr.splitlines()
    assert len(said) == lines, done.stderr
    assert all(line.startswith("stackcast: ") for line in said)
    return said[-1]


def test_no_java(machine: Machine):
    (machine.bin / "java").unlink()
    line = last_line(machine.run("jobs/itch_stream.py"))
    assert "Java was not found" in line and "JAVA_HOME" in line
    assert not machine.var.exists()


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ("""echo 'openjdk version "11.0.2" 2019-01-15' >&2""", "version 11"),
        ("""echo 'java version "1.8.0_392"' >&2""", "version 1"),
        ("echo 'Error: could not load libjvm' >&2; exit 1", "version unknown"),
    ],
)
def test_a_java_that_is_too_old_or_broken(machine: Machine, says: str, version: str):
    java = machine.program("java", says)
    line = last_line(machine.run("test"))
    assert "Java 17 or newer is needed" in line and f"{java} is {version}" in line


def test_java_home_without_a_java(machine: Machine):
    line = last_line(machine.run("env", JAVA_HOME="/nowhere/jdk"))
    assert "JAVA_HOME=/nowhere/jdk has no bin/java" in line


def test_the_java_of_java_home_is_asked_first(machine: Machine, tmp_path: Path):
    machine.program("java", "exit 1")
    (tmp_path / "jdk" / "bin").mkdir(parents=True)
    machine.program("java17", JAVA_17).rename(tmp_path / "jdk" / "bin" / "java")
    line = last_line(machine.run("env", JAVA_HOME=str(tmp_path / "jdk"), PYTHON="/nowhere/python"))
    assert "PYTHON=/nowhere/python" in line


def test_no_python(machine: Machine):
    machine.program("python3", "echo Python 3.9.2; exit 1")
    line = last_line(machine.run("env"))
    assert "Python 3.11, 3.12 or 3.13 was not found (python3: Python 3.9.2)" in line


def test_a_python_that_does_not_suit(machine: Machine):
    fake = machine.program("python-of-old", "exit 1")
    assert f"PYTHON={fake} is not a Python 3.11" in last_line(machine.run("env", PYTHON=str(fake)))


def test_a_python_without_its_venv_module(machine: Machine):
    fake = machine.program(
        "python3", '[ "$1" != -m ] || { echo no ensurepip; exit 1; }; echo Python 3.11.0'
    )
    line = last_line(machine.run("env", PYTHON=str(fake)), lines=2)
    assert "cannot make a virtual environment" in line and "python3-venv" in line
    assert (machine.var / "log" / "venv.log").read_text() == "no ensurepip\n"


def test_a_folder_that_cannot_be_made(machine: Machine):
    line = last_line(machine.run("env", STACKCAST_VAR="/proc/stackcast"))
    assert "/proc/stackcast cannot be made" in line and "STACKCAST_VAR" in line


def test_too_little_disk(machine: Machine):
    machine.program("df", ROOMY.replace("99999998", "20480"))
    line = last_line(machine.run("env"))
    assert f"{machine.var} has 20 MB free" in line and "STACKCAST_VAR" in line


def test_no_network(machine: Machine, nowhere: str):
    begin = time.monotonic()
    index = f"http://{nowhere}/simple"
    done = machine.run("env", PYTHON=PYTHON, PIP_INDEX_URL=index, PIP_RETRIES="0")
    line = last_line(done, lines=3)
    assert "Python packages could not be fetched" in line and "network" in line
    assert str(machine.var / "log" / "pip-runtime.log") in line
    assert time.monotonic() - begin < 60
    # What is half done does not pass for done.
    assert not list(machine.var.glob(".done-*"))


@pytest.mark.parametrize("arguments", [[], ["bench"], ["bench", "nonsense"], ["bench", "../x"]])
def test_nothing_to_run(machine: Machine, arguments: list[str]):
    line = last_line(machine.run(*arguments))
    assert ("jobs/itch_stream.py" in line) if not arguments else ("there is no benchmark" in line)
    assert not machine.var.exists()


def test_help_names_every_way_to_start(machine: Machine):
    done = machine.run("--help")
    assert done.returncode == 0 and done.stderr == ""
    for word in ("jobs/itch_stream.py", "test", "bench NAME", "env", "STACKCAST_VAR"):
        assert word in done.stdout


@pytest.fixture
def ready(machine: Machine) -> Machine:
    """The machine with the real environment, by links that a set-up could only unlink."""
    marks = list(REAL_VAR.glob(".done-*"))
    if len(marks) < 2:
        pytest.skip("these tests do not run in an environment of spark-submit.sh")
    machine.var.mkdir()
    for name in ("env", "jars"):
        (machine.var / name).symlink_to(REAL_VAR / name)
    for mark in marks:
        shutil.copy(mark, machine.var)
    return machine


def test_a_second_start_does_no_set_up_and_needs_no_network(ready: Machine, nowhere: str):
    proxy = f"http://{nowhere}"
    before = sorted(path.name for path in ready.var.iterdir())
    begin = time.monotonic()
    done = ready.run("env", PIP_INDEX_URL=proxy, http_proxy=proxy, https_proxy=proxy)
    assert time.monotonic() - begin < 10
    assert done.returncode == 0 and done.stderr == ""
    assert sorted(path.name for path in ready.var.iterdir()) == before
    exported = dict(line.removeprefix("export ").split("=", 1) for line in done.stdout.splitlines())
    assert exported["STACKCAST_HOME"] == str(ROOT)
    assert exported["PYSPARK_PYTHON"] == f"{ready.var}/env/bin/python"
    assert exported["PATH"] == f"{ready.var}/env/bin:{ready.bin}"
    assert (Path(exported["SPARK_HOME"]) / "bin" / "spark-submit").is_file()


def test_a_folder_may_be_given_relative_to_where_one_stands(ready: Machine):
    done = ready.run("env", STACKCAST_VAR="../var")
    assert done.returncode == 0 and done.stderr == ""
    assert f"export PYSPARK_PYTHON={ready.home}/../var/env/bin/python\n" in done.stdout


def test_no_network_for_the_jars(ready: Machine, nowhere: str):
    java = shutil.which("java")
    if java is None:
        pytest.skip("needs a Java")
    host, port = nowhere.split(":")
    ready.program("java", f'exec {java} "$@"')
    (ready.var / ".done-jars").unlink()
    (ready.var / "jars").unlink()
    proxy = f"-Dhttp.proxyHost={host} -Dhttp.proxyPort={port} "
    proxy += proxy.replace("http", "https")
    line = last_line(ready.run("env", JDK_JAVA_OPTIONS=proxy), lines=2)
    assert "jars could not be fetched" in line and str(ready.var / "log" / "ivy.log") in line
    assert not (ready.var / ".done-jars").exists()
