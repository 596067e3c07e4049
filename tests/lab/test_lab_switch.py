"""Many switches in one process, the links between them, and what is at their ends."""

from __future__ import annotations

import socket
import struct
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from paths import COMPILED_P4
from program_switches import open_ports
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from stackcast.lab.fabric.hosts import BadFrame, NetworkCard, udp_payload
from stackcast.lab.fabric.network import Ingress
from stackcast.lab.fabric.switches import Fabric
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.network.labels import NARROW, TREE, SwitchTables
from stackcast.udfs.network.network import Host, Link, Network, Switch
from stackcast.udfs.switches.entry import SwitchEntry
from stackcast.udfs.switches.stack_entries import table_entries

pytestmark = pytest.mark.unit

PROGRAM = (COMPILED_P4 / "virtual_trees.json").read_bytes()
ADDRESSES = bytes(range(12))
DATAGRAM = bytes(IP(src="10.0.0.1", dst="239.1.1.1") / UDP() / b"what comes after the stack")


def frame(labels: tuple[int, ...], datagram: bytes = DATAGRAM) -> bytes:
    stack = struct.pack(f">H{len(labels)}H", len(labels), *labels)
    return ADDRESSES + b"\x99\x99" + stack + datagram


def tree(number: int, ports: int) -> list[SwitchEntry]:
    """The entries of a tree in a switch, one for each label of a pass."""
    return table_entries("s1", SwitchTables(trees={number: ports}))


def holding(*entries: SwitchEntry) -> SimpleSwitch:
    switch = SimpleSwitch()
    switch.load(PROGRAM)
    switch.apply({each.key: each for each in [*entries, *open_ports("s1", range(1, 6))]})
    return switch


def test_switches_of_one_program_share_it_and_nothing_else() -> None:
    together = Barrier(8)

    def make(_: int) -> SimpleSwitch:
        together.wait()
        return holding()

    with ThreadPoolExecutor(8) as pool:
        switches = list(pool.map(make, range(8)))
    assert len({id(switch.program) for switch in switches}) == 1
    first, second, *_ = switches
    first.apply({each.key: each for each in tree(1, 0b0110)})
    arriving = frame((NARROW.label(TREE, 1),))
    assert [port for port, _ in first.process(1, arriving)] == [2, 3]
    assert second.process(1, arriving) == []
    assert first.drops == {} and second.drops == {"ingress.dropped[6]": 1}
    assert first.counters()["ingress.dropped"] == {}
    assert second.counters()["ingress.dropped"] == {6: (1, len(arriving))}


def test_a_program_that_is_none_is_refused_again_and_again() -> None:
    for _ in range(2):
        with pytest.raises(SwitchError) as refused:
            SimpleSwitch().load(b"{}")
        assert refused.value.code == "SWITCH.WRONG_PROGRAM"


def test_a_switch_without_a_program_drops_and_counts() -> None:
    switch = SimpleSwitch()
    assert switch.process(1, frame((NARROW.label(TREE, 1),))) == []
    assert switch.drops == {"no_program": 1} and switch.counters() == {}


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
    pipelines = {name: holding(*tree(1, 0b001)) for name in "abc"}
    network = Fabric(triangle(), pipelines, lambda host, frame: None)
    network.send("feed1", frame((NARROW.label(TREE, 1),)))
    assert network.all_drops() == {"loop": 1}


def test_copies_into_a_failed_link_or_an_empty_port_are_counted() -> None:
    pipelines = {name: holding(*tree(1, 0b10001)) for name in "abc"}
    network = Fabric(triangle(up=False), pipelines, lambda host, frame: None)
    network.send("feed1", frame((NARROW.label(TREE, 1),)))
    assert network.all_drops() == {"link_down": 1, "unplugged_port": 1}
    carried = {name: size for name, size in network.link_bytes().items() if size}
    assert carried == {"feed1->a": len(frame((NARROW.label(TREE, 1),)))}


def test_a_link_that_is_unplugged_loses_frames_until_it_is_plugged_in_again() -> None:
    pipelines = {name: SimpleSwitch() for name in "bc"} | {"a": holding(*tree(1, 0b1))}
    network = Fabric(triangle(), pipelines, lambda host, frame: None)
    sent = frame((NARROW.label(TREE, 1),))
    for up, lost, carried in ((True, 0, 1), (False, 1, 1), (True, 1, 2)):
        network.plug("b", "a", up)
        network.send("feed1", sent)
        assert network.all_drops()["link_down"] == lost
        assert network.link_bytes()["a->b"] == carried * len(sent)


def test_a_switch_whose_program_is_not_set_drops_all() -> None:
    pipelines = {name: SimpleSwitch() for name in "abc"}
    network = Fabric(triangle(), pipelines, lambda host, frame: None)
    network.send("feed1", frame((NARROW.label(TREE, 1),)))
    assert network.all_drops() == {"no_program": 1}


def plain(payload: bytes, padding: int = 0) -> bytes:
    datagram = IP(src="10.0.0.1", dst="239.1.1.1") / UDP(sport=7, dport=26400) / payload
    return bytes(Ether(dst="01:00:5e:01:01:01", src="02:00:00:00:00:01") / datagram) + bytes(
        padding
    )


@examples(60)
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


@pytest.mark.integration
def test_senders_are_told_how_many_of_their_own_frames_were_processed() -> None:
    arrived: list[bytes] = []
    ingress = Ingress("feed1", lambda publisher, frame, when: arrived.append(frame))
    ip, _, port = ingress.address.rpartition(":")
    many, few = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    with many, few:
        for sender, count in ((many, 300), (few, 3)):
            sender.connect((ip, int(port)))
            sender.settimeout(600)
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
