"""Workers that are killed while they share a cache of kernels leave it usable.

Numba had such faults: its issues 9348 and 10128.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT, SUPPORT

pytestmark = pytest.mark.long

#: Each round compiles another share of the kernels.
ROUNDS = 30


def run(cache: Path, *arguments: object) -> str:
    """Run a command of `kernel_race`; returns its output."""
    environment = {
        "NUMBA_CACHE_DIR": str(cache),
        # Code that is hardly optimised is saved and loaded the same way, and compiled sooner.
        "NUMBA_OPT": "1",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{SUPPORT}",
    }
    done = subprocess.run(
        [sys.executable, str(SUPPORT / "kernel_race.py"), *map(str, arguments)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stdout[-2000:], done.stderr[-4000:])
    return done.stdout


def test_a_cache_that_workers_share_has_all_kernels_though_some_were_killed(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    run(tmp_path / "other", "list", kernels)
    assert len(pickle.loads(kernels.read_bytes())) > 150
    assert run(tmp_path / "cache", "race", kernels, ROUNDS).count("round ") == ROUNDS
    run(tmp_path / "cache", "check", kernels)
