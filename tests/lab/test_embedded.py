"""The jobs with a lab of their own: what their runs prove, and how their programs end.

A job runs as a program only where a test is about that program. Otherwise it runs in the Spark
session of the tests, and only the long tier starts a program for it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import embedded_jobs
import jvm
import networkx as nx
import pytest
from deltalake import DeltaTable
from paths import ROOT
from tunnels import tunnelled
from waiting import until

from stackcast.jobs import attribute_stream, console, itch_stream
from stackcast.jobs.adapters.app import application, session
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.jobs.embedded.options import RunOptions
from stackcast.lab.fabric.topologies import NetworkOptions, load_network
from stackcast.lab.traffic.packets import write_records
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.lab.up.lab import FolderLock
from stackcast.udfs.network.network import Network

pytestmark = pytest.mark.integration

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
#: Limit against hangs, in seconds: where kernels are not compiled yet, a run takes minutes.
LIMIT_S = 600
NO_SETTINGS: Mapping[str, object] = {}
#: Options of a run that does not end soon, on a network that is up soon.
LASTING = {
    "messages": 20_000,
    "speed": "200",
    "subscriptions": 100,
    "pods": 1,
    "hosts": 1,
    "planes": 1,
    "spines": 1,
}
#: Settings of such a run.
SHORT_BATCHES = {"maxOffsetsPerTrigger": 500}
#: Options of a run of seconds on few switches.
SMALL = {"messages": 1_500, "subscriptions": 100, "pods": 2, "planes": 1, "spines": 1}


def read_report(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


def assert_exact(report: Mapping[str, Any], at_least: int) -> None:
    """Check that all deliveries are exact, and more than a number."""
    assert report["deliveries_expected"] == report["deliveries_received"] > at_least
    assert report["missing"] == report["extra"] == report["duplicates"] == 0


class Program:
    """A job as a program that leads a process group, its output in a file.

    Args:
        folder: folder of the output, and of the lab.
        job: file of the job, with its arguments.
        options: options of the lab.
        settings: settings without their common prefix.
        shipped: start Spark with the options that users have, not with those for a quick start.
    """

    def __init__(
        self,
        folder: Path,
        job: Sequence[str],
        options: Mapping[str, object],
        settings: Mapping[str, object] = NO_SETTINGS,
        *,
        shipped: bool = False,
    ) -> None:
        self.lab = folder / "lab"
        self._mark = uuid.uuid4().hex
        self._log = folder / "output.txt"
        command = ["./spark-submit.sh"]
        for key, value in embedded_jobs.properties(settings):
            command += ["--conf", f"{key}={value}"]
        command += [*job, *embedded_jobs.arguments({"folder": self.lab, **options})]
        environment = jvm.as_shipped() if shipped else {}
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **environment, "STACKCAST_TEST_MARK": self._mark},
            )

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def log(self) -> str:
        """The log lines that the job does not print."""
        path = self.lab / "log" / "run.log"
        return path.read_text(errors="replace") if path.is_file() else ""

    def wait_for(self, text: str) -> None:
        """Wait until the output or the log contains a text."""
        until(lambda: text in self.output or text in self.log, self, seconds=LIMIT_S)

    def wait(self) -> int:
        """Wait for the end and return the exit code."""
        return self.process.wait(LIMIT_S)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)

    def processes(self) -> list[str]:
        """Return the command lines of all processes that descend from this program."""
        lines = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if self._mark.encode() in (entry / "environ").read_bytes():
                    lines.append((entry / "cmdline").read_bytes().decode().replace("\0", " "))
            except OSError:
                continue
        return [line for line in lines if line]

    def assert_gone(self) -> None:
        """Check that no process is left, once the last ones have ended, and no lock."""
        deadline = time.monotonic() + LIMIT_S
        while processes := self.processes():
            assert time.monotonic() < deadline, processes
            time.sleep(0.1)
        assert FolderLock(self.lab).holder() is None


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts one job as a program, by default the main job."""
    programs: list[Program] = []

    def start(options: Mapping[str, object], *job: str, **settings: object) -> Program:
        programs.append(Program(tmp_path, job or ("jobs/itch_stream.py",), options, settings))
        return programs[-1]

    yield start
    for program in programs:
        if program.process.poll() is None:
            os.killpg(program.process.pid, signal.SIGKILL)


@dataclass
class Run:
    """A run that has ended well: its lab's folder, what it printed, and its log."""

    lab: Path
    output: str
    log: str


class Runner(Protocol):
    """Runs a job to its end, and checks that its exit code is 0."""

    def __call__(
        self, job: str, options: Mapping[str, Any], settings: Mapping[str, object] = NO_SETTINGS
    ) -> Run: ...


@pytest.fixture(params=["in_session", pytest.param("as_program", marks=pytest.mark.long)])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Runner:
    """Runs a job in the Spark session of the tests; in the long tier also as a program."""
    if request.param == "in_session":
        return request.getfixturevalue("run_in_session")

    def run(
        job: str, options: Mapping[str, Any], settings: Mapping[str, object] = NO_SETTINGS
    ) -> Run:
        program = Program(tmp_path, [f"jobs/{job}.py"], options, settings)
        assert program.wait() == 0, program.output[-3000:]
        program.assert_gone()
        return Run(program.lab, program.output, program.log)

    return run


@pytest.fixture
def ready_tables(empty_tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies the tables of a lab, because their creation takes seconds; programs create theirs."""

    def create(tables: Tables) -> None:
        shutil.copytree(empty_tables, tables.location)

    monkeypatch.setattr(f"{open_tables.__module__}._FolderFirst.create", create)


@pytest.fixture
def run_in_session(
    ready_tables: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> Runner:
    """Runs a job in the Spark session of the tests."""
    jobs = {"itch_stream": itch_stream.deliver, "attribute_stream": attribute_stream.deliver}
    caplog.set_level("INFO")

    def run(
        job: str, options: Mapping[str, Any], settings: Mapping[str, object] = NO_SETTINGS
    ) -> Run:
        folder = tmp_path / "lab"
        work = partial(jobs[job], options=RunOptions(folder=str(folder), **options))
        code = embedded_jobs.run(work, settings, monkeypatch)
        printed = "".join(capfd.readouterr())
        assert code == 0, printed[-3000:]
        assert FolderLock(folder).holder() is None
        return Run(folder, printed, (folder / "log" / "run.log").read_text())

    return run


class TestFirstCommand:
    """README's first command, with the settings that it has."""

    MESSAGES = 3_000

    @pytest.fixture(scope="class")
    def program(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
        folder = tmp_path_factory.mktemp("first")
        job = ["jobs/itch_stream.py"]
        program = Program(folder, job, {"messages": self.MESSAGES}, shipped=True)
        try:
            program.wait()
            yield program
        finally:
            if program.process.poll() is None:
                os.killpg(program.process.pid, signal.SIGKILL)

    def test_every_host_receives_exactly_what_it_subscribed_to(self, program: Program):
        assert program.process.returncode == 0, program.output[-3000:]
        assert "Delivered exactly" in program.output
        report = read_report(program.lab)
        assert_exact(report, at_least=self.MESSAGES // 10)
        assert report["messages_in"] == self.MESSAGES
        assert 0 < report["link_bytes"] < report["unicast_bytes"] < report["broadcast_bytes"]

    def test_the_report_is_complete(self, program: Program):
        report = read_report(program.lab)
        assert report.keys() >= KEYS
        assert (program.lab / "report.html").stat().st_size > 100_000
        latency = report["latency"]
        assert latency["mode"] == "realtime" and 0 < latency["p50_ms"] <= latency["p99_ms"]
        assert 0 < latency["count"] <= report["messages_matched"]

    def test_the_summary_says_where_the_run_spends_its_time(self, program: Program):
        report = read_report(program.lab)
        assert report["seconds"] == pytest.approx(sum(report["parts"].values()), abs=0.5)
        assert {"Spark and tables", "publishing", "verification"} <= report["parts"].keys()
        latency = r"^event to wire +median [0-9,.]+ ms, 99th percentile"
        assert re.search(latency, program.output, re.M)

    def test_records_are_published_at_a_steady_pace_once_the_stream_is_ready(
        self, program: Program
    ):
        ready, published = "started the stream", "published records"
        lines = re.findall(rf"^ *[0-9.]+ s  ({ready}|{published})", program.output, re.M)
        assert lines == [ready, published]
        report = read_report(program.lab)
        # A busy machine may be slower, and is never faster.
        assert 0 < report["messages_per_second"] < 12_000
        (known,) = re.findall(r"computed the header stacks of ([0-9]+) receiver sets", program.log)
        assert f"header stacks of {known} receiver sets to compute" in program.log
        before, _, after = program.log.partition("stream ready")
        assert "workers ready" in before and "batch 0:" in after

    def test_the_run_ends_with_what_to_do_next(self, program: Program):
        after = program.output.partition("Delivered exactly")[2]
        assert "report.html in a browser" in after and "jobs/console.py --demo" in after

    @pytest.mark.parametrize(
        "stage", ["started Spark", "broker 127.0.0.1:", "started the stream", "compared"]
    )
    def test_each_stage_is_printed_with_its_time(self, program: Program, stage: str):
        line = rf"^ *[0-9.]+ s  (?!still).*{stage}.* s\)$"
        assert len(re.findall(line, program.output, re.M)) == 1

    def test_log_lines_are_in_the_file(self, program: Program):
        assert " INFO " not in program.output
        assert "Traceback" not in program.output
        assert "batch 0: " in program.log

    def test_nothing_is_left(self, program: Program):
        program.assert_gone()


def islands(options: NetworkOptions) -> Network:
    """Returns the network of some options, in which all links between switches are tunnels."""
    network = load_network(options)
    return tunnelled(network, {x.id for x in network.links if x.neighbor in network.switches})


@pytest.mark.long
@pytest.mark.parametrize(
    ("tunnels", "settings"),
    [
        (True, {"encoding": "mixed"}),
        (False, {"encoding": "mixed"}),
        (True, {}),
        (True, {"encoding": "port", "label.bits": 32}),
    ],
    ids=["mixed over tunnels", "mixed", "virtual trees over tunnels", "wide ports over tunnels"],
)
def test_other_stacks_and_tunnels_between_islands_deliver_the_same(
    run_in_session: Runner,
    monkeypatch: pytest.MonkeyPatch,
    tunnels: bool,
    settings: dict[str, object],
):
    if tunnels:
        monkeypatch.setattr("stackcast.jobs.embedded.lab.load_network", islands)
    result = run_in_session("itch_stream", SMALL, settings)
    network = json.loads((result.lab / "network.json").read_text())
    between = [link for link in network["links"] if link["neighbor_port"] is not None]
    assert len(between) == 12 and all(bool(link.get("tunnel")) == tunnels for link in between)
    report = read_report(result.lab)
    assert_exact(report, at_least=100)
    assert report["messages_in"] == SMALL["messages"]
    assert 0 < report["link_bytes"] < report["broadcast_bytes"]
    assert "Delivered exactly" in result.output


@pytest.mark.long
def test_where_the_switches_match_hosts_get_the_same_and_summaries_count_it(run: Runner):
    result = run("itch_stream", SMALL, {"match": "network"})
    report = read_report(result.lab)
    assert report.keys() >= KEYS - {"batches"}
    assert report["messages_in"] == SMALL["messages"]
    assert_exact(report, at_least=100)
    assert report["misnumbered"] == 0
    # Few rules do not beat unicast, because the first switch gets the whole feed.
    assert 0 < report["link_bytes"] < report["broadcast_bytes"] / 2
    assert 0 < report["rejected_subscriptions"] < 30
    # The verdict compares each summary with the messages of its host.
    assert report["summaries"] >= 8
    assert "Delivered exactly" in result.output
    assert (result.lab / "report.html").is_file()


def test_sensors_are_proved_on_a_line_of_switches_that_match_and_then_on_the_fabric(run: Runner):
    small = {**SMALL, "messages": 1_000, "subscriptions": 40, "hosts": 1}
    result = run("attribute_stream", small)
    folder_of_line = result.lab.with_name("lab-line")
    fabric, line = read_report(result.lab), read_report(folder_of_line)
    assert fabric.keys() >= KEYS and line.keys() >= KEYS - {"batches"}
    for report in (line, fabric):
        assert_exact(report, at_least=100)
        assert not report["misnumbered"]
        assert 0 < report["link_bytes"] < report["broadcast_bytes"]
    assert line["messages_in"] == 1_000
    # Only Kafka carries damaged records, and events of the attribute that the run registers.
    assert 950 < fabric["messages_in"] < fabric["messages_published"] == 1_000
    assert line["dead_letters"] == 0 < fabric["dead_letters"]
    assert "registered attribute carbon_dioxide with id" in result.log
    for folder in (result.lab, folder_of_line):
        assert (folder / "report.html").stat().st_size > 50_000
    assert result.output.count("Delivered exactly") == 2


def wait_for_deliveries(address: str, *programs: Program) -> None:
    """Wait until a demonstration has delivered three batches, and its console shows them.

    Args:
        address: URL of the console.
        programs: the demonstration, if it is a program.
    """

    def get(path: str) -> Any:
        with urllib.request.urlopen(f"{address}/api/{path}", timeout=LIMIT_S) as answer:
            return json.load(answer)

    # The page is there before the stream is.
    until(lambda: get("health")["stream"]["reached"], *programs, seconds=LIMIT_S)
    batches: set[int] = set()

    def delivered() -> bool:
        time.sleep(0.2)
        health = get("health")
        assert health["stream"]["reached"] is True, health["stream"]
        batches.update(row["batch_id"] for row in health["batches"] if row["matched"])
        return len(batches) >= 3

    until(delivered, *programs, seconds=LIMIT_S)
    assert sum(get("loads")["stackcast"]) > 0


CONSOLE_ADDRESS = re.compile(r"(http://\S+)/#token=")


@pytest.mark.long
def test_a_demonstration_delivers_until_it_is_asked_to_stop(
    ready_tables: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):
    lifecycle = embedded_jobs.SharedSparkLifecycle()
    options = embedded_jobs.arguments({"folder": tmp_path / "lab", **SMALL})
    asked = console.parser().parse_args(["--demo", "--listen", "127.0.0.1:0", *options])
    job = partial(console.demonstrate, asked)
    settings = {"trigger": "200 milliseconds"}
    printed = ""

    def address() -> str:
        nonlocal printed
        printed += "".join(capfd.readouterr())
        assert not demonstration.done(), printed[-3000:]
        match = CONSOLE_ADDRESS.search(printed)
        return match[1] if match else ""

    children = embedded_jobs.children(os.getpid())
    with ThreadPoolExecutor(1) as pool:
        demonstration = pool.submit(embedded_jobs.run, job, settings, monkeypatch, lifecycle)
        try:
            until(address)
            wait_for_deliveries(address())
        finally:
            lifecycle.stopping.set()
        assert demonstration.result() == 0
    printed += "".join(capfd.readouterr())
    assert "dead letters" not in printed.partition("/#token=")[2], "they are in the log"
    assert embedded_jobs.children(os.getpid()) == children
    assert FolderLock(tmp_path / "lab").holder() is None


@pytest.mark.long
def test_ctrl_c_takes_all_of_a_demonstration_down(start):
    program = start(SMALL, "jobs/console.py", "--demo", "--listen", "127.0.0.1:0")
    program.wait_for("/#token=")
    wait_for_deliveries(CONSOLE_ADDRESS.findall(program.output)[-1], program)
    assert "dead letters" not in program.output.partition("/#token=")[2], "they are in the log"
    program.interrupt()
    assert program.wait() == application.INTERRUPTED
    program.assert_gone()


@pytest.mark.parametrize("moment", ["broker 127", pytest.param("batch 0", marks=pytest.mark.long)])
def test_ctrl_c_leaves_no_process_and_no_lock(start, moment: str):
    program = start(LASTING, **SHORT_BATCHES)
    program.wait_for(moment)
    program.interrupt()
    assert program.wait() != 0
    program.assert_gone()


@pytest.mark.long
@pytest.mark.parametrize("moment", ["started the stream (", "header stacks of", "batch 0"])
def test_ctrl_c_in_a_stream_prints_no_error(start, moment: str):
    """The session must not stop under tasks of a slice."""
    program = start(LASTING, latency="realtime", **SHORT_BATCHES)
    program.wait_for(moment)
    program.interrupt()
    assert program.wait() == application.INTERRUPTED
    after = program.output.partition(" WARNING stackcast: interrupted")
    assert after[1] and not after[2].strip()
    assert all(word not in program.output for word in ("ERROR", "Traceback", "NoneType", "\tat "))
    program.assert_gone()


@pytest.mark.long
def test_sigterm_ends_the_run_after_the_batch_in_progress(start, tmp_path: Path):
    """On another network, with a recorded session."""
    nx.write_graphml(nx.cycle_graph(4), tmp_path / "ring.graphml")
    records = tmp_path / "day.NASDAQ_ITCH50.gz"
    write_records(records, TradingSession(messages=20_000, seed=9, symbols=20))
    own = {"network": tmp_path / "ring.graphml", "session": records}
    program = start({**LASTING, **own}, **SHORT_BATCHES)
    program.wait_for("batch 1")  # the first may find the topic empty
    program.process.terminate()
    program.wait()
    assert "asked to stop" in program.output
    report = read_report(program.lab)
    assert report["missing"] == report["extra"] == report["duplicates"] == 0
    assert 0 < report["messages_in"] < 20_000
    # Batches in the ledger have sent frames, so their offsets must be committed.
    table = DeltaTable(program.lab / "tables" / "egress_ledger")
    batches = table.to_pyarrow_table(columns=["batch_id"])["batch_id"].to_pylist()
    commits = {path.name for path in (program.lab / "checkpoint" / "commits").glob("[0-9]*")}
    assert {str(number) for number in batches} <= commits
    program.assert_gone()


@pytest.mark.long
def test_a_killed_run_takes_its_processes_with_it(start):
    program = start(LASTING, **SHORT_BATCHES)
    program.wait_for("broker 127")
    program.process.kill()
    program.process.wait()
    program.assert_gone()


@pytest.mark.long
def test_a_program_with_a_wrong_setting_prints_one_clear_line(start):
    program = start({"network": "topozoo/Abilen"})
    assert program.wait() == application.FAILED
    assert all(word in program.output for word in ("LAB.UNKNOWN_NETWORK", "Abilene"))
    assert "Traceback" not in program.output
    program.assert_gone()


@pytest.mark.parametrize(
    ("options", "settings", "words"),
    [
        ({"network": "topozoo/Abilen"}, {}, ["LAB.UNKNOWN_NETWORK", "Abilene"]),
        (
            {"speed": "9"},
            {"kafka.bootstrap.servers": "127.0.0.1:1"},
            ["SETTINGS.BAD_VALUE", "(--speed)", "spark.stackcast.kafka.bootstrap.servers"],
        ),
        ({}, {"lab.speed": "9"}, ["SETTINGS.UNKNOWN_KEY", "jobs/itch_stream.py --speed"]),
        ({}, {"sinc": "udp"}, ["SETTINGS.UNKNOWN_KEY", "spark.stackcast.sink"]),
        (
            {},
            {"kafka.boostrap.servers": "broker:9092"},
            ["SETTINGS.NO_BROKER", "spark.stackcast.kafka.bootstrap.servers"],
        ),
        (
            {},
            {
                "match": "network",
                "summary.port": "0",
                "kafka.bootstrap.servers": "127.0.0.1:1",
            },
            ["SETTINGS.MATCHED_IN_NETWORK", "refresh_switches"],
        ),
    ],
)
def test_a_wrong_setting_is_one_clear_line_before_a_spark_starts(
    options: dict[str, str],
    settings: dict[str, str],
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    """The job runs in this process, and fails where it starts a Spark."""
    properties = embedded_jobs.properties(settings)
    # Options of the lab are an error together with a broker.
    folder = {} if "kafka.bootstrap.servers" in settings else {"folder": tmp_path / "lab"}
    arguments = embedded_jobs.arguments({**folder, **options})
    monkeypatch.setattr(session, "properties", lambda: properties)
    monkeypatch.setattr(session, "start", lambda *_: pytest.fail("a Spark starts"))
    monkeypatch.setattr(application, "set_up", lambda: None)
    monkeypatch.setattr(application, "Lifecycle", embedded_jobs.SharedSparkLifecycle)
    assert itch_stream.main(arguments) == application.FAILED
    (record,) = caplog.records
    assert all(word in record.getMessage() for word in words) and record.exc_info is None
