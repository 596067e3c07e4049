"""The command of the use case of replicated state, with real Spark, broker, switches and hosts."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from paths import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: Two racks, and a city of a minute in six seconds; the second host has two trackers.
SHORT = {
    "lab.pods": 1,
    "lab.planes": 1,
    "lab.spines": 1,
    "mobility.edges": 3,
    "mobility.scanners": 2,
    "mobility.reports": 4,
    "mobility.speedup": 20,
    "mobility.loss": 3,
}


def run(folder: Path, **settings: object) -> subprocess.CompletedProcess[str]:
    command = ["./spark-submit.sh"]
    for key, value in {"lab.folder": folder / "lab", **SHORT, **settings}.items():
        command += ["--conf", f"spark.stackcast.{key}={value}"]
    return subprocess.run(
        [*command, "jobs/mobility_tracking.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ,
        stdin=subprocess.DEVNULL,
        timeout=600,
        check=False,
    )


def test_replicas_converge_though_links_lose_frames(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "Converged: all 4 replicas are what they should be" in done.stdout
    found = json.loads((tmp_path / "lab" / "report.json").read_text())
    assert found["exact"] and found["replicas"] == 4 and found["updates"] == 3 * 2 * 4
    assert found["movements"] > 0 and found["drops"]["loss"] > 0
    held = json.loads((tmp_path / "lab" / "receipts" / "edge2.json").read_text())
    assert set(held["held"]) == {"edge1", "edge2"}
    assert (
        "<title>Stackcast: mobility by replicated state</title>"
        in (tmp_path / "lab" / "report.html").read_text()
    )


def test_a_broker_of_ones_own_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, **{"kafka.bootstrap.servers": "127.0.0.1:1"})
    assert done.returncode == 2
    assert "SETTINGS.BAD_VALUE" in done.stdout + done.stderr
