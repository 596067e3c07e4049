"""Wheels of the package, and environments without it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from paths import ROOT

_SOURCES = (
    *("stackcast", "cli", "jobs", "lab", "switch", "udfs", "schemas", "p4", "conf", "docs"),
    *("pyproject.toml", "README.md", "LICENSE"),
)


def build_wheel(folder: Path) -> Path:
    """Build the wheel in a folder from a copy of the sources."""
    sources = folder / "sources"
    sources.mkdir()
    for name in _SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, sources / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, sources)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-w", folder, sources], check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def bare_environment(folder: Path) -> Path:
    """Create an environment with the installed packages, in place, but without this one.

    The packages have half a gigabyte. Python reads no ``.pth`` file, such as that of an editable
    installation, in a folder that another ``.pth`` file names.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    return folder
