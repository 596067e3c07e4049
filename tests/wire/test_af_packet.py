"""Frames on a real interface: a veth pair in a network namespace of the test's own, by either sink
that sends on one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from paths import ROOT

pytestmark = pytest.mark.integration


# Runs inside the namespace; prints what it saw.
PROGRAM = """
import socket, subprocess, sys
import numpy as np
from stackcast.jobs.adapters.wire import SinkOptions, af_xdp, open_sink
from stackcast.jobs.adapters.wire.pcap import read_pcap
from stackcast.udfs.errors import SinkError

path, kind = sys.argv[1:]
queues = "numtxqueues 2 numrxqueues 2"
pair = f"ip link add near {queues} type veth peer name far {queues}"
subprocess.run(pair.split(), check=True)

def code_of(action):
    try:
        action()
    except SinkError as error:
        return error.code
    return "no error"

head = bytes.fromhex("01005e1f0203 020000000001 9999 0001 4001")
frames = [head + number.to_bytes(4) + bytes(number % 200 + 40) for number in range(3_000)]
offsets = np.zeros(len(frames) + 1, np.int64)
np.cumsum([len(frame) for frame in frames], out=offsets[1:])
data = np.frombuffer(b"".join(frames), np.uint8)

sink = open_sink(SinkOptions(kind, interface="near"))
print("down", code_of(lambda: sink.send(data, offsets)))
sink.close()
for name in ("near", "far"):
    subprocess.run(["ip", "link", "set", name, "up"], check=True)

capture = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x9999))
capture.bind(("far", 0x9999))
capture.settimeout(600)
sink = open_sink(SinkOptions(kind, interface="near"))
pcap = open_sink(SinkOptions("pcap", path=path))
seen = []
for begin in range(0, len(frames), 50):
    borders = offsets[begin : begin + 51]
    assert sink.send(data, borders) == pcap.send(data, borders) == len(borders) - 1
    sink.flush()
    seen += [capture.recv(65_536) for _ in borders[1:]]
with open(path, "rb") as file:
    recorded = [record.frame for record in read_pcap(file)]
print("same", seen == frames, recorded == frames)

def lost(patience):
    subprocess.run("ip link set far down".split(), check=True)
    return open_sink(SinkOptions(kind, interface="near", patience=patience))

waiting = lost(0.2)
print("no link", code_of(lambda: waiting.send(data, offsets[:51])))
waiting.close()
up = subprocess.Popen(["sh", "-c", "sleep 0.5; ip link set far up"])
waiting = lost(30)
assert waiting.send(data, offsets[:51]) == 50
print("link again", up.wait())
waiting.close()

large = np.zeros(9_000, np.uint8)
print("large", code_of(lambda: sink.send(large, np.array([0, 9_000], np.int64))))
print("missing", code_of(lambda: open_sink(SinkOptions(kind, interface="nowhere"))))
subprocess.run("ip link delete near".split(), check=True)
print("gone", code_of(lambda: sink.send(data, offsets)))
sink.close()
"""

UNPRIVILEGED = """
from stackcast.jobs.adapters.wire import SinkOptions, open_sink
from stackcast.udfs.errors import SinkError
try:
    open_sink(SinkOptions("af_packet", interface="lo"))
except SinkError as error:
    print(error)
"""


def run(program: list[str], *arguments: str) -> str:
    done = subprocess.run(
        [*program, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", ["af_packet", "af_xdp"])
def test_an_interface_carries_the_bytes_that_the_pcap_has(namespace, tmp_path, kind):
    path = str(tmp_path / "frames.pcap")
    output = run([*namespace, sys.executable, "-c", PROGRAM], path, kind)
    assert output.splitlines() == [
        "down SINK.INTERFACE_DOWN",
        "same True True",
        "no link SINK.STALLED",
        "link again 0",
        "large SINK.FRAME_TOO_LARGE",
        "missing SINK.INTERFACE_NOT_FOUND",
        "gone SINK.INTERFACE_NOT_FOUND",
    ]


def test_without_permission_the_error_says_what_is_needed():
    drop: list[str] = []
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("setpriv (util-linux) is needed to drop the capability of root")
        drop = ["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw"]
    output = run([*drop, sys.executable, "-c", UNPRIVILEGED])
    assert output.startswith("SINK.PERMISSION")
    assert "CAP_NET_RAW" in output and "docs/how-to/choose-a-sink.md" in output
