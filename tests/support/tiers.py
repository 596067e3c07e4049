"""Tiers: which tests a run takes, and what its last line says about the others.

Each test has one tier, the mark that is closest to it: that of its parameters, its own, or the
``pytestmark`` of its file. A plain run takes ``unit`` and ``integration``. ``--all`` adds ``long``,
and each property test then tries its full number of examples. ``--part N`` takes one of `PARTS`
equal parts of what ``--all`` adds, so that consecutive commits run all of it in turn. ``--soak N``
takes only the soak test, for N minutes.
"""

from __future__ import annotations

import socket
import subprocess
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import grpc
import processes
import pytest
from paths import ROOT

TIERS = ("unit", "integration", "long")
#: Programs that no package registry has, by the mark of the tests that need them. The option of the
#: same name gives the path.
NEEDS = {"p4c": "p4c", "bmv2": "BMv2", "s3": "object storage"}
#: Together with the tests of README's command, a part takes less than half an hour on two cores.
PARTS = 12
#: With fewer minutes, too few samples follow the warm-up.
SHORTEST_SOAK = 2
SOAK = Path("tests", "realtime", "test_soak.py")


class OpensServerError(AssertionError):
    """A unit test opened a server."""


def add_options(parser: pytest.Parser) -> None:
    """Add the options that choose tests."""
    group = parser.getgroup("tiers", "which tests to run")
    group.addoption("--all", action="store_true", dest="all_tiers", help="run all tiers")
    group.addoption(
        "--part",
        metavar="N",
        help=f"run only part N (0 to {PARTS - 1}) of the tests that --all adds; "
        "'commit' means the number of commits modulo the number of parts",
    )
    group.addoption(
        "--soak",
        metavar="MINUTES",
        type=float,
        help="run only the soak test, for this time (5 minutes in the long tier)",
    )
    group.addoption("--p4c", metavar="FILE", help="path of p4c-bm2-ss; adds the tests that need it")
    group.addoption(
        "--bmv2", metavar="FILE", help="path of simple_switch_grpc; adds the tests that need it"
    )
    group.addoption(
        "--s3",
        metavar="FOLDER",
        help="folder with Hadoop's S3 client and a store; adds the tests that need object storage",
    )


def runs_long(config: pytest.Config) -> bool:
    """Returns whether a run takes the long tier, or a part of it."""
    options = ("all_tiers", "--part", "--soak")
    return any(config.getoption(name) not in (None, False) for name in options)


def configure(config: pytest.Config) -> None:
    """Resolve the part, and take ``-m unit`` for a tier: pytest would also select by file marks."""
    # The processes of pytest-xdist parse the command line again.
    config.option.part = _part(config.getoption("--part"))
    if config.getoption("--soak") is not None:
        if config.getoption("--soak") < SHORTEST_SOAK:
            raise pytest.UsageError(f"--soak: expected at least {SHORTEST_SOAK} minutes")
        config.args = [str(config.rootpath / SOAK)]
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Summary(), "tier-summary")
    config.option.tier = config.option.markexpr if config.option.markexpr in TIERS else ""
    if config.option.tier:
        config.option.markexpr = ""


def _part(text: str | None) -> int | None:
    if text is None:
        return None
    if text == "commit":
        command = ["git", "rev-list", "--count", "HEAD"]
        return int(subprocess.check_output(command, cwd=ROOT, text=True)) % PARTS
    if text.isdecimal() and int(text) < PARTS:
        return int(text)
    raise pytest.UsageError(f"--part {text}: expected a number from 0 to {PARTS - 1}, or 'commit'")


def tier(item: pytest.Item) -> str:
    """Returns the tier of a test.

    Raises:
        pytest.UsageError: the test has none.
    """
    # pytest puts the marks of a function before those of its parameters.
    parameters: list[pytest.Mark] = item.callspec.marks if hasattr(item, "callspec") else []
    for mark in (*parameters, *item.iter_markers()):
        if mark.name in TIERS:
            return mark.name
    raise pytest.UsageError(f"{item.nodeid} has no tier: mark it with one of {', '.join(TIERS)}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files without a test of the only tier that a run takes, which saves their imports."""
    name = config.option.tier
    if not name or not collection_path.match("test_*.py"):
        return None
    return True if f"mark.{name}" not in collection_path.read_text("utf-8") else None


def is_property_test(item: pytest.Item) -> bool:
    """Returns whether Hypothesis chooses the examples of a test."""
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


def parts(items: Iterable[pytest.Item]) -> dict[str, int]:
    """Returns the part of each unit of the long tier: a file, or a test of a file that is divided.

    The units that take longest are assigned first, each to the part that is shortest so far. The
    result depends on the tests alone, so every run and every process computes the same parts.

    Args:
        items: the tests that ``--all`` adds or makes longer.
    """
    seconds: defaultdict[str, float] = defaultdict(float)
    for item in items:
        estimate = processes.long_seconds(str(item.path), tier(item) == "long", divided(item))
        seconds[unit(item)] = max(seconds[unit(item)], estimate)
    totals = [0.0] * PARTS
    assigned = {}
    for name in sorted(seconds, key=lambda name: (-seconds[name], name)):
        assigned[name] = totals.index(min(totals))
        totals[assigned[name]] += seconds[name]
    return assigned


def divided(item: pytest.Item) -> bool:
    """Returns whether the long tests of the file go to parts one by one."""
    return item.path.stem in processes.DIVIDED


def unit(item: pytest.Item) -> str:
    """Returns what goes to one part as a whole: the test, or its file."""
    return item.nodeid if divided(item) else str(item.path)


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Remove the tests that a run does not take, and count them for its last line."""
    absent = [name for name in NEEDS if not config.getoption(f"--{name}")]
    part = config.option.part
    candidates = [item for item in items if tier(item) == "long" or is_property_test(item)]
    part_of = parts(candidates) if part is not None else {}
    chosen, removed, left_out = [], [], Counter[str]()
    for item in items:
        need = next((name for name in absent if item.get_closest_marker(name)), "")
        name = tier(item)
        if need:
            left_out[need] += 1
        elif part is not None:
            if part_of.get(unit(item)) == part and (name == "long" or is_property_test(item)):
                chosen.append(item)
                continue
        elif config.option.tier:
            if name == config.option.tier:
                chosen.append(item)
                continue
        elif name == "long" and not runs_long(config):
            left_out["long"] += 1
        else:
            chosen.append(item)
            continue
        removed.append(item)
    if removed:
        config.hook.pytest_deselected(items=removed)
    items[:] = chosen
    config.stash[_LEFT_OUT] = left_out


_LEFT_OUT: pytest.StashKey[Counter[str]] = pytest.StashKey()


class Summary:
    """Prints which tests a run left out, as its last line."""

    def __init__(self) -> None:
        self._left_out: Counter[str] = Counter()

    def pytest_report_header(self, config: pytest.Config) -> str | None:
        part = config.option.part
        return None if part is None else f"long tier: part {part} of 0 to {PARTS - 1}"

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._left_out = session.config.stash.get(_LEFT_OUT, self._left_out)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        # A process that was killed has no output.
        output = getattr(node, "workeroutput", {})
        self._left_out = Counter(output.get("left_out", self._left_out))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, Any, Any]:
        result = yield
        terminal = session.config.pluginmanager.getplugin("terminalreporter")
        ran = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if terminal is not None and ran and not session.config.option.collectonly:
            skipped = len(terminal.stats.get("skipped", []))
            terminal.write_line(summary(self._left_out, skipped))
        return result


def summary(left_out: Counter[str], skipped: int) -> str:
    """Returns the last line of a run.

    Args:
        left_out: number of tests by the reason, ``long`` or a key of `NEEDS`.
        skipped: number of tests that skipped themselves.
    """
    texts = [f"{left_out['long']} tests of the long tier (test --all adds them)"]
    texts += [f"{left_out[name]} that need {tool} (--{name})" for name, tool in NEEDS.items()]
    return f"Left out: {', '.join(texts)}; skipped: {skipped}."


def send_to_controller(session: pytest.Session) -> None:
    """Send what this process left out to the process that started it."""
    if hasattr(session.config, "workeroutput"):
        left_out = session.config.stash.get(_LEFT_OUT, Counter())
        session.config.workeroutput["left_out"] = dict(left_out)


@pytest.fixture(autouse=True)
def no_servers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a unit test that opens a server fail."""
    if tier(request.node) == "unit":
        monkeypatch.setattr(socket.socket, "bind", _refuse)
        monkeypatch.setattr(grpc, "server", _refuse)


def _refuse(*_: Any, **__: Any) -> None:
    raise OpensServerError("a unit test opens no server: mark it with @pytest.mark.integration")
