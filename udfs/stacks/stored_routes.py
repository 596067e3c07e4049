"""The forwarding model of stored routes (WERNECKE 4.2.2, 4.2.3, 4.3).

A switch scans the whole stack, then sends one copy by each port that a label chose (the batch scan
of 4.3.2). A label of what is stored goes along where what it names goes. In a hybrid stack hops are
a switch's own if they follow its root, or no root at all; a copy by a hop takes along what stands
between this hop and the next own one, and nothing that is stored: a switch of the tree below would
flood it once more. Roots and hops of other switches go along with the tree.

Of port bitmaps the label of a switch is a destination everywhere but there: the labels of ports
behind it go along with it, and choose ports of the switch itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from udfs.network.labels import HOP, TREE, TypedLabels
from udfs.network.stored_routes import PORT_BITMAPS, PORTS, ROOT, BitmapLabels, StoredRoute
from udfs.stacks.source_routes import Copies


@dataclass(frozen=True)
class StoredTables:
    """Holds what a switch looks labels up in: ids of what is stored → port bitmask (bit port - 1),
    its own links → port, its device id, and the ports that labels of ports may name."""

    stored: Mapping[int, int]
    hops: Mapping[int, int]
    device: int
    ports: int = 0


def forward_stored(
    form: StoredRoute,
    tables: StoredTables,
    host_ports: frozenset[int],
    ingress_port: int,
    stack: tuple[int, ...],
) -> Copies:
    """Returns the copies that a switch sends, by ascending port: ``(port, labels left)``.

    ``None`` for the labels: a host port. Nothing goes back by the ingress port, nor to a switch for
    which no label is left.
    """
    along = chosen = 0
    own, under = True, 0
    # With each label the ports by which it goes along; None: those of anything stored.
    goes: list[tuple[int, int | None]] = []
    for label in stack:
        kind, number = _split(form, label)
        if form == PORT_BITMAPS:
            if kind == PORTS:
                chosen |= number & under if own else 0
                goes.append((label, 0 if own else under))
                continue
            own = kind == ROOT and number == tables.device
            under = tables.ports if own else tables.stored.get(label, 0)
            along |= 0 if own else under
            goes.append((label, 0 if own else under))
        elif kind == TREE:
            ports = tables.stored.get(number, 0)
            along |= ports
            goes.append((label, ports))
        elif kind == ROOT:
            own, under = number == tables.device, 0
            goes.append((label, 0 if own else None))
        elif kind == HOP and own:
            if number in tables.hops:
                under = 1 << tables.hops[number] - 1
                chosen |= under
                goes.append((label, 0))
            else:
                goes.append((label, under))
        else:
            goes.append((label, None if kind == HOP else 0))
    ports = (along | chosen) & ~(1 << ingress_port - 1)
    copies: Copies = []
    for port in range(1, ports.bit_length() + 1):
        bit = 1 << port - 1
        if not ports & bit:
            continue
        if port in host_ports:
            copies.append((port, None))
        elif left := tuple(label for label, by in goes if (along if by is None else by) & bit):
            copies.append((port, left))
    return copies


def _split(form: StoredRoute, label: int) -> tuple[int, int]:
    """Splits any bits as a switch does, a label or none."""
    if isinstance(form, TypedLabels):
        return label >> form.id_bits, label & form.max_id
    if isinstance(form, BitmapLabels) and label >> 14 > 1:
        return (PORTS, form.mask(label)) if label >> 14 == 3 else (ROOT, label & 0x3FFF)
    return TREE, label
