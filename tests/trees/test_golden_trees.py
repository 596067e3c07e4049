"""The text's examples of virtual trees: Fig. 5.2, 5.3, 6.1 and 6.2, as labels and on every link.

The text prints no ports but those that it names; the others are given out here.
"""

from collections import Counter

import pytest
from label_optimum import label_optimum

from benchmarks.trees.plain_greedy import PlainGreedy
from stackcast.udfs.network.labels import HOP, NARROW, STOP, TREE
from stackcast.udfs.network.network import Host, Link, Network, Switch
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.stacks.forwarding import ForwardingModel, forward, network_tables
from stackcast.udfs.trees.encode import Encoder

pytestmark = pytest.mark.unit

ALGORITHMS = ("refined", "greedy")


class Drawing:
    """A network from the ports of its switches, and its virtual trees from their edges."""

    def __init__(self, ports, *trees):
        self.ports = {(u, v): port for u, ends in ports.items() for port, v in ends.items()}
        hosts = sorted({v for _, v in self.ports} - set(ports))
        self.network = Network.from_rows(
            [Switch(name, number) for number, name in enumerate(ports, 1)],
            [
                Host(name, u, port, number, number, "publisher" if name == "P" else "subscriber")
                for number, name in enumerate(hosts, 1)
                for (u, v), port in self.ports.items()
                if v == name
            ],
            [
                Link(number, u, port, v, self.ports.get((v, u)))
                for number, ((u, v), port) in enumerate(self.ports.items(), 1)
            ],
        )
        self.trees = [
            VirtualTree(number, frozenset((min(p), max(p)) for p in pairs(text)), "text")
            for number, text in enumerate(trees, 1)
        ]
        self.tables = network_tables(self.network, self.trees)

    def label(self, text):
        """``VT1``, ``+N3:S4`` (hop) or ``-N3:S7`` (stop)."""
        if text.startswith("VT"):
            return NARROW.label(TREE, int(text[2:]))
        u, v = text[1:].split(":")
        return NARROW.label({"+": HOP, "-": STOP}[text[0]], self.network.link(u, v).id)

    def stack(self, text):
        return tuple(map(self.label, text.split()))

    def encode(self, receivers, algorithm="refined"):
        encoder = Encoder(self.network, "P", self.trees, algorithm=algorithm)
        (encoding,) = encoder.encode(frozenset(receivers.split()))
        return encoding

    def check(self, stack, receivers):
        """By the forwarding model, ``stack`` reaches exactly ``receivers``; returns its links."""
        delivery = ForwardingModel(self.network, self.tables).deliver("P", stack)
        assert delivery.hosts == Counter(receivers.split())
        assert not delivery.loop
        return {(u, v): labels for u, v, labels in delivery.links}

    def fewest(self, receivers):
        return label_optimum(self.network, "P", receivers.split(), self.trees).cost

    def plain(self, receivers):
        return PlainGreedy(self.network, self.trees).encode("P", receivers.split()).cost


def pairs(text):
    return [tuple(edge.split("-")) for edge in text.split()]


@pytest.fixture(scope="module")
def overlapping():
    """Fig. 5.2: both trees leave N1 by port 2, S7 is on port 3 of N3."""
    return Drawing(
        {
            "N1": {1: "P", 2: "N2", 3: "N4"},
            "N2": {1: "N1", 2: "S1", 3: "S2", 4: "N3"},
            "N3": {1: "N2", 2: "S3", 3: "S7", 4: "S4"},
            "N4": {1: "N1", 2: "S5", 3: "S6"},
        },
        "N1-N2 N1-N4 N2-S1 N4-S5 N4-S6",
        "N1-N2 N2-S2 N2-N3 N3-S3 N3-S7",
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_figure_5_2_takes_two_trees_a_stop_and_a_hop(overlapping, algorithm):
    receivers = "S1 S2 S3 S4 S5 S6"
    encoding = overlapping.encode(receivers, algorithm)
    assert set(encoding.labels) == set(overlapping.stack("VT1 VT2 -N3:S7 +N3:S4"))
    assert len(encoding.labels) == overlapping.fewest(receivers) == overlapping.plain(receivers)
    assert encoding.labels[:2] == overlapping.stack("VT1 VT2")
    overlapping.check(encoding.labels, receivers)


def test_figure_5_2_serves_each_port_once_and_keeps_foreign_labels(overlapping):
    stack = overlapping.stack("VT1 VT2 -N3:S7 +N3:S4")
    # N1: one copy by port 2 though both trees ask for it, and nothing leaves the stacks.
    assert forward(overlapping.tables["N1"], 1, stack) == [(2, stack), (3, stack)]
    # N3 uses the hop and the stop; N4 has no use for either, and its hosts get plain frames.
    assert forward(overlapping.tables["N3"], 1, stack) == [(2, None), (4, None)]
    crossed = overlapping.check(stack, "S1 S2 S3 S4 S5 S6")
    assert crossed["N1", "N4"] == crossed["N2", "N3"] == 4
    assert ("N3", "S7") not in crossed


@pytest.fixture(scope="module")
def bridged():
    """Fig. 5.3: N2:1 is the bridge to N3, N5:2 leads to S5; VT1 leaves N1 by ports 2 and 3."""
    return Drawing(
        {
            "N1": {1: "P", 2: "N2", 3: "N5"},
            "N2": {1: "N3", 2: "N1", 3: "S1", 4: "S2"},
            "N3": {1: "N2", 2: "N4", 3: "S3", 4: "S6"},
            "N4": {1: "N3", 2: "S4"},
            "N5": {1: "N1", 2: "S5"},
        },
        "N1-N2 N1-N5 N2-S1 N2-S2",
        "N3-N4 N3-S3 N3-S6 N4-S4",
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_figure_5_3_takes_two_trees_two_hops_and_a_stop(bridged, algorithm):
    receivers = "S1 S2 S3 S4 S5"
    encoding = bridged.encode(receivers, algorithm)
    assert len(encoding.labels) == 5 == bridged.fewest(receivers) == bridged.plain(receivers)
    assert set(encoding.labels) == set(bridged.stack("VT1 VT2 +N2:N3 -N3:S6 +N5:S5"))
    bridged.check(encoding.labels, receivers)


def test_figure_5_3_as_its_publisher_writes_it(bridged):
    # The hop of N5 is the last, behind four labels that N5 skips.
    stack = bridged.stack("VT1 VT2 +N2:N3 -N3:S6 +N5:S5")
    assert forward(bridged.tables["N1"], 1, stack) == [(2, stack), (3, stack)]
    assert forward(bridged.tables["N5"], 1, stack) == [(2, None)]
    # The bridge leaves the stack at N2; the trees stay, as N2 cannot know where they end.
    assert forward(bridged.tables["N2"], 2, stack) == [
        (1, bridged.stack("VT1 VT2 -N3:S6 +N5:S5")),
        (3, None),
        (4, None),
    ]
    crossed = bridged.check(stack, "S1 S2 S3 S4 S5")
    assert [crossed[link] for link in (("N1", "N2"), ("N2", "N3"), ("N3", "N4"))] == [5, 4, 3]


@pytest.fixture(scope="module")
def two_switches():
    """Fig. 6.1: a broadcast tree over two switches; P, S1 and S4 are on N1."""
    return Drawing(
        {"N1": {1: "P", 2: "S1", 3: "S4", 4: "N2"}, "N2": {1: "N1", 2: "S2", 3: "S3"}},
        "N1-P N1-S1 N1-S4 N1-N2 N2-S2 N2-S3",
    )


def test_figure_6_1_one_stop_prunes_two_subscribers_and_two_hops_say_the_same(two_switches):
    pruned = two_switches.check(two_switches.stack("VT1 -N1:N2"), "S1 S4")
    hopped = two_switches.check(two_switches.stack("+N1:S1 +N1:S4"), "S1 S4")
    # The same header, and the same effort on the same links.
    assert pruned == hopped
    for algorithm in ALGORITHMS:
        assert len(two_switches.encode("S1 S4", algorithm).labels) == 2
    assert two_switches.fewest("S1 S4") == two_switches.plain("S1 S4") == 2


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("receivers", "labels"),
    [
        ("S1 S2 S3 S4", "VT1"),
        ("S1 S4 S2", "VT1 -N2:S3"),
        ("S2 S3", "+N1:N2 +N2:S2 +N2:S3"),
        ("S2", "+N1:N2 +N2:S2"),
        ("S1", "+N1:S1"),
    ],
)
def test_figure_6_1_other_receivers(two_switches, receivers, labels, algorithm):
    encoding = two_switches.encode(receivers, algorithm)
    assert len(encoding.labels) == len(labels.split()) == two_switches.fewest(receivers)
    two_switches.check(two_switches.stack(labels), receivers)
    two_switches.check(encoding.labels, receivers)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("receivers", "labels", "other"),
    [
        # (a): two of four take hops; the tree would need two stops besides.
        ("S1 S2", "+N1:S1 +N1:S2", "VT1 -N1:S3 -N1:S4"),
        # (b): three of four take the tree and a stop; hops would be three.
        ("S1 S2 S3", "VT1 -N1:S4", "+N1:S1 +N1:S2 +N1:S3"),
    ],
)
def test_figure_6_2_hops_for_few_and_the_tree_for_most(receivers, labels, other, algorithm):
    star = Drawing(
        {"N1": {1: "P", 2: "S1", 3: "S2", 4: "S3", 5: "S4"}}, "N1-P N1-S1 N1-S2 N1-S3 N1-S4"
    )
    encoding = star.encode(receivers, algorithm)
    assert encoding.labels == star.stack(labels)
    assert star.fewest(receivers) == star.plain(receivers) == len(encoding.labels)
    assert (
        star.check(encoding.labels, receivers).keys()
        == star.check(star.stack(other), receivers).keys()
    )
