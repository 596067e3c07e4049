"""A run takes the tests of its tiers, and its last line counts the others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiers
from paths import SUPPORT

pytestmark = pytest.mark.integration

CONFTEST = """
import examples, memory, processes, progress, pytest, tiers

pytest_cmdline_main = processes.pytest_cmdline_main
pytest_xdist_make_scheduler = processes.pytest_xdist_make_scheduler
pytest_sessionfinish = tiers.send_to_controller
pytest_ignore_collect = tiers.pytest_ignore_collect
no_servers = tiers.no_servers
pytest_addoption = tiers.add_options

@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    for part in (tiers, examples, memory, progress):
        part.configure(config)

def pytest_collection_modifyitems(config, items):
    tiers.select(config, items)
"""
MIXED = """
import socket
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.unit

def test_plain(): pass

@pytest.mark.parametrize("step", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.unit
def test_steps(step): pass

@pytest.mark.integration
def test_server():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))

@given(st.integers())
def test_property(number): pass

@pytest.mark.p4c
def test_compiler(): pass
"""
LONG = """
import pytest

pytestmark = pytest.mark.long

def test_first(): pass
def test_second(): pytest.skip("no hardware")
"""
#: A file whose name is in `processes.DIVIDED`.
DIVIDED = """
import pytest

pytestmark = pytest.mark.long

def test_third(): pass
def test_fourth(): pass
"""
#: Neither the variables of these tests' own run nor its options may reach the inner run.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}


def run(folder: Path, *arguments: str) -> tuple[set[str], str, int]:
    """Returns the names of the tests that passed, the last line, and the exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=ENVIRONMENT | {"PYTHONPATH": str(SUPPORT)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    passed = {line.partition("::")[2] for line in lines if line.startswith("PASSED ")}
    printed = [line for line in lines + done.stderr.splitlines() if line]
    return passed, printed[-1], done.returncode


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiers")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_mixed.py").write_text(MIXED)
    (folder / "test_length.py").write_text(LONG)
    (folder / "test_kills.py").write_text(DIVIDED)
    return folder


PLAIN = {"test_plain", "test_steps[1]", "test_property"}
LONG_TESTS = {"test_steps[2]", "test_first", "test_third", "test_fourth"}
EVERYTHING = {*PLAIN, *LONG_TESTS, "test_server"}


@pytest.mark.parametrize(
    ("arguments", "expected", "line"),
    [
        (
            (),
            {*PLAIN, "test_server"},
            "5 tests of the long tier (test --all adds them), 1 that need",
        ),
        (("-m", "unit"), PLAIN, "0 tests of the long tier"),
        (("--all",), EVERYTHING, "0 tests of the long tier"),
        (("--all", "-n", "2"), EVERYTHING, "skipped: 1."),
    ],
    ids=["plain", "unit", "all", "all, two processes"],
)
def test_a_run_takes_its_tiers_and_counts_the_others(
    folder: Path, arguments: tuple[str, ...], expected: set[str], line: str
) -> None:
    passed, last, code = run(folder, "-n", "0", *arguments)
    assert (passed, code) == (expected, 0)
    assert last.startswith("Left out: ") and line in last
    assert "1 that need p4c (--p4c)" in last


@pytest.mark.long
def test_the_parts_together_run_what_all_adds_each_in_one_part(folder: Path) -> None:
    passed = [run(folder, "-n", "0", "--part", str(part))[0] for part in range(tiers.PARTS)]
    assert sorted(name for names in passed for name in names) == sorted(
        [*LONG_TESTS, "test_property"]
    )
    # No part takes two tests of a file that is divided.
    assert not any({"test_third", "test_fourth"} <= names for names in passed)


def test_several_processes_run_the_same_part_as_one(folder: Path) -> None:
    """pytest-xdist hands the options of a run to its processes as they were typed."""
    # The files that take longest are assigned first.
    assert run(folder, "-n", "2", "--part", "0")[0] == {"test_fourth"}


@pytest.mark.parametrize("text", ["12", "-1", "x"])
def test_a_part_that_does_not_exist_is_an_error_that_names_the_range(
    folder: Path, text: str
) -> None:
    _, last, code = run(folder, f"--part={text}")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert f"--part {text}: expected a number from 0 to 11, or 'commit'" in last


def test_a_test_without_a_tier_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_none.py").write_text("def test_it(): pass\n")
    _, last, code = run(tmp_path, "-n", "0")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "test_none.py::test_it has no tier" in last


def test_a_unit_test_that_opens_a_server_fails(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_server.py").write_text(MIXED.replace("@pytest.mark.integration", ""))
    passed, _, code = run(tmp_path, "-n", "0")
    assert "test_server" not in passed and "test_plain" in passed
    assert code == pytest.ExitCode.TESTS_FAILED


def test_a_soak_takes_only_its_file_and_enough_time(tmp_path: Path):
    soak = tmp_path / tiers.SOAK
    soak.parent.mkdir(parents=True)
    soak.write_text(LONG)
    for name, text in (("conftest.py", CONFTEST), ("test_mixed.py", MIXED), ("pytest.ini", "")):
        (tmp_path / name).write_text(text)
    passed, line, code = run(tmp_path, "--soak", "2")
    assert (passed, code) == ({"test_first"}, 0) and "skipped: 1" in line
    _, line, code = run(tmp_path, "--soak", "1")
    assert code == pytest.ExitCode.USAGE_ERROR and "expected at least 2 minutes" in line
    assert (Path(__file__).parents[2] / tiers.SOAK).is_file()
