"""Frames are read whatever link they were captured on, with any VLAN tags, as scapy builds them."""

from __future__ import annotations

import struct
from typing import NamedTuple

import pytest
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP, in4_pseudoheader
from scapy.layers.l2 import CookedLinux, CookedLinuxV2, Dot1Q, Ether, Loopback, LoopbackOpenBSD
from scapy.packet import Packet, Raw
from scapy.utils import checksum

from stackcast.udfs.errors import StackError
from stackcast.udfs.messages.attributes.encodings import BITMASK_GROUP
from stackcast.udfs.messages.attributes.events import ETHERTYPE
from stackcast.udfs.messages.attributes.reference import write_event
from stackcast.udfs.messages.reference import build_packet
from stackcast.udfs.network.labels import HOP, NARROW, TREE
from stackcast.udfs.stacks.dissect import dissect, dissect_event, is_event, out_of_tunnel
from stackcast.udfs.stacks.link_layer import (
    ETHERNET,
    LINK_TYPES,
    LINUX_SLL,
    LINUX_SLL2,
    LOOP,
    NULL,
    VlanTag,
    read_link_header,
)

pytestmark = pytest.mark.unit

SOURCE, DESTINATION = "02:00:0a:40:00:01", "01:00:5e:36:0c:01"
SOURCE_MAC, DESTINATION_MAC = 0x02000A400001, 0x01005E360C01
LABELS = (NARROW.label(TREE, 7), NARROW.label(HOP, 17))
PACKET = build_packet(b"SESSION001", 9, [b"one", b"two"])
RAW_IP = 101


class Layer(NamedTuple):
    """The content of a frame behind the link layer. labels: of its header stack."""

    ethertype: int
    content: bytes
    labels: tuple[int, ...]


def datagram(payload: bytes = PACKET, **fields: int) -> IP:
    udp = UDP(sport=26400, dport=26400, **fields) / Raw(payload)
    return IP(src="10.64.0.1", dst="233.54.12.1", flags="DF") / udp


PLAIN = Layer(0x0800, bytes(datagram()), ())
STACKED = Layer(NARROW.ether_type, NARROW.pack(LABELS) + bytes(datagram()), LABELS)


def tagged(tags: list[VlanTag], layer: Layer) -> tuple[int, Packet]:
    """Returns the EtherType of the outermost tag, and the tags with what follows them."""
    ethertype, packet = layer.ethertype, Raw(layer.content)
    for tag in reversed(tags):
        packet = Dot1Q(prio=tag.priority, dei=tag.drop_eligible, vlan=tag.vlan, type=ethertype) / (
            packet
        )
        ethertype = tag.protocol
    return ethertype, packet


def captured(link_type: int, ethertype: int, packet: Packet) -> bytes:
    """Returns a frame as a capture of this link type contains it."""
    address = SOURCE_MAC.to_bytes(6) + b"\0\0"
    header = {
        ETHERNET: Ether(src=SOURCE, dst=DESTINATION, type=ethertype),
        LINUX_SLL: CookedLinux(pkttype=2, lladdrtype=1, lladdrlen=6, src=address, proto=ethertype),
        LINUX_SLL2: CookedLinuxV2(
            pkttype=2, lladdrtype=1, lladdrlen=6, src=address, proto=ethertype, ifindex=3
        ),
    }[link_type]
    return bytes(header / packet)


TAGS = st.builds(
    VlanTag,
    st.sampled_from([0x8100, 0x88A8, 0x9100]),
    st.integers(0, 4095),
    st.integers(0, 7),
    st.booleans(),
)


@examples(100)
@given(
    st.sampled_from([ETHERNET, LINUX_SLL, LINUX_SLL2]),
    st.lists(TAGS, max_size=4),
    st.sampled_from([PLAIN, STACKED]),
)
def test_a_frame_is_read_behind_any_tags_on_links_with_addresses(link_type, tags, layer):
    frame = captured(link_type, *tagged(tags, layer))
    parts = dissect(frame, link_type)
    assert parts.link.tags == tuple(tags)
    assert parts.source_mac == SOURCE_MAC
    assert parts.destination_mac == (DESTINATION_MAC if link_type == ETHERNET else None)
    assert (parts.ethertype, parts.labels) == (layer.ethertype, layer.labels)
    assert (parts.session, parts.messages) == (b"SESSION001", (b"one", b"two"))
    assert parts.payload == PACKET
    # Positions are those in the captured frame.
    assert [frame[at : at + 3] for at in parts.positions] == [b"one", b"two"]
    at = parts.link.payload_at
    assert frame[at:] == layer.content and parts.link.ethertype_at <= at
    assert out_of_tunnel(frame, link_type) is None


@pytest.mark.parametrize(
    ("link_type", "header"),
    [
        *((number, b"") for number in (12, 14, RAW_IP, 228)),
        (NULL, bytes(Loopback(type=2))),
        (NULL, struct.pack("<I", 2)),
        (NULL, struct.pack(">I", 2)),
        (LOOP, bytes(LoopbackOpenBSD(type=2))),
    ],
)
def test_a_datagram_is_read_on_links_without_addresses(link_type, header):
    frame = header + bytes(datagram())
    parts = dissect(frame, link_type)
    assert (parts.source_mac, parts.destination_mac, parts.ethertype) == (None, None, 0x0800)
    assert parts.messages == (b"one", b"two") and parts.link.payload_at == len(header)


@pytest.mark.parametrize(
    ("link_type", "frame", "offset"),
    [(RAW_IP, b"\x60" + bytes(39), 0), (229, b"\x60" + bytes(39), 0), (LOOP, b"\0\0\0\x1e", 0)],
)
def test_ipv6_is_named_as_what_cannot_be_read(link_type, frame, offset):
    with pytest.raises(StackError, match="EtherType 0x86dd") as caught:
        dissect(frame, link_type)
    assert (caught.value.code, caught.value.offset) == ("STACK.UNKNOWN_ETHERTYPE", offset)


def test_a_link_type_that_cannot_be_read_names_those_that_can():
    with pytest.raises(StackError, match=r"link type 105 .*1 \(ethernet\), 113 \(linux_sll\)"):
        read_link_header(bytes(60), 105)


@examples(100)
@given(st.sampled_from(sorted(LINK_TYPES)), st.binary(max_size=60))
def test_any_bytes_are_a_header_or_an_error_with_an_offset(link_type, frame):
    try:
        link = read_link_header(frame, link_type)
    except StackError as error:
        assert error.code == "STACK.TRUNCATED_FRAME" and error.offset == len(frame)
    else:
        assert link.payload_at <= len(frame) and link.name == LINK_TYPES[link_type][0]


def test_a_tag_that_is_cut_off_is_reported_with_its_byte():
    frame = captured(ETHERNET, *tagged([VlanTag(0x8100, 5, 0, False)] * 2, PLAIN))
    with pytest.raises(StackError, match="the VLAN tag at byte 18 needs 4 bytes") as caught:
        dissect(frame[:20])
    assert caught.value.code == "STACK.TRUNCATED_FRAME"


@pytest.mark.parametrize("encoding", ["id_pairs", "bitmask"])
def test_an_event_behind_a_tag_is_read_in_the_encoding_of_its_destination(encoding):
    layer = Layer(ETHERTYPE, write_event({1: 5, 4: 77}, encoding, b"rest"), ())
    ethertype, packet = tagged([VlanTag(0x8100, 5, 0, False)], layer)
    group = f"{BITMASK_GROUP:012x}" if encoding == "bitmask" else "035343000001"
    frame = bytes.fromhex(group) + captured(ETHERNET, ethertype, packet)[6:]
    assert is_event(read_link_header(frame))
    parts = dissect_event(frame)
    assert (parts.encoding, parts.values, parts.payload) == (encoding, {1: 5, 4: 77}, b"rest")
    # Linux cooked captures have no destination.
    frame = captured(LINUX_SLL2, ethertype, packet)
    parts = dissect_event(frame, link_type=LINUX_SLL2, unaddressed=encoding)
    assert (parts.encoding, parts.values) == (encoding, {1: 5, 4: 77})


def ethernet(content: Packet) -> bytes:
    return bytes(Ether(src=SOURCE, dst=DESTINATION) / content)


@given(st.binary(max_size=80))
def test_a_checksum_that_a_network_card_completes_is_told_from_a_wrong_one(payload):
    packet = build_packet(b"SESSION001", 1, [payload])
    plain = datagram(packet)
    # The kernel writes the sum of the pseudo-header, without its complement.
    length = 8 + len(packet)
    started = 0xFFFF ^ checksum(in4_pseudoheader(17, plain, length))
    wrong = int.from_bytes(ethernet(plain)[40:42]) ^ 0x0100
    assume(started not in (wrong, wrong ^ 0x0100) and wrong)
    states = {}
    for state, fields in (
        ("right", {}),
        ("none", {"chksum": 0}),
        ("offloaded", {"chksum": started}),
        ("wrong", {"chksum": wrong}),
    ):
        frame = ethernet(datagram(packet, **fields))
        parts = dissect(frame, strict=False)
        states[state] = parts.udp.checksum
        assert parts.messages == (payload,) and parts.udp.checksum_at == 14 + 20 + 6
        if state in ("offloaded", "wrong"):
            with pytest.raises(StackError) as caught:
                dissect(frame)
            assert (caught.value.code, caught.value.offset) == ("STACK.UDP_CHECKSUM", 40)
        else:
            assert dissect(frame) == parts
    assert states == {state: state for state in states}
