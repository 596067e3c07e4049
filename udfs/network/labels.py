"""Labels of a header stack: two bits of type, the rest an id (WERNECKE 5.2.6).

A network has labels of one width: 16 bits, or 32 where it has more directed links or stored trees
than 14 bits can name.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from udfs.errors import StackError

TREE, HOP, STOP = 1, 2, 3
KINDS = {TREE: "tree", HOP: "hop", STOP: "stop"}

MAX_LABELS = 64
"""Labels that a switch parses; a longer stack is dropped."""


@dataclass(frozen=True)
class LabelFormat:
    """One format: labels of ``bits`` (16 or 32) in frames of EtherType ``ether_type``.

    Each width has an EtherType of its own: a switch drops frames whose labels it would misread.
    """

    bits: int
    ether_type: int

    @property
    def size(self) -> int:
        """The bytes of a label."""
        return self.bits // 8

    @property
    def id_bits(self) -> int:
        return self.bits - 2

    @property
    def max_id(self) -> int:
        """The largest id of a tree or a directed link; 0 names nothing."""
        return (1 << self.id_bits) - 1

    def label(self, kind: int, number: int) -> int:
        """Makes the label of type ``kind`` (TREE, HOP or STOP) and id ``number`` (1..max_id).

        Raises StackError ``BAD_LABEL`` if either is out of range.
        """
        if kind not in KINDS or not 0 < number <= self.max_id:
            raise StackError(
                "BAD_LABEL",
                f"no label of {self.bits} bits has type {kind} and id {number}: the types are "
                f"{KINDS}, ids are 1..{self.max_id}",
                kind=kind,
                number=number,
            )
        return kind << self.id_bits | number

    def split(self, value: int) -> tuple[int, int]:
        """Splits a label into ``(kind, id)``; inverse of :meth:`label`.

        Raises StackError ``BAD_LABEL`` for type 00, id 0 or too many bits.
        """
        kind, number = value >> self.id_bits, value & self.max_id
        self.label(kind, number)
        return kind, number

    def pack(self, labels: Sequence[int]) -> bytes:
        """Packs a stack as frames have it behind their EtherType: the number of labels, then
        these."""
        return struct.pack(f">H{len(labels)}{self._code}", len(labels), *labels)

    def unpack(self, data: bytes, at: int, count: int) -> tuple[int, ...]:
        """Reads the ``count`` labels from byte ``at`` of ``data`` on, which must be there."""
        return struct.unpack_from(f">{count}{self._code}", data, at)

    def describe(self, value: int) -> str:
        """Words a label for people: ``tree 1``, ``hop 17``. Raises as :meth:`split`."""
        kind, number = self.split(value)
        return f"{KINDS[kind]} {number}"

    @property
    def _code(self) -> str:
        """The code of one label in the notation of ``struct``."""
        return {2: "H", 4: "I"}[self.size]


NARROW = LabelFormat(16, 0x9999)
WIDE = LabelFormat(32, 0x999A)
FORMATS = {NARROW.bits: NARROW, WIDE.bits: WIDE}
BY_ETHER_TYPE = {form.ether_type: form for form in FORMATS.values()}
