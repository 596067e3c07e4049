"""Source routes: what one switch does with a stack, by the thesis' examples."""

from __future__ import annotations

import dataclasses

import pytest
from networks import relabelled

from stackcast.udfs.errors import NetworkError, StackError
from stackcast.udfs.network.encodings import ENCODINGS, label_bits, label_format
from stackcast.udfs.network.labels import NARROW, SwitchTables
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.source_routes import BITMASK, MC_GROUP, PORT, SOURCE_ROUTES
from stackcast.udfs.network.topology import fabric, line
from stackcast.udfs.stacks.forwarding import forward, path_of_stack
from stackcast.udfs.switches.ports import FAN_OUT, port_groups
from stackcast.udfs.trees.encoders import encoder_of

pytestmark = pytest.mark.unit

PORTS = (1 << 16) - 1


def at(encoding: str, device: int, hosts: frozenset[int] = frozenset()) -> SwitchTables:
    """A switch with 16 ports."""
    return SwitchTables(labels=SOURCE_ROUTES[encoding], own={device: PORTS}, host_ports=hosts)


def orders(encoding: str, *stack: tuple[int, int, int]) -> tuple[int, ...]:
    return tuple(SOURCE_ROUTES[encoding].label(*each) for each in stack)


def test_of_ports_each_copy_takes_along_its_own_subtree_alone():
    """Figure 3.4 (a)."""
    to_n3, of_n3, to_n2, of_n2 = orders("port", (1, 1, 2), (3, 1, 4), (1, 1, 3), (2, 1, 2))
    copies = forward(at("port", 1), 1, (to_n3, of_n3, to_n2, of_n2))
    assert copies == [(2, (of_n3,)), (3, (of_n2,))]


def test_with_reactive_pruning_a_copy_takes_along_all_that_comes_later():
    """Figure 3.4 (b): N3 gets the label of N2, too; N2, whose label is behind it, gets its own
    alone."""
    stack = orders("port_reactive", (1, 1, 2), (3, 1, 4), (1, 1, 3), (2, 1, 2))
    copies = forward(at("port_reactive", 1), 1, stack)
    assert copies == [(2, stack[1:]), (3, stack[3:])]
    assert forward(at("port_reactive", 3, frozenset({4})), 1, stack[1:]) == [(4, None)]
    assert forward(at("port_reactive", 2, frozenset({2})), 1, stack[3:]) == [(2, None)]


def test_of_bitmasks_every_copy_carries_all_that_comes_later():
    """Figure 3.5: N1 has the mask 0110, and N5 gets nothing of N1 to N3 any more."""
    stack = orders("bitmask", *[(device, BITMASK, 0b0110) for device in range(1, 7)])
    assert forward(at("bitmask", 1), 1, stack) == [(2, stack[1:]), (3, stack[1:])]
    assert forward(at("bitmask", 3), 4, stack[1:]) == [(2, stack[3:]), (3, stack[3:])]


def test_a_group_names_ports_of_one_subset():
    """Figure 3.6: a group of the ports 2, 3 and 4."""
    stack = orders("mc_group", (3, MC_GROUP, 0b1110), (4, MC_GROUP, 1))
    assert [port for port, _ in forward(at("mc_group", 3), 1, stack)] == [2, 3, 4]
    stack = orders("mc_group", (3, MC_GROUP, 1 << 8 | 0b101), (4, MC_GROUP, 1))
    assert [port for port, _ in forward(at("mc_group", 3), 1, stack)] == [9, 11]


def test_labels_of_several_strategies_that_follow_each_other_add_up():
    """Figure 3.7: N1 has a mask of the ports 2 and 3, N3 a group and a port, for 1, 2 and 3."""
    stack = orders("mixed", (1, BITMASK, 0b110), (3, MC_GROUP, 0b110), (3, PORT, 1), (4, PORT, 2))
    assert forward(at("mixed", 1), 1, stack) == [(2, stack[1:]), (3, stack[1:])]
    assert forward(at("mixed", 3), 4, stack[1:]) == [(p, stack[3:]) for p in (1, 2, 3)]


def test_a_switch_of_16_ports_needs_510_groups():
    """3.3.3: two subsets of 8 ports instead of one of 16, which needs 65,535."""
    *groups, fan_out = port_groups("s1", range(1, 17))
    assert fan_out.key.endswith(f"{FAN_OUT:x}")
    assert len(groups) == 510


def test_hops_are_known_by_the_links_of_a_switch():
    """4.2.1: copy k carries what stands between its own labels k and k + 1."""
    tables = SwitchTables(labels=SOURCE_ROUTES["hops"], own={70: 1 << 1, 71: 1 << 4})
    assert forward(tables, 1, (9, 70, 30, 31, 71, 40)) == [(2, (30, 31)), (5, (40,))]


@pytest.mark.parametrize("encoding", SOURCE_ROUTES)
def test_what_leads_nowhere_is_dropped(encoding):
    form = SOURCE_ROUTES[encoding]
    own, other = (1, 2) if encoding == "hops" else (5 << form.bits - 8, 6 << form.bits - 8)
    own |= 0 if encoding == "hops" else 1 << 16 | 2 if encoding == "mixed" else 2
    named = 1 << 1 if form.named(own) != 1 << 1 else form.named(own)
    tables = SwitchTables(labels=form, own={form.id_of(own): named})
    assert [port for port, _ in forward(tables, 1, (own, other))] == [2]
    # No label is left for the switch behind the port.
    assert forward(tables, 1, (own,)) == []
    assert forward(tables, 2, (own, other)) == []
    assert forward(tables, 1, (other,)) == []
    assert forward(tables, 1, ()) == []
    assert forward(tables, 1, (own, *[other] * 64)) == []
    closed = dataclasses.replace(tables, sources=frozenset({3}))
    assert forward(closed, 1, (own, other)) == []
    # A host needs no label.
    before_host = dataclasses.replace(tables, host_ports=frozenset({2}))
    assert forward(before_host, 1, (own,)) == [(2, None)]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_label_is_read_as_it_is_worded(encoding):
    form = label_format(encoding, 16)
    texts = {
        "virtual_trees": ("tree:1", "hop:17", "stop:16383"),
        "port": ("switch:1:port:2", "switch:255:port:63"),
        "port_reactive": ("switch:1:port:2", "switch:255:port:255"),
        "bitmask": ("switch:7:bitmask:0x6", "switch:255:bitmask:0xffff"),
        "mc_group": ("switch:9:mc_group:0x10e",),
        "mixed": ("switch:9:mc_group:0x10e", "switch:1:port:2", "switch:7:bitmask:0x6"),
        "hops": ("hop:1", "hop:65535"),
        "destinations": ("host:1", "host:65535"),
        "tree": ("tree:1", "tree:65535"),
        "hybrid": ("root:1", "tree:17", "hop:16383"),
        "port_bitmaps": ("host:32767", "switch:16383", "ports:2,5,11", "ports:12,22", "ports:78"),
    }[encoding]
    for text in texts:
        label = form.parse(text)
        assert form.describe(label) == text.replace(":", " ")
        assert form.unpack(form.pack([label, label]), 2, 2) == (label, label)
    for wrong in ("", "hop:", "hop:0", "hop:x", "tree:0", "switch:0:port:1", "switch:256:port:1",
                  "switch:3:port:0", "switch:3:gate:1", "switch:3:port", "root:0"):  # fmt: skip
        with pytest.raises(StackError, match="BAD_LABEL"):
            form.parse(wrong)


def test_switches_that_labels_cannot_name_are_refused():
    def with_form(network: Network, encoding: str) -> Network:
        return relabelled(network, label_format(encoding, 16))

    many = line(300, 1, 1, NARROW)
    for encoding in ("port", "port_reactive", "bitmask", "mc_group", "mixed"):
        with pytest.raises(NetworkError, match="device id 256"):
            with_form(many, encoding)
    with_form(many, "hops")
    wide = fabric(1, 1, 17, 1, 1)
    with pytest.raises(NetworkError, match="port 17"):
        with_form(wide, "bitmask")
    with_form(wide, "mixed")


def test_wide_labels_name_any_port_and_65535_switches():
    many, large = line(300, 1, 1, NARROW), fabric(1, 1, 300, 1, 1)
    for encoding in ("port", "port_reactive", "mc_group"):
        with pytest.raises(NetworkError, match=r"device id 256.*label\.bits to 32"):
            relabelled(many, label_format(encoding, 16))
        for network in (many, large):
            relabelled(network, label_format(encoding, 32))
    with pytest.raises(NetworkError, match=r"NO_LABEL.*port 256.*label.bits to 32"):
        relabelled(large, label_format("port", 16))
    wide = label_format("port", 32)
    assert wide.describe(wide.parse("switch:65535:port:511")) == "switch 65535 port 511"
    with pytest.raises(StackError, match=r"switches are 1\.\.65535"):
        wide.parse("switch:65536:port:1")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_encoding_without_wide_labels_names_those_that_have_them(encoding):
    if encoding in ("virtual_trees", "port", "port_reactive", "mc_group", "hops"):
        form = label_format(encoding, 32)
        assert (form.encoding, form.bits, label_bits(form)) == (encoding, 32, 32)
        assert form != label_format(encoding, 16) and label_bits(label_format(encoding, 16)) == 16
    else:
        with pytest.raises(NetworkError, match=r"NO_WIDE_LABELS.*virtual_trees, port"):
            label_format(encoding, 32)
        assert label_bits(label_format(encoding, 16)) == 16


@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        ("port", "switch 1 port 1: copies from spine1"),
        ("port_reactive", "switch 1 port 1: copies from spine1"),
        ("mixed", "switch 9 port 1: no such switch in the network"),
        ("hops", "hop 1: a copy from"),
    ],
)
def test_the_way_of_a_frame_is_told_in_words(encoding, words):
    network = relabelled(fabric(1, 2, 2, 1, 1), SOURCE_ROUTES[encoding])
    (publisher,) = network.publishers()
    receivers = frozenset(network.subscribers())
    (stack,) = encoder_of(network, publisher, ()).encode(receivers)
    told = path_of_stack(network, (), publisher, stack.labels)
    assert told.copies == dict.fromkeys(receivers, 1)
    assert len(told.labels) == len(stack.labels)
    other = network.labels.parse(words.split(": ")[0].replace(" ", ":"))
    (line_of_it,) = path_of_stack(network, (), publisher, [other]).labels
    name = next(s.name for s in network.switches.values() if s.device_id == 1)
    assert line_of_it.startswith(words.replace("spine1", name))
