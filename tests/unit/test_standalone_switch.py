"""A switch by itself: what ports may be called, and frames from tunnel to tunnel."""

from __future__ import annotations

import signal
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.ports import LAST_PORT, Interface, UdpTunnel, read_ports, with_vlan_tag
from lab.standalone import StandaloneSwitch, SwitchOptions, open_ports, serve
from udfs.errors import LabError, SwitchError

pytestmark = pytest.mark.unit

P4 = Path(__file__).parents[2] / "p4"
ADDRESS = ("127.0.0.1", 5001)


class Flood:
    """A pipeline that sends every frame out of all ports but its own, and of one that is not."""

    def __init__(self, ports: list[int]) -> None:
        self.drops: Counter[str] = Counter()
        self._ports = ports

    def process(self, ingress_port: int, frame: bytes) -> list[tuple[int, bytes]]:
        if not frame:
            self.drops["empty"] += 1
            return []
        return [(port, frame) for port in self._ports if port != ingress_port]

    def counters(self) -> dict[str, dict[int, tuple[int, int]]]:
        return {"seen": {7: (1, 60)}, "silent": {}}


class Neighbour:
    """The far end of a tunnel: a plain UDP socket."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(5)
        self.far = free_port()

    def link(self) -> UdpTunnel:
        return UdpTunnel(("127.0.0.1", self.far), self.socket.getsockname())

    def send(self, frame: bytes) -> None:
        self.socket.sendto(frame, ("127.0.0.1", self.far))


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def neighbours() -> Iterator[list[Neighbour]]:
    found = [Neighbour() for _ in range(3)]
    yield found
    for each in found:
        each.socket.close()


def test_a_port_is_a_tunnel_or_an_interface():
    texts = ["1=udp:127.0.0.1:5001/10.0.0.2:65535", "2=veth0", "0=enp3s0.100", "510=a:1"]
    links = read_ports(texts)
    assert links == {
        1: UdpTunnel(ADDRESS, ("10.0.0.2", 65535)),
        2: Interface("veth0"),
        0: Interface("enp3s0.100"),
        510: Interface("a:1"),
    }
    assert [f"{number}={link}" for number, link in links.items()] == texts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "NUMBER=LINK"),
        ("veth0", "NUMBER=LINK"),
        ("=veth0", "NUMBER=LINK"),
        ("-1=veth0", "NUMBER=LINK"),
        ("٣=veth0", "NUMBER=LINK"),
        (f"{LAST_PORT + 1}=veth0", f"0 to {LAST_PORT}"),
        ("1=", "name of an interface"),
        ("1=an-interface-name-too-long", "name of an interface"),
        ("1=a b", "name of an interface"),
        ("1=udp:", "udp:IP:PORT/IP:PORT"),
        ("1=udp:127.0.0.1:5001", "near end first"),
        ("1=udp:127.0.0.1/127.0.0.1:1", "near end first"),
        ("1=udp:localhost:1/127.0.0.1:1", "'localhost' is no IPv4 address"),
        ("1=udp:127.0.0.1:1/127.0.0.256:1", "'127.0.0.256' is no IPv4 address"),
        ("1=udp:127.0.0.1:0/127.0.0.1:1", "0 is no UDP port"),
        ("1=udp:127.0.0.1:1/127.0.0.1:65536", "65536 is no UDP port"),
    ],
)
def test_a_port_that_cannot_be_is_one_clear_error(text: str, words: str):
    with pytest.raises(LabError) as caught:
        read_ports([text])
    assert caught.value.code == "LAB.BAD_PORT"
    assert words in caught.value.message and f"--port {text}:" in caught.value.message


def test_a_port_is_given_once():
    with pytest.raises(LabError, match="port 1 is there already"):
        read_ports(["1=veth0", "01=veth1"])


@given(st.text(max_size=40) | st.from_regex(r"[0-9]=(udp:)?[0-9.:/]*", fullmatch=True))
def test_any_text_is_a_port_or_a_clear_error(text: str):
    try:
        (link,) = read_ports([text]).values()
    except LabError as error:
        assert error.code == "LAB.BAD_PORT"
    else:
        assert read_ports([f"1={link}"]) == {1: link}


def options(**changed: Any) -> SwitchOptions:
    return SwitchOptions(**{"links": {}, "grpc": "127.0.0.1:0", **changed})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"json": P4 / "virtual_trees.json"}, "--json and --p4info belong together"),
        ({"p4info": P4 / "virtual_trees.p4info.txtpb"}, "--json and --p4info belong together"),
        ({"grpc": "nowhere"}, "give HOST:PORT"),
        ({"grpc": "127.0.0.1:65536"}, "give HOST:PORT"),
        ({"tls_ca": P4 / "ca.pem"}, "needs both --tls-certificate and --tls-key"),
        ({"tls_key": P4 / "key.pem"}, "needs both --tls-certificate and --tls-key"),
    ],
)
def test_options_that_do_not_belong_together_are_told(wrong: dict[str, Any], words: str):
    with pytest.raises(LabError, match=words) as caught:
        serve(options(**wrong), pytest.fail)
    assert caught.value.code == "LAB.BAD_SWITCH"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"program": 1}'])
@pytest.mark.parametrize("damaged", ["json", "p4info"])
def test_files_that_are_no_program_are_told(tmp_path: Path, damaged: str, content: bytes):
    files = {"json": P4 / "virtual_trees.json", "p4info": P4 / "virtual_trees.p4info.txtpb"}
    files[damaged] = tmp_path / "damaged"
    files[damaged].write_bytes(content)
    with pytest.raises(SwitchError) as caught:
        serve(options(**files), pytest.fail)
    assert caught.value.code == "SWITCH.WRONG_PROGRAM"


def test_a_taken_port_is_told_and_the_others_are_given_back():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        first = UdpTunnel(("127.0.0.1", free_port()), ADDRESS)
        links = {1: first, 2: UdpTunnel(taken.getsockname(), ADDRESS)}
        with pytest.raises(LabError) as caught:
            open_ports(links)
        assert caught.value.code == "LAB.PORT_TAKEN"
        assert "port 2" in caught.value.message and str(links[2]) in caught.value.message
        first.open(1).close()


def test_an_interface_that_is_not_there_is_told():
    with pytest.raises(LabError) as caught:
        Interface("no-such-one").open(3)
    # Without the permission, nobody may look.
    assert caught.value.code in ("LAB.NO_INTERFACE", "LAB.NO_PERMISSION")
    assert "'no-such-one'" in caught.value.message


def test_frames_go_from_tunnel_to_tunnel_until_a_signal_ends_it(neighbours: list[Neighbour]):
    ports = open_ports({number: each.link() for number, each in enumerate(neighbours, 1)})
    switch = StandaloneSwitch(Flood([1, 2, 3, 9]), ports)
    wake, waker = socket.socketpair()
    numbers: list[int] = []

    def signalled(number: int) -> bool:
        numbers.append(number)
        return number != signal.SIGTERM

    loop = threading.Thread(target=switch.run, args=(wake, signalled))
    loop.start()
    try:
        frames = [bytes([number]) * (14 + number) for number in range(200)]
        for frame in frames:
            neighbours[0].send(frame)
            assert neighbours[1].socket.recv(2048) == neighbours[2].socket.recv(2048) == frame
        neighbours[1].send(b"")
        waker.send(bytes([signal.SIGUSR1]))
        neighbours[1].send(b"x" * 60_000)
        assert neighbours[0].socket.recv(65_535) == b"x" * 60_000
    finally:
        waker.send(bytes([signal.SIGTERM]))
        loop.join(5)
        status = switch.status()
        switch.close()
        wake.close()
        waker.close()
    assert not loop.is_alive()
    assert numbers == [signal.SIGUSR1, signal.SIGTERM]
    size = sum(map(len, frames))
    assert status == {
        "ports": {
            "1": {
                "link": str(neighbours[0].link()),
                "frames_in": 200,
                "bytes_in": size,
                "frames_out": 1,
                "bytes_out": 60_000,
            },
            "2": {
                "link": str(neighbours[1].link()),
                "frames_in": 2,
                "bytes_in": 60_000,
                "frames_out": 200,
                "bytes_out": size,
            },
            "3": {
                "link": str(neighbours[2].link()),
                "frames_in": 0,
                "bytes_in": 0,
                "frames_out": 201,
                "bytes_out": size + 60_000,
            },
        },
        "drops": {"empty": 1, "unplugged_port": 201},
        "counters": {"seen": {7: (1, 60)}},
    }


def test_a_tunnel_takes_nothing_from_strangers_and_outlives_its_far_end(
    neighbours: list[Neighbour],
):
    (port,) = open_ports({1: neighbours[0].link()})
    stranger = neighbours[1]
    stranger.socket.sendto(b"stranger", ("127.0.0.1", neighbours[0].far))
    neighbours[0].send(b"neighbour")
    assert port.receive() == b"neighbour"
    assert port.receive() is None
    where = neighbours[0].socket.getsockname()
    neighbours[0].socket.close()
    for _ in range(3):
        port.send(b"to nobody")
        assert port.receive() is None
    assert port.drops["tunnel_unreachable"] > 0
    # It comes back, and the tunnel carries again.
    neighbours[0].socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    neighbours[0].socket.bind(where)
    neighbours[0].socket.settimeout(5)
    port.send(b"again")
    assert neighbours[0].socket.recv(2048) == b"again"
    port.send(bytes(65_508))
    assert port.drops["frame_too_large"] == 1
    port.close()


def test_a_vlan_tag_that_the_kernel_took_out_is_put_back():
    frame = bytes(range(12)) + b"\x08\x00" + b"rest"

    def told(status: int, control: int, protocol: int) -> bytes:
        return struct.pack("=IIIHHHH", status, 0, 0, 0, 14, control, protocol)

    assert with_vlan_tag(frame, told(0, 5, 0)) == frame
    assert with_vlan_tag(frame, b"short") == frame
    tagged = frame[:12] + b"\x81\x00\x00\x05" + frame[12:]
    assert with_vlan_tag(frame, told(1 << 4, 5, 0)) == tagged
    service = frame[:12] + b"\x88\xa8\x20\x05" + frame[12:]
    assert with_vlan_tag(frame, told(1 << 4 | 1 << 6, 0x2005, 0x88A8)) == service
