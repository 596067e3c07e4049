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
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import fill_switches
import pytest
from itchcpp.parser import MessageParser
from link_bytes import bytes_on_links
from paths import ROOT
from relabelled import relabelled
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from stacked_frames import stacked
from still_runs import still_runs

from jobs.adapters.switches.p4runtime import SwitchConnection
from lab.traffic.packets import packetize
from lab.traffic.trading_session import TradingSession
from lab.up.process import Child
from udfs.errors import LabError
from udfs.network.encodings import ROUTES, label_bits
from udfs.network.labels import WIDE
from udfs.network.network import Network
from udfs.network.rows import network_to_rows
from udfs.network.topology import fabric
from udfs.network.virtual_tree import VirtualTree
from udfs.stacks.forwarding import ForwardingModel, network_tables
from udfs.switches.stack_entries import switch_entries
from udfs.trees.broadcast import broadcast_trees
from udfs.trees.encode import Encoder
from udfs.trees.encoders import encoder_of

pytestmark = pytest.mark.integration

NETWORK = fabric(pods=2, racks=4, hosts=2, planes=2, spines=2, publishers=2)
TREES = broadcast_trees(NETWORK, 1)
#: The same with labels of 32 bits, and ids that need them.
WIDE_NETWORK = Network.from_rows(
    NETWORK.switches.values(),
    NETWORK.hosts.values(),
    [dataclasses.replace(link, id=link.id + (1 << 29)) for link in NETWORK.links],
    WIDE,
)


def command(folder: Path, *more: str, network: Network = NETWORK) -> list[str]:
    rows = network_to_rows(network, dict.fromkeys(network.switches, ""))
    form = {"encoding": network.labels.encoding, "label_bits": label_bits(network.labels)}
    description = {**rows, **form}
    (folder / "network.json").write_text(json.dumps(description))
    line = [
        sys.executable,
        "-m",
        "lab.fabric.network",
        "--description",
        str(folder / "network.json"),
    ]
    return [*line, "--out", str(folder), *more]


@contextmanager
def running(
    folder: Path, *more: str, network: Network = NETWORK
) -> Iterator[tuple[Child, dict[str, Any]]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = command(folder, *more, network=network)
    with Child("network", line, folder / "network.log", environment) as child:
        yield child, json.loads(child.start(30))


def status(child: Child, word: str = "status") -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(child.ask(json.dumps({"command": word}), 10))
    return answer


def fill(address: str, network: Network = NETWORK, trees: list[VirtualTree] = TREES) -> None:
    entries = switch_entries(network, trees)
    for switch in network.switches.values():
        fill_switches.fill(address, switch, entries, network.labels.program)


class Publisher:
    """A sender of frames that waits for the network's credit, as a sink does."""

    def __init__(self, address: str) -> None:
        ip, _, port = address.rpartition(":")
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect((ip, int(port)))
        self.socket.settimeout(10)
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
    found = []
    while data:
        size = int.from_bytes(data[:2])
        found.append(data[2 : 2 + size])
        data = data[2 + size :]
    return found


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
    with running(tmp_path, network=network) as (child, where):
        fill(where["p4runtime"], network, trees)
        publishers = {name: Publisher(address) for name, address in where["ingress"].items()}
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
        # What was acknowledged is in the files, before the network is stopped.
        assert {name: Counter(receipts(tmp_path, name)) for name in subscribers} == {
            name: Counter(payloads) for name, payloads in expected.items()
        }
        final = status(child, "stop")
    assert final["frames_in"] == number
    assert final["drops"] == {}
    assert final["outstanding"] == 0
    # Publishers may receive, too, and are in no set here.
    assert final["deliveries"] == dict.fromkeys(network.hosts, 0) | {
        name: len(payloads) for name, payloads in expected.items()
    }
    assert {name: size for name, size in final["link_bytes"].items() if size} == dict(links)


def test_nothing_is_lost_when_two_publishers_send_thousands_of_frames_to_all(
    tmp_path: Path,
) -> None:
    subscribers = frozenset(NETWORK.subscribers())
    with running(tmp_path) as (child, where):
        fill(where["p4runtime"])
        # Two senders share one ingress, as two tasks of a stream do: each has its own window.
        first, second = (Publisher(where["ingress"]["feed1"]) for _ in range(2))
        (encoding,) = Encoder(NETWORK, "feed1", TREES).encode(subscribers)
        frame = stacked(encoding.labels, b"x" * 1000)
        (near,) = Encoder(NETWORK, "feed1", TREES).encode(frozenset(["h1", "h9", "h16"]))
        other = stacked(near.labels, b"y" * 200)
        began = time.perf_counter()
        for _ in range(1000):
            first.send(frame, 32)
            second.send(other, 32)
        first.flush()
        second.flush()
        seconds = time.perf_counter() - began
        final = status(child)
    print(f"{2000 / seconds:.0f} frames/s, {19_000 / seconds:.0f} deliveries/s")
    assert final["drops"] == {}
    assert sum(final["deliveries"].values()) == 1000 * (16 + 3)


def test_what_is_no_frame_of_ours_is_dropped_and_counted_and_harms_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as (child, where):
        fill(where["p4runtime"])
        publisher = Publisher(where["ingress"]["feed1"])
        (encoding,) = Encoder(NETWORK, "feed1", TREES).encode(frozenset(["h3"]))
        good = stacked(encoding.labels, b"the good one")
        count = 16 + 2 * len(encoding.labels)
        wrong_sum = good[:-1] + b"!"
        short = good[: count - 1]
        lies = good[:14] + (len(encoding.labels) + 1).to_bytes(2) + good[16:]
        for frame in (b"", good[:13], b"\0" * 60, short, lies, wrong_sum, good, b"\xff" * 9000):
            publisher.send(frame)
        publisher.flush()
        final = status(child)
        assert receipts(tmp_path, "h3") == [b"the good one"]
    assert final["frames_in"] == 8
    # By the reasons of the program, p4/virtual_trees/sizes.p4: CUT_SHORT, BAD_COUNT, NOT_IPV4.
    assert final["drops"] == {
        "ingress.dropped[1]": 3,
        "ingress.dropped[4]": 1,
        "ingress.dropped[10]": 2,
        "host_bad_udp_checksum": 1,
    }


def test_a_network_without_a_program_drops_every_frame(tmp_path: Path) -> None:
    with running(tmp_path) as (child, where):
        publisher = Publisher(where["ingress"]["feed1"])
        publisher.send(stacked((0x4001,), b"too early"))
        publisher.flush()
        assert status(child)["drops"] == {"no_program": 1}


def test_other_traffic_is_routed_to_its_host(tmp_path: Path) -> None:
    with running(tmp_path) as (child, where):
        fill(where["p4runtime"])
        publisher = Publisher(where["ingress"]["feed1"])
        host = NETWORK.host("h16")
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
        assert receipts(tmp_path, "h16") == [b"plain"]
    assert final["drops"] == {"ingress.dropped[9]": 1}  # TTL_OVER
    assert sum(final["deliveries"].values()) == 1


def test_a_host_can_be_somebody_elses_program(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as decoder:
        decoder.bind(("127.0.0.1", 0))
        decoder.settimeout(5)
        address = f"127.0.0.1:{decoder.getsockname()[1]}"
        with running(tmp_path, "--external-host", f"h3={address}") as (_, where):
            assert where["hosts"]["h3"] == address
            fill(where["p4runtime"])
            publisher = Publisher(where["ingress"]["feed2"])
            (encoding,) = Encoder(NETWORK, "feed2", TREES).encode(frozenset(["h3"]))
            publisher.send(stacked(encoding.labels, b"for the decoder"))
            assert decoder.recv(2048) == b"for the decoder"
            assert not (tmp_path / "receipts" / "h3.mold").exists()


def test_a_third_party_decoder_reads_what_a_host_receives(tmp_path: Path) -> None:
    """A plain socket, bytes of the MoldUDP64 layout, and itchcpp: nothing of ours but the lab."""
    messages = list(TradingSession(200, seed=2, symbols=20))
    packets = list(packetize(messages))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(5)
        external = f"h3=127.0.0.1:{receiver.getsockname()[1]}"
        with running(tmp_path, "--external-host", external) as (_, where):
            fill(where["p4runtime"])
            publisher = Publisher(where["ingress"]["feed1"])
            (encoding,) = Encoder(NETWORK, "feed1", TREES).encode(frozenset(["h3", "h8"]))
            stream, expected = b"", 1
            for packet in packets:
                publisher.send(stacked(encoding.labels, packet))
                datagram = receiver.recv(65_535)
                _, sequence, count = struct.unpack_from(">10sQH", datagram)
                assert sequence == expected
                expected += count
                # BinaryFILE, which the decoder takes, has the same two bytes before a message.
                stream += datagram[20:]
    decoded = list(MessageParser().parse_stream(stream))
    assert [(m.message_type, m.timestamp) for m in decoded] == [
        (m[:1], int.from_bytes(m[5:11])) for m in messages
    ]


@pytest.mark.parametrize("way", ["sigterm", "end of input", "command"])
def test_it_ends_within_a_second(tmp_path: Path, way: str) -> None:
    process = subprocess.Popen(
        command(tmp_path), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin and process.stdout
    with process:
        where = json.loads(process.stdout.readline())
        # An open connection must not hold it up.
        with SwitchConnection.connect(where["p4runtime"], 1, 1):
            began = time.monotonic()
            if way == "sigterm":
                process.send_signal(signal.SIGTERM)
            elif way == "end of input":
                process.stdin.close()
            else:
                process.stdin.write(b'{"command": "stop"}\n')
                process.stdin.flush()
            assert process.wait(5) == 0
            assert time.monotonic() - began < 1


def test_it_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from lab.up.process import Child\n"
            "child = Child('network', sys.argv[2:], Path(sys.argv[1]) / 'network.log')\n"
            "print(child.start(30), flush=True); sys.stdin.read()",
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
    deadline = time.monotonic() + 5
    while still_runs(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_description_that_is_none_is_one_clear_line(tmp_path: Path) -> None:
    arguments = command(tmp_path)
    (tmp_path / "network.json").write_text('{"switches": []}')
    child = Child("network", arguments, tmp_path / "network.log", {"PYTHONPATH": str(ROOT)})
    with pytest.raises(LabError, match=r"BAD_DESCRIPTION.*hosts") as failure:
        child.start(30)
    assert failure.value.code == "LAB.CHILD_FAILED"
    assert len((tmp_path / "network.log").read_text().splitlines()) == 1


def test_a_tunnel_host_sends_and_gets_whole_frames(tmp_path: Path) -> None:
    host = NETWORK.host("h3")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
        wire.bind(("127.0.0.1", 0))
        wire.settimeout(10)
        place = "{}:{}".format(*wire.getsockname())
        with running(tmp_path, "--tunnel-host", f"h3={place}") as (child, ready):
            assert list(ready["tunnels"]) == ["h3"] and "h3" not in ready["hosts"]
            ip, _, port = ready["tunnels"]["h3"].rpartition(":")
            wire.connect((ip, int(port)))
            fill(ready["p4runtime"])
            other = str(IPv4Address(NETWORK.host("h4").ipv4))
            own = str(IPv4Address(host.ipv4))
            # From it to another host, by plain IPv4.
            wire.send(bytes(Ether() / IP(src=own, dst=other) / UDP(dport=9) / b"out"))
            # And from a publisher to it: the frame comes as it is, Ethernet and all.
            sender = Publisher(ready["ingress"]["feed1"])
            datagram = IP(src="10.64.0.1", dst=own) / UDP(sport=7, dport=9) / b"in"
            sender.send(bytes(Ether() / datagram))
            frame = Ether(wire.recv(2000))
            assert (frame[IP].dst, frame[UDP].load) == (own, b"in")
            sender.flush()
            # From now on links lose all that there is.
            lossy = json.loads(child.ask(json.dumps({"command": "loss", "share": 1.0}), 10))
            assert "loss" not in lossy["drops"]
            sender.send(bytes(Ether() / datagram))
            sender.flush()
            final = status(child, "stop")
    assert final["drops"]["loss"] == 1
    assert receipts(tmp_path, "h4") == [b"out"]
    assert final["deliveries"]["h3"] == 1
    assert final["link_bytes"][f"h3->{host.switch}"] > 0
