"""The software switch, the links between switches, and a host's network card, in one process."""

from __future__ import annotations

import socket
import struct
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from lab.fabric import Fabric
from lab.hosts import BadFrame, NetworkCard, udp_payload
from lab.ingress import Ingress
from lab.switch import StackPipeline, TableForm
from udfs.errors import StackcastError, SwitchError
from udfs.stacks.entries import switch_entries, tables_from_entries
from udfs.stacks.forwarding import forward
from udfs.stacks.labels import HOP, TREE, label
from udfs.switches.entry import SwitchEntry, canonical
from udfs.trees.network import MAX_PORT, Host, Link, Network, Switch
from udfs.trees.topology import fabric
from udfs.trees.virtual_tree import VirtualTree

pytestmark = pytest.mark.unit

ADDRESSES = bytes(range(12))
DATAGRAM = bytes([0x45]) + b"what comes after the stack"


def frame(labels: tuple[int, ...], datagram: bytes = DATAGRAM) -> bytes:
    stack = struct.pack(f">H{len(labels)}H", len(labels), *labels)
    return ADDRESSES + b"\x99\x99" + stack + datagram


def entry(table: str, field: str, value: int, action: str, **params: int) -> SwitchEntry:
    return SwitchEntry(
        "s1",
        table,
        ((field, "exact", canonical(value)),),
        action,
        tuple((name, canonical(number)) for name, number in params.items()),
    )


def tree(number: int, ports: int) -> SwitchEntry:
    return entry(
        "ingress.check_tree", "label", label(TREE, number), "ingress.set_tree_ports", ports=ports
    )


def hop(number: int, port: int) -> SwitchEntry:
    return entry(
        "ingress.check_hop", "label", label(HOP, number), "ingress.set_hop_port", port=port
    )


def holding(*entries: SwitchEntry) -> StackPipeline:
    pipeline = StackPipeline()
    pipeline.load(StackPipeline.PROGRAM)
    pipeline.apply({each.key: each for each in entries})
    return pipeline


NETWORK = fabric(pods=2, racks=2, hosts=2, planes=1, spines=1)
ENTRIES = switch_entries(
    NETWORK,
    [VirtualTree(7, frozenset({("pod1-fabric1", "pod1-rack1")}), "test", "active")],
)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(NETWORK.switches)),
    st.integers(1, 5),
    st.lists(
        st.one_of(
            st.integers(0, 0xFFFF),
            st.builds(
                lambda kind, number: kind << 14 | number, st.integers(1, 3), st.integers(1, 24)
            ),
        ),
        min_size=1,
        max_size=64,
    ),
)
def test_a_switch_does_what_the_forwarding_model_says_byte_by_byte(
    name: str, port: int, labels: list[int]
) -> None:
    own = [each for each in ENTRIES if each.switch == name]
    pipeline = holding(*own)
    expected = [
        (egress, ADDRESSES + b"\x08\x00" + DATAGRAM if left is None else frame(left))
        for egress, left in forward(tables_from_entries(own), port, tuple(labels))
    ]
    for _ in range(2):  # the second time from memory
        assert pipeline.process(port, frame(tuple(labels))) == expected


def test_a_change_of_the_tables_holds_for_the_next_frame() -> None:
    pipeline = holding(tree(1, 0b0110))
    arriving = frame((label(TREE, 1),))
    assert [port for port, _ in pipeline.process(1, arriving)] == [2, 3]
    changed = tree(1, 0b1000)
    pipeline.apply({changed.key: changed})
    assert [port for port, _ in pipeline.process(1, arriving)] == [4]
    pipeline.apply({changed.key: None})
    assert pipeline.process(1, arriving) == []
    pipeline.apply({changed.key: changed})
    pipeline.load(StackPipeline.PROGRAM)
    assert pipeline.process(1, arriving) == []
    assert pipeline.drops == {"no_port": 2}


@pytest.mark.parametrize(
    ("arriving", "reason"),
    [
        (b"", "truncated_frame"),
        (ADDRESSES + b"\x99\x99\x00", "truncated_frame"),
        (ADDRESSES + b"\x08\x00" + DATAGRAM, "unknown_ethertype"),
        (frame(()), "empty_stack"),
        (frame((label(TREE, 1),) * 65), "too_many_labels"),
        (frame((label(TREE, 1),) * 3)[:21], "truncated_stack"),
        (frame((label(TREE, 1),), b""), "no_ipv4_after_stack"),
        (frame((label(TREE, 1), 2)), "invalid_label"),
        (frame((label(TREE, 9),)), "no_port"),
        # One label more than is announced, and one less.
        (ADDRESSES + b"\x99\x99\x00\x01" + frame((label(HOP, 1),) * 2)[16:], "no_ipv4_after_stack"),
        (ADDRESSES + b"\x99\x99\x00\x02" + frame((label(TREE, 1),))[16:], "no_ipv4_after_stack"),
    ],
)
def test_a_damaged_frame_is_dropped_and_counted(arriving: bytes, reason: str) -> None:
    pipeline = holding(tree(1, 0b0110))
    assert pipeline.process(1, arriving) == []
    assert pipeline.drops == {reason: 1}
    assert len(pipeline.process(1, frame((label(TREE, 1),)))) == 2


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=64), st.booleans(), st.integers(1, MAX_PORT))
def test_noise_never_stops_a_switch_or_a_host(noise: bytes, stacked: bool, port: int) -> None:
    pipeline = holding(*[each for each in ENTRIES if each.switch == "pod1-rack1"])
    arriving = ADDRESSES + b"\x99\x99" + noise if stacked else noise
    copies = pipeline.process(port, arriving)
    assert bool(copies) != (pipeline.drops.total() == 1)
    card = NetworkCard()
    assert card.read(noise) is None or not card.drops


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (hop(1, 0), "ports are 1..63"),
        (hop(1, 64), "ports are 1..63"),
        (tree(1, 1 << 63), "ports are 1..63"),
        (
            entry("ingress.check_hop", "label", label(TREE, 1), "ingress.set_hop_port", port=1),
            "another type",
        ),
    ],
)
def test_an_entry_that_makes_no_sense_is_refused_in_words(wrong: SwitchEntry, words: str) -> None:
    with pytest.raises(StackcastError, match=words):
        holding().check(wrong)


def test_a_program_that_is_not_ours_is_refused_by_the_name_that_does_not_fit() -> None:
    ours = dict(StackPipeline.PROGRAM)
    other = {**ours, "ingress.acl": TableForm({"port": 9}, {})}
    narrow = {**ours, "ingress.check_hop": TableForm({"label": 8}, {})}
    missing = {name: form for name, form in ours.items() if name != "egress.host_port"}
    for program, name in ((other, "acl"), (narrow, "check_hop"), (missing, "host_port")):
        with pytest.raises(SwitchError, match=name) as refused:
            StackPipeline().fits(program)
        assert refused.value.code == "SWITCH.WRONG_PROGRAM"
    StackPipeline().fits(ours)


def triangle(up: bool = True) -> Network:
    """Three switches in a ring, a publisher on the first; ports 1 and 2 go round."""
    links, number = [], 0
    for switch, left, right in (("a", "b", "c"), ("b", "c", "a"), ("c", "a", "b")):
        links.append(Link(number + 1, switch, 1, left, 2, up=up or switch != "a"))
        links.append(Link(number + 2, switch, 2, right, 1))
        number += 2
    links.append(Link(7, "a", 3, "feed1", None))
    switches = [Switch(name, index) for index, name in enumerate("abc")]
    return Network.from_rows(switches, [Host("feed1", "a", 3, 1, 1, "publisher")], links)


def test_a_ring_of_wrong_entries_cannot_keep_a_frame_for_ever() -> None:
    pipelines = {name: holding(tree(1, 0b001)) for name in "abc"}
    network = Fabric(triangle(), pipelines, lambda host, frame: None)
    network.send("feed1", frame((label(TREE, 1),)))
    assert network.all_drops() == {"loop": 1}


def test_copies_into_a_failed_link_or_an_empty_port_are_counted() -> None:
    pipelines = {name: holding(tree(1, 0b10001)) for name in "abc"}
    network = Fabric(triangle(up=False), pipelines, lambda host, frame: None)
    network.send("feed1", frame((label(TREE, 1),)))
    assert network.all_drops() == {"link_down": 1, "unplugged_port": 1}
    carried = {name: size for name, size in network.link_bytes().items() if size}
    assert carried == {"feed1->a": len(frame((label(TREE, 1),)))}


def plain(payload: bytes, padding: int = 0) -> bytes:
    datagram = IP(src="10.0.0.1", dst="239.1.1.1") / UDP(sport=7, dport=26400) / payload
    return bytes(Ether(dst="01:00:5e:01:01:01", src="02:00:00:00:00:01") / datagram) + bytes(
        padding
    )


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=1500), st.integers(0, 46), st.data())
def test_a_host_takes_what_scapy_makes_and_no_copy_with_a_bit_turned(
    payload: bytes, padding: int, data: st.DataObject
) -> None:
    whole = plain(payload, padding)
    assert udp_payload(whole) == payload
    protected = len(whole) - padding
    at = data.draw(st.integers(12, protected - 1))
    turned = bytearray(whole)
    turned[at] ^= 1 << data.draw(st.integers(0, 7))
    if turned[40:42] == b"\0\0":
        return  # a sender that computed no checksum: RFC 768 lets that pass
    with pytest.raises(BadFrame):
        udp_payload(bytes(turned))


def test_a_network_card_counts_what_it_discards_by_reason() -> None:
    whole = plain(b"payload")
    card = NetworkCard()
    assert card.read(whole) == b"payload" == card.read(whole)
    assert card.read(whole[:30]) is None
    assert card.read(whole[:-1]) is None
    assert card.read(whole[:12] + b"\x99\x99" + whole[14:]) is None
    assert card.read(whole[:-1] + b"!") is None
    assert card.drops == Counter(
        truncated_frame=1, bad_ipv4_length=1, unknown_ethertype=1, bad_udp_checksum=1
    )


def test_senders_are_told_how_many_of_their_own_frames_were_processed() -> None:
    arrived: list[bytes] = []
    ingress = Ingress("feed1", lambda publisher, frame: arrived.append(frame))
    ip, _, port = ingress.address.rpartition(":")
    many, few = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    with many, few:
        for sender, count in ((many, 300), (few, 3)):
            sender.connect((ip, int(port)))
            sender.settimeout(5)
            for number in range(count):
                sender.send(number.to_bytes(2))
        ingress.receive()
        ingress.answer()
        assert int.from_bytes(many.recv(100)) + ingress.backlog == 300 + 3
        # The rest waits here, not in the socket: it must not need another frame to go on.
        ingress.receive()
        ingress.answer()
        assert [int.from_bytes(each.recv(100)) for each in (many, few)] == [300, 3]
        assert ingress.backlog == 0
    ingress.close()
    assert arrived == [*(n.to_bytes(2) for n in range(300)), *(n.to_bytes(2) for n in range(3))]
