"""The command of the use case of replicated state, with real Spark, broker, switches and hosts."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from functools import partial
from pathlib import Path

import embedded_jobs
import pytest
from paths import ROOT

from city_run import CityOptions
from mobility_tracking import main, track
from stackcast.jobs.adapters.app import application, session
from stackcast.jobs.embedded.options import RunOptions

pytestmark = pytest.mark.integration

#: Two racks, and a city of a minute in two seconds; the second host has two trackers.
LAB = {"pods": 1, "planes": 1, "spines": 1}
OPTIONS = CityOptions(edges=3, scanners=2, reports=4, speedup=60, loss=3)


@pytest.mark.long
@pytest.mark.parametrize("program", [False, True])
def test_replicas_converge_though_links_lose_frames(
    program: bool,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    lab = {"folder": str(tmp_path / "lab"), **LAB}
    if program:
        options = embedded_jobs.arguments({**asdict(OPTIONS), **lab})
        command = ["./spark-submit.sh", "examples/mobility/mobility_tracking.py", *options]
        code = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode
    else:
        request.getfixturevalue("spark")
        job = partial(track, OPTIONS, RunOptions(**lab))
        code = embedded_jobs.run(job, {}, monkeypatch)
    output = capfd.readouterr()
    assert code == 0, (output.out + output.err)[-3000:]
    assert "Converged: all 4 replicas" in output.out
    report = json.loads((tmp_path / "lab" / "report.json").read_text())
    assert report["exact"] and report["replicas"] == 4 and report["updates"] == 3 * 2 * 4
    assert report["movements"] > 0 and report["drops"]["loss"] > 0
    receipt = json.loads((tmp_path / "lab" / "receipts" / "edge2.json").read_text())
    assert set(receipt["held"]) == {"edge1", "edge2"}
    page = (tmp_path / "lab" / "report.html").read_text()
    assert "<title>Stackcast: mobility by replicated state</title>" in page


def test_a_broker_of_the_user_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = embedded_jobs.properties({"kafka.bootstrap.servers": "127.0.0.1:1"})
    monkeypatch.setattr(session, "properties", lambda: settings)
    monkeypatch.setattr(application, "set_up", lambda: None)
    monkeypatch.setattr(application, "Lifecycle", embedded_jobs.SharedSparkLifecycle)
    assert main([]) == application.FAILED
    (record,) = caplog.records
    assert "SETTINGS.BAD_VALUE" in record.getMessage() and record.exc_info is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--edges", "1"], "--edges: '1' is not a whole number from 2 to 64"),
        (["--loss", "51"], "--loss: '51' is not a whole number from 0 to 50"),
        (["--speedup", "fast"], "--speedup: 'fast' is not a whole number from 1 to 10000"),
    ],
)
def test_an_invalid_option_is_refused_before_anything_starts(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
