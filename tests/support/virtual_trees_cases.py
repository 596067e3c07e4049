"""Frames and tables for the program of virtual trees, with the expected copies."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import p4_products
from scapy.layers.inet import IP, UDP, IPOption_Router_Alert
from scapy.layers.l2 import Ether

from stackcast.udfs.network.labels import HOP, NARROW, STOP, TREE, WIDE, LabelFormat, SwitchTables
from stackcast.udfs.stacks.forwarding import forward
from stackcast.udfs.switches.entry import SwitchEntry, canonical
from stackcast.udfs.switches.match import Match
from stackcast.udfs.switches.ports import port_groups
from stackcast.udfs.switches.routes import DELIVER, ROUTE, SEND
from stackcast.udfs.switches.sources import receiving_port, trusted_ports
from stackcast.udfs.switches.stack_entries import LABELS_A_PASS, table_entries


def program(labels: LabelFormat = NARROW) -> tuple[Path, Path]:
    """P4Info and JSON of the program for labels of this format."""
    info, made = p4_products.products(labels.program)
    return info, made


REASONS = re.findall(
    r"^const reason_t (\w+) = \d+;",
    (p4_products.FOLDER / "virtual_trees/sizes.p4").read_text(),
    re.MULTILINE,
)
ADDRESSES = bytes.fromhex("0200000000aa0200000000bb")
HOST = 0x0A010203
HOST_MAC = 0x020000000001

Copies = list[tuple[int, bytes]]


def datagram(payload: bytes = b"x" * 40, **fields: Any) -> bytes:
    """An IPv4 datagram with a right checksum, unless ``fields`` say otherwise."""
    return bytes(IP(**{"src": "10.0.0.1", "dst": "233.54.12.1", "proto": 17, **fields}) / payload)


def full_of_options() -> bytes:
    """A datagram for a host with 40 bytes of options."""
    return datagram(dst="10.1.2.3", proto=46, options=[IPOption_Router_Alert()] * 10)


def stack_frame(
    labels: Sequence[int],
    behind: bytes,
    count: int | None = None,
    form: LabelFormat = NARROW,
) -> bytes:
    number = len(labels) if count is None else count
    stack = b"".join(label.to_bytes(form.bits // 8) for label in labels)
    kind = {16: b"\x99\x99", 32: b"\x99\x9a"}[form.bits]
    return ADDRESSES + kind + number.to_bytes(2) + stack + behind


def plain_frame(behind: bytes, kind: int = 0x0800, target: int | None = None) -> bytes:
    start = ADDRESSES if target is None else target.to_bytes(6) + ADDRESSES[6:]
    return start + kind.to_bytes(2) + behind


def modelled(tables: SwitchTables, port: int, labels: Sequence[int], behind: bytes) -> Copies:
    """Returns the copies that a switch sends by the forwarding model, by ascending port."""
    return [
        (
            out,
            plain_frame(behind) if left is None else stack_frame(left, behind, form=tables.labels),
        )
        for out, left in forward(tables, port, tuple(labels))
    ]


def random_tables(rng: random.Random, ports: int, labels: LabelFormat = NARROW) -> SwitchTables:
    """Trees of few and of many ports, within a subset of 8 and across; a link for each port."""

    def mask() -> int:
        wide = rng.getrandbits(ports)
        for _ in range(rng.randint(0, 3)):
            wide &= rng.getrandbits(ports)
        shift = rng.randrange(0, ports, 8)
        return (wide & 0xFF << shift if rng.random() < 0.5 else wide) | 1 << rng.randrange(ports)

    links = {100 + port: port for port in range(1, ports + 1)}
    hosts = frozenset(rng.sample(range(1, ports + 1), rng.randint(0, ports)))
    trees = {n: mask() for n in range(1, 33)}
    closed = rng.sample(range(1, ports + 1), rng.choice([0, 0, 1, ports]))
    sources = frozenset(range(1, ports + 1)) - frozenset(closed)
    return SwitchTables(trees, links, dict(links), hosts, sources, labels)


def random_stack(
    rng: random.Random, size: int | None = None, form: LabelFormat = NARROW
) -> list[int]:
    """Labels that `random_tables` has, and labels that it has not; seldom one of type 00."""
    size = size or rng.choice([1, 2, 3, 7, 8, 9, 15, 16, 17, 24, 40, 63, 64])
    few = rng.random() < 0.5
    ids = {TREE: (1, 33), HOP: (98, 170), STOP: (98, 170)}
    labels = []
    for _ in range(size):
        kind = rng.choice([TREE, HOP, STOP, STOP])
        own = not (few and labels) and rng.random() < 0.7
        number = rng.randint(*ids[kind]) if own else rng.randint(1000, form.max_id)
        labels.append(form.label(kind, number))
    if rng.random() < 0.05:
        labels[rng.randrange(size)] &= form.max_id
    return labels


def spread(rng: random.Random, tables: SwitchTables, ports: int) -> tuple[SwitchTables, list[int]]:
    """The tables with other numbers, up to 511, for ports 1..``ports``; and these numbers."""
    numbers = [*rng.sample(range(1, 511), ports - 1), 511]

    def mask(of: int) -> int:
        return sum(1 << numbers[bit] - 1 for bit in range(ports) if of >> bit & 1)

    moved = dataclasses.replace(
        tables,
        trees={number: mask(of) for number, of in tables.trees.items()},
        hops={number: numbers[port - 1] for number, port in tables.hops.items()},
        stops={number: numbers[port - 1] for number, port in tables.stops.items()},
        own={number: mask(of) for number, of in tables.own.items()},
        host_ports=frozenset(numbers[port - 1] for port in tables.host_ports),
        sources=frozenset(numbers[port - 1] for port in tables.sources),
    )
    return moved, numbers


def entries_of(
    tables: SwitchTables, ports: int | Collection[int], positions: int = LABELS_A_PASS
) -> list[SwitchEntry]:
    """All entries of a switch with these ports, or 1..``ports``; prefixes 10.1/16, 10.2/15, a host,
    and 10.4/16, which leads to port 511.

    Of the ports that no stacks may come in by, even ones have a host, and odd ones nothing.
    """
    ports = range(1, ports + 1) if isinstance(ports, int) else ports
    routes = [_route(prefix, SEND, port=3) for prefix in ("10.1.0.0/16", "10.2.0.0/15")]
    routes.append(_route("10.4.0.0/16", SEND, port=511))
    routes.append(_route(f"{IPv4Network(HOST)}", DELIVER, mac=HOST_MAC, port=2))
    groups = port_groups("s", ports)
    sources = trusted_ports("s", tables.sources)
    others = sorted({*ports} - tables.sources)
    sources += [receiving_port("s", port, 0x0A000000 + port) for port in others if port % 2 == 0]
    return [*groups, *sources, *routes, *table_entries("s", tables, positions)]


def _route(prefix: str, action: str, **params: int) -> SwitchEntry:
    network = IPv4Network(prefix)
    value = canonical(int(network.network_address))
    match = Match("dst", "lpm", value, prefix_length=network.prefixlen)
    values = tuple((name, canonical(number)) for name, number in params.items())
    return SwitchEntry("s", ROUTE, (("dst", "lpm", match.joined()),), action, values)


#: For `odd_frames`: tree 1 sends to ports 3 and 5, tree 2 to 9 and 20; links are those of
#: `random_tables`; hosts on 2 and 5.
ODD_TABLES = SwitchTables(
    {1: 0b10100, 2: 1 << 8 | 1 << 19},
    {100 + port: port for port in range(1, 21)},
    {100 + port: port for port in range(1, 21)},
    frozenset({2, 5}),
    frozenset({*range(21), 64, 65, 257, 259, 261, 265, 276, 510}),
)


def odd_tables(labels: LabelFormat = NARROW) -> SwitchTables:
    return dataclasses.replace(ODD_TABLES, labels=labels)


def odd_frames(form: LabelFormat = NARROW) -> Iterator[tuple[str, bytes, str | None]]:
    """``(what it is, frame, reason why it is dropped)``, all for port 1; None: it is sent on.

    form: that the switch reads.
    """
    label, kind = form.label, form.ether_type.to_bytes(2)
    stacked = partial(stack_frame, form=form)
    tree, other = label(TREE, 1), label(STOP, 16000)
    whole, short = datagram(), datagram(b"abc")
    fill = bytes(60 - 16 - form.size - len(short))
    yield "empty", b"", "CUT_SHORT"
    yield "cut within its addresses", ADDRESSES[:9], "CUT_SHORT"
    yield "cut within its type", ADDRESSES + kind[:1], "CUT_SHORT"
    yield "a stack without a count", ADDRESSES + kind, "CUT_SHORT"
    yield "half a count", ADDRESSES + kind + b"\x00", "CUT_SHORT"
    foreign = WIDE if form == NARROW else NARROW
    others = stack_frame([foreign.label(TREE, 1)] * 2, whole, form=foreign)
    yield "labels of the other width", others, "NOT_IPV4"
    yield "no labels", stacked([], whole), "EMPTY_STACK"
    yield "65 labels", stacked([tree] * 65, whole), "TOO_MANY_LABELS"
    yield "a huge count", stacked([tree], whole, 0xFFFF), "TOO_MANY_LABELS"
    yield "a count too small", stacked([tree] * 3, whole, 2), "BAD_COUNT"
    like_ipv4 = 0x4500 << form.bits - 16
    yield "a label like IPv4", stacked([tree, like_ipv4], whole, 1), "BAD_COUNT"
    yield "a count too large", stacked([tree] * 3, whole, 4), "BAD_COUNT"
    yield "cut behind its labels", stacked([tree] * 3, b""), "CUT_SHORT"
    yield "cut within its labels", stacked([tree] * 30, b"")[:-1], "CUT_SHORT"
    yield "3 bytes of a datagram", stacked([tree], whole[:3]), "CUT_SHORT"
    yield "10 bytes of a datagram", stacked([tree], whole[:10]), "BAD_COUNT"
    yield "a byte is missing", stacked([tree], whole[:-1]), "BAD_COUNT"
    yield "a byte too much", stacked([tree], whole + b"z"), "BAD_COUNT"
    yield "filled up", stacked([tree], short + fill), None
    yield "filled up, a count too large", stacked([tree], short + fill, 2), "BAD_COUNT"
    yield "a length of 19", stacked([tree], datagram(b"abc", len=19) + fill), "BAD_COUNT"
    yield "IPv6 behind the stack", stacked([tree], b"\x60" + whole[1:]), "BAD_COUNT"
    yield "an IPv4 header of 16 bytes", stacked([tree], b"\x44" + whole[1:]), "BAD_COUNT"
    yield "options behind the stack", stacked([tree], datagram(ihl=6)), None
    yield "type 00", stacked([tree, 5], whole), "TYPE_00"
    yield "type 00 in a later pass", stacked([tree, *[other] * 62, 5], whole), "TYPE_00"
    yield "unknown labels", stacked([other] * 20, whole), "UNKNOWN_LABELS"
    yield "pruned", stacked([label(HOP, 103), label(STOP, 103)], whole), "NO_PORT"
    yield "a stop alone", stacked([label(STOP, 103)], whole), "NO_PORT"
    yield "back where it came from", stacked([label(HOP, 101)], whole), "NO_PORT"
    yield "its last label is used", stacked([label(HOP, 103)], whole), None
    yield "other subsets of ports", stacked([label(TREE, 2)], whole), None
    yield "no route", plain_frame(whole), "NO_ROUTE"
    yield "ARP", plain_frame(bytes(28), 0x0806), "NOT_IPV4"
    alert = datagram(dst="10.1.2.3", proto=2, options=[IPOption_Router_Alert()])
    yield "options", plain_frame(alert), None
    yield "as many options as there can be", plain_frame(full_of_options()), None
    yield "cut within its options", plain_frame(alert[:23]), "CUT_SHORT"
    yield "a wrong bit of options", plain_frame(alert[:23] + b"\1" + alert[24:]), "BAD_CHECKSUM"
    ends = datagram(dst="10.1.2.3", len=23, options=[IPOption_Router_Alert()])
    yield "a length that ends within its options", plain_frame(ends), "CUT_SHORT"
    yield "a header of 16 bytes", plain_frame(b"\x44" + whole[1:]), "NOT_IPV4"
    yield "version 6", plain_frame(b"\x65" + whole[1:]), "NOT_IPV4"
    yield "version 6 and 24 bytes", plain_frame(b"\x66" + whole[1:20]), "NOT_IPV4"
    for ttl in (0, 1):
        yield f"a time to live of {ttl}", plain_frame(datagram(dst="10.1.2.3", ttl=ttl)), "TTL_OVER"
    for dst, proto in (("224.0.0.1", 2), ("239.1.1.1", 2), ("224.0.0.251", 17)):
        neighbors = plain_frame(datagram(dst=dst, proto=proto, ttl=1))
        yield f"protocol {proto} to {dst}", neighbors, "LINK_LOCAL"
    yield "another group", plain_frame(datagram(dst="224.0.1.1")), "NO_ROUTE"
    wrong = plain_frame(datagram(dst="10.1.2.3", chksum=0x1234))
    yield "a wrong checksum", wrong, "BAD_CHECKSUM"
    yield "cut within IPv4", plain_frame(whole[:19]), "CUT_SHORT"
    yield "cut behind IPv4", plain_frame(datagram(dst="10.1.2.3")[:-1]), "CUT_SHORT"
    yield "an IPv4 length of 19", plain_frame(datagram(dst="10.1.2.3", len=19)), "CUT_SHORT"


def stacked(labels: Sequence[int], payload: bytes, form: LabelFormat = NARROW) -> bytes:
    """A publisher's frame, to the multicast group and port that hosts of the lab listen to."""
    datagram = IP(src="10.9.0.1", dst="239.1.1.1") / UDP(sport=5000, dport=26400) / payload
    plain = bytes(Ether(dst="01:00:5e:01:01:01", src="02:00:00:00:00:01") / datagram)
    return plain[:12] + form.ether_type.to_bytes(2) + form.pack(labels) + plain[14:]
