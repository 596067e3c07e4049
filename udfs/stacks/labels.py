"""Labels of a header stack: two bits of type, fourteen of id (WERNECKE 5.2.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from udfs.errors import StackError

if TYPE_CHECKING:
    from udfs.trees.network import Network

TREE, HOP, STOP = 1, 2, 3
KINDS = {TREE: "tree", HOP: "hop", STOP: "stop"}

ID_BITS = 14
MAX_ID = (1 << ID_BITS) - 1
"""Largest id of a tree or a directed link; 0 names nothing."""
MAX_LABELS = 64
"""Labels that a switch parses; a longer stack is dropped."""


def label(kind: int, number: int) -> int:
    """The 16-bit label of type ``kind`` (TREE, HOP or STOP) and id ``number`` (1..16383).

    Raises StackError ``BAD_LABEL`` if either is out of range.
    """
    if kind not in KINDS or not 0 < number <= MAX_ID:
        raise StackError(
            "BAD_LABEL",
            f"no label has type {kind} and id {number}: the types are {KINDS}, ids are 1..{MAX_ID}",
            kind=kind,
            number=number,
        )
    return kind << ID_BITS | number


def split(value: int) -> tuple[int, int]:
    """``(kind, id)`` of a 16-bit label; inverse of :func:`label`.

    Raises StackError ``BAD_LABEL`` for type 00, id 0 or more than 16 bits.
    """
    kind, number = value >> ID_BITS, value & MAX_ID
    label(kind, number)
    return kind, number


def describe(value: int, network: Network | None = None) -> str:
    """A label for people: ``tree 1``, ``hop 17``; with a network ``hop 17 (pod1-rack1:3)``."""
    kind, number = split(value)
    text = f"{KINDS[kind]} {number}"
    link = network.link_by_id.get(number) if network is not None and kind != TREE else None
    return f"{text} ({link.switch}:{link.port})" if link else text
