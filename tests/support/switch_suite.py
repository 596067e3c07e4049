"""The software switch's own suite runs once for a change of it.

The switch (``lab/switch``) knows nothing of Stackcast, and changes seldom; other tests use it all
the time. A whole run in which its suite passed notes in ``var/`` what it was run on; as long as
that stays, runs leave the suite out. It always runs where the environment has CI, with
``--switch-suite``, and where its files are asked for.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from examples import is_whole
from paths import ROOT

SUITE = "tests/software_switch"
#: The switch, its suite, and the programs that both run.
FOLDERS = ("lab/switch", SUITE, "tests/p4", "p4")
#: Where the modules are that those import; what these import in turn is their own tests' affair.
PLACES = ("", "tests/support")

_IMPORTED = re.compile(r"^ *(?:from|import) +([\w.]+)(?: +import +\(?(\w+))?", re.MULTILINE)


def sources(root: Path = ROOT) -> list[Path]:
    """All files that the suite's outcome may depend on."""
    found = {path for folder in FOLDERS for path in (root / folder).rglob("*") if path.is_file()}
    found = {path for path in found if path.suffix != ".pyc"}
    for path in [path for path in found if path.suffix == ".py"]:
        found.update(_imported(path, root))
    return sorted([*found, root / "constraints.txt", root / "tests/conftest.py"])


def _imported(path: Path, root: Path) -> Iterable[Path]:
    for module, name in _IMPORTED.findall(path.read_text("utf-8")):
        for place in PLACES:
            folder = root / place / module.replace(".", "/")
            for file in (folder.with_suffix(".py"), folder / f"{name}.py"):
                if file.is_file():
                    yield file


def digest(root: Path = ROOT) -> str:
    """Tells the sources, and the Python that runs them, from others."""
    made = hashlib.sha256(platform.python_version().encode())
    for path in sources(root):
        made.update(f"{path.relative_to(root)}\0".encode())
        made.update(hashlib.sha256(path.read_bytes()).digest())
    return made.hexdigest()


def record() -> Path:
    """Where the digest of what passed last is kept."""
    return Path(os.environ.get("STACKCAST_VAR") or ROOT / "var") / "software-switch-passed"


def passed_before() -> bool:
    path = record()
    return path.is_file() and path.read_text() == digest()


def is_left_out(config: pytest.Config) -> bool:
    """Whether this run does without the suite."""
    asked = os.environ.get("CI") or config.getoption("--switch-suite")
    named = any("software_switch" in argument for argument in config.args)
    return not asked and not named and passed_before()


def of_suite(name: str) -> bool:
    """Whether a node id is of the suite."""
    return name.startswith(f"{SUITE}/")


class Recorder:
    """Notes a whole run in which the suite passed, in the process that the user started."""

    def __init__(self) -> None:
        # Before anything runs: an edit meanwhile is not what was tested.
        self._digest = digest()
        self._wanted: set[str] = set()
        self._ended: set[str] = set()
        self._failed = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._wanted.update(item.nodeid for item in session.items if of_suite(item.nodeid))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._wanted.update(filter(of_suite, ids))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if of_suite(report.nodeid):
            self._failed |= report.failed
            if report.when == "teardown":
                self._ended.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        if self._wanted and self._ended == self._wanted and not self._failed:
            record().parent.mkdir(parents=True, exist_ok=True)
            record().write_text(self._digest)


def pytest_configure(config: pytest.Config) -> None:
    """Settle for this run whether the suite is left out."""
    if hasattr(config, "workerinput"):
        config.option.without_switch_suite = config.workerinput["without_switch_suite"]
        return
    config.option.without_switch_suite = is_left_out(config)
    if is_whole(config) and not config.option.without_switch_suite:
        config.pluginmanager.register(Recorder(), "switch-suite")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of xdist, which might see an edit that is made just now."""
    node.workerinput["without_switch_suite"] = node.config.option.without_switch_suite


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the suite out."""
    if config.option.without_switch_suite:
        out = [item for item in items if of_suite(item.nodeid)]
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if not of_suite(item.nodeid)]


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say that it is."""
    if config.option.without_switch_suite:
        return "software switch: as it passed; --switch-suite runs its suite all the same"
    return None
