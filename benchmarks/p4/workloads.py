"""Networks, the stacks that are sent into them, and the switches that see them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random

import numpy as np

from stackcast import schemas
from stackcast.lab.traffic.packets import groups
from stackcast.lab.traffic.subscriptions import subscriptions
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.udfs.filters.compiler.compile import compile_rules
from stackcast.udfs.filters.matching.matcher import Matcher
from stackcast.udfs.filters.subscriptions import CheckedRule, Subscription, check
from stackcast.udfs.messages.moldudp64 import decode
from stackcast.udfs.messages.reference import build_packet
from stackcast.udfs.messages.specification import Specification, parse_specification
from stackcast.udfs.network.labels import SwitchTables
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import VirtualTree, stored
from stackcast.udfs.stacks.forwarding import forward, network_tables
from stackcast.udfs.trees.broadcast import broadcast_trees
from stackcast.udfs.trees.encode import Encoder

PUBLISHER = "feed1"
SESSION_MESSAGES = 100_000
SUBSCRIPTIONS = 1000
SETS = 60
SHARES = (0.1, 0.3, 0.7)

FABRICS = {
    "16 hosts, racks of 2": (4, 2, 2, 2, 2),
    "128 hosts, racks of 4": (8, 4, 4, 2, 2),
    "192 hosts, racks of 12": (4, 4, 12, 2, 2),
}
"""Pods, racks a pod, hosts a rack, planes, spines a plane. The first is the lab's default; switches
of the last have up to 15 ports, so some copies need two multicast groups."""

Visit = tuple[str, int, tuple[int, ...]]
"""A stack at a switch: switch, ingress port, labels."""

Forwarding = Callable[
    [SwitchTables, int, tuple[int, ...]], Iterable[tuple[int, tuple[int, ...] | None]]
]
"""Gives the copies of a stack that came in by a port, as `forward` does."""


@dataclass(frozen=True)
class Workload:
    """Stacks in one network. ``stacks``: how many frames have each."""

    name: str
    network: Network
    trees: list[VirtualTree]
    stacks: Mapping[tuple[int, ...], int]

    @cached_property
    def tables(self) -> Mapping[str, SwitchTables]:
        return network_tables(self.network, self.trees)

    @cached_property
    def visits(self) -> Counter[Visit]:
        """Counts the frames that come to a switch, by port and stack."""
        return self.arrivals(forward)

    def arrivals(self, copies: Forwarding) -> Counter[Visit]:
        """Counts them as :attr:`visits` where switches forward so."""
        found: Counter[Visit] = Counter()
        for labels, frames in self.stacks.items():
            for visit in self._way(labels, copies):
                found[visit] += frames
        return found

    @property
    def frames(self) -> int:
        return sum(self.stacks.values())

    def _way(self, labels: tuple[int, ...], copies: Forwarding) -> Iterable[Visit]:
        ends = {(link.switch, link.port): link for link in self.network.links}
        first = self.network.hosts[PUBLISHER]
        waiting = deque([(first.switch, first.port, labels)])
        while waiting:
            switch, port, stack = waiting.popleft()
            yield switch, port, stack
            for out, left in copies(self.tables[switch], port, stack):
                link = ends[switch, out]
                if left and link.neighbor_port is not None:
                    waiting.append((link.neighbor, link.neighbor_port, left))


def workloads() -> list[Workload]:
    """Returns the main job's session in its network, and random receiver sets in all networks."""
    made = []
    for name, sizes in FABRICS.items():
        network = fabric(*sizes)
        trees = broadcast_trees(network)
        if not made:
            sets = receivers_of_session(network)
            made.append(_encoded(f"{name}, default session", network, trees, sets))
        hosts = sorted(network.subscribers())
        for share in SHARES:
            random = Random(f"{name} {share}")
            count = max(1, round(share * len(hosts)))
            drawn = Counter(frozenset(random.sample(hosts, count)) for _ in range(SETS))
            made.append(_encoded(f"{name}, {share:.0%} of them", network, trees, drawn))
    return made


def _encoded(
    name: str, network: Network, trees: list[VirtualTree], sets: Mapping[frozenset[str], int]
) -> Workload:
    encoder = Encoder(network, PUBLISHER, stored(trees))
    stacks: Counter[tuple[int, ...]] = Counter()
    for receivers, frames in sets.items():
        for encoding in encoder.encode(receivers):
            stacks[encoding.labels] += frames
    return Workload(name, network, trees, stacks)


def ports_of_switch(network: Network, switch: str) -> list[int]:
    """Returns the ports that something is plugged into."""
    return [link.port for link in network.links if link.switch == switch]


def itch() -> Specification:
    return parse_specification(schemas.read_text("messages/itch.spec"), "itch")


def default_rules(network: Network) -> list[CheckedRule]:
    """Returns the subscriptions that the main job makes."""
    rows = subscriptions(network.subscribers(), SUBSCRIPTIONS, seed=1)
    rules, rejected = check(
        [Subscription(**row) for row in rows], itch(), set(network.hosts), PUBLISHER
    )
    assert not rejected
    return rules


def receivers_of_session(network: Network) -> Counter[frozenset[str]]:
    """Counts the frames that the main job's default session sends to each set of hosts."""
    packets = list(groups(TradingSession(SESSION_MESSAGES, 1, 200), seed=1))
    matcher = Matcher(compile_rules(default_rules(network), itch()))
    data = [build_packet(b"BENCHMARK1", 1, packet) for packet in packets]
    borders = np.concatenate(([0], np.cumsum([len(packet) for packet in data])))
    messages = decode(
        itch(),
        borders.astype(np.int32),
        np.frombuffer(b"".join(data), np.uint8),
        [itch().field(name) for name in matcher.fields],
    )
    leaves = iter(matcher.match(messages.message_type, messages.values).tolist())
    found: Counter[frozenset[str]] = Counter()
    for packet in packets:
        # Messages of a packet with the same receivers are one frame.
        sets = {frozenset(matcher.receivers[next(leaves)]) for _ in packet}
        found.update(receivers for receivers in sets if receivers)
    return found
