"""Labels of a header stack, in the format of each encoding.

In virtual trees a label has two bits of type and an id (WERNECKE 5.2.6), of 16 bits together, or of
32 where a network has more directed links or stored trees than 14 bits can name. The labels of the
other encodings are in `udfs.network.source_routes`. A network has labels of one format.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from udfs.errors import StackError

TREE, HOP, STOP = 1, 2, 3
KINDS = {TREE: "tree", HOP: "hop", STOP: "stop"}

MAX_LABELS = 64
"""Labels that a switch parses in most encodings; a longer stack is dropped."""


@dataclass(frozen=True)
class LabelFormat(ABC):
    """The format of the labels of one encoding: ``bits`` each, in frames of ``ether_type``.

    ``encoding`` is its name, as setting ``spark.stackcast.encoding`` has it.

    Each has an EtherType of its own: a switch drops frames whose labels it would misread.
    """

    bits: int
    ether_type: int
    encoding: str = "virtual_trees"

    @property
    def size(self) -> int:
        """The bytes of a label."""
        return self.bits // 8

    @property
    @abstractmethod
    def max_id(self) -> int:
        """The largest id of a directed link or a stored tree; 0 names nothing."""

    @property
    def max_device(self) -> int:
        """The largest device id that a switch can have; it needs no more than 0."""
        return (1 << 64) - 1

    @property
    def max_port(self) -> int:
        """The highest port of a switch that a label can name."""
        return 511

    def reaches(self, port: int, link: int) -> bool:
        """Returns True if labels can name a port of a switch, by which this link leaves."""
        return port <= self.max_port

    @property
    def max_labels(self) -> int:
        """Labels that a switch parses; a longer stack is dropped."""
        return MAX_LABELS

    @abstractmethod
    def check(self, value: int) -> None:
        """Raises StackError ``BAD_LABEL`` for a value that is no label of this format."""

    @abstractmethod
    def describe(self, value: int) -> str:
        """Words a label for people, as :meth:`parse` reads them. Raises as :meth:`check`."""

    @abstractmethod
    def parse(self, text: str) -> int:
        """Makes the label of a text as :meth:`describe` has them, with ``:`` between its words.

        Raises StackError ``BAD_LABEL``.
        """

    def pack(self, labels: Sequence[int]) -> bytes:
        """Packs a stack as frames have it behind their EtherType: the number of labels, then
        these."""
        size = self.size
        return len(labels).to_bytes(2) + b"".join(label.to_bytes(size) for label in labels)

    def unpack(self, data: bytes, at: int, count: int) -> tuple[int, ...]:
        """Reads the ``count`` labels from byte ``at`` of ``data`` on, which must be there."""
        size = self.size
        places = range(at, at + count * size, size)
        return tuple(int.from_bytes(data[place : place + size]) for place in places)


@dataclass(frozen=True)
class IdLabels(LabelFormat):
    """Labels that are ids of one thing, which people read as ``word``."""

    word: str = ""

    @property
    def max_id(self) -> int:
        return (1 << self.bits) - 1

    def check(self, value: int) -> None:
        if not 0 < value <= self.max_id:
            raise StackError(
                "BAD_LABEL", f"no {self.word} has the id {value}: ids are 1..{self.max_id}"
            )

    def describe(self, value: int) -> str:
        self.check(value)
        return f"{self.word} {value}"

    def parse(self, text: str) -> int:
        word, _, number = text.partition(":")
        if word != self.word or not (number.isascii() and number.isdecimal()):
            raise StackError(
                "BAD_LABEL",
                f"{text!r} is no label of encoding {self.encoding}: it is as in {self.word}:17",
            )
        self.check(int(number))
        return int(number)


class TypedLabels(LabelFormat):
    """Labels of a type and an id; in virtual trees types are TREE, HOP and STOP."""

    kinds: ClassVar[Mapping[int, str]] = KINDS

    @property
    def id_bits(self) -> int:
        return self.bits - 2

    @property
    def max_id(self) -> int:
        return (1 << self.id_bits) - 1

    def label(self, kind: int, number: int) -> int:
        """Makes the label of type ``kind``, one of ``kinds``, and id ``number`` (1..max_id).

        Raises StackError ``BAD_LABEL`` if either is out of range.
        """
        if kind not in self.kinds or not 0 < number <= self.max_id:
            raise StackError(
                "BAD_LABEL",
                f"no label of {self.bits} bits has type {kind} and id {number}: the types are "
                f"{self.kinds}, ids are 1..{self.max_id}",
                kind=kind,
                number=number,
            )
        return kind << self.id_bits | number

    def split(self, value: int) -> tuple[int, int]:
        """Splits a label into ``(kind, id)``; inverse of :meth:`label`.

        Raises StackError ``BAD_LABEL`` for another type, id 0 or too many bits.
        """
        kind, number = value >> self.id_bits, value & self.max_id
        self.label(kind, number)
        return kind, number

    def check(self, value: int) -> None:
        self.split(value)

    def describe(self, value: int) -> str:
        kind, number = self.split(value)
        return f"{self.kinds[kind]} {number}"

    def parse(self, text: str) -> int:
        word, _, number = text.partition(":")
        kind = next((kind for kind, name in self.kinds.items() if name == word), None)
        if kind is None or not (number.isascii() and number.isdecimal()):
            forms = ", ".join(f"{name}:ID" for name in self.kinds.values())
            raise StackError("BAD_LABEL", f"{text!r} is no label: {forms} are possible")
        return self.label(kind, int(number))


NARROW = TypedLabels(16, 0x9999)
WIDE = TypedLabels(32, 0x999A)
FORMATS = {NARROW.bits: NARROW, WIDE.bits: WIDE}
"""Those of virtual trees, by their bits."""
