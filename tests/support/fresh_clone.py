"""A folder like a fresh clone, whose spark-submit.sh uses the environment of the tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jvm
import pytest
from paths import ROOT

#: The environment exists already; tests/repository/test_spark_submit_script.py tests how the real
#: script creates it.
_SCRIPT = """#!/bin/sh
case "$1" in
  env) ;;
  make) shift; PYTHONPATH=.:tests/support exec python -m "tests.make.$@" ;;
  *) exec spark-submit "$@" ;;
esac
"""


def fill(folder: Path, environment: pytest.MonkeyPatch) -> None:
    """Fill a folder with the files of a clone, and make commands that run in it use its ``var``.

    The entries are links. ``conf`` is a folder of links, because readers add files of their own
    to it.
    """
    environment.setenv("STACKCAST_VAR", str(folder / "var"))
    # Otherwise workers would import modules of the current folder, and compile kernels again that
    # are compiled under another path.
    environment.setenv("PYTHONSAFEPATH", "1")
    for name, value in jvm.as_shipped().items():
        environment.setenv(name, value)
    files = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    for name in {file.partition("/")[0] for file in files} - {"conf", "spark-submit.sh"}:
        (folder / name).symlink_to(ROOT / name)
    (folder / ".git").symlink_to(ROOT / ".git")
    (folder / "conf").mkdir()
    for path in (ROOT / "conf").iterdir():
        (folder / "conf" / path.name).symlink_to(path)
    (folder / "var").mkdir()
    (folder / "var" / "jars").symlink_to(ROOT / "var" / "jars")
    script = folder / "spark-submit.sh"
    script.write_text(_SCRIPT)
    script.chmod(0o755)
