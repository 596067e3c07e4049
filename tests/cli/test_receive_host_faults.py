"""``stackcast receive`` on a host that loses datagrams itself, or to which none come.

Each test makes one cause in a network namespace: the command names it, and recovers where it can.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from lossy_network import notification
from network_namespaces import add_veth, in_network_namespace, ip, set_sysctl
from paths import ROOT
from ports import free_port
from scapy.layers.igmp import IGMPv3_MQ
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from waiting import until

from stackcast.cli.receive.kernel_counters import read_counters
from stackcast.cli.receive.own_addresses import interface_addresses
from stackcast.udfs.messages.attributes.encodings import BITMASK_GROUP
from stackcast.udfs.messages.attributes.keyed_events import KEY
from stackcast.udfs.messages.attributes.reference import write_event
from stackcast.udfs.messages.reference import build_packet

pytestmark = pytest.mark.integration

SESSION = b"SESSION001"
GROUP = "233.54.12.1"
GROUP_MAC = "01:00:5e:36:0c:01"
NEAR_MAC = "02:00:00:00:00:01"
#: The publisher, in the network of the host.
PUBLISHER = "10.0.0.1"
HOST = "10.0.0.7"
HOST_MAC = "02:00:00:00:00:07"


class ReceiveCommand:
    """The command as a process, which ends with its parent; ``output`` is its standard error."""

    def __init__(self, *arguments: str, limits: tuple[str, ...] = ()) -> None:
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        self._out, self._errors = folder / "out", folder / "errors"
        prefix = ["setpriv", "--pdeathsig", "KILL", *limits]
        with self._out.open("wb") as out, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "stackcast.cli.main", "receive", *arguments],
                cwd=ROOT,
                stdout=out,
                stderr=errors,
            )

    @property
    def output(self) -> str:
        return self._errors.read_text()

    @property
    def lines(self) -> list[str]:
        return self._out.read_text().splitlines()

    @property
    def sequences(self) -> list[int]:
        return [int(line.split()[1]) for line in self.lines]

    def wait_for(self, pattern: str) -> None:
        until(lambda: re.search(pattern, self.output), self)

    def end(self) -> int:
        """Stop the command; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(600)


@contextmanager
def receive(*arguments: str, limits: tuple[str, ...] = ()) -> Iterator[ReceiveCommand]:
    """Yield the command while it listens."""
    command = ReceiveCommand(*arguments, limits=limits)
    try:
        command.wait_for("listening at")
        yield command
    finally:
        command.process.kill()
        command.process.wait()


def without(capability: str) -> tuple[str, ...]:
    """Return the options of setpriv that take a capability from root."""
    if os.geteuid():
        return ()
    return ("--bounding-set", f"-{capability}", "--inh-caps", f"-{capability}")


def refused(*arguments: str) -> str:
    """Return the error of a command that ends with exit code 2."""
    command = ReceiveCommand(*arguments)
    assert command.process.wait(600) == 2, command.output
    return command.output


def frame(sequence: int, source: str = PUBLISHER, address: str = GROUP, **udp: int) -> bytes:
    """Return a frame with a notification, to the group or to the host."""
    packet = IP(src=source, dst=address, ttl=8) / UDP(sport=5000, dport=26400, **udp)
    card = GROUP_MAC if address == GROUP else HOST_MAC
    return bytes(Ether(src=NEAR_MAC, dst=card) / packet / notification(SESSION, sequence, 1))


@contextmanager
def raw_socket(interface: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as wire:
        wire.bind((interface, 0))
        yield wire


def send(interface: str, *frames: bytes) -> None:
    with raw_socket(interface) as wire:
        for content in frames:
            wire.send(content)


def send_until(holds: Callable[[], object], interface: str, content: bytes) -> None:
    """Send a frame again and again until a condition holds."""

    def sent_and_holds() -> object:
        send(interface, content)
        return holds()

    until(sent_and_holds)


@in_network_namespace
def test_reverse_path_filtering_is_named_and_a_route_to_the_publisher_mends_it(_: Path) -> None:
    add_veth("near", "far", "10.0.0.7/24")
    set_sysctl("net/ipv4/conf/far/rp_filter", 1)
    frames = [frame(n << 26, source="172.30.0.9") for n in range(1, 6)]
    with receive("--hex", "--interface", "far") as command:
        send("near", *frames)
        command.wait_for("IPReversePathFilter in /proc/net/netstat rose by 5: .*route")
        assert command.sequences == []
        ip("route add 172.30.0.0/16 dev far")
        send("near", *frames)
        until(lambda: len(command.lines) == 5, command)
        command.wait_for("datagrams arrive again")
        assert command.end() == 0
    set_sysctl("net/ipv4/conf/far/rp_filter", 1)
    ip("route delete 172.30.0.0/16 dev far")
    with receive("--hex", "--interface", "far") as command:
        send("near", *frames)
        until(lambda: read_counters()["TcpExt.IPReversePathFilter"] == 10, command)
        assert command.end() == 1
        assert "IPReversePathFilter in /proc/net/netstat rose by 5" in command.output
        assert "0 received" in command.output


@in_network_namespace
def test_wrong_checksums_are_named(_: Path) -> None:
    add_veth("near", "far", "10.0.0.7/24")
    with receive("--hex", "--interface", "far") as command:
        send("near", *[frame(n << 26, chksum=0x1234) for n in range(1, 4)])
        command.wait_for("InCsumErrors in /proc/net/snmp rose by 3")
        assert command.end() == 1


def bridge_groups() -> list[str]:
    """Return the groups that the bridge sends to the host."""
    table = subprocess.run(
        ["bridge", "-j", "mdb", "show"], check=True, capture_output=True, text=True
    )
    (rows,) = json.loads(table.stdout)
    return [row["grp"] for row in rows["mdb"] if row["port"] == "host_port"]


def general_query() -> bytes:
    """Return an IGMPv3 general query, as a querier sends it."""
    query = IP(src=PUBLISHER, dst="224.0.0.1", ttl=1) / IGMPv3_MQ(mrcode=1, qrv=2, qqic=2)
    return bytes(Ether(src=NEAR_MAC, dst="01:00:5e:00:00:01") / query)


def add_snooping_bridge() -> None:
    """Create a bridge between ``publisher`` and ``far``; it forgets members after 3 seconds."""
    ip(
        "link add bridge0 type bridge mcast_snooping 1 mcast_querier 0 "
        "mcast_membership_interval 300 mcast_querier_interval 100000"
    )
    add_veth("publisher", "publisher_port")
    add_veth("far", "host_port")
    ip("address add 10.0.0.7/24 dev far")
    for port in ("publisher_port", "host_port"):
        ip(f"link set {port} master bridge0")
    ip("link set bridge0 up")


def lose_querier(*commands: ReceiveCommand) -> None:
    """Let the bridge learn from a querier that hosts are members, and forget it again."""
    # The bridge floods groups until it has seen a querier.
    send("publisher", general_query())
    until(lambda: GROUP in bridge_groups(), *commands)
    send_until(lambda: all(command.lines for command in commands), "publisher", frame(1 << 26))
    until(lambda: GROUP not in bridge_groups(), *commands)
    send("publisher", frame(2 << 26))


@in_network_namespace
def test_a_snooping_bridge_whose_querier_left_learns_the_host_again(_: Path) -> None:
    add_snooping_bridge()
    with receive("--hex", "--interface", "far") as command:
        lose_querier(command)
        command.wait_for("nothing received for .* s, joined again\n.*querier")
        send_until(lambda: len(command.lines) == 2, "publisher", frame(3 << 26))
        assert command.sequences == [1 << 26, 3 << 26]
        assert command.end() == 0


@in_network_namespace
def test_a_snooping_bridge_learns_a_host_again_that_has_several_receivers(_: Path) -> None:
    """The kernel reports no join while another program of the host is a member."""
    add_snooping_bridge()
    without_raw = without("net_raw")
    with (
        receive("--hex", "--interface", "far") as command,
        receive("--hex", "--interface", "far", limits=without_raw) as unprivileged,
    ):
        lose_querier(command, unprivileged)
        command.wait_for("nothing received for .* s, joined again\n.*querier")
        unprivileged.wait_for(
            r"other programs of this host are members of 233\.54\.12\.1.*CAP_NET_RAW"
        )
        send_until(lambda: len(unprivileged.lines) == 2, "publisher", frame(3 << 26))
        assert command.sequences == unprivileged.sequences == [1 << 26, 3 << 26]


@pytest.mark.long
@in_network_namespace
def test_an_interface_that_was_deleted_and_created_again_is_joined_again(_: Path) -> None:
    def create() -> None:
        add_veth("near", "far", "10.0.0.7/24")
        ip("route add 224.0.0.0/4 dev far")

    create()
    with ExitStack() as stack:
        # By name, by address and by route, with and without sources.
        places = [["--interface", "far"], ["--interface", HOST], []]
        commands = [
            stack.enter_context(receive("--hex", *place, *source))
            for place in places
            for source in ([], ["--source", PUBLISHER])
        ]
        send("near", frame(1 << 26))
        for command in commands:
            until(lambda command=command: command.sequences == [1 << 26], command)
        ip("link delete near")
        patterns = ["has no such interface"] * 2 + ["has this address"] * 2 + ["no route"] * 2
        for command, pattern in zip(commands, patterns, strict=True):
            command.wait_for(f"nothing received for .* s\n.*{pattern}")
        create()
        for command in commands:
            send_until(lambda command=command: len(command.lines) == 2, "near", frame(2 << 26))
        for command in commands:
            assert command.sequences == [1 << 26, 2 << 26]
            assert command.end() == 0


@in_network_namespace
def test_events_of_an_interface_that_was_deleted_and_created_again_are_received(_: Path) -> None:
    def event(number: int) -> bytes:
        content = write_event({1: number}, "bitmask") + KEY.pack(SESSION, number << 26)
        head = BITMASK_GROUP.to_bytes(6) + bytes.fromhex(NEAR_MAC.replace(":", "")) + b"\x90\x01"
        return (head + content).ljust(60, b"\0")

    add_veth("near", "far", "10.0.0.7/24")
    add_veth("near2", "far2", "10.0.1.7/24")
    with receive("--hex", "--event-frames", "bitmask", "--interface", "far") as command:
        send("near2", event(7))
        send("near", event(1))
        until(lambda: command.sequences == [1 << 26], command)
        ip("link delete near")
        command.wait_for("has no such interface")
        add_veth("near", "far", "10.0.0.7/24")
        send_until(lambda: len(command.lines) == 2, "near", event(2))
        assert command.sequences == [1 << 26, 2 << 26]
        assert command.end() == 0


@in_network_namespace
def test_an_interface_that_is_down_is_named(_: Path) -> None:
    add_veth("near", "far", "10.0.0.7/24")
    with receive("--hex", "--interface", "far") as command:
        ip("link set far down")
        command.wait_for("interface far is down: ip link set far up")
        ip("link set far up")
        ip("link set near down")
        command.wait_for("interface far has no link")
        assert command.end() == 1


@in_network_namespace
def test_only_the_interface_that_is_given_is_heard(_: Path) -> None:
    """Linux hands a group that any program joined on any interface to every socket of the port."""
    add_veth("near", "far", "10.0.0.7/24")
    add_veth("near2", "far2", "10.0.1.7/24")
    with (
        receive("--hex", "--interface", "far") as command,
        receive("--hex", "--interface", "far2") as neighbour,
        receive("--hex", "--interface", HOST, "--source", PUBLISHER) as selective,
    ):
        send("near2", frame(2 << 26))
        until(lambda: neighbour.lines, neighbour)
        send("near", frame(1 << 26))
        for receiver in (command, selective):
            until(lambda receiver=receiver: receiver.lines, receiver)
            assert receiver.sequences == [1 << 26]
            assert receiver.end() == 0
        assert neighbour.sequences == [2 << 26]


@in_network_namespace
def test_more_sources_than_the_kernel_accepts_are_an_error_that_names_the_limit(_: Path) -> None:
    # It has no address, which a source-specific join does not need.
    add_veth("near", "far")
    set_sysctl("net/ipv4/igmp_max_msf", 10)
    sources = [word for n in range(1, 12) for word in ("--source", f"10.0.0.{n}")]
    error = refused("--interface", "far", *sources)
    assert error.startswith("RECEIVE.TOO_MANY_SOURCES: --source names 11 addresses")
    assert "accepts 10 for a group" in error
    remedy = re.search(r"sysctl -w (net\.ipv4\.igmp_max_msf=11)$", error.strip())
    assert remedy
    subprocess.run(["sysctl", "-w", remedy[1]], check=True)
    with receive("--hex", "--interface", "far", *sources) as command:
        send("near", frame(1 << 26, source="10.0.0.12"), frame(2 << 26, source="10.0.0.11"))
        until(lambda: command.lines, command)
        assert command.sequences == [2 << 26]


@in_network_namespace
def test_an_interface_that_does_not_exist_is_an_error_that_names_the_option(_: Path) -> None:
    add_veth("near", "far", "10.0.0.7/24")
    error = refused("--interface", "fat")
    assert error.startswith("RECEIVE.NO_INTERFACE: --interface fat: ") and "far" in error
    assert "stackcast" not in error
    error = refused("--interface", "10.0.0.8")
    assert error.startswith("RECEIVE.NO_INTERFACE: --interface 10.0.0.8: ")
    assert "ip -brief address" in error
    error = refused()
    assert error.startswith("RECEIVE.NO_INTERFACE: --interface is needed: no route")
    error = refused("--event-frames", "bitmask", "--interface", "fat")
    assert error.startswith("RECEIVE.NO_INTERFACE: --interface fat: ")


def test_addresses_that_cannot_be_opened_are_errors_that_name_them() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
        wire.bind(("127.0.0.1", 0))
        port = wire.getsockname()[1]
        error = refused("--listen", f"127.0.0.1:{port}")
        assert error.startswith(f"RECEIVE.CANNOT_LISTEN: UDP port {port} of 127.0.0.1")
        assert os.strerror(errno.EADDRINUSE) in error
    # An address for documentation (RFC 5737).
    error = refused("--listen", "192.0.2.1:26400")
    assert error.startswith("RECEIVE.CANNOT_LISTEN: UDP port 26400 of 192.0.2.1")


def test_a_buffer_that_the_kernel_cut_is_reported_and_so_are_the_datagrams_it_dropped() -> None:
    limit = int(Path("/proc/sys/net/core/rmem_max").read_text())
    wanted = 32 << 20
    if limit >= wanted:
        pytest.skip("the kernel grants the whole buffer")
    port = free_port()
    arguments = ["--json", "--listen", f"127.0.0.1:{port}", "--summary-port", "0"]
    # Linux reserves twice the granted size; these are more bytes than that.
    size = 8_000
    number = 3 * limit // size
    with (
        receive(*arguments, limits=without("net_admin")) as command,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire,
    ):
        command.wait_for(
            f"buffer of {wanted:,} bytes, but the kernel granted {limit:,}.*"
            f"sysctl -w net.core.rmem_max={wanted}"
        )
        # A receiver that does not run does not read.
        command.process.send_signal(signal.SIGSTOP)
        for n in range(number):
            datagram = build_packet(SESSION, n << 26, [bytes(size)])
            wire.sendto(datagram, ("127.0.0.1", port))
        command.process.send_signal(signal.SIGCONT)
        command.wait_for("datagrams dropped by this host's kernel so far")
        assert command.end() == 1
    statistics = json.loads(command.lines[-1])["statistics"]
    assert statistics["dropped"] > 0
    assert statistics["received"] + statistics["dropped"] == number


def send_from(address: str, to: str, sequence: int) -> None:
    """Send a notification as any program of this host can."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
        wire.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(HOST))
        wire.bind((address, 0))
        wire.sendto(notification(SESSION, sequence, 1), (to, 26400))


@pytest.mark.parametrize(
    ("arguments", "address", "own_addresses"),
    [
        pytest.param(
            ["--listen", f"{HOST}:26400", "--summary-port", "0"],
            HOST,
            [HOST, "10.0.0.8", "127.0.0.1", "127.0.0.5"],
            id="unicast",
        ),
        pytest.param(["--interface", "far"], GROUP, [HOST, "10.0.0.8"], id="group"),
    ],
)
@in_network_namespace
def test_datagrams_with_an_own_address_of_the_host_are_not_a_publishers(
    _: Path, arguments: list[str], address: str, own_addresses: list[str]
) -> None:
    """Neither those of programs of the host, nor those that the network brings."""
    add_veth("near", "far", f"{HOST}/24")
    ip("link set lo up")
    ip("address add 10.0.0.8/24 dev far")
    for name in ("all", "far"):
        # By default, the kernel discards frames from the network with an own address.
        set_sysctl(f"net/ipv4/conf/{name}/accept_local", 1)
    ip(f"link set far address {HOST_MAC}")
    with receive("--hex", *arguments) as command:
        command.wait_for("publishers are not restricted: .* except this host itself; give --source")
        for number, own in enumerate(own_addresses, 1):
            send_from(own, address, number << 26)
        send("near", frame(5 << 26, HOST, address), frame(6 << 26, address=address))
        until(lambda: command.lines, command)
        assert command.sequences == [6 << 26]
        assert command.end() == 0
        assert f"{len(own_addresses) + 1} from other addresses" in command.output


@in_network_namespace
def test_a_host_accepts_its_own_address_if_it_is_named_as_a_publisher(_: Path) -> None:
    add_veth("near", "far", "10.0.0.7/24")
    ip("link set lo up")
    arguments = ["--hex", "--listen", "10.0.0.7:26400", "--summary-port", "0"]
    with receive(*arguments, "--source", HOST) as command:
        send_from("127.0.0.1", HOST, 1 << 26)
        send_from(HOST, HOST, 2 << 26)
        until(lambda: command.lines, command)
        assert command.sequences == [2 << 26]
        assert "not restricted" not in command.output


@in_network_namespace
def test_on_loopback_the_programs_of_the_host_are_publishers(_: Path) -> None:
    """As in the lab and in trials."""
    add_veth("near", "far", "10.0.0.7/24")
    ip("link set lo up")
    with receive("--hex", "--listen", "127.0.0.1:26400", "--summary-port", "0") as command:
        command.wait_for("publishers are not restricted: .* are accepted; give --source")
        for number, own in enumerate(("127.0.0.1", "127.0.0.5", HOST), 1):
            send_from(own, "127.0.0.1", number << 26)
        until(lambda: len(command.lines) == 3, command)
        assert command.sequences == [1 << 26, 2 << 26, 3 << 26]
        assert command.end() == 0


@in_network_namespace
def test_the_addresses_of_a_host_are_those_of_all_its_interfaces(_: Path) -> None:
    assert interface_addresses() == frozenset()
    add_veth("near", "far", "10.0.0.7/24")
    ip("link set lo up")
    # More than one answer of the kernel holds by default.
    others = {f"10.1.{number // 100}.{number % 100}" for number in range(200)}
    for address in others:
        ip(f"address add {address}/16 dev near")
    assert interface_addresses() == {"127.0.0.1", HOST} | others
