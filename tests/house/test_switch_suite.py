"""The software switch's own suite runs once for a change of it, and always where somebody asks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import switch_suite
from paths import ROOT, TESTS

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def var(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STACKCAST_VAR", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


def config(*args: str, asked: bool = False) -> Any:
    return SimpleNamespace(args=list(args or ["tests"]), getoption=lambda _: asked)


def ran(recorder: switch_suite.Recorder, *outcomes: str, left: int = 0) -> None:
    names = [f"{switch_suite.SUITE}/test_x.py::test_{n}" for n in range(len(outcomes) + left)]
    recorder.pytest_xdist_node_collection_finished([*names, "tests/app/test_y.py::test"])
    for name, outcome in zip(names, outcomes, strict=False):
        report = SimpleNamespace(nodeid=name, when="teardown", failed=outcome == "failed")
        recorder.pytest_runtest_logreport(report)  # type: ignore[arg-type]
    other = SimpleNamespace(nodeid="tests/app/test_y.py::test", when="call", failed=True)
    recorder.pytest_runtest_logreport(other)  # type: ignore[arg-type]
    recorder.pytest_sessionfinish()


def test_what_passed_is_left_out_until_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not switch_suite.is_left_out(config())
    ran(switch_suite.Recorder(), "passed", "skipped")
    assert switch_suite.is_left_out(config())
    assert not switch_suite.is_left_out(config(asked=True))
    assert not switch_suite.is_left_out(config("tests/software_switch/test_flow_cache.py"))
    monkeypatch.setattr(switch_suite, "digest", lambda: "another")
    assert not switch_suite.is_left_out(config())
    monkeypatch.undo()


def test_where_the_environment_has_ci_it_always_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    ran(switch_suite.Recorder(), "passed")
    monkeypatch.setenv("CI", "true")
    assert not switch_suite.is_left_out(config())


@pytest.mark.parametrize(
    ("outcomes", "left"), [(("failed", "passed"), 0), (("passed",), 1), ((), 0)], ids=str
)
def test_a_run_with_a_failure_or_a_part_of_it_is_not_noted(
    outcomes: tuple[str, ...], left: int
) -> None:
    ran(switch_suite.Recorder(), *outcomes, left=left)
    assert not switch_suite.is_left_out(config())


def test_an_edit_while_it_runs_is_not_taken_for_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = switch_suite.Recorder()
    monkeypatch.setattr(switch_suite, "digest", lambda: "edited meanwhile")
    ran(recorder, "passed")
    assert not switch_suite.is_left_out(config())


def test_it_depends_on_the_switch_its_tests_their_helpers_and_the_programs() -> None:
    found = {path.relative_to(ROOT).as_posix() for path in switch_suite.sources()}
    assert {
        "lab/switch/bmv2/simple_switch.py",
        "udfs/switches/entry.py",
        "tests/software_switch/test_simple_switch.py",
        "tests/support/feature_cases.py",
        "tests/p4/feature_state.answers",
        "p4/virtual_trees.json",
        "constraints.txt",
    } <= found
    assert not any(name.startswith("jobs/adapters/stream") for name in found)


def test_a_changed_file_another_name_or_one_more_is_a_change(tmp_path: Path) -> None:
    def made() -> str:
        return switch_suite.digest(tmp_path)

    for name in (*switch_suite.FOLDERS, "udfs", "tests"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    for name in ("constraints.txt", "tests/conftest.py", "udfs/entry.py", "udfs/far.py"):
        (tmp_path / name).write_text("one")
    switch = tmp_path / "lab/switch/one.py"
    switch.write_text("from udfs import entry\n")
    seen = {made()}
    (tmp_path / "udfs/far.py").write_text("two")
    assert made() in seen
    (tmp_path / "udfs/entry.py").write_text("two")
    seen.add(made())
    switch.rename(switch.with_name("two.py"))
    seen.add(made())
    (tmp_path / "p4/program.json").write_text("{}")
    seen.add(made())
    assert len(seen) == 4


def test_the_suite_is_where_it_is_looked_for() -> None:
    assert len(list((TESTS / "software_switch").glob("test_*.py"))) > 10
    assert ROOT / switch_suite.SUITE == TESTS / "software_switch"
