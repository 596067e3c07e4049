"""Frames of replicated state, switches that run its programs, and networks of both models."""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import p4_products
import program_switches
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from switch_model import Message, Port, SwitchModel, Verdict

from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.network.network import Link, Network
from stackcast.udfs.states.messages import (
    ACKNOWLEDGER,
    STATES_PORT,
    MessageKind,
    StateHeader,
    group_of,
    multicast_mac,
    read_group,
    read_message,
)
from stackcast.udfs.states.switch_controller import SetPorts, SwitchController
from stackcast.udfs.switches.bridge import spanning_links
from stackcast.udfs.switches.ports import port_groups, port_mask
from stackcast.udfs.switches.sources import receiving_port, trusted_ports
from stackcast.udfs.switches.state_entries import (
    TREE,
    publishing_port,
    spanning,
    state_entries,
    state_row,
)

REGISTERS, TABLE = "state_replication", "state_replication_table"
PUBLISH, ACK, REMOVE, REGISTER = MessageKind
SIZES = (p4_products.FOLDER / "state_replication/sizes.p4").read_text()
REASONS = re.findall(r"^const reason_t (\w+) = \d+;", SIZES, re.MULTILINE)
CAPACITY = 2048
CPU_PORT = 510
LEASE = 20
"""Generations of about a second."""


def program(name: str = REGISTERS) -> bytes:
    return p4_products.products(name)[1].read_bytes()


def state_frame(
    message: Message, header: StateHeader, segment: bytes = b"", **fields: Any
) -> bytes:
    """A message as a host sends it; ``fields`` of IP say otherwise."""
    group = group_of(message.kind, message.state) if message.state else 239 << 24
    ip = IP(**{"src": _dotted(message.source), "dst": _dotted(group), "ttl": 2, **fields})
    mac = f"{multicast_mac(group):012x}"
    return bytes(
        Ether(src="02:00:00:00:00:bb", dst=":".join(re.findall("..", mac)))
        / ip
        / UDP(sport=STATES_PORT, dport=STATES_PORT)
        / (header.pack() + segment)
    )


def read_frame(frame: bytes) -> tuple[Message, StateHeader]:
    """What a frame of `state_frame` or `ack_frame` says."""
    kind, state = read_group(int.from_bytes(frame[30:34]))
    header, _ = read_message(frame[42:])
    return Message(kind, state, int.from_bytes(frame[26:30])), header


def ack_frame(message: Message, header: StateHeader) -> bytes:
    """What a switch answers."""
    group = group_of(ACK, message.state)
    mac = f"{multicast_mac(group):012x}"
    ether = Ether(src="02:00:c0:00:00:08", dst=":".join(re.findall("..", mac)))
    ip = IP(src=_dotted(ACKNOWLEDGER), dst=_dotted(group), ttl=2)
    return bytes(ether / ip / UDP(sport=STATES_PORT, dport=STATES_PORT, chksum=0) / header.pack())


def _dotted(address: int) -> str:
    return ".".join(str(byte) for byte in address.to_bytes(4))


told = partial(program_switches.told, REASONS)
"""Copies and reasons of a switch, a port and a frame."""


class ControlledSwitch:
    """A switch that keeps ports in a table, with its controller: both behind one ``process``."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._switch = SimpleSwitch(clock=clock)
        self._switch.load(program(TABLE))
        self._clock = clock
        self.counter = self._switch.counter
        self.controller: SwitchController | None = None

    def apply(self, entries) -> None:
        self._switch.apply(entries)
        (span,) = (dict(e.params) for e in entries.values() if e and e.table == TREE)
        links, hosts, lease = (int.from_bytes(span[n]) for n in ("links", "hosts", "lease"))
        self.controller = SwitchController(links, hosts, lease, {}, self._clock())

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        copies = []
        for out, copy in self._switch.process(port, frame):
            if out != CPU_PORT:
                copies.append((out, copy))
                continue
            came_by = int.from_bytes(copy[:2])
            assert (came_by, copy[2:]) == (port, frame)
            effects = self.controller.packet_in(came_by, copy[2:], self._clock())
            copies += self._done(effects)
        return copies

    def tick(self) -> list[tuple[int, bytes]]:
        return self._done(self.controller.tick(self._clock()))

    def _done(self, effects) -> list[tuple[int, bytes]]:
        copies = []
        for effect in effects:
            if isinstance(effect, SetPorts):
                entry = state_row("s", effect.state, effect.ports)
                self._switch.apply({entry.key: entry if effect.ports else None})
            else:
                copies += self._switch.process(CPU_PORT, effect.ports.to_bytes(8) + effect.frame)
        return copies


def wanted_copies(verdict: Verdict, message: Message, header: StateHeader, frame: bytes):
    """The bytes that a verdict of the model stands for."""
    return sorted(
        (port, ack_frame(message, header) if kind == ACK and message.kind != ACK else frame)
        for port, kind in verdict.copies
    )


def random_model(rng: Random, least: int = 1, most: int = 20) -> SwitchModel:
    """A switch with ``least`` to ``most`` ports: links on and off the tree, hosts, closed ones."""
    kinds = [Port(), Port(), Port(0x0A000001), Port(0x0A000002, True), None]
    drawn = {number: rng.choice(kinds) for number in range(1, rng.randint(least, most) + 1)}
    ports = {number: port for number, port in drawn.items() if port is not None}
    links = [n for n, port in ports.items() if not port.is_host and rng.random() < 0.8]
    return SwitchModel(ports, port_mask(links), LEASE, CAPACITY)


def entries_of(model: SwitchModel, ports: int = 20):
    """The entries of a switch that is like the model."""
    hosts = [number for number, port in model.ports.items() if port.is_host]
    links = [number for number in model.ports if model.links >> number - 1 & 1]
    entries = [*port_groups("s", range(1, ports + 1)), spanning("s", links, hosts, model.lease)]
    for number, port in model.ports.items():
        if port.ipv4 is None:
            entries += trusted_ports("s", [number])
        else:
            make = publishing_port if port.publisher else receiving_port
            entries.append(make("s", number, port.ipv4))
    return entries


def random_message(rng: Random, states: int = 3) -> Message:
    """Of few states, so that they meet; seldom of one that is none, or under another's address."""
    kind = rng.choice([PUBLISH, PUBLISH, REGISTER, REGISTER, REMOVE, ACK])
    state = rng.choice([*range(1, states + 1)] * 5 + [0, 2047, 2048, (1 << 22) - 1])
    return Message(kind, state, rng.choice([0x0A000001, 0x0A000002]))


@dataclass
class StateNetwork:
    """Models of all switches, and switches, perhaps of some, that must do what their models say.

    ``lose``: whether a copy is lost on a link between switches. ``now``: the clock of all,
    microseconds.
    ``controlled``: switches have controllers.
    ``held_to_models``: not where controllers send again, of which models know nothing.
    """

    network: Network
    switches: dict[str, Any] = field(default_factory=dict)
    lose: Callable[[Link], bool] = lambda link: False
    now: int = 0
    controlled: bool = False
    held_to_models: bool = True
    lease: int = LEASE
    models: dict[str, SwitchModel] = field(default_factory=dict)
    number: int = 0

    def __post_init__(self) -> None:
        network, links = self.network, self._links()
        publishers = set(network.publishers())
        for name in network.switches:
            ports = {}
            for link in network.links:
                if link.switch == name:
                    host = network.hosts.get(link.neighbor)
                    of_host = host and Port(host.ipv4, host.name in publishers)
                    ports[link.port] = of_host or Port()
            capacity = 0 if self.controlled else CAPACITY
            self.models[name] = SwitchModel(
                ports, port_mask(links[name]), self.lease, capacity, self.controlled
            )
        self._fill()

    def change_tree(self, network: Network) -> None:
        """Links have other weights, so switches get another tree."""
        self.network = network
        for name, ports in self._links().items():
            model = self.models[name]
            model.links = model.subscriptions.links = port_mask(ports)
        self._fill()

    def _links(self) -> dict[str, list[int]]:
        """Returns the ports of each switch on the tree that lead to switches."""
        links = {name: [] for name in self.network.switches}
        for link in spanning_links(self.network):
            links[link.switch].append(link.port)
        return links

    def _fill(self) -> None:
        entries = state_entries(self.network, self.lease)
        for name, switch in self.switches.items():
            switch.apply({e.key: e for e in entries if e.switch == name})

    def send(self, host: str, kind: MessageKind, state: int) -> tuple[Counter[str], int]:
        """Who gets a host's message, and how often it crosses a link between switches."""
        at = self.network.hosts[host]
        self.number += 1
        frame = state_frame(Message(kind, state, at.ipv4), StateHeader(7, self.number))
        return self._carry([(at.switch, at.port, frame)], host)

    def _carry(self, arrivals, host: str = "") -> tuple[Counter[str], int]:
        ends = {(link.switch, link.port): link for link in self.network.links}
        got: Counter[str] = Counter()
        crossed = 0
        waiting = deque(arrivals)
        while waiting:
            name, port, frame = waiting.popleft()
            message, header = read_frame(frame)
            copies = self._copies(name, port, message, header, frame)
            for out, copy in copies:
                link = ends[name, out]
                if link.neighbor_port is None:
                    got[link.neighbor] += copy == frame
                    assert copy == frame or link.neighbor == host
                    continue
                crossed += copy == frame
                assert crossed < 1000, "copies multiply"
                if not self.lose(link):
                    waiting.append((link.neighbor, link.neighbor_port, copy))
        return +got, crossed

    def _copies(self, name, port, message, header, frame):
        """What a switch sends, if its model sends the same."""
        if not self.held_to_models:
            return self.switches[name].process(port, frame)
        verdict = self.models[name].process(port, message, self.now)
        wanted = wanted_copies(verdict, message, header, frame)
        if name in self.switches:
            copies, reasons = told(self.switches[name], port, frame)
            assert copies == wanted, (name, port, message)
            assert reasons == ([verdict.reason] if verdict.reason else [])
        return wanted

    def tick(self) -> None:
        """Controllers send again what nobody has acknowledged."""
        ends = {(link.switch, link.port): link for link in self.network.links}
        for name, switch in self.switches.items():
            for out, copy in switch.tick():
                link = ends[name, out]
                if not self.lose(link):
                    self._carry([(link.neighbor, link.neighbor_port, copy)])

    def restart(self, name: str) -> None:
        """A switch loses what it learned."""
        if name in self.switches:
            for register in json.loads(program())["register_arrays"]:
                for index in range(CAPACITY):
                    self.switches[name].write_register(register["name"], index, 0)
        self.models[name].restart()


def odd_frames() -> Iterator[tuple[str, bytes, str | None]]:
    """``(what it is, frame, reason)`` for port 1, a publisher of 10.0.0.1; None: it is sent on.

    For a switch where port 2 leads to a switch that subscribed to state 1.
    """
    message = Message(PUBLISH, 1, 0x0A000001)
    header = StateHeader(5001, 1, 1, 1)
    whole = state_frame(message, header, b"segment")
    yield "an update", whole, None
    yield "filled up", state_frame(message, header) + bytes(10), None
    yield "no segment", state_frame(message, header), None
    yield "options", state_frame(message, header, options=b"\x94\x04\x00\x00" * 10), None
    yield "empty", b"", "CUT_SHORT"
    yield "cut in its address", whole[:33], "CUT_SHORT"
    yield "cut in UDP", whole[:40], "CUT_SHORT"
    yield "cut in its segment", whole[:-1], "CUT_SHORT"
    yield "without a header", _resized(whole, 35), "CUT_SHORT"
    yield "half a header", _resized(whole, 43 - 14), "CUT_SHORT"
    yield "ARP", whole[:12] + b"\x08\x06" + whole[14:], "NOT_IPV4"
    yield "a wrong checksum", state_frame(message, header, chksum=1), "BAD_CHECKSUM"
    yield "a fragment", state_frame(message, header, flags="MF"), "NO_ROUTE"
    yield "the end of one", state_frame(message, header, frag=7), "NO_ROUTE"
    yield "not UDP", state_frame(message, header, proto=6), "NO_ROUTE"
    yield "another port", whole[:36] + b"\xff\x99" + whole[38:], "NO_ROUTE"
    yield "another group", state_frame(message, header, dst="238.0.0.1"), "NO_ROUTE"
    yield "another's address", state_frame(Message(PUBLISH, 1, 1), header), "FORGED_ADDRESS"
    yield "a host's ack", state_frame(Message(ACK, 1, 0x0A000001), header), "ACK_FROM_HOST"
    yield "state 0", state_frame(Message(PUBLISH, 0, 0x0A000001), header), "UNKNOWN_STATE"


def _resized(frame: bytes, size: int) -> bytes:
    """The frame with an IPv4 datagram of ``size`` bytes, and UDP of what is left of them."""
    udp = (size - 20).to_bytes(2)
    ip = IP(frame[14:34])
    ip.len, ip.chksum = size, None
    return frame[:14] + bytes(ip)[:20] + frame[34:38] + udp + frame[40 : 14 + size]
