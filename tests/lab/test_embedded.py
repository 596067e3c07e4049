"""The first command of the README, as a user types it: what it proves, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import jvm
import networkx as nx
import pytest
from paths import ROOT

from jobs import itch_stream
from jobs.adapters.app import application, session
from lab.traffic.packets import write_records
from lab.traffic.trading_session import TradingSession
from lab.up.lab import FolderLock

pytestmark = [pytest.mark.integration, pytest.mark.slow]

KEYS = {
    "messages_in",
    "messages_matched",
    "frames_sent",
    "deliveries_expected",
    "deliveries_received",
    "missing",
    "extra",
    "duplicates",
    "dead_letters",
    "link_bytes",
    "unicast_bytes",
    "broadcast_bytes",
    "batches",
    "seconds",
}
#: Where nothing is compiled yet, and another process compiles the same beside, a run takes minutes.
LIMIT_S = 600
#: A run that lasts long, on a network that is up soon.
LASTING = {
    "lab__messages": 20_000,
    "lab__speed": 200,
    "lab__subscriptions": 100,
    "lab__pods": 1,
    "lab__hosts": 1,
    "lab__planes": 1,
    "lab__spines": 1,
    "maxOffsetsPerTrigger": 500,
}

#: A network of a few switches, and a run of seconds.
SMALL = {
    "lab__messages": 3_000,
    "lab__subscriptions": 100,
    "lab__pods": 2,
    "lab__planes": 1,
    "lab__spines": 1,
}


class Run:
    """A job as a process group of its own, its output in a file.

    shipped: with a Spark as users have it, and not one that is quick to start.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object],
        job: str,
        shipped: bool,
        arguments: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex
        self.log = folder / "output.txt"
        command = ["./spark-submit.sh"]
        for key, value in {"lab.folder": folder / "lab", **settings}.items():
            command += ["--conf", f"spark.stackcast.{key}={value}"]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, job, *arguments],
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=os.environ
                | (jvm.as_shipped() if shipped else {})
                | {"STACKCAST_TEST_MARK": self.mark},
            )

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def lines(self) -> str:
        """The output, and the log lines that are not shown."""
        hidden = self.folder / "lab" / "log" / "run.log"
        return self.output + (hidden.read_text(errors="replace") if hidden.is_file() else "")

    def until(self, text: str) -> None:
        """Wait until the output, or the log, has ``text``."""
        deadline = time.monotonic() + LIMIT_S
        while text not in self.lines:
            assert self.process.poll() is None, self.output[-3000:]
            assert time.monotonic() < deadline, self.output[-3000:]
            time.sleep(0.05)

    def end(self, seconds: float = LIMIT_S) -> int:
        return self.process.wait(seconds)

    def processes(self) -> list[str]:
        """Command lines of all processes that descend from this run."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if self.mark.encode() in (entry / "environ").read_bytes():
                        found.append((entry / "cmdline").read_bytes().decode().replace("\0", " "))
                except OSError:
                    continue
        return [line for line in found if line]

    def gone(self) -> bool:
        """True when no process is left; the last may take a moment."""
        deadline = time.monotonic() + 20
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.1)
        return not self.processes()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[object]:
    runs: list[Run] = []

    def begin(
        job: str = "jobs/itch_stream.py",
        shipped: bool = False,
        arguments: Sequence[str] = (),
        **settings: object,
    ) -> Run:
        named = {key.replace("__", "."): value for key, value in settings.items()}
        runs.append(Run(tmp_path, named, job, shipped, arguments))
        return runs[-1]

    yield begin
    for each in runs:
        if each.process.poll() is None:
            os.killpg(each.process.pid, signal.SIGKILL)


def report(run: Run) -> dict:
    return json.loads((run.folder / "lab" / "report.json").read_text())


def test_a_run_proves_that_every_host_received_what_it_subscribed_to(run):
    one = run(shipped=True, lab__messages=20_000)
    assert one.end() == 0, one.output[-3000:]
    summary = report(one)
    assert summary.keys() >= KEYS
    assert summary["messages_in"] == 20_000
    assert summary["deliveries_expected"] == summary["deliveries_received"] > 2_000
    assert summary["missing"] == summary["extra"] == summary["duplicates"] == 0
    assert 0 < summary["link_bytes"] < summary["unicast_bytes"] < summary["broadcast_bytes"]
    assert (one.folder / "lab" / "report.html").stat().st_size > 100_000
    assert "Delivered exactly" in one.output
    latency = summary["latency"]
    assert latency["mode"] == "realtime" and 0 < latency["p50_ms"] <= latency["p99_ms"]
    assert 0 < latency["count"] <= summary["messages_matched"]
    for stage in ("Spark and its tables", "broker 127.0.0.1:", "plan and workers", "compared"):
        assert len(re.findall(rf"^ *[0-9.]+ s  (?!waiting).*{stage}.* s\)$", one.output, re.M)) == 1
    assert " INFO " not in one.output, "log lines are for the file"
    assert "Traceback" not in one.output
    assert "batch 0: " in one.lines
    assert one.gone(), one.processes()
    assert FolderLock(one.folder / "lab").holder() is None


@pytest.mark.parametrize(
    "encoding",
    [{}, {"encoding": "port", "label__bits": 32}],
    ids=["virtual trees", "port, labels of 32 bits"],
)
def test_a_run_over_tunnels_between_islands_is_exact(run, encoding):
    one = run("tests/lab/itch_over_tunnels.py", **SMALL, **encoding)
    assert one.end() == 0, one.output[-3000:]
    network = json.loads((one.folder / "lab" / "network.json").read_text())
    between = [link for link in network["links"] if link["neighbor_port"] is not None]
    assert len(between) == 12 and all(link["tunnel"] for link in between)
    summary = report(one)
    assert summary["messages_in"] == SMALL["lab__messages"]
    assert summary["deliveries_expected"] == summary["deliveries_received"] > 100
    assert summary["missing"] == summary["extra"] == summary["duplicates"] == 0


@pytest.mark.parametrize(
    # Earlier, when the broker is there, a run is killed below.
    "moment",
    [pytest.param("broker 127", marks=pytest.mark.kills), "batch 0"],
)
def test_ctrl_c_leaves_no_process_and_no_lock(run, moment):
    one = run(**LASTING)
    one.until(moment)
    os.killpg(one.process.pid, signal.SIGINT)
    assert one.end() != 0
    assert one.gone(), one.processes()
    assert FolderLock(one.folder / "lab").holder() is None


def test_a_demonstration_delivers_until_ctrl_c_takes_all_of_it_down(run):
    small = {**SMALL, "lab__messages": 2_000}
    one = run(job="jobs/console.py", arguments=("--demo", "--listen", "127.0.0.1:0"), **small)
    one.until("/#token=")
    address = re.findall(r"(http://\S+)/#token=", one.output)[-1]

    def batches() -> set[int]:
        with urllib.request.urlopen(f"{address}/api/health", timeout=60) as answer:
            health = json.load(answer)
        assert health["stream"]["reached"] is True, health["stream"]
        return {row["batch_id"] for row in health["batches"] if row["matched"]}

    deadline, seen = time.monotonic() + LIMIT_S, set()
    while len(seen := seen | batches()) < 3:
        assert time.monotonic() < deadline, one.output[-3000:]
        time.sleep(0.2)
    with urllib.request.urlopen(f"{address}/api/loads", timeout=60) as answer:
        assert sum(json.load(answer)["stackcast"]) > 0
    assert "dead letters" not in one.output.partition("/#token=")[2], "they are in the log"
    os.killpg(one.process.pid, signal.SIGINT)
    assert one.end() == application.INTERRUPTED
    assert one.gone(), one.processes()
    assert FolderLock(one.folder / "lab").holder() is None


def test_sigterm_ends_the_run_after_the_batch_in_progress(run, tmp_path):
    """On another network, with a recorded session."""
    nx.write_graphml(nx.petersen_graph(), tmp_path / "petersen.graphml")
    session = tmp_path / "day.NASDAQ_ITCH50.gz"
    write_records(session, TradingSession(messages=20_000, seed=9, symbols=20))
    others = {"lab__network": tmp_path / "petersen.graphml", "lab__session": session}
    one = run(**LASTING | others)
    one.until("batch 1")  # the first may find the topic empty
    one.process.terminate()
    one.end()
    assert "asked to stop" in one.output
    summary = report(one)
    assert summary["missing"] == summary["extra"] == summary["duplicates"] == 0
    assert 0 < summary["messages_in"] < 20_000
    assert one.gone(), one.processes()


def test_a_killed_run_takes_its_processes_with_it(run):
    one = run(**LASTING)
    one.until("broker 127")
    one.process.kill()
    assert one.gone(), one.processes()


def test_a_wrong_setting_is_one_clear_line(run):
    one = run(lab__network="topozoo/Abilen")
    assert one.end() == 2
    assert all(word in one.output for word in ("LAB.UNKNOWN_NETWORK", "Abilene"))
    assert "Traceback" not in one.output
    assert one.gone(), one.processes()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sinc": "udp"}, ["SETTINGS.UNKNOWN_KEY", "spark.stackcast.sink"]),
        (
            {"kafka.boostrap.servers": "broker:9092"},
            ["SETTINGS.NO_BROKER", "spark.stackcast.kafka.bootstrap.servers"],
        ),
        (
            {
                "match": "network",
                "summary.port": "0",
                "kafka.bootstrap.servers": "127.0.0.1:1",
            },
            ["SETTINGS.MATCHED_IN_NETWORK", "refresh_switches"],
        ),
    ],
)
def test_settings_that_begin_nothing_are_told_before_a_spark_starts(
    settings, words, monkeypatch, caplog
):
    """The job in this process: its JVM would take seconds."""
    given = [(f"spark.stackcast.{key}", value) for key, value in settings.items()]
    monkeypatch.setattr(session, "properties", lambda: given)
    monkeypatch.setattr(application, "set_up", lambda: None)
    assert application.run(itch_stream.deliver) == application.FAILED
    (line,) = caplog.records
    assert all(word in line.getMessage() for word in words) and line.exc_info is None


def test_where_the_switches_match_hosts_get_the_same_and_are_told_that_it_is_all(run):
    one = run(match="network", **SMALL)
    assert one.end() == 0, one.output[-3000:]
    found = report(one)
    assert found.keys() >= KEYS - {"batches"}
    assert found["messages_in"] == 3_000
    assert found["deliveries_received"] == found["deliveries_expected"] > 300
    assert not any(found[key] for key in ("missing", "extra", "duplicates", "misnumbered"))
    # The feed comes whole to the first switch, so few rules alone do not beat unicast.
    assert 0 < found["link_bytes"] < found["broadcast_bytes"] / 2
    assert 0 < found["rejected_subscriptions"] < 30
    # The verdict holds each summary against what its host has.
    assert found["summaries"] >= 8
    assert "Delivered exactly" in one.output
    assert (one.folder / "lab" / "report.html").is_file()
    assert one.gone()


def test_stacks_of_another_encoding_bring_hosts_the_same(run):
    one = run(encoding="mixed", **SMALL)
    assert one.end() == 0, one.output[-3000:]
    found = report(one)
    assert found["messages_in"] == 3_000
    assert found["deliveries_received"] == found["deliveries_expected"] > 300
    assert not any(found[key] for key in ("missing", "extra", "duplicates"))
    assert 0 < found["link_bytes"] < found["broadcast_bytes"]
    assert "Delivered exactly" in one.output
    assert one.gone(), one.processes()


def test_sensors_are_proved_on_a_line_of_switches_that_match_and_then_on_the_fabric(run):
    one = run(
        "jobs/attribute_stream.py",
        lab__messages=3_000,
        lab__subscriptions=40,
        lab__pods=2,
        lab__hosts=1,
        lab__planes=1,
        lab__spines=1,
    )
    # Two runs, one after the other.
    assert one.end() == 0, one.output[-3000:]
    fabric = report(one)
    line = json.loads((one.folder / "lab-line" / "report.json").read_text())
    assert fabric.keys() >= KEYS and line.keys() >= KEYS - {"batches"}
    for found in (line, fabric):
        assert found["deliveries_received"] == found["deliveries_expected"] > 300
        assert not any(found[key] for key in ("missing", "extra", "duplicates", "misnumbered"))
        assert 0 < found["link_bytes"] < found["broadcast_bytes"]
    assert line["messages_in"] == 2_000
    # Damaged records come by Kafka alone, and so does the attribute that is registered on the way.
    assert 2_900 < fabric["messages_in"] < fabric["messages_published"] == 3_000
    assert line["dead_letters"] == 0 < fabric["dead_letters"]
    assert "attribute carbon_dioxide is registered with id" in one.lines
    for folder in (one.folder / "lab", one.folder / "lab-line"):
        assert (folder / "report.html").stat().st_size > 50_000
    assert one.output.count("Delivered exactly") == 2
    assert one.gone(), one.processes()
