"""Python packages are the files that were there when their versions were chosen."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from paths import ROOT

from stackcast import requirements
from tests.make.packages import FOLDER, LISTS, pins

pytestmark = pytest.mark.integration

CHOSEN = {name: version for name, version, _ in pins((ROOT / "constraints.txt").read_text())}
LISTED = {name: list(pins((FOLDER / f"{name}.txt").read_text())) for name in LISTS}


def test_the_lists_have_each_chosen_version_once_and_by_hash() -> None:
    every = [pin for listed in LISTED.values() for pin in listed]
    assert {name: version for name, version, _ in every} == CHOSEN
    assert len(every) == len(CHOSEN) > 60
    for name, _, text in every:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\n", text), name


def test_each_list_has_what_pyproject_asks_for() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = told["project"]
    asked = {"runtime": project["dependencies"], **project["optional-dependencies"]}
    asked["build"] = told["build-system"]["requires"]
    for part, names in asked.items():
        known = {name for name, _, _ in LISTED[part]}
        assert {name_of(name) for name in names} <= known, part


def name_of(requirement: str) -> str:
    """Return the name of the package that a requirement is for."""
    return re.split("[ <>=]", requirement)[0].lower().replace("_", "-")


def test_each_chosen_version_is_within_the_bounds_of_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert all("==" in text or "<" in text for text in project["dependencies"])
    for text in [*project["dependencies"], *project["optional-dependencies"]["console"]]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(CHOSEN[name_of(text)]), text


def test_versions_that_are_checked_at_start_are_those_of_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = {name_of(text): Requirement(text).specifier for text in project["dependencies"]}
    for name, (least, below, text) in requirements.PACKAGES.items():
        specifier = listed[name]
        assert SpecifierSet(text) == specifier
        assert specifier.contains(".".join(map(str, least)))
        assert not specifier.contains(".".join(map(str, below)))
    least, below = (".".join(map(str, version)) for version in requirements.PYTHON)
    assert SpecifierSet(project["requires-python"]) == SpecifierSet(f">={least},<{below}")


def wheel(folder: Path, payload: str) -> str:
    """Write a package's file, and return its hash."""
    folder.mkdir(exist_ok=True)
    info = "lone-1.0.dist-info"
    path = folder / "lone-1.0-py3-none-any.whl"
    contents = {
        "lone.py": payload,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: lone\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as file:
        for name, text in contents.items():
            # Without the time of now, the same bytes each time.
            file.writestr(zipfile.ZipInfo(name), text)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_another_file_under_a_packages_name_is_refused(tmp_path: Path) -> None:
    env, var, index = tmp_path / "env", tmp_path / "var", tmp_path / "index"
    subprocess.run([sys.executable, "-m", "venv", env], check=True)
    (var / "log").mkdir(parents=True)
    (tmp_path / "conf" / "packages").mkdir(parents=True)
    listed = f"lone==1.0 \\\n    --hash=sha256:{wheel(index, 'A = 1')}\n"
    (tmp_path / "conf" / "packages" / "test.txt").write_text(listed)
    script = (ROOT / "spark-submit.sh").read_text()
    functions = re.findall(r"^\w+\(\) (?:\{ [^\n]*\}|\{\n.*?^\})\n", script, re.M | re.S)
    set_up = f"set -euo pipefail\n{''.join(functions)}\nROOT={tmp_path} VAR={var} ENV_DIR={env}\n"

    def install() -> tuple[str, str, bool]:
        """Returns what is said, what the package has then, and whether the step is done."""
        done = subprocess.run(
            ["bash", "-c", f"{set_up}install_packages test stamp test"],
            env={"PATH": "/usr/bin:/bin", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == (1 if "stackcast:" in done.stderr else 0)
        there = [env / "bin" / "python", "-c", "import lone; print(lone.A)"]
        has = subprocess.run(there, capture_output=True, text=True, check=False).stdout
        return done.stderr, has, (var / ".done-test").exists()

    wheel(index, "A = 2")
    said, has, done = install()
    assert "does not match its hash in conf/packages" in said and (has, done) == ("", False)
    assert f"lone==1.0 from file://{index}" in (var / "log" / "pip-test.log").read_text()
    wheel(index, "A = 1")
    assert install()[1:] == ("1\n", True)
