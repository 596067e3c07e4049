"""The lab as one thing: it comes up, is used, and leaves nothing behind."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from still_runs import still_runs
from waiting import until

from lab.fabric.topologies import NetworkOptions, load_network
from lab.traffic.publisher import ensure_topic
from lab.up.folder import MARKER, FolderLock
from lab.up.lab import Lab
from udfs.errors import LabError
from udfs.network.rows import network_from_rows, tree_from_row

pytestmark = pytest.mark.integration

SMALL = NetworkOptions(pods=1, racks=2, hosts=1, planes=1, spines=1)
SIZES = [f"--{size}=1" for size in ("pods", "racks", "hosts", "planes", "spines")]


def children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in listed]


def stackcast(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cli.main", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_lab_comes_up_answers_and_leaves_no_process(tmp_path):
    before = set(children(os.getpid()))
    with Lab(tmp_path, load_network(SMALL)) as lab:
        lab.up()
        started = set(children(os.getpid())) - before
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
    assert not any(map(still_runs, started))
    FolderLock(tmp_path).check()
    lab.down()  # again is fine


def test_a_lab_without_a_broker_needs_no_java(tmp_path):
    with Lab(tmp_path, load_network(SMALL), java="no-such-java", broker=False) as lab:
        lab.up()
        assert (lab.bootstrap_servers, lab.settle()["frames_in"]) == ("", 0)
        lab.check()


def test_a_part_that_dies_is_noticed(tmp_path):
    with Lab(tmp_path, load_network(SMALL)) as lab:
        before = set(children(os.getpid()))
        lab.up()
        for child in set(children(os.getpid())) - before:
            os.kill(child, signal.SIGKILL)
        # A process of a gigabyte takes a moment to be gone.
        with pytest.raises(LabError) as caught:
            for _ in range(600):
                lab.check()
                time.sleep(0.1)
        assert caught.value.code == "LAB.DIED"


def test_a_lab_that_cannot_start_leaves_nothing(tmp_path):
    before = set(children(os.getpid()))
    with pytest.raises(LabError) as caught:
        Lab(tmp_path, load_network(SMALL), java="no-such-java").up()
    assert caught.value.code == "LAB.BROKER_FAILED"
    assert set(children(os.getpid())) == before
    FolderLock(tmp_path).check()


def test_a_lab_in_the_background(tmp_path):
    """up, up again, use, down, down again: as a user types it."""
    sizes = [*SIZES, "--racks", "2", "--subscriptions", "50"]
    (tmp_path / "lock").touch()
    (tmp_path / MARKER).touch()
    (tmp_path / "tables").mkdir()
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1", 0))
    here = "{}:{}".format(*receiver.getsockname())
    try:
        assert stackcast("lab", "status", "--folder", tmp_path).returncode == 1
        done = stackcast("lab", "up", "--folder", tmp_path, *sizes, "--external-host", f"h2={here}")
        assert done.returncode == 0, done.stderr
        state = json.loads((tmp_path / "lab.json").read_text())
        assert state["bootstrap_servers"] in done.stdout
        parts = [state["pid"], *children(state["pid"])]
        assert len(parts) == 3

        assert not (tmp_path / "tables").exists()  # an earlier run's
        assert not (tmp_path / "receipts" / "h2.mold").exists()
        shown = stackcast("lab", "status", "--folder", tmp_path)
        assert shown.returncode == 0, shown.stderr
        assert state["p4runtime"] in shown.stdout and f"h2 at {here}" in shown.stdout
        told = json.loads(stackcast("lab", "status", "--folder", tmp_path, "--json").stdout)
        assert told["counters"]["deliveries"] == {"h1": 0, "h2": 0}

        again = stackcast("lab", "up", "--folder", tmp_path, *sizes)
        assert again.returncode != 0
        assert again.stderr.splitlines()[-1].startswith("LAB.ALREADY_UP")

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

        published = stackcast(
            "itch", "publish", "--generate", "500", "--symbols", "20",
            "--bootstrap", state["bootstrap_servers"],
        )  # fmt: skip
        assert "500 messages" in published.stdout, published.stderr
    finally:
        receiver.close()
        down = stackcast("lab", "down", "--folder", tmp_path)
    assert down.returncode == 0, down.stderr
    # The last may take a moment.
    until(lambda: not any(map(still_runs, parts)), seconds=20)
    assert not (tmp_path / "lab.json").exists()
    again = stackcast("lab", "down", "--folder", tmp_path)
    assert (again.returncode, "no lab is up" in again.stdout) == (0, True)


def test_a_lab_whose_switches_match_says_so_to_jobs_and_takes_a_feed(tmp_path):
    refused = stackcast("lab", "feed", "--folder", tmp_path, "--generate", "10")
    assert (refused.returncode, "no lab is up" in refused.stderr) == (1, True)
    up = stackcast("lab", "up", "--folder", tmp_path, *SIZES, "--match", "network")
    assert up.returncode == 0, up.stderr
    try:
        assert "spark.stackcast.match network\n" in (tmp_path / "lab.conf").read_text()
        switches = (tmp_path / "network" / "switches.jsonl").read_text().splitlines()
        assert {json.loads(line)["pipeline"] for line in switches} == {"packet_subscriptions"}
        fed = stackcast("lab", "feed", "--folder", tmp_path, "--generate", "500", "--symbols", "20")
        assert fed.returncode == 0 and "500 messages" in fed.stdout, fed.stderr
        told = json.loads(stackcast("lab", "status", "--folder", tmp_path, "--json").stdout)
        # Nobody has set a program.
        assert told["counters"]["frames_in"] == told["counters"]["drops"]["no_program"] > 40
        assert_watched(tmp_path, told["counters"])
    finally:
        stackcast("lab", "down", "--folder", tmp_path)


def assert_watched(folder, counters):
    """A link, a switch and a host, each second, until Ctrl-C."""
    (link,) = (name for name in counters["link_bytes"] if name.startswith("feed1->"))
    switch = link.partition("->")[2]
    asked = ("--watch", link.replace("->", ","), "--watch", switch, "--watch", "h1")
    command = [sys.executable, "-m", "cli.main", "lab", "status", "--folder", folder, *asked]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        lines = [watching.stdout.readline() for _ in range(6)]
        watching.send_signal(signal.SIGINT)
    assert watching.returncode == 0
    sent, fed = counters["link_bytes"][link], counters["frames_in"]
    told = [
        f"{link.replace('->', ',')}: bytes {sent:,} (+0/s)\n",
        f"{switch}: bytes in {sent:,} (+0/s), bytes out 0 (+0/s), dropped {fed:,} no_program\n",
        "h1: deliveries 0 (+0/s), bytes in 0 (+0/s), bytes out 0 (+0/s)\n",
    ]
    assert lines == told * 2
    unknown = stackcast("lab", "status", "--folder", folder, "--watch", "h9")
    assert unknown.returncode == 2 and "'h9' is no host (h1, ...)" in unknown.stderr


def test_the_background_lab_dies_whole_even_if_killed(tmp_path):
    assert stackcast("lab", "up", "--folder", tmp_path, *SIZES).returncode == 0
    state = json.loads((tmp_path / "lab.json").read_text())
    parts = [state["pid"], *children(state["pid"])]
    os.kill(state["pid"], signal.SIGKILL)
    deadline = time.monotonic() + 15
    while any(map(still_runs, parts)) and time.monotonic() < deadline:
        time.sleep(0.05)
    # The last may take a moment.
    until(lambda: not any(map(still_runs, parts)), seconds=20)
    # What it left on disk does not stand in the way of the next one, nor of down.
    assert stackcast("lab", "down", "--folder", tmp_path).returncode == 0
