"""Processes of a test run: their number, the files that each takes, and the order of files."""

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

pytestmark = pytest.mark.integration

CONFTEST = """
import processes, progress

pytest_cmdline_main = processes.pytest_cmdline_main
pytest_xdist_make_scheduler = processes.pytest_xdist_make_scheduler

def pytest_configure(config):
    for tier in ("unit", "integration"):
        config.addinivalue_line("markers", tier)
    progress.configure(config)

def pytest_collection_modifyitems(config, items):
    if hasattr(config, "workerinput"):
        processes.slowest_first(items, takes_long_tier=False)
"""
#: Writes the names of the processes that run the tests of a file next to it.
EXAMPLE = """
import os
import pathlib
import pytest

pytestmark = pytest.mark.{tier}
FIXTURE = "{fixture}"

@pytest.mark.parametrize("number", range(3))
def test_process(number):
    with pathlib.Path(__file__).with_suffix(".processes").open("a") as file:
        file.write(os.environ.get("PYTEST_XDIST_WORKER", "none") + " ")
"""
#: Variables of the outer run must not reach the inner run.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two files of integration tests and one of unit tests."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    add_files(tmp_path, "integration", "test_one", "test_two")
    add_files(tmp_path, "unit", "test_three")
    return tmp_path


def add_files(folder: Path, tier: str, *names: str, fixture: str = "") -> None:
    for name in names:
        (folder / f"{name}.py").write_text(EXAMPLE.format(tier=tier, fixture=fixture))


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:hypothesispytest", "-p", "no:anyio", *arguments],
        cwd=folder,
        env=ENVIRONMENT | {"PYTHONPATH": str(SUPPORT)},
        capture_output=True,
        text=True,
        check=False,
    )


def processes_by_file(folder: Path, *arguments: str) -> tuple[dict[str, list[str]], str]:
    """Run pytest; return the process of each test, by file, and the output."""
    done = run(folder, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    by_file = {path.stem: path.read_text().split() for path in folder.glob("*.processes")}
    return by_file, done.stdout


@pytest.mark.parametrize(
    ("arguments", "number"),
    [((), 3), (("test_one.py", "test_three.py"), 2), (("-n", "2"), 2)],
    ids=str,
)
def test_several_files_run_in_processes_and_each_file_in_a_single_one(
    folder: Path, arguments: tuple[str, ...], number: int
) -> None:
    by_file, output = processes_by_file(folder, *arguments)
    assert output.count(" %]") == len(by_file)
    assert all(len(names) == 3 and len(set(names)) == 1 for names in by_file.values())
    names = {name for names in by_file.values() for name in names}
    assert len(names) == number and "none" not in names


@pytest.mark.parametrize("others", [("test_three", "test_six"), ()], ids=str)
def test_the_third_process_takes_only_files_without_spark(
    folder: Path, others: tuple[str, ...]
) -> None:
    names = ("test_one", "test_two", "test_three", "test_four", "test_five", "test_six")
    add_files(folder, "integration", *names, fixture="SparkSession")
    add_files(folder, "integration", *others[:1])
    add_files(folder, "unit", *others[1:], fixture="SparkSession")
    by_file, _ = processes_by_file(folder)
    assert len(by_file) == 6
    third = {file for file, names in by_file.items() if processes.THIRD in names}
    assert third <= set(others)
    assert bool(third) == bool(others)


def test_a_test_whose_process_ends_fails_alone(folder: Path) -> None:
    end = "    if number == 1:\n        os._exit(1)\n"
    for name in ("test_one", "test_three"):
        (folder / f"{name}.py").write_text(EXAMPLE.format(tier="integration", fixture="") + end)
    done = run(folder)
    assert "2 failed, 7 passed" in done.stdout, done.stdout + done.stderr
    by_file = {path.stem: len(path.read_text().split()) for path in folder.glob("*.processes")}
    assert by_file == dict.fromkeys(("test_one", "test_two", "test_three"), 3)


def test_processes_that_end_together_are_all_replaced(folder: Path) -> None:
    others = {"test_one": "test_three", "test_three": "test_one"}
    for name, other in others.items():
        wait = f"""
    if number == 1:
        while not pathlib.Path(__file__).with_name("{other}.processes").exists():
            pass
        os._exit(1)
"""
        text = EXAMPLE.format(tier="integration", fixture="")
        (folder / f"{name}.py").write_text(text + wait)
    done = run(folder)
    assert "2 failed, 7 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments",
    [("test_one.py",), ("test_one.py::test_process[0]",), ("-k", "1"), ("-n", "0"), ("-s",)],
    ids=str,
)
def test_a_single_file_and_options_that_need_it_use_a_single_process(
    folder: Path, arguments: tuple[str, ...]
) -> None:
    by_file, output = processes_by_file(folder, *arguments)
    assert " %]" not in output
    assert {name for names in by_file.values() for name in names} == {"none"}


def test_a_line_per_file_reports_the_progress_of_a_run(folder: Path) -> None:
    (folder / "test_two.py").write_text("def test_that(): pass\ndef test_wrong(): assert False\n")
    (folder / "test_three.py").write_text("import pytest\n\ndef test_it(): pytest.skip('no')\n")
    done = run(folder)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    progress = [line for line in lines if re.match(r"\[[ 0-9]{3} %\] ", line)]
    assert [line[:7] for line in progress] == ["[ 33 %]", "[ 67 %]", "[100 %]"]
    assert [re.search(r"\((\d) of 3 files", line)[1] for line in progress] == ["1", "2", "3"]
    assert {re.search(r"(test_\w+)\.py: (.+) in \d+ s", line).groups() for line in progress} == {
        ("test_one", "3 passed"),
        ("test_two", "1 failed, 1 passed"),
        ("test_three", "1 skipped"),
    }
    assert "        test_two.py::test_wrong" in lines
    assert "FAILED test_two.py::test_wrong - assert False" in lines
    assert re.fullmatch("=+ 1 failed, 4 passed, 1 skipped in .*s =+", lines[-1])


@pytest.mark.parametrize(
    ("takes_long_tier", "order"),
    [
        (False, ["test_slow", "test_integration", "test_long", "test_unit"]),
        (True, ["test_long", "test_slow", "test_integration", "test_unit"]),
    ],
)
def test_files_that_take_longest_run_first_and_stay_whole(
    monkeypatch: pytest.MonkeyPatch, takes_long_tier: bool, order: list[str]
) -> None:
    monkeypatch.setattr(processes, "SECONDS", {"test_slow": 60})
    monkeypatch.setattr(processes, "LONG", {"test_long": 300})
    tiers = {
        "test_unit": "unit",
        "test_long": "long",
        "test_integration": "integration",
        "test_slow": "integration",
    }
    items = [
        SimpleNamespace(path=f"{name}.py", number=number, get_closest_marker={tier: True}.get)
        for name, tier in tiers.items()
        for number in range(3)
    ]
    processes.slowest_first(items, takes_long_tier)  # type: ignore[arg-type]
    assert [(item.path, item.number) for item in items] == [
        (f"{name}.py", number) for name in order for number in range(3)
    ]


def test_files_with_an_expected_time_exist() -> None:
    names = {path.stem for path in TESTS.rglob("test_*.py")}
    assert {*processes.SECONDS, *processes.LONG} <= names
