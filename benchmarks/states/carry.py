"""What an update costs on links (STARE IV-B, Table IV), counted on networks of the P4 programs.

Beside the text's ways: our virtual trees carrying the same states, and a Kafka topic, whose broker
is a host and sends a copy to each.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import networkx as nx
from p4_products import products

from benchmarks.states import tree
from benchmarks.support.results import Lines
from stackcast.lab.fabric.switches import Fabric
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.states.frames import pack_frame
from stackcast.udfs.states.messages import MessageKind, StateHeader, group_of
from stackcast.udfs.states.requests import REFRESH
from stackcast.udfs.switches.stack_entries import switch_entries
from stackcast.udfs.switches.state_entries import LEASE, state_entries
from stackcast.udfs.trees.encoders import encoder_of
from stackcast.udfs.trees.publisher_trees import first_trees

STATE = 7
#: In net and out net: Table IV of the text, best and worst.
TEXT = {
    "unicast": ((32, 17), (96, 17)),
    "broadcast": ((84, 85), (84, 85)),
    "ALM": ((20, 59), (26, 67)),
    "OFM": ((20, 17), (26, 17)),
    "P4 source routing": ((20, 17), (26, 17)),
    "STARE": ((20, 17), (26, 17)),
}
BYTES = 1000
DRAWS = 20
#: Microseconds: between two refreshes of a host, and between two updates at the text's rate.
REFRESH_US = int(REFRESH * 1e6)
UPDATE_US = 20_000_000
#: Of TCP, IPv4 and Ethernet, and of a record batch with one record in a request and an answer.
_TCP = 14 + 20 + 32
_PRODUCE, _FETCH = 61 + 8 + 60, 61 + 8 + 70


class CountedNetwork:
    """A network whose switches run a program and hold its entries; counts copies on links.

    ``between``: copies between switches, ``outside``: between hosts and switches, those of the
    sender too; ``bytes`` of both. ``now``: the clock of all switches, in microseconds.
    """

    def __init__(self, network: Network, program: str) -> None:
        self.network = network
        config = products(program)[1].read_bytes()
        stacks = program == "virtual_trees"
        self.trees = first_trees(network)
        entries = switch_entries(network, self.trees) if stacks else state_entries(network)
        self.now = 0
        planes = {name: SimpleSwitch(clock=lambda: self.now) for name in network.switches}
        for name, plane in planes.items():
            plane.load(config)
            plane.apply({e.key: e for e in entries if e.switch == name})
        self.got: Counter[str] = Counter()
        self._to_switch = {(n, k.port) for n in planes for k in network.links if k.switch == n
                           and k.neighbor_port is not None}  # fmt: skip
        self.between = self.outside = self.bytes = 0
        counted = {name: _Counted(self, name, plane) for name, plane in planes.items()}
        self._fabric = Fabric(network, counted, lambda host, _: self.got.update([host]))

    def send(self, host: str, frame: bytes) -> Counter[str]:
        """Sends one frame; returns copies by host that got one."""
        self.got = Counter()
        self.outside += 1
        self.bytes += len(frame)
        self._fabric.send(host, frame)
        return self.got

    def left(self, switch: str, port: int, frame: bytes) -> None:
        if (switch, port) in self._to_switch:
            self.between += 1
        else:
            self.outside += 1
        self.bytes += len(frame)

    def zero(self) -> None:
        self.between = self.outside = self.bytes = 0


class _Counted:
    """A switch whose copies are counted."""

    def __init__(self, network: CountedNetwork, name: str, plane: SimpleSwitch) -> None:
        self._network, self._name, self._plane = network, name, plane
        self.drops = plane.drops

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        copies = self._plane.process(port, frame)
        for out, copy in copies:
            self._network.left(self._name, out, copy)
        return copies


def run(draws: int = DRAWS) -> None:
    """Counts Table IV, and bytes of an update in two networks."""
    lines = Lines("states", "carry")
    _table_iv(lines)
    rng = random.Random(1)
    fabric_network = fabric(4, 2, 2, 2, 2)
    for name, network in (("4-ary tree", tree.network(0)), ("fabric", fabric_network)):
        hosts = [h for h in network.subscribers() if h not in network.publishers()]
        if name == "4-ary tree":
            hosts = [h for h in hosts if network.hosts[h].switch in {f"s{n}" for n in tree.LEAVES}]
        _bytes(lines, name, network, hosts, draws, rng)


def _register(carried: CountedNetwork, host: str) -> None:
    group = group_of(MessageKind.REGISTER, STATE)
    ipv4 = carried.network.host(host).ipv4
    carried.send(host, pack_frame(ipv4, group, StateHeader(1, 1).pack()))


def _keep(carried: CountedNetwork, hosts: list[str]) -> tuple[int, int]:
    """Register hosts in two ways; return the bytes that each takes.

    First each host registers in a period of its own, so that each register crosses the whole tree.
    Then all register at the same time, as hosts do.
    """
    carried.zero()
    for host in hosts:
        carried.now += 1 << LEASE
        _register(carried, host)
    everywhere = carried.bytes
    carried.zero()
    carried.now += REFRESH_US
    for host in hosts:
        _register(carried, host)
    return everywhere, carried.bytes


def _remove(carried: CountedNetwork, host: str) -> None:
    group = group_of(MessageKind.REMOVE, STATE)
    ipv4 = carried.network.host(host).ipv4
    carried.send(host, pack_frame(ipv4, group, StateHeader(1, 2).pack()))


def _publish(carried: CountedNetwork, host: str, size: int, hosts: Iterable[str]) -> None:
    ipv4 = carried.network.host(host).ipv4
    datagram = StateHeader(9, 1, 1, 1).pack() + bytes(size)
    got = carried.send(host, pack_frame(ipv4, group_of(MessageKind.PUBLISH, STATE), datagram))
    assert got == Counter(hosts), "an update reaches exactly the replicas"


def _unicast(carried: CountedNetwork, host: str, size: int, hosts: Iterable[str]) -> None:
    ipv4 = carried.network.host(host).ipv4
    for other in hosts:
        frame = pack_frame(ipv4, carried.network.host(other).ipv4, bytes(8 + size))
        got = carried.send(host, long_lived(frame))
        assert got == Counter([other]), "plain IPv4 goes on as ever"


def long_lived(frame: bytes) -> bytes:
    """A frame whose time to live outlasts the tree; its checksum follows."""
    more = bytearray(frame)
    more[22] = 64
    more[24:26] = b"\0\0"
    total = sum(int.from_bytes(more[at : at + 2]) for at in range(14, 34, 2))
    total = (total & 0xFFFF) + (total >> 16)
    more[24:26] = (~((total & 0xFFFF) + (total >> 16)) & 0xFFFF).to_bytes(2)
    return bytes(more)


def _by_stacks(carried: CountedNetwork, host: str, size: int, hosts: Iterable[str]) -> int:
    """Sends one update by stacks of labels; returns how many labels."""
    encoder = encoder_of(carried.network, host, carried.trees)
    form = carried.network.labels
    ipv4 = carried.network.host(host).ipv4
    plain = pack_frame(ipv4, group_of(MessageKind.PUBLISH, STATE), bytes(8 + size))
    got: Counter[str] = Counter()
    labels = 0
    for encoding in encoder.of(host).encode(frozenset(hosts)):
        stack = form.ether_type.to_bytes(2) + form.pack(encoding.labels)
        got += carried.send(host, plain[:12] + stack + plain[14:])
        labels += len(encoding.labels)
    assert got == Counter(hosts), "a stack reaches exactly the receivers"
    return labels


def _table_iv(lines: Lines) -> None:
    found = tree.extremes()
    counts: dict[str, list[tuple[int, int]]] = {way: [] for way in TEXT}
    for case in ("best", "worst"):
        publisher, leaves = found[case]
        carried = CountedNetwork(tree.network(publisher), "state_replication")
        hosts = _hosts_at(carried.network, leaves)
        for host in hosts:
            _register(carried, host)
        carried.zero()
        _publish(carried, "feed1", 100, hosts)
        counts["STARE"].append((carried.between, carried.outside))
        # One copy a link of the same tree, and 3 bytes a label of the text's stack.
        links = len(tree.links_of_tree(publisher, leaves))
        assert links == carried.between
        counts["OFM"].append((links, 1 + len(leaves)))
        counts["P4 source routing"].append((links, 1 + len(leaves)))
        counts["ALM"].append((links, 1 + len(leaves) + 2 * (links + 1)))
        everyone = [h for h in carried.network.hosts if h != "feed1"]
        for host in everyone:
            _register(carried, host)
        carried.zero()
        _publish(carried, "feed1", 100, everyone)
        counts["broadcast"].append((carried.between, carried.outside))
        far, wide = found[f"unicast {case}"]
        alone = CountedNetwork(tree.network(far), "state_replication")
        alone.zero()
        _unicast(alone, "feed1", 100, _hosts_at(alone.network, wide))
        counts["unicast"].append((alone.between, alone.outside))
        lines.say("tree", case=case, publisher=publisher, links=links, switches=links + 1)
    for way, (best, worst) in counts.items():
        lines.say("messages", way=way, best=best, worst=worst, text=TEXT[way])
    lines.say(
        "network",
        switches=len(tree.GRAPH),
        links=tree.GRAPH.number_of_edges(),
        leaves=len(tree.LEAVES),
    )


def _hosts_at(network: Network, nodes: Iterable[int]) -> list[str]:
    at = {h.switch: h.name for h in network.hosts.values() if h.role != "publisher"}
    return [at[f"s{node}"] for node in nodes]


def _bytes(
    lines: Lines,
    name: str,
    network: Network,
    hosts: list[str],
    draws: int,
    rng: random.Random,
) -> None:
    """Bytes on links of an update of 1,000 bytes to 4, 8 and 16 replicas, by each way."""
    states = CountedNetwork(network, "state_replication")
    stacks = CountedNetwork(network, "virtual_trees")
    graph = network.graph()
    for count in (4, 8, 16):
        if count > len(hosts):
            continue
        sums: Counter[str] = Counter()
        labels = everywhere = kept = 0
        for _ in range(draws):
            chosen = rng.sample(hosts, count)
            registers = _keep(states, chosen)
            everywhere, kept = everywhere + registers[0], kept + registers[1]
            for way, work in (("states", _publish), ("unicast", _unicast)):
                states.zero()
                work(states, "feed1", BYTES, chosen)
                sums[way] += states.bytes
            for host in chosen:
                _remove(states, host)
            stacks.zero()
            labels += _by_stacks(stacks, "feed1", BYTES, chosen)
            sums["virtual trees"] += stacks.bytes
            broker = rng.choice([h for h in hosts if h not in chosen] or hosts)
            far = nx.single_source_shortest_path_length(graph, broker)
            sums["Kafka topic"] += far["feed1"] * (_TCP + _PRODUCE + BYTES) + sum(
                far[host] * (_TCP + _FETCH + BYTES) for host in chosen
            )
        for way in ("states", "virtual trees", "unicast", "Kafka topic"):
            lines.say(
                "bytes", network=name, replicas=count, way=way, bytes=sums[way] / draws, draws=draws
            )
        lines.say(
            "kept", network=name, replicas=count, labels=labels / draws,
            register_bytes=kept / draws, everywhere_bytes=everywhere / draws,
            share=kept / (sums["states"] * REFRESH_US / UPDATE_US),
            everywhere_share=everywhere / (sums["states"] * REFRESH_US / UPDATE_US),
        )  # fmt: skip
