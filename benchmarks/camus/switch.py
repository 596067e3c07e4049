"""The switch of the experiment: one of the lab's in a process of its own, between UDP tunnels.

It runs the generated program of packet subscriptions, with the entries that the job of switches
would write: routes, and the filters of rules. Packets to the group are filtered; the same to the
host's own address are plain traffic, which it forwards by its routes.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from multiprocessing.connection import Connection

from p4_products import products

from benchmarks.camus.workloads import RULE
from benchmarks.p4.messages import with_groups_and_routes
from benchmarks.p4.workloads import PUBLISHER, itch
from benchmarks.support.ready_process import ReadyProcess
from stackcast.jobs.adapters.wire.udp import parse_endpoint
from stackcast.lab.fabric.ports import UdpTunnel
from stackcast.lab.fabric.standalone import StandaloneSwitch, open_ports
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network_match.filters import NetworkFilters
from stackcast.udfs.switches.entry import SwitchEntry

SUBSCRIBER = "h1"


def network() -> Network:
    """Returns a network of one rack: publisher and subscriber are at the same switch."""
    return fabric(1, 1, 1, 1, 1)


def entries_of(made: Network) -> Sequence[SwitchEntry]:
    """Returns all that the switch holds for the subscriber's rule."""
    rules, rejected = check(
        [Subscription("1", SUBSCRIBER, RULE)], itch(), set(made.hosts), PUBLISHER
    )
    filtered = NetworkFilters(itch(), PUBLISHER).entries(made, rules, {})
    assert not rejected and not filtered.rejections
    return with_groups_and_routes(made, filtered.entries)[made.hosts[PUBLISHER].switch]


def loaded(made: Network) -> SimpleSwitch:
    """Returns the switch with its program and entries."""
    switch = SimpleSwitch()
    switch.load(products("packet_subscriptions")[1].read_bytes())
    switch.apply({entry.key: entry for entry in entries_of(made)})
    return switch


class SwitchProcess(ReadyProcess):
    """The switch between a publisher and a host; a context manager.

    near: its own ends of the tunnels, publisher's and host's; far: theirs. All ``HOST:PORT``.
    """

    def __init__(self, near: tuple[str, str], far: tuple[str, str]) -> None:
        super().__init__(_serve, near, far)


def _serve(near: tuple[str, str], far: tuple[str, str], pipe: Connection) -> None:
    made = network()
    links = {
        made.hosts[name].port: UdpTunnel(parse_endpoint(own), parse_endpoint(other))
        for name, own, other in zip((PUBLISHER, SUBSCRIBER), near, far, strict=True)
    }
    wake, _ = socket.socketpair()
    switch = StandaloneSwitch(loaded(made), open_ports(links))
    pipe.send("ready")
    switch.run(wake, lambda _: True)
