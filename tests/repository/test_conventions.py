"""The conventions of the code base: style, types, imports between packages, names."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import P4, ROOT

pytestmark = pytest.mark.unit

BIN = Path(sys.executable).parent

MAX_LINES = 700
#: Calls that wait for real time or start threads, which a virtual clock cannot control.
REAL_TIME = re.compile(
    r"\bthreading\.(?:Thread|Event|Timer)\b|\bThreadPoolExecutor\b|\bdatetime\.(?:now|utcnow|today)\("
)
#: Packages of jobs/adapters that do not use the clock and the threads of `runtime` everywhere yet.
WITHOUT_CLOCK = ("app", "checkpoint", "planning", "stream", "tables")
#: Folders that exist on one machine only. Files must name paths relative to the clone.
MACHINE_PATH = re.compile(rb"(?<![\w.~-])/(?:work|root|farm)/")


def tracked(*patterns: str) -> list[Path]:
    """Return the files under version control that match a pattern, or all."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("not a clone: needs the list of files under version control")
    names = done.stdout.decode().split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


@pytest.mark.parametrize(
    "command",
    [
        *("ruff check", "ruff format --check", "lint-imports"),
        # Takes half a minute without a cache of earlier results.
        pytest.param("mypy", marks=pytest.mark.integration),
    ],
    ids=str,
)
def test_linters_find_no_problem(command: str):
    program, *arguments = command.split()
    done = subprocess.run(
        [BIN / program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_folder_p4_contains_no_python():
    """Folder p4 is first on the path of a job, and p4runtime-shell imports a package p4."""
    assert not list(P4.rglob("*.py"))


def test_no_file_names_a_folder_of_one_machine():
    places = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked()
        for number, line in enumerate(path.read_bytes().splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert not places


def test_only_the_runtime_package_starts_threads_and_reads_the_date():
    users = {
        path.relative_to(ROOT).as_posix()
        for path in tracked("jobs/*.py")
        if REAL_TIME.search(path.read_text(encoding="utf-8"))
    }
    assert "jobs/adapters/runtime/threads.py" in users
    expected = tuple(f"jobs/adapters/{package}/" for package in ("runtime", *WITHOUT_CLOCK))
    assert sorted(path for path in users if not path.startswith(expected)) == []


def test_no_module_is_too_long():
    lengths = {
        str(path.relative_to(ROOT)): path.read_bytes().count(b"\n") for path in tracked("*.py")
    }
    assert lengths
    assert not {name: lines for name, lines in lengths.items() if lines > MAX_LINES}


def clashes(folder: Path) -> set[str]:
    """Return the names in a folder that hide a library if the folder is first on the path."""
    libraries = set(importlib.metadata.packages_distributions()) | set(sys.stdlib_module_names)
    names = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    return names & (libraries | {"stackcast"}) - {"__pycache__"}


@pytest.mark.parametrize("folder", ["jobs", "examples/mobility"])
def test_no_job_hides_a_library(folder: str):
    # spark-submit puts the folder of the job first on the path.
    assert not clashes(ROOT / folder)


def test_a_job_that_would_hide_a_library_is_detected(tmp_path: Path):
    for name in ("kafka.py", "json.py", "stackcast.py", "pyspark", "itch_stream.py", "numpy.txt"):
        (tmp_path / name).mkdir() if name == "pyspark" else (tmp_path / name).touch()
    assert clashes(tmp_path) == {"kafka", "json", "stackcast", "pyspark"}


def test_call_paths_in_contributing_name_existing_files_and_functions():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    call_paths = text[text.index("### The path of an event") : text.index("## Code")]
    steps = re.findall(r"^ {4}(\S+/\w+\.py)(?::([\w.]+))?", call_paths, re.MULTILINE)
    assert len(steps) > 25
    for name, function in steps:
        paths = [path for path in (ROOT / name, ROOT / "jobs/adapters" / name) if path.exists()]
        assert paths, f"there is no {name}"
        source = paths[0].read_text("utf-8")
        for part in filter(None, function.split(".")):
            assert re.search(rf"^ *(class|def) {part}\b", source, re.MULTILINE), (name, function)


def test_readme_and_ci_install_each_debian_package_without_which_a_test_is_skipped():
    def packages(pattern: str, text: str) -> set[str]:
        return {name for names in re.findall(pattern, text) for name in names.split()}

    texts = [path.read_text() for path in tracked("tests/*.py")]
    needed = set().union(*(packages(r"apt-get install ([\w -]+)\"", text) for text in texts))
    assert len(needed) > 4
    assert packages(r"apt-get install ([\w -]+)\n", (ROOT / "README.md").read_text()) == needed
    assert packages(r"\npackages=\(([\w -]+)\)", (ROOT / ".ci" / "run").read_text()) == needed
