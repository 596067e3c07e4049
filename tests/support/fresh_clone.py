"""A fresh clone, or a folder like one, whose door leads to the environment that is there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jvm
import pytest
from paths import ROOT

#: What this process has of its own environment, and a clone makes for itself.
HERE = (
    *("STACKCAST_HOME", "STACKCAST_VAR", "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH"),
    *("SPARK_SUBMIT_OPTS", "PYSPARK_PYTHON", "NUMBA_CACHE_DIR"),
)


def made(folder: Path, environment: pytest.MonkeyPatch, clone: bool) -> Path:
    """Returns a folder in ``folder``, in which commands are pasted: a clone that has made an
    environment of its own, or one that is like it."""
    if not clone:
        made_like(folder, environment)
        return folder
    for name in HERE:
        environment.delenv(name, raising=False)
    folder /= "clone"
    subprocess.run(["git", "clone", "-q", ROOT, folder], check=True)
    subprocess.run(["./spark-submit.sh", "env"], cwd=folder, check=True)
    return folder


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
