"""``stackcast switch run`` as a user types it: tunnels, interfaces, P4Runtime, signals."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import certificates
import grpc
import networkx as nx
import pytest
from documents import commands
from google.protobuf import text_format
from networks import from_graph
from paths import COMPILED_P4, ROOT
from ports import free_port
from program_switches import fill
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from stackcast.jobs.adapters.switches.credentials import Credentials
from stackcast.jobs.adapters.switches.p4runtime import SwitchConnection
from stackcast.schemas.p4runtime import p4runtime_pb2, p4runtime_pb2_grpc
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.network.network import Network
from stackcast.udfs.switches.stack_entries import switch_entries
from stackcast.udfs.trees.broadcast import broadcast_trees
from stackcast.udfs.trees.encode import Encoder

pytestmark = pytest.mark.integration

PROGRAM = [
    "--program", str(COMPILED_P4 / "virtual_trees.json"),
    "--p4info", str(COMPILED_P4 / "virtual_trees.p4info.txtpb"),
]  # fmt: skip
FREE = ("--grpc", "127.0.0.1:0")


class Running:
    """One ``stackcast switch run``; ``ready`` is its first line."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stackcast.cli.main", "switch", "run", *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ready = self.line()

    def line(self) -> dict[str, Any]:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def counters(self) -> dict[str, Any]:
        self.process.send_signal(signal.SIGUSR1)
        return self.line()

    def end(self, number: int = signal.SIGTERM) -> dict[str, Any]:
        """The counters that the switch prints at its end."""
        self.process.send_signal(number)
        last = self.line()
        assert self.process.wait(600) == 0
        return last


class Runs(list[Running]):
    def __call__(self, *arguments: str) -> Running:
        self.append(Running(*arguments))
        return self[-1]


@pytest.fixture
def run() -> Iterator[Runs]:
    runs = Runs()
    yield runs
    for each in runs:
        if each.process.poll() is None:
            each.process.kill()
        each.process.wait()
        assert each.process.stdout
        each.process.stdout.close()


def tunnels(network: Network) -> tuple[dict[str, list[str]], dict[str, tuple[int, int]]]:
    """``--port`` options by switch; near and far UDP port by host."""
    options: dict[str, list[str]] = {name: [] for name in network.switches}
    hosts: dict[str, tuple[int, int]] = {}
    ends: dict[tuple[str, str], int] = {}

    def end(one: str, other: str) -> int:
        if (one, other) not in ends:
            ends[one, other] = free_port()
        return ends[one, other]

    attached = [(host.switch, host.port, host.name) for host in network.hosts.values()]
    joined = [(link.switch, link.port, link.neighbor) for link in network.links]
    for switch, port, neighbor in dict.fromkeys([*attached, *joined]):
        near, far = end(switch, neighbor), end(neighbor, switch)
        options[switch] += ["--port", f"{port}=udp:127.0.0.1:{near}/127.0.0.1:{far}"]
        if neighbor in network.hosts:
            hosts[neighbor] = (far, near)
    return options, hosts


def card(ports: tuple[int, int]) -> socket.socket:
    """A host's end of its tunnel."""
    here, there = ports
    wire = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    wire.bind(("127.0.0.1", here))
    wire.connect(("127.0.0.1", there))
    wire.settimeout(600)
    return wire


def frames(labels: tuple[int, ...], payload: bytes) -> tuple[bytes, bytes]:
    """A frame with a stack, and what a host gets of it."""
    datagram = IP(src="10.9.0.1", dst="239.1.1.1") / UDP(sport=5000, dport=26400) / payload
    plain = bytes(Ether(dst="01:00:5e:01:01:01", src="02:00:00:00:00:01") / datagram)
    stack = b"".join(label.to_bytes(2) for label in labels)
    return plain[:12] + b"\x99\x99" + len(labels).to_bytes(2) + stack + plain[14:], plain


@pytest.mark.parametrize("given", ["files", "by the client"])
def test_a_frame_crosses_switches_joined_by_tunnels_by_its_labels(run: Runs, given: str):
    network = from_graph(nx.path_graph(2), hosts_per_switch=2, publishers=1)
    trees = broadcast_trees(network)
    options, hosts = tunnels(network)
    entries = switch_entries(network, trees)
    switches = {
        switch.name: run(
            *(PROGRAM if given == "files" else ()),
            *FREE, "--device-id", str(switch.device_id), *options[switch.name],
        )
        for switch in network.switches.values()
    }  # fmt: skip
    for name, switch in switches.items():
        assert switch.ready["pid"] == switch.process.pid
        fill(switch.ready["p4runtime"], network.switches[name], entries)
    cards = {name: card(ports) for name, ports in hosts.items()}
    receivers = sorted(network.subscribers())
    encoder = Encoder(network, "feed1", trees)
    for wanted in (receivers, receivers[:1], receivers[1:3], receivers[-1:]):
        for encoding in encoder.encode(frozenset(wanted)):
            stacked, plain = frames(encoding.labels, b"for " + " ".join(wanted).encode())
            cards["feed1"].send(stacked)
            for name in encoding.receivers:
                assert cards[name].recv(2048) == plain
    cards["feed1"].send(b"noise")
    feed = network.host("feed1")
    deadline = time.monotonic() + 600
    while (counters := switches[feed.switch].counters())["ports"][str(feed.port)]["frames_in"] < 5:
        assert time.monotonic() < deadline, counters
    ended = {name: switch.end() for name, switch in switches.items()}
    for each in cards.values():
        each.settimeout(0.05)
        with pytest.raises(TimeoutError):
            each.recv(2048)
        each.close()
    drops = {name: last["drops"] for name, last in ended.items() if last["drops"]}
    assert drops == {feed.switch: {"ingress.dropped[1]": 1}}
    assert ended[feed.switch]["counters"] == {"ingress.dropped": {"1": [1, 5]}}


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificates")
def test_tls_lets_clients_with_the_right_certificate_in_and_no_others(run: Runs, tmp_path: Path):
    pem = {path.name: str(path) for path in certificates.make(tmp_path).iterdir()}
    files = ("--tls-certificate", pem["server.pem"], "--tls-key", pem["server.key"])
    address = run(*PROGRAM, *FREE, *files, "--tls-ca", pem["ca.pem"]).ready["p4runtime"]
    network = from_graph(nx.empty_graph(1), hosts_per_switch=1)
    (switch,) = network.switches.values()
    client = Credentials(pem["ca.pem"], pem["client.pem"], pem["client.key"])
    fill(address, switch, switch_entries(network, []), credentials=client)
    stranger = Credentials(pem["ca.pem"], pem["stranger.pem"], pem["stranger.key"])
    for wrong in (Credentials(), Credentials(pem["ca.pem"]), stranger):
        with pytest.raises(SwitchError) as refused:
            SwitchConnection.connect(address, switch.device_id, 9, wrong, 1)
        assert refused.value.code in ("SWITCH.UNREACHABLE", "SWITCH.BAD_TLS")


NAMESPACE = """
import json, signal, socket, subprocess, sys
from pathlib import Path
sys.path.insert(0, "tests/support")
from program_switches import fill
from stackcast.udfs.switches.stack_entries import switch_entries
from stackcast.udfs.trees.broadcast import broadcast_trees
from stackcast.udfs.trees.encode import Encoder
from networks import from_graph
import networkx as nx

def ip(words):
    subprocess.run(["ip", *words.split()], check=True)

ip("link set lo up")
network = from_graph(nx.empty_graph(1), hosts_per_switch=2, publishers=1)
(switch,) = network.switches.values()
far, options = {}, []
for host in network.hosts.values():
    near, end = f"s{host.port}", f"{host.name}"
    ip(f"link add {near} type veth peer name {end}")
    for name in (near, end):
        ip(f"link set {name} addrgenmode none arp off up")
    options += ["--port", f"{host.port}={near}"]
    far[host.name] = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    far[host.name].bind((end, 3))
    far[host.name].settimeout(600)
process = subprocess.Popen(
    [sys.executable, "-m", "stackcast.cli.main", "switch", "run", *sys.argv[1:], *options],
    stdout=subprocess.PIPE, text=True,
)
ready = json.loads(process.stdout.readline())
trees = broadcast_trees(network)
fill(ready["p4runtime"], switch, switch_entries(network, trees))
datagram = bytes.fromhex("4500002000004000401100000a090001ef010101") + bytes(12)
plain = bytes.fromhex("01005e010101 020000000001 0800") + datagram
for receivers in (["h1"], ["h2"], ["h1", "h2"]):
    (encoding,) = Encoder(network, "feed1", trees).encode(frozenset(receivers))
    stack = b"".join(label.to_bytes(2) for label in encoding.labels)
    head = plain[:12] + bytes.fromhex("9999") + len(encoding.labels).to_bytes(2)
    far["feed1"].send(head + stack + datagram)
    for name in receivers:
        assert far[name].recv(2048) == plain, name
subprocess.run(["ip", "link", "set", "h1", "down"], check=True)
far["feed1"].send(head + stack + datagram)
assert far["h2"].recv(2048) == plain
process.send_signal(signal.SIGTERM)
last = json.loads(process.stdout.readline())
assert process.wait(600) == 0
port = str(network.hosts["feed1"].port)
assert last["ports"][port]["frames_in"] == 4, last
assert last["counters"] == {}, last
"""


def test_frames_go_from_interface_to_interface(namespace: list[str]):
    done = subprocess.run(
        [*namespace, sys.executable, "-c", NAMESPACE, *PROGRAM, *FREE],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,  # kernels may have to be compiled, and other tests run beside
        check=False,
    )
    assert done.returncode == 0, done.stderr


DOCUMENTED = """
import json, shlex, signal, socket, subprocess, sys

RUN, SEND = (shlex.split(line)[1:] for line in sys.argv[1:])
for words in ("set lo up", "add veth0 type veth peer name host0", "set veth0 up"):
    subprocess.run(["ip", "link", *words.split()], check=True)
command = [sys.executable, "-m", "stackcast.cli.main"]
process = subprocess.Popen([*command, *RUN], stdout=subprocess.PIPE, text=True)
process.stdout.readline()
subprocess.run([*command, *SEND], check=True)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
    stranger.sendto(b"stranger", ("127.0.0.1", 5001))
frames_in = 0
while not frames_in:
    process.send_signal(signal.SIGUSR1)
    frames_in = json.loads(process.stdout.readline())["ports"]["1"]["frames_in"]
process.send_signal(signal.SIGTERM)
print(process.stdout.readline())
assert process.wait(600) == 0
"""


def test_the_documented_frame_enters_the_documented_switch(namespace: list[str]):
    tutorial = "tutorials/one-switch.md"
    lines = [command.line for command in commands() if command.document == tutorial]
    (run_line,) = (line for line in lines if line.startswith("stackcast switch run --program"))
    (send_line,) = (line for line in lines if line.startswith("stackcast frames send hop:2 "))
    done = subprocess.run(
        [*namespace, sys.executable, "-c", DOCUMENTED, run_line, send_line],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.strip().splitlines()[-1])
    assert last["ports"]["1"]["frames_in"] == 1
    assert last["ports"]["1"]["drops"] == {"unknown_sender": 1}
    # Without entries in its tables, the switch drops the frame.
    assert last["drops"]["unknown_sender"] == 1 and last["drops"].keys() > {"unknown_sender"}


def test_a_signal_ends_it_whatever_clients_still_ask(run: Runs):
    running = run(*FREE)
    kind = p4runtime_pb2.SetForwardingPipelineConfigRequest
    request = kind(device_id=1, action=kind.VERIFY)
    request.election_id.low = 1
    program = COMPILED_P4 / "packet_subscriptions"
    text_format.Parse(program.with_suffix(".p4info.txtpb").read_text(), request.config.p4info)
    with grpc.insecure_channel(running.ready["p4runtime"]) as channel:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        ask: queue.SimpleQueue[Any] = queue.SimpleQueue()
        stream = stub.StreamChannel(iter(ask.get, None))
        first = p4runtime_pb2.StreamMessageRequest()
        first.arbitration.device_id = first.arbitration.election_id.low = 1
        ask.put(first)
        next(stream)
        # Each is compiled anew; together they take far longer than the end may.
        calls = []
        for number in range(30):
            request.config.p4_device_config = program.with_suffix(".json").read_bytes()
            request.config.p4_device_config += b" " * number
            calls.append(stub.SetForwardingPipelineConfig.future(request))
        time.sleep(0.5)
        assert running.end()["drops"] == {}
        assert not all(call.done() and call.code() == grpc.StatusCode.OK for call in calls)


def refused(*arguments: str) -> str:
    """The line with which the command ends."""
    done = subprocess.run(
        [sys.executable, "-m", "stackcast.cli.main", "switch", "run", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 2 and done.stdout == ""
    # gRPC has its own say before it.
    *_, line = done.stderr.splitlines()
    assert "Traceback" not in done.stderr
    return line


def test_a_program_that_does_not_fit_is_refused_with_the_name(tmp_path: Path):
    p4info = Path(PROGRAM[3]).read_text()
    changed = tmp_path / "changed.p4info.txtpb"
    changed.write_text(p4info.replace("ingress.route.ipv4", "ingress.route.ipv5"))
    line = refused(*PROGRAM[:2], "--p4info", str(changed), *FREE)
    assert line.startswith("SWITCH.WRONG_PROGRAM") and "ingress.route.ipv" in line


def test_an_address_that_is_taken_is_told():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = "{}:{}".format(*taken.getsockname())
        assert refused("--grpc", where).startswith("LAB.PORT_TAKEN: --grpc: port ")


def test_an_address_that_cannot_be_is_told():
    # Kept for documentation, so that no machine has it.
    line = refused("--grpc", "203.0.113.1:9559")
    assert line.startswith("LAB.BAD_ADDRESS: --grpc: ") and "not an address of this machine" in line
    line = refused(*FREE, "--port", "1=udp:203.0.113.1:5001/127.0.0.1:5002")
    assert line.startswith("LAB.BAD_ADDRESS") and "near end" in line


def test_swapped_files_are_told_in_one_short_line(tmp_path: Path):
    line = refused("--program", PROGRAM[3], "--p4info", PROGRAM[1], *FREE)
    assert (
        line.startswith(f"SWITCH.WRONG_PROGRAM: {PROGRAM[3]}:1:1: not valid JSON")
        and len(line) < 400
    )
    line = refused("--program", str(tmp_path), "--p4info", PROGRAM[3], *FREE)
    assert f"--program '{tmp_path}' is a folder: give a file" in line
