"""The example docs/examples/one-switch: its rows fill a switch, and frames reach its hosts."""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import sys
from typing import Any

import pytest
from paths import ROOT
from ports import free_port
from program_switches import fill
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from stackcast.jobs.adapters.tables.network_folder import check_folder
from stackcast.udfs.switches.stack_entries import switch_entries

pytestmark = pytest.mark.integration

FOLDER = ROOT / "docs" / "examples" / "one-switch"


def documented() -> str:
    """Return the command of the tutorial that starts the switch, in one line."""
    text = re.sub(r" *\\\n *", " ", (ROOT / "docs" / "tutorials" / "one-switch.md").read_text())
    (line,) = re.findall(
        r"^ {4}stackcast (switch run --program .*--port 3=.*)$", text, re.MULTILINE
    )
    return line


def test_the_rows_of_the_document_are_those_of_the_example():
    tutorial = (ROOT / "docs/tutorials/one-switch.md").read_text()
    shown = re.findall(r'^ {4}(\{"host": "h1".*\})$', tutorial, re.M)
    rows = [json.loads(row) for row in (FOLDER / "hosts.jsonl").read_text().splitlines()]
    assert shown and all(json.loads(row) in rows for row in shown)


def test_a_frame_of_the_publisher_reaches_both_hosts_and_nobody_else():
    checked = check_folder(FOLDER)
    network = checked.network
    assert network is not None and not checked.problems
    ends: dict[int, socket.socket] = {}

    def free_ports(match: re.Match[str]) -> str:
        """Open the host's end of a tunnel, and return the option with ports that are free."""
        near, far = free_port(), free_port()
        end = ends[int(match[1])] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        end.bind(("127.0.0.1", far))
        end.connect(("127.0.0.1", near))
        end.settimeout(600)
        return f"{match[1]}=udp:127.0.0.1:{near}/127.0.0.1:{far}"

    line = documented().replace("127.0.0.1:9559", "127.0.0.1:0")
    line = re.sub(r"(\d+)=udp:\S+", free_ports, line)
    assert list(ends) == [1, 2, 3]
    (switch,) = network.switches.values()
    with subprocess.Popen(
        [sys.executable, "-m", "stackcast.cli.main", *shlex.split(line)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout
            ready: dict[str, Any] = json.loads(process.stdout.readline())
            fill(ready["p4runtime"], switch, switch_entries(network, checked.trees))
            labels = network.labels
            stack = labels.ether_type.to_bytes(2) + labels.pack([labels.parse("tree:1")])
            datagram = IP(src="10.64.0.1", dst="239.1.1.1") / UDP(sport=1, dport=2) / b"news"
            plain = bytes(Ether(dst="01:00:5e:01:01:01", src="02:00:0a:40:00:01") / datagram)
            ends[1].send(plain[:12] + stack + plain[14:])
            for port in (2, 3):
                assert ends[port].recv(2048) == plain
        finally:
            process.terminate()
            counters = json.loads(process.stdout.readline()) if process.stdout else {}
    assert counters["ports"]["1"]["frames_out"] == 0
    for end in ends.values():
        end.close()
