"""A folder like a fresh clone, whose door leads to the environment that is there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jvm
import pytest
from paths import ROOT


def made_like(folder: Path, environment: pytest.MonkeyPatch) -> None:
    """Fills a folder, and has what is run in it leave its files in its ``var``.

    Folders are links, but for ``conf``, into which readers put files of their own.
    """
    environment.setenv("STACKCAST_VAR", str(folder / "var"))
    # Or workers take modules from the current folder, and compile what is compiled elsewhere.
    environment.setenv("PYTHONSAFEPATH", "1")
    for name, value in jvm.as_shipped().items():
        environment.setenv(name, value)
    listed = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True)
    for name in {line.partition("/")[0] for line in listed.splitlines()} - {"conf"}:
        (folder / name).symlink_to(ROOT / name)
    (folder / ".git").symlink_to(ROOT / ".git")
    (folder / "conf").mkdir()
    for path in (ROOT / "conf").iterdir():
        (folder / "conf" / path.name).symlink_to(path)
    (folder / "var").mkdir()
    (folder / "var" / "jars").symlink_to(ROOT / "var" / "jars")
    # The door, where the environment is made: tests/house/test_spark_submit_script.py opens it.
    door = folder / "spark-submit.sh"
    door.unlink()
    door.write_text(
        '#!/bin/sh\ncase "$1" in env) ;; make) shift; '
        'PYTHONPATH=.:tests/support exec python -m "tests.make.$@" ;; '
        '*) exec spark-submit "$@" ;; esac\n'
    )
    door.chmod(0o755)
