"""The feature programs of ``tests/p4``: their products, tables and frames, and what BMv2 answered.

``tests/p4/NAME.answers`` holds what BMv2 (simple_switch_grpc) answered, one frame a line: ingress
port, frame, and each copy as ``port:frame``, in hexadecimal.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paths import COMPILED_TEST_P4, TEST_P4
from scapy.layers.inet import IP, UDP, IPOption_NOP
from scapy.layers.l2 import Ether

from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.switches.entry import SwitchEntry, canonical, group_entry, session_entry
from stackcast.udfs.switches.match import Match

PORTS = 12
Copies = list[tuple[int, bytes]]


@dataclass(frozen=True)
class Feature:
    """One program with tables; ``frames`` yields ``(ingress port, frame)`` without end."""

    name: str
    entries: Sequence[SwitchEntry]
    frames: Callable[[random.Random], Iterator[tuple[int, bytes]]]
    recorded: int = 200

    def json(self) -> bytes:
        return (COMPILED_TEST_P4 / f"{self.name}.json").read_bytes()

    def info(self) -> str:
        return (COMPILED_TEST_P4 / f"{self.name}.p4info.txtpb").read_text()

    def switch(self, **options: Any) -> SimpleSwitch:
        """A software switch with the program and its tables."""
        switch = SimpleSwitch(**options)
        switch.load(self.json())
        switch.apply({entry.key: entry for entry in self.entries})
        return switch

    @property
    def answers_file(self) -> Path:
        """What BMv2 answered; ``./spark-submit.sh make p4`` writes it."""
        return TEST_P4 / f"{self.name}.answers"

    def answers(self) -> list[tuple[int, bytes, Copies]]:
        """``(ingress port, frame, copies)``: what BMv2 answered."""
        rows = []
        for line in self.answers_file.read_text().splitlines():
            port, frame, *copies = line.split(" ")
            parted = [copy.split(":") for copy in copies]
            expected = [(int(egress), bytes.fromhex(copy)) for egress, copy in parted]
            rows.append((int(port), bytes.fromhex(frame), expected))
        return rows


def entry(
    table: str,
    action: str,
    *fields: tuple[str, str, int] | tuple[str, str, int, int],
    priority: int = 0,
    **params: int,
) -> SwitchEntry:
    """An entry; fields are ``(name, kind, value[, mask, high end or prefix length])``."""
    match = []
    for name, kind, value, *other in fields:
        prefix = other[0] if kind == "lpm" else 0
        second = canonical(other[0]) if kind in ("ternary", "range") else b""
        joined = Match(name, kind, canonical(value), second, prefix).joined()
        match.append((name, kind, joined))
    values = tuple((name, canonical(value)) for name, value in params.items())
    return SwitchEntry("s", table, tuple(match), action, values, priority)


# --- traffic -----------------------------------------------------------------------------------

REQUESTS = struct.Struct(">BBBBHHHHBB")
SEEN = struct.Struct(">BHHBBBHHHHHHB")
SEEN_FIELDS = (
    *("ingress_type", "ingress_length", "ingress_from", "kept", "listed", "instance_type"),
    *("ingress_port", "egress_port", "egress_rid", "packet_length", "egress_spec", "mcast_grp"),
    "parser_error",
)
PAYLOAD = b"payload, which nobody parses"

GROUPS = [
    group_entry("s", 5, [(1, 0), (2, 7), (3, 0), (3, 2)]),
    group_entry("s", 6, [(4, 300)]),
    group_entry("s", 7, []),
]
SESSIONS = [session_entry("s", 9, [(4, 0)]), session_entry("s", 10, [(5, 1), (2, 2)])]


def requests(
    ingress: int = 0,
    egress: int = 0,
    again: int = 0,
    *,
    left: int = 1,
    port: int = 2,
    group: int = 5,
    session: int = 9,
    size: int = 40,
    count: int = 0,
    rest: bytes = PAYLOAD,
) -> bytes:
    """A frame for ``feature_traffic.p4``."""
    head = REQUESTS.pack(left, ingress, egress, again, port, group, session, size, 0, count)
    return head + rest


def seen(frame: bytes) -> list[dict[str, int]]:
    """What the runs of egress saw, the newest first."""
    count = frame[REQUESTS.size - 1]
    starts = (REQUESTS.size + SEEN.size * i for i in range(count))
    return [dict(zip(SEEN_FIELDS, SEEN.unpack_from(frame, at), strict=True)) for at in starts]


def _traffic(rng: random.Random) -> Iterator[tuple[int, bytes]]:
    def flags(chance: float) -> int:
        return sum(1 << bit for bit in range(8) if rng.random() < chance)

    while True:
        count = rng.choice([0, 0, 0, 0, 1, 3])
        made = requests(
            flags(0.2),
            flags(0.15),
            flags(0.2),
            left=rng.choice([0, 1, 1, 2]),
            port=rng.choice([1, 2, 3, 4, 6, 511]),
            group=rng.choice([0, 5, 5, 6, 7, 77]),
            session=rng.choice([9, 10, 10, 3]),
            size=rng.randrange(14, 120),
            count=count,
            rest=rng.randbytes(rng.randrange(0, 90)) if count else PAYLOAD,
        )
        yield rng.randrange(1, 5), made


# --- parser ------------------------------------------------------------------------------------


def _parser(rng: random.Random) -> Iterator[tuple[int, bytes]]:
    ways = [*range(8), 0x10, 0x15, 0x1F, 0x20, 0x2A, 0x2F, 0x30, 0x77, 0xFF]
    while True:
        rest = bytearray(rng.randbytes(rng.randrange(20, 40)))
        for at in range(4):
            if rng.random() < 0.7:
                rest[at] = rng.choice([0, 1, 2, 3, 5, 8, 9, 12, 0x10, 0x18, 0x1F, 0x7F, 0x80, 0xFF])
        if rng.random() < 0.3:
            rest[1] = 0xFF - rest[0]
        yield rng.randrange(1, 5), bytes([rng.choice(ways)]) + rest


# --- tables ------------------------------------------------------------------------------------

_ONE, _TWO, _ADDRESS = "hdr.keys.one", "hdr.keys.two", "hdr.keys.address"

TABLES = [
    entry(
        "ingress.by_value",
        "ingress.answer_exact",
        (_ONE, "exact", 1),
        (_TWO, "exact", 2),
        number=12,
    ),
    entry("ingress.by_value", "ingress.drop", (_ONE, "exact", 1), (_TWO, "exact", 3)),
    entry("ingress.by_value", "ingress.leave", (_ONE, "exact", 1), (_TWO, "exact", 4)),
    entry("ingress.by_value", "NoAction", (_ONE, "exact", 2), (_TWO, "exact", 2)),
    entry("ingress.by_prefix", "ingress.answer_lpm", (_ONE, "exact", 1), number=1),
    *(
        entry(
            "ingress.by_prefix",
            "ingress.answer_lpm",
            (_ONE, "exact", 1),
            (_ADDRESS, "lpm", value, length),
            number=length,
        )
        for value, length in [(0x0A000000, 8), (0x0A010000, 16), (0x0A010200, 23), (0x0A010203, 32)]
    ),
    entry("ingress.by_prefix", "ingress.drop", (_ONE, "exact", 2), (_ADDRESS, "lpm", 1 << 31, 1)),
    entry(
        "ingress.by_mask",
        "ingress.answer_ternary",
        (_ONE, "ternary", 0x0001, 0x000F),
        (_TWO, "exact", 2),
        priority=10,
        number=10,
    ),
    entry(
        "ingress.by_mask",
        "ingress.answer_ternary",
        (_ADDRESS, "lpm", 0x0A000000, 8),
        (_TWO, "exact", 2),
        priority=20,
        number=20,
    ),
    entry(
        "ingress.by_mask",
        "ingress.drop",
        (_ADDRESS, "lpm", 0x0A010203, 32),
        (_TWO, "exact", 2),
        priority=30,
    ),
    entry("ingress.by_mask", "NoAction", (_TWO, "exact", 3), priority=1),
    entry(
        "ingress.by_range",
        "ingress.answer_range",
        (_ONE, "range", 1, 5),
        priority=7,
        number=7,
    ),
    entry(
        "ingress.by_range",
        "ingress.answer_range",
        (_ONE, "range", 3, 0x100),
        (_TWO, "ternary", 2, 0xFFFF),
        priority=8,
        number=8,
    ),
    entry("ingress.by_range", "NoAction", (_TWO, "ternary", 4, 4), priority=9),
    entry(
        "ingress.by_option",
        "ingress.answer_optional",
        (_ONE, "optional", 1),
        (_TWO, "optional", 2),
        priority=3,
        number=3,
    ),
    entry(
        "ingress.by_option", "ingress.answer_optional", (_TWO, "optional", 2), priority=2, number=2
    ),
    entry(
        "ingress.by_option", "ingress.answer_optional", (_ONE, "optional", 5), priority=4, number=4
    ),
]


def keys(which: int, one: int, two: int, address: int = 0) -> bytes:
    """A frame for ``feature_tables.p4``."""
    return struct.pack(">BHHI", which, one, two, address) + b"payload"


def _tables(rng: random.Random) -> Iterator[tuple[int, bytes]]:
    addresses = [0x0A010203, 0x0A010202, 0x0A010300, 0x0A020000, 0x8000000A, 0x04000001, 0x07FFFFFF]
    while True:
        yield (
            rng.randrange(1, 5),
            keys(
                rng.choice([0xFF, rng.randrange(256)]),
                rng.choice([1, 2, 3, 5, 6, 9, 12, 0x11, 0x100, rng.randrange(1 << 16)]),
                rng.choice([1, 2, 3, 4, 7, 0x17, 0xFE01, rng.randrange(1 << 16)]),
                rng.choice([*addresses, 0xF9000001, rng.randrange(1 << 32)]),
            ),
        )


# --- arithmetic --------------------------------------------------------------------------------


def operands(
    what: int, a: int, b: int, shift: int, c: int, d: int, wide: int, wider: int, cells: bytes
) -> bytes:
    """A frame for ``feature_arithmetic.p4``; ``c`` and ``d`` are signed."""
    bits = what
    for value, width in ((a, 13), (b, 13), (shift, 6), (c, 8), (d, 8), (wide, 48), (wider, 80)):
        bits = bits << width | value & (1 << width) - 1
    return bits.to_bytes(23, "big") + cells


def _arithmetic(rng: random.Random) -> Iterator[tuple[int, bytes]]:
    def number(width: int) -> int:
        return rng.choice([0, 1, (1 << width) - 1, 1 << width - 1, rng.randrange(1 << width)])

    while True:
        a = number(13)
        yield (
            rng.randrange(1, 5),
            operands(
                rng.choice([*range(11), 200]),
                a,
                rng.choice([a, number(13)]),
                rng.choice([0, 1, 5, 12, 13, 63, number(6)]),
                number(8),
                number(8),
                number(48),
                number(80),
                rng.randbytes(rng.choice([3, 5, 9])),
            ),
        )


# --- state -------------------------------------------------------------------------------------

_LASTING = 0x01 | 0x02 | 0x08 | 0x10 | 0x20  # all but random numbers, which nobody can foretell


def _state(rng: random.Random) -> Iterator[tuple[int, bytes]]:
    while True:
        what = sum(bit for bit in (1, 2, 8, 16, 32) if rng.random() < 0.4) & _LASTING
        value = rng.choice([0, 1, 0xFFFFFFFF, rng.randrange(1 << 32)])
        frame = struct.pack(">BBI", what, rng.choice([0, 1, 3, 15, 16, 255]), value)
        yield rng.randrange(1, 5), frame + b"payload, " * rng.randrange(1, 4)


# --- checksums ---------------------------------------------------------------------------------


#: Named, or scapy would take what this machine has.
ETHERNET = Ether(dst="01:00:5e:01:01:01", src="02:fc:00:00:00:01")


def _checksum(rng: random.Random) -> Iterator[tuple[int, bytes]]:
    while True:
        options = [] if rng.random() < 0.6 else [IPOption_NOP()] * (4 * rng.randrange(1, 11))
        ip = IP(src="10.0.0.1", dst="239.1.1.1", ttl=rng.randrange(256), tos=rng.choice([0, 1]))
        ip.options = options
        udp = UDP(sport=rng.randrange(1 << 16), dport=rng.randrange(1 << 16))
        if rng.random() < 0.2:
            udp.chksum = 0
        frame = bytearray(bytes(ETHERNET / ip / udp / rng.randbytes(rng.randrange(0, 60))))
        damage = rng.random()
        if damage < 0.4:
            frame[rng.randrange(12, len(frame))] ^= 1 << rng.randrange(8)
        elif damage < 0.5:
            del frame[rng.randrange(14, len(frame)) :]
        yield rng.randrange(1, 5), bytes(frame)


FEATURES = {
    feature.name: feature
    for feature in (
        Feature("feature_traffic", [*GROUPS, *SESSIONS], _traffic, 250),
        Feature("feature_parser", [], _parser, 400),
        Feature("feature_tables", TABLES, _tables, 300),
        Feature("feature_arithmetic", [], _arithmetic, 250),
        Feature("feature_state", [], _state, 150),
        Feature("feature_checksum", [], _checksum, 150),
    )
}


def receivable(copies: Copies) -> Copies:
    """What a real interface can carry, and where there is one; in ascending order."""
    return sorted((port, copy) for port, copy in copies if len(copy) >= 14 and port <= PORTS)
