"""The examples for systemd, cron, Airflow and logrotate are valid, and run jobs that exist."""

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

pytestmark = pytest.mark.integration

UNITS = sorted((ROOT / "conf" / "systemd").iterdir())
CRON = ROOT / "conf" / "stackcast.cron"
AIRFLOW = ROOT / "conf" / "stackcast_airflow.py"
GUIDES = "".join(path.read_text() for path in (ROOT / "docs" / "how-to").iterdir())
PATH = f"{os.environ['PATH']}:/usr/sbin"
ANALYZE, LOGROTATE = shutil.which("systemd-analyze"), shutil.which("logrotate", path=PATH)
#: The folder of the project in the examples.
HOME = "/opt/stackcast"


@pytest.mark.skipif(not ANALYZE, reason="needs systemd-analyze: apt-get install systemd")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    assert {unit.suffix for unit in UNITS} == {".service", ".timer"}
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text().replace(HOME, str(ROOT)))

    def verify() -> str:
        units = sorted(map(str, tmp_path.iterdir()))
        done = subprocess.run(
            [str(ANALYZE), "verify", "--man=no", "--recursive-errors=no", *units],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stderr + ("" if done.returncode == 0 else f"exit code {done.returncode}")

    assert verify() == ""
    broken = tmp_path / UNITS[0].name
    broken.write_text(broken.read_text().replace("[Service]", "[Service]\nRestrat=always"))
    assert "Restrat" in verify()


def scheduled_by_airflow() -> list[str]:
    """Return the commands of the operators, with fakes in place of Airflow's classes."""
    commands: list[str] = []
    operator = SimpleNamespace(
        BashOperator=lambda **options: commands.append(options["bash_command"])
    )
    airflow = SimpleNamespace(DAG=lambda *_, **__: nullcontext())
    modules = {"airflow": airflow, "airflow.operators.bash": operator}
    with patch.dict(sys.modules, modules):  # type: ignore[arg-type]
        runpy.run_path(str(AIRFLOW))
    return commands


def test_units_crontab_and_airflow_run_existing_jobs_and_options() -> None:
    texts = [path.read_text() for path in (CRON, *UNITS)]
    commands = [line for text in texts for line in text.splitlines() if f"{HOME}/spark" in line]
    assert len(commands) == 6
    commands += scheduled_by_airflow()
    assert len(commands) == 8
    for line in commands:
        (job,) = re.findall(r" (jobs/\w+\.py)", line)
        assert (ROOT / job).is_file()
        text = (ROOT / job).read_text() + GUIDES
        options = re.findall(r" (--[a-z-]+)", line.split(job)[1])
        assert all(option in text for option in options), line


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_service_has_only_the_rights_that_it_needs(unit: Path) -> None:
    if unit.suffix == ".service":
        lines = set(unit.read_text().splitlines())
        assert {"User=stackcast", "NoNewPrivileges=yes", "UMask=0027"} <= lines
        assert ("AmbientCapabilities=CAP_NET_RAW" in lines) == ("stream" in unit.name)


@pytest.mark.skipif(not LOGROTATE, reason="needs logrotate: apt-get install logrotate")
def test_logrotate_accepts_the_example(tmp_path: Path) -> None:
    log = tmp_path / "retune.log"
    log.write_text("a line\n" * 3)
    text = (ROOT / "conf" / "stackcast.logrotate").read_text()
    rules = tmp_path / "rules"
    owner = f"{log.owner()} {log.group()}"
    rules.write_text(
        text.replace("/var/log/stackcast", str(tmp_path)).replace("stackcast stackcast", owner)
    )
    rules.chmod(0o644)
    subprocess.run(
        [str(LOGROTATE), "-f", "-s", str(tmp_path / "state"), str(rules)],
        check=True,
        capture_output=True,
    )
    assert log.read_text() == ""
    assert (tmp_path / "retune.log.1").read_text() == "a line\n" * 3
