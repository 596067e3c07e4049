"""A switch by itself: what ports may be called, and frames from tunnel to tunnel."""

from __future__ import annotations

import errno
import re
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
from paths import COMPILED_P4, P4
from ports import free_port

from stackcast.lab.fabric.ports import LAST_PORT, Interface, UdpTunnel, read_ports, with_vlan_tag
from stackcast.lab.fabric.standalone import StandaloneSwitch, SwitchOptions, open_ports, serve
from stackcast.udfs.errors import LabError, SwitchError

pytestmark = pytest.mark.integration

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
        self.socket.settimeout(600)
        self.far = free_port()

    def link(self) -> UdpTunnel:
        return UdpTunnel(("127.0.0.1", self.far), self.socket.getsockname())

    def send(self, frame: bytes) -> None:
        self.socket.sendto(frame, ("127.0.0.1", self.far))


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
        ("1=udp:localhost:1/127.0.0.1:1", "'localhost' is not an IPv4 address"),
        ("1=udp:127.0.0.1:1/127.0.0.256:1", "'127.0.0.256' is not an IPv4 address"),
        ("1=udp:127.0.0.1:0/127.0.0.1:1", "0 is not a UDP port"),
        ("1=udp:127.0.0.1:1/127.0.0.1:65536", "65536 is not a UDP port"),
    ],
)
def test_a_port_that_cannot_be_is_one_clear_error(text: str, words: str):
    with pytest.raises(LabError) as caught:
        read_ports([text])
    assert caught.value.code == "LAB.BAD_PORT"
    assert words in caught.value.message and f"--port {text}:" in caught.value.message


@pytest.mark.parametrize("link", ["veth0", "udp:127.0.0.1:5001/127.0.0.1:5002"])
def test_a_link_belongs_to_one_port(link: str):
    with pytest.raises(LabError, match="port 1 already uses this link") as caught:
        read_ports([f"1={link}", "3=veth1", f"2={link}"])
    assert caught.value.code == "LAB.BAD_PORT" and f"--port 2={link}" in caught.value.message


def test_a_port_is_given_once():
    with pytest.raises(LabError, match="port 1 is given twice"):
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
        (
            {"json": COMPILED_P4 / "virtual_trees.json"},
            "--program and --p4info must be given together",
        ),
        (
            {"p4info": COMPILED_P4 / "virtual_trees.p4info.txtpb"},
            "--program and --p4info must be given together",
        ),
        ({"tls_ca": P4 / "ca.pem"}, "needs both --tls-certificate and --tls-key"),
        ({"tls_key": P4 / "key.pem"}, "needs both --tls-certificate and --tls-key"),
    ],
)
def test_options_that_do_not_belong_together_are_told(wrong: dict[str, Any], words: str):
    with pytest.raises(LabError, match=words) as caught:
        serve(options(**wrong), pytest.fail)
    assert caught.value.code == "LAB.BAD_SWITCH"


def test_an_address_that_cannot_be_served_at_is_told():
    with pytest.raises(LabError, match="expected HOST:PORT") as caught:
        serve(options(grpc="nowhere"), pytest.fail)
    assert caught.value.code == "LAB.BAD_ADDRESS"


def test_files_of_a_program_that_are_swapped_or_no_files_are_told_in_few_words(tmp_path: Path):
    json, p4info = COMPILED_P4 / "virtual_trees.json", COMPILED_P4 / "virtual_trees.p4info.txtpb"
    with pytest.raises(SwitchError) as swapped:
        serve(options(json=p4info, p4info=json), pytest.fail)
    assert swapped.value.message.startswith(f"{p4info}:1:1: not valid JSON: ")
    with pytest.raises(SwitchError) as twice:
        serve(options(json=json, p4info=json), pytest.fail)
    assert twice.value.message.startswith(f"{json}:1:1: not a P4Info in text format: ")
    assert "starts with '{'" in twice.value.message
    for error in (swapped.value, twice.value):
        assert error.code == "SWITCH.WRONG_PROGRAM"
        assert len(error.message) < 250 + len(str(json))
    for wrong, why in ((tmp_path, "Is a directory"), (tmp_path / "none", "No such file")):
        for files in ({"json": wrong, "p4info": p4info}, {"json": json, "p4info": wrong}):
            with pytest.raises(LabError, match=why) as caught:
                serve(options(**files), pytest.fail)
            assert caught.value.code == "LAB.BAD_SWITCH" and str(wrong) in caught.value.message


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"program": 1}'])
@pytest.mark.parametrize("damaged", ["json", "p4info"])
def test_files_that_are_no_program_are_told(tmp_path: Path, damaged: str, content: bytes):
    files = {
        "json": COMPILED_P4 / "virtual_trees.json",
        "p4info": COMPILED_P4 / "virtual_trees.p4info.txtpb",
    }
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


@pytest.mark.parametrize(
    ("near", "far", "words"),
    [
        # Kept for documentation, so that no machine has it.
        ("203.0.113.1", "127.0.0.1", "near end 203.0.113.1 is not an address of this machine"),
        ("127.0.0.1", "255.255.255.255", "far end 255.255.255.255 is a broadcast address"),
        ("127.0.0.1", "127.255.255.255", "far end 127.255.255.255 is a broadcast address"),
        ("127.0.0.1", "224.0.0.1", "far end 224.0.0.1 is not a single machine"),
        ("127.0.0.1", "0.0.0.0", "far end 0.0.0.0 is not a single machine"),
    ],
)
def test_a_tunnel_between_addresses_that_cannot_be_is_told(near: str, far: str, words: str):
    link = UdpTunnel((near, free_port()), (far, 5002))
    with pytest.raises(LabError, match=re.escape(words)) as caught:
        link.open(4)
    assert caught.value.code == "LAB.BAD_ADDRESS" and "port 4" in caught.value.message


class Told(socket.socket):
    """A tunnel's socket whose kernel has errors to tell, in place of what is asked of it."""

    errors: list[int]

    def _tell(self) -> None:
        if self.errors:
            raise OSError(self.errors.pop(0), "told")

    def send(self, *args: Any) -> int:
        self._tell()
        return super().send(*args)

    def recv(self, *args: Any) -> bytes:
        self._tell()
        return super().recv(*args)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EHOSTUNREACH, "tunnel_unreachable"),
        (errno.ENETUNREACH, "tunnel_unreachable"),
        (errno.EACCES, "tunnel_unreachable"),
        (errno.EPROTO, "tunnel_unreachable"),
        (errno.ECONNREFUSED, "tunnel_unreachable"),
        (errno.EMSGSIZE, "frame_too_large"),
    ],
)
def test_what_the_network_tells_of_a_tunnel_is_counted_and_loses_no_other_frame(
    neighbours: list[Neighbour], monkeypatch: pytest.MonkeyPatch, number: int, reason: str
):
    monkeypatch.setattr(socket, "socket", Told)
    monkeypatch.setattr(Told, "errors", [], raising=False)
    (port,) = open_ports({1: neighbours[0].link()})
    try:
        neighbours[0].send(b"waits")
        Told.errors[:] = [number]
        assert port.receive() is None
        assert port.receive() == b"waits"
        Told.errors[:] = [number]
        port.send(b"goes")
        assert neighbours[0].socket.recv(2048) == b"goes"
        assert port.drops == {reason: 2} and port.counters.frames_out == 1
        # It is this frame's own error if it comes again: one frame, counted once.
        Told.errors[:] = [number, number]
        port.send(b"does not")
        assert port.drops == {reason: 3} and port.counters.frames_out == 1
    finally:
        port.close()


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
        # Port 3 gets a frame from the far end of port 1.
        neighbours[0].socket.sendto(b"stray", ("127.0.0.1", neighbours[2].far))
    finally:
        waker.send(bytes([signal.SIGTERM]))
        loop.join(600)
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
                "drops": {},
            },
            "2": {
                "link": str(neighbours[1].link()),
                "frames_in": 2,
                "bytes_in": 60_000,
                "frames_out": 200,
                "bytes_out": size,
                "drops": {},
            },
            "3": {
                "link": str(neighbours[2].link()),
                "frames_in": 0,
                "bytes_in": 0,
                "frames_out": 201,
                "bytes_out": size + 60_000,
                "drops": {"unknown_sender": 1},
            },
        },
        "drops": {"empty": 1, "unknown_sender": 1, "unplugged_port": 201},
        "counters": {"seen": {7: (1, 60)}},
    }


def test_a_tunnel_takes_nothing_from_strangers_and_outlives_its_far_end(
    neighbours: list[Neighbour],
):
    (port,) = open_ports({1: neighbours[0].link()})
    for stranger in neighbours[1:]:
        stranger.socket.sendto(b"stranger", ("127.0.0.1", neighbours[0].far))
    neighbours[0].send(b"neighbour")
    assert port.receive() == b"neighbour"
    assert port.receive() is None
    assert port.drops == {"unknown_sender": 2} and port.counters.frames_in == 1
    where = neighbours[0].socket.getsockname()
    neighbours[0].socket.close()
    for _ in range(3):
        port.send(b"to nobody")
        assert port.receive() is None
    assert port.drops["tunnel_unreachable"] > 0
    # It comes back, and the tunnel carries again.
    neighbours[0].socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    neighbours[0].socket.bind(where)
    neighbours[0].socket.settimeout(600)
    port.send(b"again")
    assert neighbours[0].socket.recv(2048) == b"again"
    port.send(bytes(65_508))
    assert port.drops["frame_too_large"] == 1
    port.close()


def test_a_flood_of_strangers_is_counted_and_displaces_no_frame_of_the_neighbour(
    neighbours: list[Neighbour],
):
    (port,) = open_ports({1: neighbours[0].link()})
    for number in range(5_000):
        neighbours[1].socket.sendto(bytes(1_400), ("127.0.0.1", neighbours[0].far))
        if number % 100 == 0:
            neighbours[0].send(b"%d" % number)
    assert [port.receive() for _ in range(50)] == [b"%d" % n for n in range(0, 5_000, 100)]
    assert port.receive() is None
    assert port.drops == {"unknown_sender": 5_000}
    port.close()


def test_an_open_tunnel_keeps_its_address_from_other_programs(neighbours: list[Neighbour]):
    link = neighbours[0].link()
    (port,) = open_ports({1: link})
    with pytest.raises(LabError, match="another program uses") as taken:
        link.open(2)
    assert taken.value.code == "LAB.PORT_TAKEN"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            other.bind(link.local)
    port.close()
    link.open(2).close()


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
