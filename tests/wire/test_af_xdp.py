"""AF_XDP: frames have left once the sink says so, and what it does where it is not to be had."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys

import pytest
from paths import ROOT

pytestmark = pytest.mark.integration

HEAD = """
import logging, socket, subprocess, sys
import numpy as np
from stackcast.jobs.adapters.wire import SinkOptions, af_xdp, open_sink
from stackcast.udfs.errors import SinkError

logging.basicConfig(format="%(message)s", stream=sys.stdout)

def ip(command):
    subprocess.run(["ip", *command.split()], check=True)

QUEUES = "numtxqueues 2 numrxqueues 2"
ip(f"link add near {QUEUES} type veth peer name far {QUEUES}")
for name in ("near", "far"):
    ip(f"link set {name} addrgenmode none")
    ip(f"link set {name} mtu 9000")
    ip(f"link set {name} up")

def opened(patience=60.0):
    return open_sink(SinkOptions("af_xdp", interface="near", patience=patience))

def made(sizes, number=0):
    head = bytes.fromhex("01005e1f0203 020000000001 9999 0001 4001")
    frames = [
        head + (number + place).to_bytes(4) + bytes([place % 251]) * (size - len(head) - 4)
        for place, size in enumerate(sizes)
    ]
    borders = np.cumsum([0] + [len(frame) for frame in frames]).astype(np.int64)
    return frames, (np.frombuffer(b"".join(frames), np.uint8), borders)

def capturing():
    capture = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x9999))
    capture.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    capture.bind(("far", 0x9999))
    capture.setblocking(False)
    return capture

def taken(capture):
    found = []
    while True:
        try:
            found.append(capture.recv(65_536))
        except BlockingIOError:
            return found
"""

ALL_SIZES = """
# Frames that lie across pages, more than rings and memory hold, and of any number in a call.
af_xdp.FRAMES, af_xdp._MEMORY = 64, 1 << 15
rng = np.random.default_rng(3)
capture, sink, number = capturing(), opened(), 0
for count in (1, 64, 65, 200, 0, 3, 127):
    frames, data = made(rng.choice([60, 143, 1_514, 4_096], count, p=[.3, .55, .1, .05]), number)
    number += count
    assert sink.send(*data) == count
    # They have left: nothing is waited for.
    assert taken(capture) == frames, count
frames, data = made([100, 9_000, 100])
assert sink.send(*data) == 3 and taken(capture) == frames
print("all came")
"""

MORE_THAN_QUEUES = """
capture, sinks = capturing(), [opened() for _ in range(3)]
frames, data = made([100] * 50)
for sink in sinks:
    assert sink.send(*data) == 50 and taken(capture) == frames
for sink in sinks:
    sink.close()
# The next two have queues again.
print([sink._ring is not None for sink in (opened(), opened(), opened())])
"""


LOWER_MTU = """
capture, sink = capturing(), opened()
frames, data = made([100, 3_000])
assert sink.send(*data) == 2 and taken(capture) == frames
sink.close()
ip("link set near mtu 1500")
ip("link set far mtu 1500")
# The ring of the process is the same.
sink = opened(0.1)
assert sink._ring is not None
frames, data = made([100, 1_514])
assert sink.send(*data) == 2 and taken(capture) == frames
frames, data = made([1_515])
try:
    sink.send(*data)
except SinkError as error:
    print(error.code)
"""


def seen(namespace: list[str], program: str) -> list[str]:
    done = subprocess.run(
        [*namespace, sys.executable, "-c", HEAD + program],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(autouse=True)
def _kernel() -> None:
    try:
        socket.socket(44, socket.SOCK_RAW, 0).close()
    except OSError as error:
        if error.errno != errno.EPERM:
            pytest.skip(f"no AF_XDP here: {error}")


def test_frames_of_all_sizes_and_numbers_have_left_in_order_when_send_returns(namespace):
    assert seen(namespace, ALL_SIZES) == ["all came"]


def test_where_others_have_all_queues_frames_go_by_a_packet_socket_and_the_log_says_so(namespace):
    why = "([Errno 16] all 2 queues are in use by other sockets)"
    assert seen(namespace, MORE_THAN_QUEUES) == [
        f"interface near does not support AF_XDP {why}: sending through a packet socket instead",
        "[True, True, False]",
    ]


def test_a_frame_that_is_too_long_since_the_mtu_was_lowered_is_an_error(namespace):
    assert seen(namespace, LOWER_MTU)[-1] == "SINK.FRAME_TOO_LARGE"


def test_without_af_xdp_in_the_kernel_frames_go_by_a_packet_socket(namespace):
    # No kernel has sockets of that family, as one without AF_XDP has none of its own.
    program = "af_xdp._AF_XDP = 0x7FFF\n" + ALL_SIZES
    lines = seen(namespace, program)
    assert "sending through a packet socket instead" in lines[0] and lines[1:] == ["all came"]
