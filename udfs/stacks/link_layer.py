"""Headers in front of the network layer in captures: Ethernet, VLAN tags, Linux cooked, raw IP.

Plain Python, as `stackcast.udfs.stacks.dissect`. Numbers of link types are those of
https://www.tcpdump.org/linktypes.html.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stackcast.udfs.errors import StackError

NULL, ETHERNET, LOOP, LINUX_SLL, LINUX_SLL2 = 0, 1, 108, 113, 276
RAW_TYPES, IPV4, IPV6 = (12, 14, 101), 228, 229
ETHERTYPE_IPV4, _ETHERTYPE_IPV6 = 0x0800, 0x86DD

#: Protocols of VLAN tags by EtherType. 0x9100 is an older number for outer tags.
TAG_PROTOCOLS = {0x8100: "802.1Q", 0x88A8: "802.1ad", 0x9100: "802.1QinQ"}
_TAG = 4
#: Address families of the null and loop headers: IPv4, and IPv6 as systems number it.
_FAMILIES = {2: ETHERTYPE_IPV4, **dict.fromkeys((10, 24, 28, 30), _ETHERTYPE_IPV6)}


@dataclass(frozen=True)
class VlanTag:
    """A VLAN tag. protocol: EtherType that announces it, a key of `TAG_PROTOCOLS`."""

    protocol: int
    vlan: int
    priority: int
    drop_eligible: bool


@dataclass(frozen=True)
class LinkHeader:
    """The headers before the network layer of a captured frame.

    link_type: of the capture.
    destination_mac, source_mac: None if the link type does not record them.
    tags: the outermost first.
    ethertype: protocol of the network layer, after all tags.
    ethertype_at: byte of the frame where ``ethertype`` is, or the header that implies it.
    payload_at: byte of the frame where the network layer begins.
    """

    link_type: int
    destination_mac: int | None
    source_mac: int | None
    tags: tuple[VlanTag, ...]
    ethertype: int
    ethertype_at: int
    payload_at: int

    @property
    def name(self) -> str:
        """The name of the link type."""
        return LINK_TYPES[self.link_type][0]


def read_link_header(frame: bytes, link_type: int = ETHERNET) -> LinkHeader:
    """Reads the header of a frame that was captured on a link of this type, with its VLAN tags.

    Raises:
        StackError: LINK_TYPE or TRUNCATED_FRAME, with the byte ``offset`` of the frame.
    """
    if link_type not in LINK_TYPES:
        names = ", ".join(f"{number} ({name})" for number, (name, _) in LINK_TYPES.items())
        raise StackError(
            "LINK_TYPE",
            f"link type {link_type} is not supported; the supported types are {names}",
            offset=0,
        )
    header = LINK_TYPES[link_type][1](frame, link_type)
    tags = []
    ethertype, ethertype_at, payload_at = header.ethertype, header.ethertype_at, header.payload_at
    while ethertype in TAG_PROTOCOLS:
        need(frame, payload_at, _TAG, "the VLAN tag")
        control = int.from_bytes(frame[payload_at : payload_at + 2])
        tags.append(VlanTag(ethertype, control & 0xFFF, control >> 13, bool(control >> 12 & 1)))
        ethertype_at = payload_at + 2
        payload_at += _TAG
        ethertype = int.from_bytes(frame[ethertype_at:payload_at])
    return LinkHeader(
        link_type,
        header.destination_mac,
        header.source_mac,
        tuple(tags),
        ethertype,
        ethertype_at,
        payload_at,
    )


def need(frame: bytes, offset: int, size: int, part: str) -> None:
    """Raises StackError TRUNCATED_FRAME if a frame has under ``size`` bytes from ``offset`` on."""
    if len(frame) < offset + size:
        raise StackError(
            "TRUNCATED_FRAME",
            f"{part} at byte {offset} needs {size} bytes, but the frame ends at byte {len(frame)}",
            offset=len(frame),
        )


def _ethernet(frame: bytes, link_type: int) -> LinkHeader:
    need(frame, 0, 14, "the Ethernet header")
    destination, source = int.from_bytes(frame[:6]), int.from_bytes(frame[6:12])
    return LinkHeader(link_type, destination, source, (), int.from_bytes(frame[12:14]), 12, 14)


def _sll(frame: bytes, link_type: int) -> LinkHeader:
    """Linux cooked capture: packet type 2 | ARPHRD 2 | address length 2 | address 8 | protocol 2"""
    need(frame, 0, 16, "the Linux cooked capture header")
    source = int.from_bytes(frame[6:12]) if frame[4:6] == b"\0\6" else None
    return LinkHeader(link_type, None, source, (), int.from_bytes(frame[14:16]), 14, 16)


def _sll2(frame: bytes, link_type: int) -> LinkHeader:
    """Version 2: protocol 2 | 0 2 | interface 4 | ARPHRD 2 | kind 1 | length 1 | address 8"""
    need(frame, 0, 20, "the Linux cooked capture header")
    source = int.from_bytes(frame[12:18]) if frame[11] == 6 else None
    return LinkHeader(link_type, None, source, (), int.from_bytes(frame[:2]), 0, 20)


def _loopback(frame: bytes, link_type: int) -> LinkHeader:
    """BSD loopback: address family 4, for type null in the byte order of the capturing machine."""
    need(frame, 0, 4, "the loopback header")
    family = int.from_bytes(frame[:4])
    if link_type == NULL:
        family = min(family, int.from_bytes(frame[:4], "little"))
    return LinkHeader(link_type, None, None, (), _FAMILIES.get(family, 0), 0, 4)


def _raw_ip(frame: bytes, link_type: int) -> LinkHeader:
    """No header: the version of IP is in the first byte."""
    need(frame, 0, 1, "the IP header")
    is_ipv6 = link_type == IPV6 or (link_type != IPV4 and frame[0] >> 4 == 6)
    ethertype = _ETHERTYPE_IPV6 if is_ipv6 else ETHERTYPE_IPV4
    return LinkHeader(link_type, None, None, (), ethertype, 0, 0)


#: Name and reader of each link type.
LINK_TYPES: dict[int, tuple[str, Callable[[bytes, int], LinkHeader]]] = {
    ETHERNET: ("ethernet", _ethernet),
    LINUX_SLL: ("linux_sll", _sll),
    LINUX_SLL2: ("linux_sll2", _sll2),
    **dict.fromkeys(RAW_TYPES, ("raw_ip", _raw_ip)),
    IPV4: ("ipv4", _raw_ip),
    IPV6: ("ipv6", _raw_ip),
    NULL: ("null", _loopback),
    LOOP: ("loop", _loopback),
}
