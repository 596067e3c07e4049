"""The tests share the machine: on how many processes, which files together, which first."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import processes
import pytest
from paths import SUPPORT, TESTS

pytestmark = pytest.mark.server

EXAMPLE = """
import os
import pathlib
import pytest

@pytest.mark.parametrize("number", range(3))
def test_who_runs_it(number):
    with pathlib.Path(__file__).with_suffix(".workers").open("a") as file:
        file.write(os.environ.get("PYTEST_XDIST_WORKER", "none") + " ")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("test_one", "test_two", "test_three"):
        (tmp_path / f"{name}.py").write_text(EXAMPLE)
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Not what the process of these tests has been told by the one that started it.
    here = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "processes", "-p", "progress", *arguments],
        cwd=folder,
        env=here | {"PYTHONPATH": str(SUPPORT)},
        capture_output=True,
        text=True,
        check=False,
    )


def workers(folder: Path, *arguments: str) -> tuple[dict[str, list[str]], str]:
    """By file, who ran its tests, where pytest is asked for so much; and what it printed."""
    done = run(folder, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    ran = {path.stem: path.read_text().split() for path in folder.glob("*.workers")}
    return ran, done.stdout


@pytest.mark.parametrize(
    ("asked", "number"), [((), 3), (("test_one.py", "test_two.py"), 2), (("-n", "2"), 2)], ids=str
)
def test_several_files_run_on_processes_and_each_file_on_one(
    folder: Path, asked: tuple[str, ...], number: int
) -> None:
    found, printed = workers(folder, *asked)
    assert printed.count(" %]") == len(found)
    assert all(len(ran) == 3 and len(set(ran)) == 1 for ran in found.values())
    ran = {name for each in found.values() for name in each}
    assert len(ran) == number and "none" not in ran


@pytest.mark.parametrize(
    "asked",
    [("test_one.py",), ("test_one.py::test_who_runs_it[0]",), ("-k", "1"), ("-n", "0"), ("-s",)],
    ids=str,
)
def test_one_file_chosen_tests_and_who_says_so_run_in_one_process(
    folder: Path, asked: tuple[str, ...]
) -> None:
    found, printed = workers(folder, *asked)
    assert " %]" not in printed
    assert {name for ran in found.values() for name in ran} == {"none"}


def test_each_file_that_ends_has_a_line_that_says_how_far_the_run_is(folder: Path) -> None:
    (folder / "test_two.py").write_text("def test_that(): pass\ndef test_wrong(): assert False\n")
    (folder / "test_three.py").write_text("import pytest\n\ndef test_it(): pytest.skip('no')\n")
    done = run(folder)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    ended = [line for line in lines if re.match(r"\[[ 0-9]{3} %\] ", line)]
    assert [line[:7] for line in ended] == ["[ 33 %]", "[ 67 %]", "[100 %]"]
    assert [re.search(r"\((\d) of 3 files", line)[1] for line in ended] == ["1", "2", "3"]
    assert {re.search(r"(test_\w+)\.py: (.+) in \d+ s", line).groups() for line in ended} == {
        ("test_one", "3 passed"),
        ("test_two", "1 failed, 1 passed"),
        ("test_three", "1 skipped"),
    }
    assert "        test_two.py::test_wrong" in lines
    assert "FAILED test_two.py::test_wrong - assert False" in lines
    assert re.fullmatch("=+ 1 failed, 4 passed, 1 skipped in .*s =+", lines[-1])


def test_what_takes_long_comes_first_and_files_stay_whole() -> None:
    marks = {
        "test_arbitration": "unit",
        "test_alerts": "integration",
        "test_embedded": "integration",
    }
    marks |= {"test_house": "unit", "test_itch_stream": "integration"}
    items = [
        SimpleNamespace(path=f"{name}.py", number=n, get_closest_marker={mark: True}.get)
        for name, mark in marks.items()
        for n in range(3)
    ]
    processes.slowest_first(items)  # type: ignore[arg-type]
    first = ["test_embedded", "test_itch_stream", "test_alerts"]
    assert [(item.path, item.number) for item in items] == [
        (f"{name}.py", n) for name in (*first, "test_arbitration", "test_house") for n in range(3)
    ]


def test_files_that_are_said_to_take_long_are_there() -> None:
    there = {path.stem for path in TESTS.rglob("test_*.py")}
    assert set(processes.SLOWEST) <= there
