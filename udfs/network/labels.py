"""Encodings: what labels of a header stack mean, and what a switch holds for them and does by them.

Here is what all have in common, and virtual trees: a label has two bits of type and an id (WERNECKE
5.2.6), of 16 bits together, or of 32 where a network has more directed links or stored trees than
14 bits can name. The others are in `stackcast.udfs.network.source_routes` and
`stackcast.udfs.network.stored_routes`; `stackcast.udfs.network.encodings` lists them. A network has
labels of one format.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.errors import StackError

TREE, HOP, STOP = 1, 2, 3
KINDS = {TREE: "tree", HOP: "hop", STOP: "stop"}

MAX_LABELS = 64
"""Labels that a switch parses in most encodings; a longer stack is dropped."""

MAX_DEVICE = (1 << 64) - 1
"""The largest device id of P4Runtime."""

MAX_PORT = 511
"""The highest port of a switch: what 9 bits of port number can say."""

Copies = list[tuple[int, tuple[int, ...] | None]]
"""Copies that a switch sends: ``(egress port, labels left)``; None: a host port, where the copy
leaves as a plain IPv4 frame."""


class Meaning(NamedTuple):
    """What a label names in a network, and what comes of it there, in words.

    of: a stored tree, a directed link, a host by the link that leads to it, a switch by its device
    id, or ports of the switch named before. number: its id. port: of the switch, 0 for none.
    """

    of: Literal["tree", "link", "host", "switch", "ports"]
    number: int
    words: str
    port: int = 0


class LookUp(NamedTuple):
    """A row of the table that a switch looks labels up in: its key, by the name of the field, its
    action, and the parameters of this."""

    field: Literal["label", "id"]
    key: int
    action: str
    params: Mapping[str, int]


@dataclass(frozen=True)
class LabelFormat(ABC):
    """An encoding: the format of its labels, ``bits`` each, in frames of ``ether_type``, and the
    model of switches that read them, the reference that encoder, software switch and P4 program
    are held against.

    ``encoding`` is its name, as setting ``spark.stackcast.encoding`` has it; ``program`` is that of
    its P4 program. Each has an EtherType of its own: a switch drops frames that it would misread.

    trees: how stacks name stored trees: not at all; ``pruned`` to a part of them; ``whole``, so
    that a tree has to lead to receivers only, and hops to the others; or ``alone``, whole and
    without hops. to_hosts: whether labels name hosts, which all
    switches hold. splits: whether a switch makes two frames of one, to go on with each.
    """

    bits: int
    ether_type: int
    encoding: str = "virtual_trees"
    program: str = "virtual_trees"

    trees: ClassVar[Literal["", "pruned", "whole", "alone"]] = ""
    to_hosts: ClassVar[bool] = False
    splits: ClassVar[bool] = False

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
        return MAX_DEVICE

    def names(self, device: int) -> bool:
        """Returns True if labels can name a switch of this device id, or need not."""
        return self.max_device == MAX_DEVICE or 0 < device <= self.max_device

    @property
    def max_port(self) -> int:
        """The highest port of a switch that a label can name."""
        return MAX_PORT

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

    @abstractmethod
    def meaning(self, label: int) -> Meaning:
        """Returns what a label names. Raises as :meth:`check`."""

    @abstractmethod
    def hold(self, held: SwitchTables, link: int, port: int) -> None:
        """Adds what labels can name of a directed link, by its id, out of this port."""

    def labels_of_host(self, link: int, device: int) -> tuple[list[int], list[int]]:
        """Returns the labels by which a host's own switch knows it, then all others; ``link`` leads
        from this switch to it."""
        return [], []

    @abstractmethod
    def rows(self, held: SwitchTables) -> Iterator[LookUp]:
        """Yields the rows of the table that a switch looks labels up in."""

    @abstractmethod
    def forward(self, held: SwitchTables, ingress_port: int, stack: tuple[int, ...]) -> Copies:
        """Returns the copies that a switch sends of a frame that it takes, by ascending port."""


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
                "BAD_LABEL", f"{self.word} id {value} is not valid: ids are 1..{self.max_id}"
            )

    def describe(self, value: int) -> str:
        self.check(value)
        return f"{self.word} {value}"

    def parse(self, text: str) -> int:
        word, _, number = text.partition(":")
        if word != self.word or not (number.isascii() and number.isdecimal()):
            raise StackError(
                "BAD_LABEL",
                f"{text!r} is not a label of encoding {self.encoding}; write labels like "
                f"{self.word}:17",
            )
        self.check(int(number))
        return int(number)


class TypedLabels(LabelFormat):
    """Labels of a type and an id."""

    kinds: ClassVar[Mapping[int, str]]

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
            types = ", ".join(f"{name} ({value})" for value, name in self.kinds.items())
            raise StackError(
                "BAD_LABEL",
                f"type {self.kinds.get(kind, kind)} and id {number} do not form a {self.bits}-bit "
                f"label: types are {types}, and ids are 1..{self.max_id}",
                kind=kind,
                number=number,
            )
        return kind << self.id_bits | number

    def labels(self, kinds: NDArray[np.int64], numbers: NDArray[np.integer]) -> list[int]:
        """Makes a label of each type and id, one of each for each label. Raises as :meth:`label`
        does."""
        if numbers.size:
            for extreme in (numbers.argmin(), numbers.argmax()):
                self.label(int(kinds[extreme]), int(numbers[extreme]))
        made: list[int] = (kinds << self.id_bits | numbers).tolist()
        return made

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
            raise StackError("BAD_LABEL", f"{text!r} is not a label: write {forms}")
        return self.label(kind, int(number))


class VirtualTrees(TypedLabels):
    """Labels of stored trees, and of hops and stops by which these are extended and pruned."""

    kinds = KINDS
    trees = "pruned"

    def meaning(self, label: int) -> Meaning:
        kind, number = self.split(label)
        if kind == TREE:
            return Meaning("tree", number, "the stored tree")
        return Meaning("link", number, "a copy from" if kind == HOP else "no copy from")

    def hold(self, held: SwitchTables, link: int, port: int) -> None:
        held.hops[link] = held.stops[link] = port

    def rows(self, held: SwitchTables) -> Iterator[LookUp]:
        for kind, masks in (
            (TREE, held.trees),
            (HOP, {link: 1 << port - 1 for link, port in held.hops.items()}),
            (STOP, {link: 1 << port - 1 for link, port in held.stops.items()}),
        ):
            for number, mask in sorted(masks.items()):
                yield LookUp("label", self.label(kind, number), KINDS[kind], {"ports": mask})

    def forward(self, held: SwitchTables, ingress_port: int, stack: tuple[int, ...]) -> Copies:
        """Examines all labels (WERNECKE 5.2.5, 5.2.6).

        Known trees and own hop labels choose ports, each served once and never the ingress port; an
        own stop label prunes its port wherever it stands. Own hop and stop labels leave every copy,
        all else stays. A stack with a label of type 00 is dropped.
        """
        ports = pruned = 0
        left: list[int] = []
        for label in stack:
            kind, number = label >> self.id_bits, label & self.max_id
            if kind == TREE:
                ports |= held.trees.get(number, 0)
            elif kind == HOP:
                if number in held.hops:
                    ports |= 1 << held.hops[number] - 1
                    continue
            elif kind == STOP:
                if number in held.stops:
                    pruned |= 1 << held.stops[number] - 1
                    continue
            else:
                return []
            left.append(label)
        along = tuple(left)
        chosen = ports_of(ports & ~(pruned | 1 << ingress_port - 1))
        return [(port, None if port in held.host_ports else along) for port in chosen]


def ports_of(mask: int) -> Iterator[int]:
    """Yields the ports of a mask, bit port - 1, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length()
        mask ^= lowest


NARROW = VirtualTrees(16, 0x9999)
WIDE = VirtualTrees(32, 0x999A, program="virtual_trees_32")
FORMATS = {NARROW.bits: NARROW, WIDE.bits: WIDE}
"""Those of virtual trees, by their bits."""


@dataclass
class SwitchTables:
    """Holds the tables of one switch for stacks.

    trees: tree id → port bitmask (bit port - 1); of `destinations`, a host's link id → the same, of
    `port_bitmaps` the label of a host or of another switch.
    hops, stops: link id → egress port, of this switch's own links. host_ports: ports before which
    the stack is taken off. sources: ports that stacks may come in by, those of switches and
    publishers. labels: the format of the stacks that its program reads. own: of source routes, what
    own labels are looked up by → the ports that they may name; of `port_bitmaps`, its device id →
    the same. device: its id, which roots of hybrid stacks name.
    """

    trees: dict[int, int] = field(default_factory=dict)
    hops: dict[int, int] = field(default_factory=dict)
    stops: dict[int, int] = field(default_factory=dict)
    host_ports: frozenset[int] = frozenset()
    sources: frozenset[int] = frozenset(range(1, MAX_PORT + 1))
    labels: LabelFormat = NARROW
    own: dict[int, int] = field(default_factory=dict)
    device: int = 0
