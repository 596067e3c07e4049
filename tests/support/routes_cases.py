"""Frames and tables for the programs of source and stored routes, and what must become of them."""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterator, Sequence

import p4_products
import virtual_trees_cases
from virtual_trees_cases import ADDRESSES, Copies, datagram, full_of_options, plain_frame

from stackcast.udfs.network.labels import MAX_LABELS, NARROW, TREE, LabelFormat, SwitchTables
from stackcast.udfs.network.source_routes import SourceRoute, SwitchLabels
from stackcast.udfs.network.stored_routes import HYBRID, PORT_BITMAPS, ROOT, StoredRoute
from stackcast.udfs.stacks.forwarding import forward
from stackcast.udfs.switches.entry import SwitchEntry
from stackcast.udfs.switches.stack_entries import splitting

REASONS = re.findall(
    r"^const reason_t (\w+) = \d+;",
    (p4_products.FOLDER / "source_routes/sizes.p4").read_text(),
    re.MULTILINE,
)
OWN = 7
"""The device id of the switch."""


def program(form: LabelFormat) -> bytes:
    return p4_products.products(form.program)[1].read_bytes()


def stack_frame(
    form: LabelFormat, labels: Sequence[int], behind: bytes, count: int | None = None
) -> bytes:
    stack = form.pack(labels)
    if count is not None:
        stack = count.to_bytes(2) + stack[2:]
    return ADDRESSES + form.ether_type.to_bytes(2) + stack + behind


def modelled(tables: SwitchTables, port: int, labels: Sequence[int], behind: bytes) -> Copies:
    """What the forwarding model says that a switch sends, sorted."""
    return sorted(
        (out, plain_frame(behind) if left is None else stack_frame(tables.labels, left, behind))
        for out, left in forward(tables, port, tuple(labels))
    )


def random_tables(rng: random.Random, ports: int, form: LabelFormat) -> SwitchTables:
    """A switch whose ports are some of 1..``ports``, some before hosts, some closed."""
    held = rng.sample(range(1, ports + 1), rng.randint(1, ports))
    mask = sum(1 << port - 1 for port in held)
    own = {OWN: mask} if isinstance(form, SwitchLabels) else {100 + p: 1 << p - 1 for p in held}
    if isinstance(form, StoredRoute):
        own = {}
    hosts = frozenset(rng.sample(held, rng.randint(0, len(held))))
    closed = rng.sample(range(1, ports + 1), rng.choice([0, 0, 1, ports]))
    sources = frozenset(range(1, ports + 1)) - frozenset(closed)
    tables = SwitchTables({}, {}, {}, hosts, sources, form, own)
    if isinstance(form, StoredRoute):
        most = 1 if form.encoding == "destinations" else len(held)
        tables.trees |= {
            number: sum(1 << port - 1 for port in rng.sample(held, rng.randint(1, most)))
            for number in range(1, rng.randint(1, 30))
        }
        tables.device = OWN
        if form == PORT_BITMAPS:
            # Hosts, and other switches; and this one, by any of its ports.
            tables.trees |= {form.switch(n): mask for n, mask in tables.trees.items() if n != OWN}
            tables.own[OWN] = mask
        tables.hops |= {100 + port: port for port in held} if form == HYBRID else {}
    return tables


def random_stack(rng: random.Random, form: LabelFormat, size: int | None = None) -> list[int]:
    """Labels of this switch and of others; values of any kind, seldom such as mean nothing."""
    longest = [63, 64] if form.max_labels == MAX_LABELS else [64, 65, 130]
    size = size or rng.choice([1, 2, 3, 7, 8, 9, 15, 16, 17, 24, 40, *longest])
    often = rng.choice([0.05, 0.3, 0.9])
    return [_label(rng, form, rng.random() < often) for _ in range(size)]


def _label(rng: random.Random, form: LabelFormat, own: bool) -> int:
    if isinstance(form, StoredRoute):
        return _stored_label(rng, form, own)
    if not isinstance(form, SwitchLabels):
        return rng.randint(98, 130) if own else rng.randint(200, form.max_id)
    device = OWN if own else rng.choice([0, 6, 8, form.max_device])
    tag = form.tag or rng.choice([1, 1, 2, 2, 3, 3, 3, 0, 4, 255])
    wide, large = rng.getrandbits(16), form.max_device > 255
    value = {
        1: rng.choice([rng.randint(0, 70), wide & 0xFF, *([wide & 0x1FF, wide] * large)]),
        2: rng.choice([wide, wide & rng.getrandbits(16), 1 << rng.randrange(16)]),
        3: rng.choice([wide, rng.randint(0, 8) << 8 | wide & 0xFF]),
    }.get(tag, wide)
    if form.tag:
        return device << form.bits - form.id_bits | value
    return device << 24 | tag << 16 | value


def _stored_label(rng: random.Random, form: StoredRoute, own: bool) -> int:
    """In hybrid stacks, parts of several labels are wanted: roots are seldom."""
    if form == PORT_BITMAPS:
        named = rng.randint(1, 30) if own else rng.choice([rng.randint(31, 16_383), OWN, OWN])
        return rng.choices(
            [named, form.switch(named), 3 << 14 | rng.getrandbits(14), rng.getrandbits(16)],
            [2, 3, 6, 0.2],
        )[0]
    if form != HYBRID:
        return rng.randint(1, 30) if own else rng.randint(31, 60_000)
    return rng.choices(
        [
            form.label(TREE, rng.randint(1, 30) if own else rng.randint(31, 16_383)),
            form.label(ROOT, OWN if own else rng.choice([6, 8, 16_383])),
            form.label(2, rng.randint(98, 130) if own else rng.randint(200, 16_383)),
            3 << 14 | rng.getrandbits(14),
        ],
        [2, 1, 6, 0.2],
    )[0]


def entries_of(tables: SwitchTables, ports: int | Collection[int]) -> list[SwitchEntry]:
    """All entries of a switch of these ports, or 1..``ports``; routes of `virtual_trees_cases`."""
    shared = virtual_trees_cases.entries_of(tables, ports)
    source = isinstance(tables.labels, SourceRoute)
    held = range(1, ports + 1) if isinstance(ports, int) else ports
    return [*shared, *(splitting("s", held) if source else ())]


def odd_frames(form: LabelFormat) -> Iterator[tuple[str, bytes, str | None]]:
    """``(what it is, frame, reason why it is dropped)``, all for port 1; None: it is sent on.

    For a switch with the ports 1..20, those from 2 on before hosts; a stored label or a hop of 100
    + p leads to port p.
    """
    whole, short = datagram(), datagram(b"abc")
    own, back, other = 102, 101, 4000
    if isinstance(form, SwitchLabels):
        tag = form.tag or 1
        own, back, other = (form.label(*of) for of in ((OWN, tag, 2), (OWN, tag, 1), (9, tag, 1)))
    if form == HYBRID:
        own, back, other = (2 << 14 | label for label in (own, back, other))
    kind = form.ether_type.to_bytes(2)
    fill = bytes(60 - 16 - form.size - len(short))
    foreign = NARROW.ether_type.to_bytes(2) + NARROW.pack([NARROW.label(TREE, 1)])
    yield "empty", b"", "CUT_SHORT"
    yield "cut within its type", ADDRESSES + kind[:1], "CUT_SHORT"
    yield "half a count", ADDRESSES + kind + b"\x00", "CUT_SHORT"
    yield "another encoding", ADDRESSES + foreign + whole, "NOT_IPV4"
    yield "no labels", stack_frame(form, [], whole), "EMPTY_STACK"
    too_many = [own] * (form.max_labels + 1)
    yield "a label too many", stack_frame(form, too_many, whole), "TOO_MANY_LABELS"
    yield "a count too small", stack_frame(form, [own] * 3, whole, 2), "BAD_COUNT"
    yield "a count too large", stack_frame(form, [own] * 3, whole, 4), "BAD_COUNT"
    yield "cut behind its labels", stack_frame(form, [own] * 3, b""), "CUT_SHORT"
    yield "cut within its labels", stack_frame(form, [own] * 30, b"")[:-1], "CUT_SHORT"
    yield "a byte is missing", stack_frame(form, [own], whole[:-1]), "BAD_COUNT"
    yield "a byte too much", stack_frame(form, [own], whole + b"z"), "BAD_COUNT"
    yield "filled up", stack_frame(form, [own], short + fill), None
    yield "labels of others", stack_frame(form, [other] * 20, whole), "UNKNOWN_LABELS"
    yield "back where it came from", stack_frame(form, [back, other], whole), "NO_PORT"
    if isinstance(form, SourceRoute):
        yield "nothing left behind", stack_frame(form, [back], whole), "NO_LABEL_LEFT"
    yield "to a host", stack_frame(form, [own], whole), None
    yield "behind those of others", stack_frame(form, [other] * 9 + [own], whole), None
    yield "no route", plain_frame(whole), "NO_ROUTE"
    yield "ARP", plain_frame(bytes(28), 0x0806), "NOT_IPV4"
    yield "options", plain_frame(full_of_options()), None
    yield "a wrong checksum", plain_frame(datagram(chksum=0x1234)), "BAD_CHECKSUM"
    yield "a time to live of 1", plain_frame(datagram(ttl=1)), "TTL_OVER"
