"""Events, frames and entries for `p4/attribute_value.p4`, and what must become of the frames.

Nothing here knows the product's codecs, tables or compiler: frames are put together by hand or by
scapy, and who gets an event is found by a look at every row.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import p4_products
from scapy.layers.l2 import Ether
from scapy_layers import Bitmask, IdPairs
from virtual_trees_cases import datagram, plain_frame

from stackcast.udfs.switches.entry import SwitchEntry, canonical
from stackcast.udfs.switches.match import Match
from stackcast.udfs.switches.routes import DELIVER, ROUTE, SEND

INFO, PROGRAM = p4_products.products("attribute_value")
MATCH = "ingress.subscriptions"
TABLE = f"{MATCH}.event"
SEND_TO_PORTS = f"{MATCH}.send_to_ports"
BRIDGE = "ingress.bridged"
ATTRIBUTES = 32
BITS = 32

ID_PAIRS_GROUP = bytes.fromhex("035343000001")
BITMASK_GROUP = bytes.fromhex("035343000002")
SOURCE = bytes.fromhex("0200000000bb")
EVENT = b"\x90\x01"

REASONS = re.findall(
    r"^const reason_t (\w+) = \d+;",
    (p4_products.FOLDER / "attribute_value/sizes.p4").read_text(),
    re.MULTILINE,
)

PORTS = 12
SETS_OF_PORTS = ((1,), (2, 3), (4, 5, 12), tuple(range(1, PORTS + 1)), (6, 11))
"""Of one subset, and of both."""

HOST = 0x0A010203
HOST_MAC = 0x020000000001

Event = Mapping[int, int]
"""Value by id of an attribute."""


def id_pairs(event: Sequence[tuple[int, int]], payload: bytes = b"", end: bytes = b"\0") -> bytes:
    """The header of KUNDEL III-B of these ids and values in this order, right or not."""
    head = b"".join(bytes([number]) + struct.pack(">I", value) for number, value in event)
    return head + end + payload


def bitmask(event: Event, payload: bytes = b"", mask: int | None = None) -> bytes:
    """The bitmask of an event (or ``mask`` in its place), then its values by ascending id."""
    present = sum(1 << number for number in event) if mask is None else mask
    return struct.pack(f">I{len(event)}I", present, *(event[i] for i in sorted(event))) + payload


def pairs_frame(event: Event, payload: bytes = b"", target: bytes = ID_PAIRS_GROUP) -> bytes:
    return target + SOURCE + EVENT + id_pairs(sorted(event.items()), payload)


def mask_frame(event: Event, payload: bytes = b"") -> bytes:
    return BITMASK_GROUP + SOURCE + EVENT + bitmask(event, payload)


ENCODINGS = {"id_pairs": pairs_frame, "bitmask": mask_frame}


def scapy_frames(event: Event, payload: bytes) -> list[bytes]:
    """The event's frame in each encoding, as scapy builds it."""
    layers = {
        ID_PAIRS_GROUP: IdPairs.of(event),
        BITMASK_GROUP: Bitmask.of(event),
    }
    return [
        bytes(Ether(dst=target.hex(":"), src=SOURCE.hex(":"), type=0x9001) / header / payload)
        for target, header in layers.items()
    ]


@dataclass(frozen=True)
class Row:
    """One entry. ``mask``: value and mask of the bitmask; ``prefixes``: value and length by id.

    Without ``ports`` it is a hole.
    """

    mask: tuple[int, int]
    prefixes: tuple[tuple[int, int, int], ...]
    ports: tuple[int, ...]
    priority: int

    def holds(self, event: Event) -> bool:
        """Bit by bit; the value of an attribute that is absent is 0."""
        wanted, cared = self.mask
        for number in range(ATTRIBUTES):
            if cared >> number & 1 and (number in event) != bool(wanted >> number & 1):
                return False
        for number, prefix, length in self.prefixes:
            bits, own = f"{event.get(number, 0):0{BITS}b}", f"{prefix:0{BITS}b}"
            if bits[:length] != own[:length]:
                return False
        return True

    def entry(self) -> SwitchEntry:
        match = [_exact("rows", 1)]
        if self.mask[1]:
            match.append(_ternary("bitmask", *self.mask))
        for number, prefix, length in self.prefixes:
            if length:
                match.append(_ternary(f"value_{number}", prefix, _prefix_mask(length)))
        params = (("ports", canonical(mask_of(self.ports))),)
        return SwitchEntry("s", TABLE, tuple(match), SEND_TO_PORTS, params, self.priority)


def mask_of(ports: Collection[int]) -> int:
    return sum(1 << port - 1 for port in ports)


def pass_entry(number: int, **params: int) -> SwitchEntry:
    """What is taken in a pass; what is not said is 0."""
    names = ("rows", "vectors", "terms", "subset", "next", "timed")
    values = tuple((name, canonical(params.get(name, 0))) for name in names)
    match = (_exact("pass", number),)
    return SwitchEntry("s", f"{MATCH}.passes", match, f"{MATCH}.take", values)


def ask_entry(number: int, **params: int) -> SwitchEntry:
    """What is taken in a pass that asks a cell."""
    names = ("rows", "vectors", "terms", "subset", "next", "timed", "states", "tag", "slot")
    more = ("function", "window", "operand")
    values = tuple((n, canonical(params.get(n, 0))) for n in (*names, *more))
    match = (_exact("pass", number),)
    return SwitchEntry("s", f"{MATCH}.passes", match, f"{MATCH}.ask", values)


def state_entry(states: int, span: tuple[int, int], ports: int) -> SwitchEntry:
    """Ports of events that find such a value in a cell."""
    value = ("value", "range", Match("value", "range", *map(canonical, span)).joined())
    table, action = f"{MATCH}.cells.states", f"{MATCH}.cells.send_to_ports"
    match = (_exact("states", states), value)
    return SwitchEntry("s", table, match, action, (("ports", canonical(ports)),), 1)


def value_entry(
    attribute: int, vectors: int, present: int, span: tuple[int, int] | None, terms: int
) -> SwitchEntry:
    """Terms that a value leaves, or where ``span`` is None any other."""
    match = [_exact("vectors", vectors), _exact("present", present)]
    if span is not None:
        low, high = map(canonical, span)
        match.append(("value", "range", Match("value", "range", low, high).joined()))
    params = (("terms", canonical(terms)),)
    table, action = f"{MATCH}.value_{attribute}", f"{MATCH}.require"
    return SwitchEntry("s", table, tuple(match), action, params, 2 if span else 1)


def _exact(name: str, value: int) -> tuple[str, str, bytes]:
    return name, "exact", canonical(value)


def _prefix_mask(length: int) -> int:
    return (1 << BITS) - (1 << BITS - length)


def _ternary(name: str, value: int, mask: int) -> tuple[str, str, bytes]:
    return name, "ternary", Match(name, "ternary", canonical(value), canonical(mask)).joined()


def fixed_bits(mask: tuple[int, int], prefixes: Collection[tuple[int, int, int]]) -> int:
    return mask[1].bit_count() + sum(length for _, _, length in prefixes)


def outcomes(rows: Collection[Row], event: Event) -> set[tuple[int, ...]]:
    """Ports that the event may go to: of equal priorities, the switch may take any."""
    holding = [row for row in rows if row.holds(event)]
    if not holding:
        return {()}
    best = max(row.priority for row in holding)
    return {row.ports for row in holding if row.priority == best}


def random_event(rng: random.Random, ids: Sequence[int], most: int | None = None) -> dict[int, int]:
    """One to ``most`` of the attributes; many values are small, so that prefixes hold them."""
    count = rng.randint(1, min(len(ids), most or len(ids)))
    return {number: _value(rng) for number in rng.sample(ids, count)}


def _value(rng: random.Random) -> int:
    return rng.getrandbits(rng.choice([0, 2, 4, 32])) << rng.choice([0, 0, 28]) & 0xFFFFFFFF


def random_rows(rng: random.Random, count: int, ids: Sequence[int], *, by_size: bool) -> list[Row]:
    """Rows that overlap a lot. by_size: their priority is 1 + fixed bits; else any, all different.

    Matches are all different.
    """
    priorities = rng.sample(range(1, 10 * count + 1), count)
    rows: dict[tuple[object, object], Row] = {}
    for priority in priorities:
        chosen = sorted(rng.sample(ids, rng.randint(0, min(3, len(ids)))))
        prefixes = []
        for number in chosen:
            length = rng.choice([0, 1, 4, 28, 30, 31, 32])
            prefixes.append((number, _value(rng) & _prefix_mask(length), length))
        wanted = sum(1 << number for number in chosen if rng.random() < 0.9)
        cared = wanted | (1 << rng.choice(ids) if rng.random() < 0.2 else 0)
        mask, values = (wanted, cared), tuple(p for p in prefixes if p[2])
        ports = () if rng.random() < 0.15 else rng.choice(SETS_OF_PORTS)
        rank = 1 + fixed_bits(mask, values) if by_size else priority
        rows[mask, values] = Row(mask, values, ports, rank)
    return list(rows.values())


def bridge_entries() -> list[SwitchEntry]:
    """A host on port 2; what is for a group to ports 2, 3 and 11."""
    return [
        SwitchEntry(
            "s",
            f"{BRIDGE}.ethernet",
            (("dst", "ternary", Match("dst", "ternary", canonical(value), mask).joined()),),
            f"{BRIDGE}.send_to_ports",
            (("ports", canonical(mask_of(ports))),),
            1,
        )
        for value, mask, ports in (
            (HOST_MAC, b"\xff" * 6, (2,)),
            (1 << 40, canonical(1 << 40), (2, 3, 11)),
        )
    ]


def route_entries() -> list[SwitchEntry]:
    """10.1/16 to port 3, and a host on port 2."""
    return [
        _route(0x0A010000, 16, SEND, port=3),
        _route(HOST, 32, DELIVER, mac=HOST_MAC, port=2),
    ]


def _route(address: int, length: int, action: str, **params: int) -> SwitchEntry:
    match = Match("dst", "lpm", canonical(address), prefix_length=length)
    values = tuple((name, canonical(number)) for name, number in params.items())
    return SwitchEntry("s", ROUTE, (("dst", "lpm", match.joined()),), action, values)


#: Of `odd_frames`: whatever is an event goes to port 4.
ODD_ROWS = [Row((0, 0), (), (4,), 1)]


def odd_frames() -> Iterator[tuple[str, bytes, str | None]]:
    """``(what it is, frame, reason why it is dropped)``; None: it is sent on."""
    pairs, masks = (group + SOURCE + EVENT for group in (ID_PAIRS_GROUP, BITMASK_GROUP))
    other = SOURCE + SOURCE + EVENT
    full = {number: 0xFFFFFFFF - number for number in range(ATTRIBUTES)}
    yield "nothing", b"", "CUT_SHORT"
    yield "cut within its addresses", pairs[:9], "CUT_SHORT"
    yield "cut within its type", pairs[:13], "CUT_SHORT"
    yield "no first id", pairs, "CUT_SHORT"
    yield "a first id alone", pairs + b"\x05", "CUT_SHORT"
    yield "half a value", pairs + b"\x05\0\0", "CUT_SHORT"
    yield "a value without a next id", pairs + b"\x05\0\0\0\1", "CUT_SHORT"
    yield "a chain that does not end", pairs + id_pairs([(1, 2), (3, 4)], end=b""), "CUT_SHORT"
    yield "attribute 0 alone", pairs + id_pairs([(0, 7)]), None
    yield "attribute 31 alone", pairs + id_pairs([(31, 7)]), None
    yield "all attributes", pairs_frame(full), None
    yield "all attributes and a payload", pairs_frame(full, b"p" * 900), None
    yield "a payload like a pair", pairs + id_pairs([(1, 2)], id_pairs([(1, 2)])), None
    yield "ids in another order", pairs + id_pairs([(5, 1), (3, 1)], b"rest"), None
    yield "ids in another order later", pairs + id_pairs([(0, 1), (9, 1), (8, 1)]), None
    yield "all attributes, the last first", pairs + id_pairs([*full.items()][:0:-1]), None
    yield "an id twice", pairs + id_pairs([(5, 1), (5, 1)]), "ID_TWICE"
    yield "an id twice, another between", pairs + id_pairs([(5, 1), (9, 1), (5, 1)]), "ID_TWICE"
    yield "the last id twice", pairs + id_pairs([(31, 1), (31, 1)]), "ID_TWICE"
    for number in (32, 33, 64, 128, 255):
        yield f"first id {number}", pairs + id_pairs([(number, 1)]), "UNKNOWN_ATTRIBUTE"
        later = id_pairs([(0, 1), (31, 1), (number, 1)])
        yield f"id {number} later", pairs + later, "UNKNOWN_ATTRIBUTE"
    yield "another destination", other + id_pairs([(2, 7)]), None
    yield "no bitmask", masks, "CUT_SHORT"
    yield "half a bitmask", masks + b"\0\0", "CUT_SHORT"
    yield "a bitmask of 0", masks + bytes(4), "EMPTY_EVENT"
    yield "a bitmask of 0 and a payload", masks + bytes(40), "EMPTY_EVENT"
    yield "a bit without a value", masks + bitmask({}, mask=1), "CUT_SHORT"
    yield "a last bit without a value", masks + bitmask({0: 1}, mask=1 | 1 << 31), "CUT_SHORT"
    yield "half a last value", mask_frame({0: 1, 9: 2})[:-2], "CUT_SHORT"
    yield "all bits, 31 values", mask_frame(full)[:-4], "CUT_SHORT"
    yield "bit of attribute 0", mask_frame({0: 7}), None
    yield "bit of attribute 31", mask_frame({31: 7}), None
    yield "all bits", mask_frame(full), None
    yield "all bits and a payload", mask_frame(full, b"p" * 900), None
    yield "no route", plain_frame(datagram()), "NO_ROUTE"
    yield "a route", plain_frame(datagram(dst="10.1.9.9")), None
    yield "a host", plain_frame(datagram(dst="10.1.2.3")), None
    for kind in (0x0806, 0x86DD):
        yield f"type {kind:#x} for a host", plain_frame(bytes(28), kind, HOST_MAC), None
        yield f"type {kind:#x} for all", plain_frame(bytes(28), kind, 0xFFFFFFFFFFFF), None
        yield f"type {kind:#x} for nobody", plain_frame(bytes(28), kind, 0x0200000000EE), "NO_ROUTE"
    yield "a label stack", plain_frame(bytes(28), 0x9999), "NOT_IPV4"
    yield "EtherType 0x9000", plain_frame(bytes(28), 0x9000), "NOT_IPV4"
    whole = datagram(dst="10.1.2.3")
    yield "version 6", plain_frame(b"\x65" + whole[1:]), "NOT_IPV4"
    yield "options", plain_frame(datagram(dst="10.1.2.3", options=b"\x94\4\0\0")), None
    ends = plain_frame(datagram(dst="10.1.2.3", ttl=1))
    yield "a time to live of 1", ends, "TTL_OVER"
    yield "IGMP", plain_frame(datagram(dst="239.1.1.1", proto=2, ttl=1)), "LINK_LOCAL"
    yield "a wrong checksum", plain_frame(datagram(dst="10.1.2.3", chksum=1)), "BAD_CHECKSUM"
    yield "cut within IPv4", plain_frame(whole[:19]), "CUT_SHORT"
    yield "cut behind IPv4", plain_frame(whole[:-1]), "CUT_SHORT"
