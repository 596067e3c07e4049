"""The lab's network as its own process: real gRPC, real UDP, real ends of processes."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import program_switches
import pytest
from itchcpp.parser import MessageParser
from networks import bytes_on_links, relabelled
from paths import ROOT
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from virtual_trees_cases import stacked
from waiting import still_runs, until

from stackcast.jobs.adapters.switches.p4runtime import SwitchConnection
from stackcast.lab.traffic.packets import packetize
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.lab.up.process import Child
from stackcast.udfs.errors import LabError
from stackcast.udfs.network.encodings import ROUTES, label_bits
from stackcast.udfs.network.labels import WIDE
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.rows import network_to_rows
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.stacks.forwarding import ForwardingModel, network_tables
from stackcast.udfs.switches.stack_entries import switch_entries
from stackcast.udfs.trees.broadcast import broadcast_trees
from stackcast.udfs.trees.encode import Encoder
from stackcast.udfs.trees.encoders import encoder_of

pytestmark = pytest.mark.integration

NETWORK = fabric(pods=2, racks=4, hosts=2, planes=2, spines=2, publishers=2)
#: The network of tests that need few switches: its entries are written in a moment.
SMALL = fabric(pods=2, racks=1, hosts=2, planes=1, spines=1, publishers=2)
#: `NETWORK` with labels of 32 bits, and ids that need them.
WIDE_NETWORK = Network.from_rows(
    NETWORK.switches.values(),
    NETWORK.hosts.values(),
    [dataclasses.replace(link, id=link.id + (1 << 29)) for link in NETWORK.links],
    WIDE,
)


#: Limit against hangs, in seconds.
LIMIT = 600


def command(folder: Path, *options: str, network: Network = SMALL) -> list[str]:
    """Return the command line that starts a network, whose description it writes."""
    rows = network_to_rows(network, dict.fromkeys(network.switches, ""))
    labels = {"encoding": network.labels.encoding, "label_bits": label_bits(network.labels)}
    description = folder / "network.json"
    description.write_text(json.dumps({**rows, **labels}))
    line = [sys.executable, "-m", "stackcast.lab.fabric.network", "--description", str(description)]
    return [*line, "--out", str(folder), *options]


@contextmanager
def running(
    folder: Path, *options: str, network: Network = SMALL
) -> Iterator[tuple[Child, dict[str, Any]]]:
    """Run a network; yield its process and the addresses that it printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = command(folder, *options, network=network)
    with Child("network", line, folder / "network.log", environment) as child:
        yield child, json.loads(child.start(LIMIT))


def status(child: Child, word: str = "status") -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(child.ask(json.dumps({"command": word}), LIMIT))
    return answer


def fill(address: str, network: Network = SMALL, trees: list[VirtualTree] | None = None) -> None:
    """Write the entries of a network, by default those of one broadcast tree."""
    entries = switch_entries(network, broadcast_trees(network, 1) if trees is None else trees)
    for switch in network.switches.values():
        program_switches.fill(address, switch, entries, network.labels.program)


def encoder(publisher: str) -> Encoder:
    """Return an encoder of the small network."""
    return Encoder(SMALL, publisher, broadcast_trees(SMALL, 1))


class Publisher:
    """A sender of frames that waits for the network's credit, as a sink does."""

    def __init__(self, address: str) -> None:
        ip, _, port = address.rpartition(":")
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect((ip, int(port)))
        self.socket.settimeout(LIMIT)
        self.sent = self.acknowledged = 0

    def send(self, frame: bytes, window: int = 64) -> None:
        while self.sent - self.acknowledged >= window:
            self.hear()
        self.socket.send(frame)
        self.sent += 1

    def flush(self) -> None:
        while self.acknowledged < self.sent:
            self.hear()

    def hear(self) -> None:
        self.acknowledged = int.from_bytes(self.socket.recv(8))


def receipts(folder: Path, host: str) -> list[bytes]:
    data = (folder / "receipts" / f"{host}.mold").read_bytes()
    payloads = []
    while data:
        size = int.from_bytes(data[:2])
        payloads.append(data[2 : 2 + size])
        data = data[2 + size :]
    return payloads


@pytest.mark.parametrize(
    "network",
    [
        NETWORK,
        WIDE_NETWORK,
        *(relabelled(NETWORK, ROUTES[encoding]) for encoding in ("bitmask", "hops", "hybrid")),
    ],
    ids=["16 bits", "32 bits", "bitmask", "hops", "hybrid"],
)
def test_every_host_gets_what_the_forwarding_model_says_and_links_carry_those_bytes(
    network: Network, tmp_path: Path
) -> None:
    subscribers = list(network.subscribers())
    trees = broadcast_trees(network, 1, first_id=network.labels.max_id)
    model = ForwardingModel(network, network_tables(network, trees))
    expected: dict[str, list[bytes]] = {name: [] for name in subscribers}
    links: Counter[str] = Counter()
    sets = [subscribers, subscribers[:1], subscribers[::3], subscribers[5:9], subscribers[-2:]]
    with running(tmp_path, network=network) as (child, ready):
        fill(ready["p4runtime"], network, trees)
        publishers = {name: Publisher(address) for name, address in ready["ingress"].items()}
        encoders = {name: encoder_of(network, name, trees) for name in publishers}
        number = 0
        for name, publisher in publishers.items():
            for receivers in sets:
                for encoding in encoders[name].encode(frozenset(receivers)):
                    delivery = model.deliver(name, encoding.labels)
                    assert delivery.hosts.keys() == set(encoding.receivers)
                    for _ in range(3):
                        number += 1
                        payload = f"notification {number}".encode() * (number % 7 + 1)
                        publisher.send(stacked(encoding.labels, payload, network.labels))
                        cost = bytes_on_links(network, delivery, 28 + len(payload))
                        links.update({f"{u}->{v}": size for (u, v), size in cost.items()})
                        for host in delivery.hosts:
                            expected[host].append(payload)
        for publisher in publishers.values():
            publisher.flush()
            assert publisher.acknowledged == publisher.sent
        # The files have each acknowledged frame before the network stops.
        assert {name: Counter(receipts(tmp_path, name)) for name in subscribers} == {
            name: Counter(payloads) for name, payloads in expected.items()
        }
        final = status(child, "stop")
    assert final["frames_in"] == number
    assert final["drops"] == {}
    assert final["outstanding"] == 0
    # Publishers can receive, too, but no set has one.
    assert final["deliveries"] == dict.fromkeys(network.hosts, 0) | {
        name: len(payloads) for name, payloads in expected.items()
    }
    assert {name: size for name, size in final["link_bytes"].items() if size} == dict(links)


def test_nothing_is_lost_when_two_publishers_send_thousands_of_frames_to_all(
    tmp_path: Path,
) -> None:
    subscribers = frozenset(SMALL.subscribers())
    with running(tmp_path) as (child, ready):
        fill(ready["p4runtime"])
        # Two senders share one ingress, as two tasks of a stream do, and each has its own window.
        first, second = (Publisher(ready["ingress"]["feed1"]) for _ in range(2))
        (to_all,) = encoder("feed1").encode(subscribers)
        long_frame = stacked(to_all.labels, b"x" * 1000)
        (to_two,) = encoder("feed1").encode(frozenset(["h1", "h4"]))
        short_frame = stacked(to_two.labels, b"y" * 200)
        for _ in range(1000):
            first.send(long_frame, 32)
            second.send(short_frame, 32)
        first.flush()
        second.flush()
        final = status(child)
    assert final["drops"] == {}
    assert sum(final["deliveries"].values()) == 1000 * (len(subscribers) + 2)


def test_bytes_that_are_no_frame_are_dropped_and_counted_and_harm_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as (child, ready):
        fill(ready["p4runtime"])
        publisher = Publisher(ready["ingress"]["feed1"])
        (encoding,) = encoder("feed1").encode(frozenset(["h3"]))
        good = stacked(encoding.labels, b"the good one")
        count = 16 + 2 * len(encoding.labels)
        wrong_sum = good[:-1] + b"!"
        short = good[: count - 1]
        wrong_count = good[:14] + (len(encoding.labels) + 1).to_bytes(2) + good[16:]
        noise = (b"", good[:13], b"\0" * 60, short, wrong_count, wrong_sum)
        for frame in (*noise, good, b"\xff" * 9000):
            publisher.send(frame)
        publisher.flush()
        final = status(child)
        assert receipts(tmp_path, "h3") == [b"the good one"]
    assert final["frames_in"] == 8
    # The reasons of p4/virtual_trees/sizes.p4: CUT_SHORT, BAD_COUNT, NOT_IPV4.
    assert final["drops"] == {
        "ingress.dropped[1]": 3,
        "ingress.dropped[4]": 1,
        "ingress.dropped[10]": 2,
        "host_bad_udp_checksum": 1,
    }


def test_a_network_without_a_program_drops_every_frame(tmp_path: Path) -> None:
    with running(tmp_path) as (child, ready):
        publisher = Publisher(ready["ingress"]["feed1"])
        publisher.send(stacked((0x4001,), b"too early"))
        publisher.flush()
        assert status(child)["drops"] == {"no_program": 1}


def test_other_traffic_is_routed_to_its_host(tmp_path: Path) -> None:
    with running(tmp_path) as (child, ready):
        fill(ready["p4runtime"])
        publisher = Publisher(ready["ingress"]["feed1"])
        host = SMALL.host("h4")
        for ttl in (64, 1):
            datagram = (
                IP(src="10.9.0.1", dst=str(IPv4Address(host.ipv4)), ttl=ttl)
                / UDP(sport=1, dport=2)
                / b"plain"
            )
            publisher.send(
                bytes(Ether(dst="02:00:00:00:00:99", src="02:00:00:00:00:01") / datagram)
            )
        publisher.flush()
        final = status(child)
        assert receipts(tmp_path, "h4") == [b"plain"]
    assert final["drops"] == {"ingress.dropped[9]": 1}  # TTL_OVER
    assert sum(final["deliveries"].values()) == 1


def test_a_host_can_be_another_program_with_a_decoder_of_a_third_party(tmp_path: Path) -> None:
    """The host is a plain socket, which reads the layout of MoldUDP64, and itchcpp."""
    messages = list(TradingSession(200, seed=2, symbols=20))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(LIMIT)
        address = "{}:{}".format(*receiver.getsockname())
        with running(tmp_path, "--external-host", f"h3={address}") as (_, ready):
            assert ready["hosts"]["h3"] == address
            fill(ready["p4runtime"])
            publisher = Publisher(ready["ingress"]["feed2"])
            (encoding,) = encoder("feed2").encode(frozenset(["h3", "h2"]))
            stream, expected = b"", 1
            for packet in packetize(messages):
                publisher.send(stacked(encoding.labels, packet))
                datagram = receiver.recv(65_535)
                _, sequence, count = struct.unpack_from(">10sQH", datagram)
                assert sequence == expected
                expected += count
                # BinaryFILE, which the decoder takes, has the same two bytes before a message.
                stream += datagram[20:]
            assert not (tmp_path / "receipts" / "h3.mold").exists()
    decoded = list(MessageParser().parse_stream(stream))
    assert [(m.message_type, m.timestamp) for m in decoded] == [
        (m[:1], int.from_bytes(m[5:11])) for m in messages
    ]


@pytest.mark.parametrize("way", ["sigterm", "end of input", "command"])
def test_it_ends_although_a_connection_is_open(tmp_path: Path, way: str) -> None:
    process = subprocess.Popen(
        command(tmp_path), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin and process.stdout
    with process:
        ready = json.loads(process.stdout.readline())
        with SwitchConnection.connect(ready["p4runtime"], 1, 1):
            if way == "sigterm":
                process.send_signal(signal.SIGTERM)
            elif way == "end of input":
                process.stdin.close()
            else:
                process.stdin.write(b'{"command": "stop"}\n')
                process.stdin.flush()
            assert process.wait(LIMIT) == 0


def test_it_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from stackcast.lab.up.process import Child\n"
            "child = Child('network', sys.argv[2:], Path(sys.argv[1]) / 'network.log')\n"
            f"print(child.start({LIMIT}), flush=True); sys.stdin.read()",
            str(tmp_path),
            *command(tmp_path),
        ],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert parent.stdout
    with parent:
        pid = json.loads(parent.stdout.readline())["pid"]
        parent.kill()
    until(lambda: not still_runs(pid), seconds=LIMIT)


def test_a_wrong_description_is_one_clear_line(tmp_path: Path) -> None:
    arguments = command(tmp_path)
    (tmp_path / "network.json").write_text('{"switches": []}')
    child = Child("network", arguments, tmp_path / "network.log", {"PYTHONPATH": str(ROOT)})
    with pytest.raises(LabError, match=r"BAD_DESCRIPTION.*hosts") as failure:
        child.start(LIMIT)
    assert failure.value.code == "LAB.CHILD_FAILED"
    assert len((tmp_path / "network.log").read_text().splitlines()) == 1


def test_a_tunnel_host_sends_and_gets_whole_frames(tmp_path: Path) -> None:
    host = SMALL.host("h3")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
        wire.bind(("127.0.0.1", 0))
        wire.settimeout(LIMIT)
        address = "{}:{}".format(*wire.getsockname())
        with running(tmp_path, "--tunnel-host", f"h3={address}") as (child, ready):
            assert list(ready["tunnels"]) == ["h3"] and "h3" not in ready["hosts"]
            ip, _, port = ready["tunnels"]["h3"].rpartition(":")
            wire.connect((ip, int(port)))
            fill(ready["p4runtime"])
            receiver = str(IPv4Address(SMALL.host("h4").ipv4))
            own = str(IPv4Address(host.ipv4))
            # The host sends to another one, by plain IPv4.
            wire.send(bytes(Ether() / IP(src=own, dst=receiver) / UDP(dport=9) / b"out"))
            # A publisher sends to the host, which gets the whole frame, Ethernet included.
            sender = Publisher(ready["ingress"]["feed1"])
            datagram = IP(src="10.64.0.1", dst=own) / UDP(sport=7, dport=9) / b"in"
            sender.send(bytes(Ether() / datagram))
            frame = Ether(wire.recv(2000))
            assert (frame[IP].dst, frame[UDP].load) == (own, b"in")
            sender.flush()
            # Another program cannot send in the host's place, and its attempt is counted.
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.sendto(b"stranger", (ip, int(port)))
            # From here on links lose all frames.
            lossy = json.loads(child.ask(json.dumps({"command": "loss", "share": 1.0}), LIMIT))
            assert "loss" not in lossy["drops"]
            assert lossy["drops"]["unknown_sender"] == 1
            assert lossy["switch_drops"][host.switch]["unknown_sender"] == 1
            sender.send(bytes(Ether() / datagram))
            sender.flush()
            final = status(child, "stop")
    assert final["drops"]["loss"] == 1
    assert receipts(tmp_path, "h4") == [b"out"]
    assert final["deliveries"]["h3"] == 1
    assert final["link_bytes"][f"h3->{host.switch}"] > 0
