"""A host can only receive: what it sends for subscribers goes nowhere, whatever the program."""

from __future__ import annotations

from ipaddress import IPv4Address

import attribute_value_cases as events
import networkx as nx
import packet_cases as packets
import pytest
import virtual_trees_cases as stacks
from control_traffic import is_for_neighbors, neighbor_frames
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from lossy_network import summary_bytes
from networks import from_graph
from p4_products import products
from pruning_model import datagram
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.network.labels import NARROW, TREE, TypedLabels
from stackcast.udfs.network.network import Host, Network
from stackcast.udfs.network.programs import ATTRIBUTES, FILTERING, STACKS
from stackcast.udfs.network.source_routes import BITMASK, MC_GROUP, PORT, HopLabels, SwitchLabels
from stackcast.udfs.network.stored_routes import DESTINATIONS, PORT_BITMAPS
from stackcast.udfs.switches.derivation import derive
from stackcast.udfs.switches.rollout import NetworkVersion
from stackcast.udfs.switches.sources import SOURCE
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.unit

#: All that there is of a session, and nothing of it for anybody.
FORGED = summary_bytes(b"8ZY63T0000", 0, (1 << 64) - 1, {})
REASONS = {FILTERING: packets.REASONS, ATTRIBUTES: events.REASONS}


class Deployment:
    """One switch with three hosts and two publishers, and what it should hold."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.labels = STACKS.get(program, NARROW)
        self.network = from_graph(nx.empty_graph(1), 3, 2, self.labels)
        self.hosts = dict(self.network.hosts)
        self.switch = SimpleSwitch()
        self.switch.load(products(program)[1].read_bytes())
        self.ports = sorted(host.port for host in self.hosts.values())
        self.apply(self.network)
        # Whatever is published goes to every port.
        self.to_all = {
            ATTRIBUTES: [
                events.pass_entry(0, rows=1),
                events.Row((0, 0), (), tuple(self.ports), 1).entry(),
            ],
            FILTERING: packets.rows([f"price > 0 : fwd({port})" for port in self.ports]),
        }.get(program, [])
        self.switch.apply({entry.key: entry for entry in self.to_all})

    def apply(self, network: Network) -> None:
        trees = broadcast_trees(network) if self.program in STACKS else []
        source = NetworkVersion(network, trees)
        derived = derive(source, [], dict.fromkeys(network.switches, self.program), {})
        self.switch.apply({entry.key: entry for entry in derived.entries})

    def published(self) -> bytes:
        """What a publisher sends; for stacks, the summary that would silence all who believe it."""
        if self.program == ATTRIBUTES:
            return events.mask_frame({1: 5})
        if self.program == FILTERING:
            return datagram([packets.order("GOOGL", 500_001)])
        inner = bytes(IP(src="10.64.0.1", dst="233.54.12.1") / UDP(dport=26401) / FORGED)
        labels = [self.labels.label(TREE, 1)] if isinstance(self.labels, TypedLabels) else [1]
        if isinstance(self.labels, SwitchLabels):
            (device,) = (switch.device_id for switch in self.network.switches.values())
            labels = [self.labels.label(device, *order) for order in self._orders()]
        elif isinstance(self.labels, HopLabels) or self.labels == DESTINATIONS:
            labels = [link.id for link in self.network.links]
        elif self.labels == PORT_BITMAPS:
            labels = PORT_BITMAPS.ports(sum(1 << port - 1 for port in self.ports))
            (device,) = (switch.device_id for switch in self.network.switches.values())
            labels.insert(0, PORT_BITMAPS.switch(device))
        head = stacks.ADDRESSES + self.labels.ether_type.to_bytes(2)
        return head + self.labels.pack(labels) + inner

    def _orders(self) -> list[tuple[int, int]]:
        """What says all ports of the switch in a source route: strategies and values."""
        if self.labels.tag == PORT:
            return [(PORT, port) for port in self.ports]
        tag = BITMASK if self.labels.encoding == "bitmask" else MC_GROUP
        return [(tag, sum(1 << port - 1 for port in self.ports))]

    def sent(self, port: int, frame: bytes) -> tuple[list[int], list[str]]:
        """The ports that a frame leaves by, and the reasons that were counted."""
        names = REASONS.get(self.program, stacks.REASONS)

        def counted() -> list[int]:
            return [self.switch.counter("ingress.dropped", at)[0] for at in range(len(names))]

        before = counted()
        out = sorted(port for port, _ in self.switch.process(port, frame))
        return out, [n for n, a, b in zip(names, before, counted(), strict=True) if a != b]


@pytest.fixture(scope="module", params=[*STACKS, FILTERING, ATTRIBUTES])
def deployment(request) -> Deployment:
    return Deployment(request.param)


def plain(source: int, target: Host) -> bytes:
    ends = {"src": str(IPv4Address(source)), "dst": str(IPv4Address(target.ipv4))}
    packet = IP(**ends, ttl=9) / UDP(sport=4000, dport=26402) / b"hello"
    return bytes(Ether(src="02:00:00:00:00:07", dst="02:00:00:00:00:01") / packet)


@pytest.mark.integration
def test_what_is_for_subscribers_comes_from_publishers_alone(deployment: Deployment):
    frame = deployment.published()
    for host in deployment.hosts.values():
        others = [port for port in deployment.ports if port != host.port]
        wanted = (others, []) if host.role == "publisher" else ([], ["NO_PUBLISHER"])
        assert deployment.sent(host.port, frame) == wanted, host


def test_a_port_that_the_tables_do_not_name_is_closed(deployment: Deployment):
    target = deployment.hosts["h1"]
    for port in (0, 6, 63, 64, 300):
        for frame in (deployment.published(), plain(deployment.hosts["h2"].ipv4, target)):
            assert deployment.sent(port, frame) == ([], ["UNKNOWN_PORT"])


def test_hosts_go_on_sending_each_other_plain_traffic_under_their_own_address(
    deployment: Deployment,
):
    for host in deployment.hosts.values():
        for target in deployment.hosts.values():
            own = deployment.sent(host.port, plain(host.ipv4, target))
            assert own == ([target.port], [])
        # Under another's, as that of the service, a host could lie to its neighbours.
        forged = deployment.sent(host.port, plain(0x0A400009, deployment.hosts["h1"]))
        if host.role == "publisher":
            assert forged == ([deployment.hosts["h1"].port], [])
        else:
            assert forged == ([], ["FORGED_ADDRESS"])


def test_control_traffic_between_neighbors_is_counted_apart_from_forged_addresses(
    deployment: Deployment,
):
    for host in deployment.hosts.values():
        for name, frame in neighbor_frames(host.ipv4):
            assert deployment.sent(host.port, frame) == ([], ["LINK_LOCAL"]), (host, name)
            assert deployment.sent(63, frame) == ([], ["UNKNOWN_PORT"]), name


ADDRESSES = (
    st.integers(0, (1 << 32) - 1)
    | st.integers(0xE0000000, 0xE0000200)
    | st.integers(0xDFFFFFFE, 0xF0000001)
    | st.integers(0xFFFFFF00, 0xFFFFFFFF)
)


@examples(60)
@given(protocol=st.sampled_from([2, 17, 6, 89]), address=ADDRESSES)
def test_a_forged_address_is_counted_except_between_neighbors(
    deployment: Deployment, protocol: int, address: int
):
    packet = IP(src="10.9.9.9", dst=str(IPv4Address(address)), ttl=9, proto=protocol) / bytes(12)
    frame = bytes(Ether(src="02:00:00:00:00:07", dst="02:00:00:00:00:01") / packet)
    reason = "LINK_LOCAL" if is_for_neighbors(protocol, address) else "FORGED_ADDRESS"
    assert deployment.sent(deployment.hosts["h1"].port, frame) == ([], [reason])


@pytest.mark.integration
@pytest.mark.parametrize("program", [*STACKS, FILTERING, ATTRIBUTES])
def test_a_host_may_send_as_long_as_the_tables_make_it_a_publisher(program: str):
    deployment = Deployment(program)
    frame, port = deployment.published(), deployment.hosts["h2"].port
    for role, reasons in (("publisher", []), ("subscriber", ["NO_PUBLISHER"])):
        hosts = [
            Host(h.name, h.switch, h.port, h.mac, h.ipv4, role if h.name == "h2" else h.role)
            for h in deployment.hosts.values()
        ]
        switches, links = deployment.network.switches.values(), deployment.network.links
        deployment.apply(Network(switches, hosts, links, deployment.labels))
        assert deployment.sent(port, frame)[1] == reasons


def test_a_port_that_was_a_publishers_is_closed_at_once_while_older_versions_are_in_use():
    network = from_graph(nx.empty_graph(1), 1, 1)
    feed, other = network.hosts["feed1"], network.hosts["h1"]
    changed = Network(
        network.switches.values(),
        [other, Host(feed.name, feed.switch, feed.port, feed.mac, feed.ipv4, "subscriber")],
        network.links,
    )
    versions = [NetworkVersion(each, broadcast_trees(each)) for each in (changed, network)]
    pipelines = dict.fromkeys(network.switches, "virtual_trees")
    derived = derive(versions[0], versions[1:], pipelines, {})
    (entry,) = (e for e in derived.entries if e.table == SOURCE and e.match[0][2][0] == feed.port)
    assert entry.action.endswith(".host")
    assert [taken.table for taken in derived.taken_back] == [SOURCE]
