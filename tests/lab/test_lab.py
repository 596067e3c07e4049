"""The lab as a whole: it comes up, is used, and leaves no process or lock."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import stackcast
from embedded_jobs import children
from waiting import still_runs, until

from stackcast.lab.fabric.topologies import NetworkOptions, load_network
from stackcast.lab.traffic.publisher import ensure_topic
from stackcast.lab.up.folder import MARKER, FolderLock
from stackcast.lab.up.lab import Lab
from stackcast.udfs.errors import LabError, RequirementError
from stackcast.udfs.network.rows import network_from_rows, tree_from_row

pytestmark = pytest.mark.integration

SMALL = NetworkOptions(pods=1, racks=2, hosts=1, planes=1, spines=1)
SIZES = [f"--{size}=1" for size in ("pods", "racks", "hosts", "planes", "spines")]


def wait_until_gone(processes: set[int]) -> None:
    """Wait until none of the processes runs: the last one may take a moment."""
    until(lambda: not any(map(still_runs, processes)))


def test_a_lab_comes_up_answers_notices_a_dead_broker_and_leaves_no_process(
    tmp_path: Path,
) -> None:
    before = children(os.getpid())
    with Lab(tmp_path, load_network(SMALL)) as lab:
        lab.up()
        started = children(os.getpid()) - before
        assert len(started) == 2
        ensure_topic(lab.bootstrap_servers, "any")
        assert lab.hosts == ("h1", "h2")
        assert set(lab.ingress) == {"feed1"}
        assert lab.p4runtime.startswith("127.0.0.1:")
        assert lab.settle()["frames_in"] == 0
        lab.check()
        with pytest.raises(LabError, match="stackcast lab down") as caught:
            Lab(tmp_path, load_network(SMALL)).up()
        assert caught.value.code == "LAB.BUSY"
        (broker,) = (
            process
            for process in started
            if b"kafka.Kafka" in Path(f"/proc/{process}/cmdline").read_bytes()
        )
        assert_death_is_noticed(lab, broker)
    assert not any(map(still_runs, started))
    FolderLock(tmp_path).check()
    lab.down()  # a second time has no effect


def test_a_lab_without_a_broker_needs_no_java_and_notices_that_a_part_dies(tmp_path: Path) -> None:
    before = children(os.getpid())
    with Lab(tmp_path, load_network(SMALL), java="no-such-java", broker=False) as lab:
        lab.up()
        assert (lab.bootstrap_servers, lab.settle()["frames_in"]) == ("", 0)
        lab.check()
        (network,) = children(os.getpid()) - before
        assert_death_is_noticed(lab, network)


def assert_death_is_noticed(lab: Lab, process: int) -> None:
    """Kill a part of a lab, and check that the lab reports it."""
    os.kill(process, signal.SIGKILL)

    def code() -> str:
        try:
            lab.check()
        except LabError as error:
            return error.code
        return ""

    # A process of a gigabyte takes a moment until the kernel has removed it.
    until(code)
    assert code() == "LAB.DIED"


def test_a_lab_that_cannot_start_leaves_nothing(tmp_path: Path) -> None:
    before = children(os.getpid())
    with pytest.raises(RequirementError) as caught:
        Lab(tmp_path, load_network(SMALL), java="no-such-java").up()
    assert caught.value.code == "REQUIREMENT.JAVA"
    assert children(os.getpid()) == before
    FolderLock(tmp_path).check()


def status(folder: Path) -> Any:
    return json.loads(stackcast("lab", "status", "--folder", folder, "--json").stdout)


def test_a_lab_in_the_background(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands up, up again, use, down and down again, as a user types them."""
    sizes = [*SIZES, "--racks", "2", "--subscriptions", "50"]
    (tmp_path / "lock").touch()
    (tmp_path / MARKER).touch()
    (tmp_path / "tables").mkdir()
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1", 0))
    address = "{}:{}".format(*receiver.getsockname())
    try:
        assert stackcast("lab", "status", "--folder", tmp_path).code == 1
        up = stackcast(
            "lab", "up", "--folder", tmp_path, *sizes, "--external-host", f"h2={address}"
        )
        assert up.code == 0, up.stderr
        state = json.loads((tmp_path / "lab.json").read_text())
        assert state["bootstrap_servers"] in up.stdout
        processes = {state["pid"], *children(state["pid"])}
        assert len(processes) == 3

        assert not (tmp_path / "tables").exists()  # it was of an earlier run
        assert not (tmp_path / "receipts" / "h2.mold").exists()
        shown = stackcast("lab", "status", "--folder", tmp_path)
        assert shown.code == 0, shown.stderr
        assert state["p4runtime"] in shown.stdout and f"h2 at {address}" in shown.stdout
        assert status(tmp_path)["counters"]["deliveries"] == {"h1": 0, "h2": 0}

        second = stackcast("lab", "up", "--folder", tmp_path, *sizes)
        assert second.code != 0
        assert second.stderr.splitlines()[-1].startswith("LAB.ALREADY_UP")

        settings = dict(
            line.split(" ", 1)
            for line in (tmp_path / "lab.conf").read_text().splitlines()
            if line and not line.startswith("#")
        )
        assert settings["spark.stackcast.kafka.bootstrap.servers"] == state["bootstrap_servers"]
        assert settings["spark.master"].strip() == "local[*,4]"
        assert settings["spark.stackcast.sink.udp.endpoint"] == state["ingress"]["feed1"]
        rows = {
            path.stem: [json.loads(line) for line in path.read_text().splitlines()]
            for path in (tmp_path / "network").glob("*.jsonl")
        }
        network = network_from_rows(rows["switches"], rows["hosts"], rows["links"])
        assert network.links == load_network(SMALL).links
        assert {row["address"] for row in rows["switches"]} == {state["p4runtime"]}
        assert tree_from_row(rows["virtual_trees"][0]).state == "active"
        assert len(rows["subscriptions"]) == 50
        assert all(dt.datetime.fromisoformat(r["updated_at"]) for r in rows["subscriptions"])

        # In the default folder, commands that publish find the broker by themselves.
        var = tmp_path_factory.mktemp("var")
        (var / "lab").symlink_to(tmp_path)
        with monkeypatch.context() as environment:
            environment.setenv("STACKCAST_VAR", str(var))
            published = stackcast("itch", "publish", "--generate", "500", "--symbols", "20")
            events = stackcast("attributes", "publish", "--sensors", "5", "--topic", "sensors")
        assert "500 messages" in published.stdout, published.stderr
        for result in (published, events):
            assert f" at {state['bootstrap_servers']}: " in result.stdout + result.stderr
    finally:
        receiver.close()
        down = stackcast("lab", "down", "--folder", tmp_path)
    assert down.code == 0, down.stderr
    wait_until_gone(processes)
    assert not (tmp_path / "lab.json").exists()
    second = stackcast("lab", "down", "--folder", tmp_path)
    assert (second.code, "no lab is up" in second.stdout) == (0, True)


def test_a_lab_whose_switches_match_writes_so_into_settings_and_takes_a_feed_until_it_is_killed(
    tmp_path: Path,
) -> None:
    refused = stackcast("lab", "feed", "--folder", tmp_path, "--generate", "10")
    assert (refused.code, "no lab is up" in refused.stderr) == (1, True)
    up = stackcast("lab", "up", "--folder", tmp_path, *SIZES, "--match", "network")
    assert up.code == 0, up.stderr
    try:
        state = json.loads((tmp_path / "lab.json").read_text())
        processes = {state["pid"], *children(state["pid"])}
        assert len(processes) == 3
        assert "spark.stackcast.match network\n" in (tmp_path / "lab.conf").read_text()
        switches = (tmp_path / "network" / "switches.jsonl").read_text().splitlines()
        assert {json.loads(line)["pipeline"] for line in switches} == {"packet_subscriptions"}
        fed = stackcast("lab", "feed", "--folder", tmp_path, "--generate", "500", "--symbols", "20")
        assert fed.code == 0 and "500 messages" in fed.stdout, fed.stderr
        counters = status(tmp_path)["counters"]
        # The switches have no program.
        assert counters["frames_in"] == counters["drops"]["no_program"] > 40
        assert_watched(tmp_path, counters)
        os.kill(state["pid"], signal.SIGKILL)
        wait_until_gone(processes)
    finally:
        # The files of the killed lab must prevent neither this nor the next lab.
        down = stackcast("lab", "down", "--folder", tmp_path)
    assert down.code == 0, down.stderr
    FolderLock(tmp_path).check()


def assert_watched(folder: Path, counters: dict[str, Any]) -> None:
    """Check that a link, a switch and a host are printed each second, until Ctrl-C."""
    (link,) = (name for name in counters["link_bytes"] if name.startswith("feed1->"))
    switch = link.partition("->")[2]
    options = ("--watch", link.replace("->", ","), "--watch", switch, "--watch", "h1")
    command = [
        sys.executable,
        "-m",
        "stackcast.cli.main",
        "lab",
        "status",
        "--folder",
        folder,
        *options,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        lines = [watching.stdout.readline() for _ in range(6)]
        watching.send_signal(signal.SIGINT)
    assert watching.returncode == 0
    sent, fed = counters["link_bytes"][link], counters["frames_in"]
    assert lines == 2 * [
        f"{link.replace('->', ',')}: bytes {sent:,} (+0/s)\n",
        f"{switch}: bytes in {sent:,} (+0/s), bytes out 0 (+0/s), dropped {fed:,} no_program\n",
        "h1: deliveries 0 (+0/s), bytes in 0 (+0/s), bytes out 0 (+0/s)\n",
    ]
    unknown = stackcast("lab", "status", "--folder", folder, "--watch", "h9")
    assert unknown.code == 2 and "the lab has no host (h1, ...)" in unknown.stderr
