"""Stackcast's headers as layers of scapy.

See docs/reference/frame-format.md and docs/reference/state-protocol.md.

Importing this module registers the layers, so that scapy dissects captured frames:

    from scapy.utils import rdpcap
    import scapy_layers

    for frame in rdpcap("frames.pcap"):
        frame.show()

The ports are the defaults of the settings. For other ports, call `bind_ports`. scapy is not a
requirement of Stackcast: install it with ``pip install scapy``. Its license is GPL-2.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from scapy.fields import (
    BitEnumField,
    BitField,
    ByteEnumField,
    ByteField,
    ConditionalField,
    FieldLenField,
    FieldListField,
    IntField,
    LongField,
    PacketListField,
    ShortField,
    StrField,
    StrFixedLenField,
    StrLenField,
    ThreeBytesField,
    XBitField,
    XIntField,
    XLongField,
    XShortField,
    XStrFixedLenField,
)
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, bind_bottom_up, bind_layers

END_OF_SESSION = 0xFFFF
COOKIE_BYTES = 16
EVENTS = 0x9001
ID_PAIRS_GROUP = "03:53:43:00:00:01"
BITMASK_GROUP = "03:53:43:00:00:02"
STATES_PORT = 65432
SWITCH_TUNNEL_PORT = 26403


class Item(Packet):
    """A packet in a list of its own kind: the bytes after it belong to the list."""

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        return b"", s


class HeaderStack(Packet):
    """A header stack: the number of labels, then the labels."""

    label: ClassVar[type[Item]]


def _stack(name: str, ether_type: int, *fields: Any) -> type[HeaderStack]:
    """Define the layers of a stack and of its labels, and bind them to an EtherType."""
    label = type(f"{name}Label", (Item,), {"name": f"{name} label", "fields_desc": [*fields]})
    count = FieldLenField("count", None, fmt="!H", count_of="labels")
    labels = PacketListField("labels", [], label, count_from=lambda stack: stack.count)
    content = {"name": name, "fields_desc": [count, labels], "label": label}
    stack = type(name, (HeaderStack,), content)
    bind_layers(Ether, stack, type=ether_type)
    bind_layers(stack, IP)
    return stack


_TYPES = {1: "tree", 2: "hop", 3: "stop"}
_ROOTS = {0: "root", 1: "tree", 2: "hop"}
_STRATEGIES = {1: "port", 2: "bitmask", 3: "mc_group"}


def _group() -> tuple[Any, Any]:
    """Return the fields of a multicast group: a subset of 8 ports, and a mask of ports in it."""
    return ByteField("subset", 0), XBitField("ports", 0, 8)


VirtualTrees = _stack(
    "VirtualTrees", 0x9999, BitEnumField("type", 1, 2, _TYPES), BitField("id", 0, 14)
)
WideVirtualTrees = _stack(
    "WideVirtualTrees", 0x999A, BitEnumField("type", 1, 2, _TYPES), BitField("id", 0, 30)
)
Ports = _stack("Ports", 0x99A0, ByteField("device", 0), ByteField("port", 0))
PortMasks = _stack("PortMasks", 0x99A1, ByteField("device", 0), XShortField("ports", 0))
PortGroups = _stack("PortGroups", 0x99A2, ByteField("device", 0), *_group())
MixedRoutes = _stack(
    "MixedRoutes",
    0x99A3,
    ByteField("device", 0),
    ByteEnumField("strategy", 1, _STRATEGIES),
    XShortField("value", 0),
)
ReactivePorts = _stack("ReactivePorts", 0x99A4, ByteField("device", 0), ByteField("port", 0))
Hops = _stack("Hops", 0x99A8, ShortField("link", 0))
Destinations = _stack("Destinations", 0x99A9, ShortField("link", 0))
StoredTrees = _stack("StoredTrees", 0x99AA, ShortField("tree", 0))
HybridRoutes = _stack(
    "HybridRoutes", 0x99AB, BitEnumField("type", 1, 2, _ROOTS), BitField("id", 0, 14)
)
PortBitmaps = _stack(
    "PortBitmaps",
    0x99AC,
    BitField("names_switch", 0, 1),
    ConditionalField(BitField("link", 0, 15), lambda label: not label.names_switch),
    ConditionalField(BitField("has_ports", 0, 1), lambda label: label.names_switch),
    ConditionalField(
        BitField("device", 0, 14), lambda label: label.names_switch and not label.has_ports
    ),
    ConditionalField(BitField("block", 0, 3), lambda label: label.names_switch and label.has_ports),
    ConditionalField(
        XBitField("ports", 0, 11), lambda label: label.names_switch and label.has_ports
    ),
)
WidePorts = _stack("WidePorts", 0x99B0, ShortField("device", 0), ShortField("port", 0))
WidePortGroups = _stack("WidePortGroups", 0x99B2, ShortField("device", 0), *_group())
WideReactivePorts = _stack(
    "WideReactivePorts", 0x99B4, ShortField("device", 0), ShortField("port", 0)
)
WideHops = _stack("WideHops", 0x99B8, IntField("link", 0))


class Message(Item):
    """A message block of MoldUDP64."""

    fields_desc: ClassVar = [
        FieldLenField("length", None, fmt="!H", length_of="data"),
        StrLenField("data", b"", length_from=lambda message: message.length),
    ]


class MoldUDP64(Packet):
    """A packet of MoldUDP64: messages, a heartbeat, or the head of a summary or cookie.

    The number of messages is 0 in a heartbeat, in a summary and before a cookie.
    """

    fields_desc: ClassVar = [
        StrFixedLenField("session", b"", 10),
        LongField("sequence", 0),
        FieldLenField("count", None, fmt="!H", count_of="messages"),
        PacketListField(
            "messages",
            [],
            Message,
            count_from=lambda packet: 0 if packet.count == END_OF_SESSION else packet.count,
        ),
    ]

    @property
    def position(self) -> tuple[int, int]:
        """The offset of the Kafka record, and the index of the first message in it."""
        return self.sequence >> 26, self.sequence & (1 << 26) - 1

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        if self.count == 0 and len(payload) == COOKIE_BYTES:
            return Cookie
        if self.count == 0 and len(payload) in (32, 52):
            return Summary
        return super().guess_payload_class(payload)


class Summary(Packet):
    """The tail of a summary. Its range ends before the sequence number of the MoldUDP64 header."""

    fields_desc: ClassVar = [
        LongField("start", 0),
        LongField("notifications", 0),
        LongField("last", 0),
        XLongField("digest", 0),
    ]


class SummaryTag(Packet):
    """The end of an authenticated summary: the id of the master key, and the tag."""

    fields_desc: ClassVar = [
        IntField("key", 0),
        XStrFixedLenField("tag", b"", 16),
    ]


class Cookie(Packet):
    """A cookie, which a host repeats to prove its address."""

    fields_desc: ClassVar = [XStrFixedLenField("cookie", b"", COOKIE_BYTES)]


class HostName(StrField):
    """The name of a host: the rest of the packet without a zero byte and a cookie at its end."""

    def getfield(self, pkt: Packet, s: bytes) -> tuple[bytes, bytes]:
        end = len(s) - COOKIE_BYTES - 1
        if end < 0 or s[end]:
            end = len(s)
        return s[end:], s[:end]


class Request(Packet):
    """A host asks for notifications again; ``count`` is the largest number of messages."""

    fields_desc: ClassVar = [
        StrFixedLenField("session", b"", 10),
        LongField("sequence", 0),
        ShortField("count", 0),
        HostName("host", b""),
    ]


class RequestCookie(Packet):
    """The cookie after the name in a request."""

    fields_desc: ClassVar = [
        ByteField("zero", 0),
        XStrFixedLenField("cookie", b"", COOKIE_BYTES),
    ]


class AttributeValue(Item):
    """A value, and the id of the next attribute; 0 at the end."""

    fields_desc: ClassVar = [IntField("value", 0), ByteField("next_id", 0)]


def _next(_packet: Packet, _values: list[Packet], last: Packet | None, _content: bytes) -> Any:
    return AttributeValue if last is None or last.next_id else None


class IdPairs(Packet):
    """An attribute/value event as the first id, and each value with the id of the next one."""

    fields_desc: ClassVar = [
        ByteField("first_id", 0),
        PacketListField("values", [], next_cls_cb=_next),
    ]

    @classmethod
    def of(cls, values: Mapping[int, int]) -> IdPairs:
        """Return the header of an event, given the raw value of each attribute by its id."""
        ids = sorted(values)
        pairs = [
            AttributeValue(value=values[number], next_id=following)
            for number, following in zip(ids, [*ids[1:], 0], strict=True)
        ]
        return cls(first_id=ids[0], values=pairs)

    @property
    def by_id(self) -> dict[int, int]:
        """The raw value of each attribute by its id."""
        ids = [self.first_id, *(value.next_id for value in self.values)]
        return {number: value.value for number, value in zip(ids, self.values, strict=False)}


class Bitmask(Packet):
    """An attribute/value event as a bit for each attribute, and the values by ascending id."""

    fields_desc: ClassVar = [
        XIntField("mask", 0),
        FieldListField(
            "values", [], IntField("", 0), count_from=lambda packet: packet.mask.bit_count()
        ),
    ]

    @classmethod
    def of(cls, values: Mapping[int, int]) -> Bitmask:
        """Return the header of an event, given the raw value of each attribute by its id."""
        ids = sorted(values)
        return cls(mask=sum(1 << number for number in ids), values=[values[n] for n in ids])

    @property
    def by_id(self) -> dict[int, int]:
        """The raw value of each attribute by its id."""
        ids = [number for number in range(32) if self.mask >> number & 1]
        return dict(zip(ids, self.values, strict=True))


#: By the names of the encodings.
EVENT_LAYERS = {"id_pairs": IdPairs, "bitmask": Bitmask}


class StateMessage(Packet):
    """The header of replicated states. The multicast address has the kind and the state."""

    fields_desc: ClassVar = [
        ShortField("vnf", 0),
        ThreeBytesField("update", 0),
        BitField("total", 0, 12),
        BitField("segment", 0, 12),
    ]


def bind_ports(events: int = 26400, summaries: int = 26401, rerequest: int = 26402) -> None:
    """Bind layers to UDP ports.

    Args:
        events: ``spark.stackcast.multicast.port``.
        summaries: ``spark.stackcast.summary.port``.
        rerequest: port of ``spark.stackcast.rerequest.listen``.
    """
    bind_layers(UDP, MoldUDP64, dport=events)
    bind_layers(UDP, MoldUDP64, dport=summaries)
    bind_bottom_up(UDP, MoldUDP64, sport=rerequest)
    bind_layers(UDP, Request, dport=rerequest)


bind_ports()
bind_layers(MoldUDP64, Summary)
bind_layers(MoldUDP64, Cookie)
bind_layers(Summary, SummaryTag)
bind_layers(Request, RequestCookie)
bind_layers(UDP, StateMessage, sport=STATES_PORT, dport=STATES_PORT)
bind_layers(UDP, Ether, sport=SWITCH_TUNNEL_PORT, dport=SWITCH_TUNNEL_PORT)
# scapy uses the first layer that fits. Any other address means id pairs.
bind_layers(Ether, Bitmask, type=EVENTS, dst=BITMASK_GROUP)
bind_layers(Ether, IdPairs, type=EVENTS, dst=ID_PAIRS_GROUP)
bind_bottom_up(Ether, IdPairs, type=EVENTS)
