"""`stackcast receive --event-frames` receives frames of events on an interface, without IP."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from lossy_network import summary_bytes
from paths import ROOT, SUPPORT
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from stackcast.udfs.messages.attributes.encodings import BITMASK_GROUP, ID_PAIRS_GROUP
from stackcast.udfs.messages.attributes.keyed_events import KEY
from stackcast.udfs.messages.attributes.reference import write_event

pytestmark = pytest.mark.integration

SESSION = b"EVENTS0000"
PUBLISHER_CARD, HOST_CARD = "02:00:00:00:00:01", "02:00:00:00:00:07"

#: One end of a pair of interfaces sends, and the command listens at the other. The script prints
#: the lines of the command.
SCRIPT = """
import signal, socket, subprocess, sys
from pathlib import Path
from waiting import until

def ip(words):
    subprocess.run(["ip", *words.split()], check=True)

ip("link set lo up")
ip("link add near type veth peer name far")
for name in ("near", "far"):
    ip(f"link set {name} addrgenmode none arp off up")
ip("addr add 10.0.0.7/24 dev far")
ip(f"link set far address {sys.argv[2]}")
command = [sys.executable, "-m", "stackcast.cli.main", "receive", "--json", *sys.argv[1].split()]
receiver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
line = receiver.stderr.readline()
assert "listening at far" in line, line
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
wire.bind(("near", 3))
for frame in sys.argv[4:]:
    wire.send(bytes.fromhex(frame))
for _ in range(3):
    print(receiver.stdout.readline(), end="")
wire.send(bytes.fromhex(sys.argv[3]))

def summary_is_read():
    rows = [row.split() for row in Path("/proc/net/udp").read_text().splitlines()]
    queues = [row[4].partition(":")[2] for row in rows if row[1].endswith(":6721")]
    return queues == ["00000000"]

until(summary_is_read)
receiver.send_signal(signal.SIGTERM)
print(receiver.stdout.read(), end="")
sys.exit(receiver.wait(600))
"""


def frame(group: int, content: bytes, ether_type: str = "9001") -> str:
    return (
        group.to_bytes(6).hex() + PUBLISHER_CARD.replace(":", "") + ether_type + content.hex()
    ).ljust(120, "0")


@pytest.mark.parametrize(
    ("encoding", "group"), [("bitmask", BITMASK_GROUP), ("id_pairs", ID_PAIRS_GROUP)]
)
def test_events_of_an_interface_and_their_summaries_are_heard(
    namespace: list[str], encoding: str, group: int
) -> None:
    headers = [write_event({1: number, 3: 7}, encoding) for number in range(3)]
    frames = [frame(group, h + KEY.pack(SESSION, n << 26)) for n, h in enumerate(headers)]
    noise = frame(group, b"\0" * 46, "88b5")
    content = summary_bytes(SESSION, 0, 3 << 26, {number << 26: 1 for number in range(3)})
    datagram = IP(src="10.0.0.1", dst="10.0.0.7") / UDP(sport=5000, dport=26401) / content
    summary = bytes(Ether(src=PUBLISHER_CARD, dst=HOST_CARD) / datagram).hex()
    arguments = f"--event-frames {encoding} --interface far --summary-address 10.0.0.7"
    process = subprocess.run(
        [*namespace, sys.executable, "-c", SCRIPT, arguments, HOST_CARD, summary, *frames[:2],
         noise, frames[2]],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{SUPPORT}"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    *lines, last = [json.loads(line) for line in process.stdout.splitlines()]
    assert [(line["sequence"], line["hex"]) for line in lines] == [
        (number << 26, header.hex()) for number, header in enumerate(headers)
    ]
    (session,) = last["sessions"]
    assert (session["session"], session["state"]) == (SESSION.decode(), "even")
