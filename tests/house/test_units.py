"""The examples for systemd, cron, Airflow and logrotate are what these take, and run jobs there
are."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from paths import ROOT

pytestmark = pytest.mark.server

UNITS = sorted((ROOT / "conf" / "systemd").iterdir())
CRON = ROOT / "conf" / "stackcast.cron"
AIRFLOW = ROOT / "conf" / "stackcast_airflow.py"
PATH = f"{os.environ['PATH']}:/usr/sbin"
ANALYZE, LOGROTATE = shutil.which("systemd-analyze"), shutil.which("logrotate", path=PATH)
#: Where the examples have the project.
HOME = "/opt/stackcast"


@pytest.mark.skipif(not ANALYZE, reason="needs systemd-analyze: apt-get install systemd")
def test_systemd_finds_no_fault_with_the_units(tmp_path: Path) -> None:
    assert {unit.suffix for unit in UNITS} == {".service", ".timer"}
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text().replace(HOME, str(ROOT)))

    def verified() -> str:
        units = sorted(map(str, tmp_path.iterdir()))
        done = subprocess.run(
            [str(ANALYZE), "verify", "--man=no", "--recursive-errors=no", *units],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stderr + ("" if done.returncode == 0 else f"exit code {done.returncode}")

    assert verified() == ""
    broken = tmp_path / UNITS[0].name
    broken.write_text(broken.read_text().replace("[Service]", "[Service]\nRestrat=always"))
    assert "Restrat" in verified()


def scheduled_by_airflow() -> list[str]:
    """What the operators run, by stand-ins for Airflow's own classes."""
    commands: list[str] = []
    operator = SimpleNamespace(BashOperator=lambda **given: commands.append(given["bash_command"]))
    airflow = SimpleNamespace(DAG=lambda *_, **__: nullcontext())
    modules = {"airflow": airflow, "airflow.operators.bash": operator}
    with patch.dict(sys.modules, modules):  # type: ignore[arg-type]
        runpy.run_path(str(AIRFLOW))
    return commands


def test_units_crontab_and_airflow_run_jobs_that_there_are() -> None:
    texts = [path.read_text() for path in (CRON, *UNITS)]
    commands = [line for text in texts for line in text.splitlines() if f"{HOME}/spark" in line]
    assert len(commands) == 6
    commands += scheduled_by_airflow()
    assert len(commands) == 8
    for line in commands:
        (job,) = re.findall(r" (jobs/\w+\.py)", line)
        assert (ROOT / job).is_file()
        text = (ROOT / job).read_text() + (ROOT / "docs" / "operations.md").read_text()
        options = re.findall(r" (--[a-z-]+)", line.split(job)[1])
        assert all(option in text for option in options), line


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_service_gives_away_nothing_that_it_does_not_need(unit: Path) -> None:
    if unit.suffix == ".service":
        lines = set(unit.read_text().splitlines())
        assert {"User=stackcast", "NoNewPrivileges=yes", "UMask=0027"} <= lines
        assert ("AmbientCapabilities=CAP_NET_RAW" in lines) == ("stream" in unit.name)


@pytest.mark.skipif(not LOGROTATE, reason="needs logrotate: apt-get install logrotate")
def test_logrotate_takes_the_example(tmp_path: Path) -> None:
    log = tmp_path / "retune.log"
    log.write_text("a line\n" * 3)
    text = (ROOT / "conf" / "stackcast.logrotate").read_text()
    rules = tmp_path / "rules"
    me = f"{log.owner()} {log.group()}"
    rules.write_text(
        text.replace("/var/log/stackcast", str(tmp_path)).replace("stackcast stackcast", me)
    )
    rules.chmod(0o644)
    subprocess.run(
        [str(LOGROTATE), "-f", "-s", str(tmp_path / "state"), str(rules)],
        check=True,
        capture_output=True,
    )
    assert log.read_text() == ""
    assert (tmp_path / "retune.log.1").read_text() == "a line\n" * 3
