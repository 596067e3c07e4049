"""A lab that one command brings up with tables, switches and stream, and its services."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import embedded_jobs
import pytest
from command_line import stackcast
from waiting import still_runs, until

from stackcast.jobs.adapters.app import session
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.jobs.embedded import lab_stream
from stackcast.lab.fabric.topologies import NetworkOptions, load_network
from stackcast.lab.proof.receipts import receipts
from stackcast.lab.traffic.publisher import ensure_topic, publish
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.lab.up import daemon, deployment, jars
from stackcast.lab.up.folder import FolderLock
from stackcast.lab.up.lab import Lab
from stackcast.lab.up.service import ENDED, READY, STARTING, Service
from stackcast.udfs.errors import LabError

pytestmark = pytest.mark.integration

SMALL = NetworkOptions(pods=1, racks=2, hosts=1, planes=1, spines=1)
SIZES = [f"--{size}=1" for size in ("pods", "racks", "hosts", "planes", "spines")]
#: Prints what a service of a lab prints, and then waits for its end.
SERVICE = """\
import json, signal, sys, threading
print(json.dumps({"stage": "tables"}), flush=True)
print("Spark says hello", flush=True)
if "fail" in sys.argv:
    raise SystemExit("no port is free")
print(json.dumps({"ready": True}), flush=True)
ended = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ended.set())
ended.wait()
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Starts a service, with words for it."""
    services: list[Service] = []

    def start(*words: str) -> Service:
        command = [sys.executable, "-S", "-c", SERVICE, *words]
        services.append(Service(command, tmp_path / "log" / "stream.log"))
        services[-1].begin()
        return services[-1]

    yield start
    for each in services:
        each.stop()


def test_a_service_is_starting_until_it_says_that_it_is_ready(
    service: Callable[..., Service], tmp_path: Path
):
    stream = service()
    assert stream.status()["state"] in (STARTING, READY)
    until(lambda: stream.status()["state"] == READY)
    status = stream.status()
    assert (status["stage"], status["code"]) == ("tables", None)
    assert (tmp_path / "log" / "stream.log").read_text() == "Spark says hello\n"
    stream.stop()
    assert not still_runs(status["pid"])


def test_a_service_that_ends_by_itself_is_reported_with_the_end_of_its_log(
    service: Callable[..., Service], tmp_path: Path
):
    stream = service("fail")
    until(lambda: stream.status()["state"] == ENDED)
    services = {"stream": stream.status()}
    (tmp_path / "lab.json").write_text(json.dumps({"services": services}))
    steps: list[str] = []
    with pytest.raises(LabError, match="no port is free") as caught:
        daemon.await_services(tmp_path, steps.append)
    assert caught.value.code == "LAB.SERVICE_ENDED"
    assert "the stream of the lab ended with exit code 1" in caught.value.message
    assert "during this step of its start: tables" in caught.value.message
    (tmp_path / "lab.json").unlink()
    with pytest.raises(LabError, match="ended unexpectedly"):
        daemon.await_services(tmp_path, steps.append)


def test_one_command_waits_for_the_stream_and_a_crash_of_it_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The commands as a user types them, with a program in place of Spark."""
    home, folder = tmp_path / "spark", tmp_path / "lab"
    (home / "bin").mkdir(parents=True)
    (home / "jars").symlink_to(jars.spark_jars("spark-core_*.jar")[0].parent)
    submit = home / "bin" / "spark-submit"
    submit.write_text(f"#!{sys.executable}\n{SERVICE}")
    submit.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(home))
    try:
        up = stackcast("lab", "up", "--folder", folder, *SIZES, "--ready")
        assert up.code == 0, up.stderr
        assert "stream: tables" in up.stderr and "stream     ready after" in up.stdout
        assert "stackcast itch publish" in up.stdout
        shown = stackcast("lab", "status", "--folder", folder)
        assert shown.code == 0 and "stream     ready; log" in shown.stdout
        stream = json.loads((folder / "lab.json").read_text())["services"]["stream"]
        command = Path(f"/proc/{stream['pid']}/cmdline").read_bytes().split(b"\0")
        assert str(folder / "lab.conf").encode() in command
        os.kill(stream["pid"], signal.SIGKILL)
        until(lambda: stackcast("lab", "status", "--folder", folder).code == 1)
        shown = stackcast("lab", "status", "--folder", folder)
        assert "the stream of the lab ended with exit code -9" in shown.stderr
        assert "broker" in shown.stdout, "the lab itself is still up"
    finally:
        down = stackcast("lab", "down", "--folder", folder)
    assert down.stdout == "the lab is down\n"
    FolderLock(folder).check()


def test_the_stream_of_a_lab_fills_the_tables_and_delivers_until_it_is_stopped(
    empty_tables: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(
        Tables, "create", lambda tables: shutil.copytree(empty_tables, tables.location)
    )
    monkeypatch.setattr(session, "end_workers", lambda _: None)
    asked = argparse.Namespace(folder=tmp_path, subscriptions=20, seed=3)
    lifecycle = embedded_jobs.SharedSparkLifecycle()
    with Lab(tmp_path, load_network(SMALL)) as lab, ThreadPoolExecutor(1) as pool:
        lab.up()
        ensure_topic(lab.bootstrap_servers, "itch.raw")
        deployment.write(lab, asked.subscriptions, asked.seed)
        (tmp_path / "lab.json").write_text(
            json.dumps({"p4runtime": lab.p4runtime, "ingress": lab.ingress})
        )
        settings = Settings.read(
            [tuple(line.split(" ", 1)) for line in read_properties(tmp_path / "lab.conf")]
        )
        running = pool.submit(lab_stream.serve, asked, settings, lifecycle)
        printed: list[dict[str, Any]] = []

        def ready() -> bool:
            if running.done():
                running.result()
            lines = capfd.readouterr().out.splitlines()
            printed.extend(json.loads(line) for line in lines if line.startswith("{"))
            return {"ready": True} in printed

        try:
            until(ready)
            assert len(printed) == 5
            session_of_trades = TradingSession(messages=500, seed=3)
            published = publish(lab.bootstrap_servers, "itch.raw", session_of_trades)
            tables = open_tables(session.start("test"), settings.tables)
            until(lambda: ledger(tables) == published.packets)
            delivered = sum(len(each) for each in receipts(tmp_path).values())
        finally:
            lifecycle.stopping.set()
        assert running.result() == 0
    assert delivered
    assert len(tables.rows("live_subscriptions")) == 20


def read_properties(path: Path) -> list[str]:
    """Returns the lines of a properties file with our settings, values without their indent."""
    lines = [" ".join(line.split(None, 1)) for line in path.read_text().splitlines()]
    return [line for line in lines if line.startswith("spark.stackcast.")]


def ledger(tables: Tables) -> int:
    """Returns the number of packets on record."""
    return sum(row["packets"] for row in tables.rows("egress_ledger"))
