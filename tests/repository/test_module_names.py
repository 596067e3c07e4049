"""Each module has one name, which starts with ``stackcast.``, and is therefore loaded once."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

pytestmark = pytest.mark.unit

FOLDERS = ("udfs", "jobs", "lab", "switch", "cli", "schemas")
#: Folders of files that programs read. They are no packages.
DATA = ("p4", "conf", "docs")

#: Imports each module of the product, and prints the names of all imported modules.
IMPORT_ALL = """
import pkgutil, sys
from importlib import import_module
import stackcast
for module in pkgutil.walk_packages(stackcast.__path__, "stackcast."):
    import_module(module.name)
print(*sys.modules)
"""


def test_the_package_consists_of_links_to_the_folders():
    links = {path.name: path for path in (ROOT / "stackcast").iterdir() if path.is_symlink()}
    assert {name: path.readlink() for name, path in links.items()} == {
        name: Path("..", name) for name in FOLDERS + DATA
    }


@pytest.mark.integration
def test_no_module_of_the_product_is_imported_by_another_name():
    # The folders are importable here, because the current folder is first on the path.
    modules = subprocess.check_output([sys.executable, "-c", IMPORT_ALL], cwd=ROOT, text=True)
    names = set(modules.split())
    assert {f"stackcast.{folder}" for folder in FOLDERS} <= names
    assert {"stackcast.jobs.itch_stream", "stackcast.cli.main", "stackcast.udfs.columns"} <= names
    assert not names & set(FOLDERS)


def test_an_import_by_another_name_is_a_lint_error():
    forms = ("import {}", "import {}.x", "from {} import x", "from {}.x import y")
    program = "".join(f"{form.format(folder)}\n" for form in forms for folder in FOLDERS)
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("ruff"), "check", "--output-format", "concise"),
            *("--stdin-filename", ROOT / "jobs" / "x.py", "-"),
        ],
        input=program + "import stackcast.udfs\nfrom stackcast import jobs\n",
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line.split(":")[1] for line in done.stdout.splitlines() if "TID251" in line]
    assert lines == [str(number) for number in range(1, len(forms) * len(FOLDERS) + 1)]


def test_the_distribution_has_one_top_level_package():
    packages = importlib.metadata.packages_distributions()
    installed = {name for name, distributions in packages.items() if "stackcast" in distributions}
    # An editable installation has a module that finds the package.
    assert {name for name in installed if not name.startswith("__editable__")} == {"stackcast"}
    assert set(packages["stackcast"]) == {"stackcast"}
