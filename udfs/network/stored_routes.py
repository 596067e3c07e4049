"""Labels of routes that switches hold, chosen by the sender (WERNECKE 4.2.2, 4.2.3, 4.3).

``destinations`` name a host, by the directed link that leads to it: each switch has a row for each.
``port_bitmaps`` do, too, and name several hosts of one switch by the switch and bitmaps of its
ports: past the thesis, as Elmo does (Shahbaz et al., SIGCOMM 2019), but on any network.
``tree`` names a stored tree that leads to exactly some hosts. ``hybrid`` names a stored tree for
most of the receivers and, for each switch where others branch off, the switch (``root``) and hops:
what follows a root is its subtree, up to the next root.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, NoReturn

from stackcast.udfs.errors import StackError
from stackcast.udfs.network.labels import (
    HOP,
    TREE,
    Copies,
    IdLabels,
    LabelFormat,
    LookUp,
    Meaning,
    SwitchTables,
    TypedLabels,
    ports_of,
)

ROOT = 0
PORTS = 4


class StoredRoute(LabelFormat):
    """Labels some of which name what switches hold."""

    @abstractmethod
    def scan(self, held: SwitchTables, stack: tuple[int, ...]) -> Iterator[Choice]:
        """Yields of each label of a stack what a switch does by it."""

    def rows(self, held: SwitchTables) -> Iterator[LookUp]:
        for number, mask in sorted(held.trees.items()):
            yield LookUp("label", number, "stored", {"ports": mask})

    def forward(self, held: SwitchTables, ingress_port: int, stack: tuple[int, ...]) -> Copies:
        """Scans the whole stack, then sends one copy by each port that a label chose (the batch
        scan of WERNECKE 4.3.2).

        A label of what is stored goes along where what it names goes. Nothing goes back by the
        ingress port, nor to a switch for which no label is left.
        """
        choices = list(self.scan(held, stack))
        stored = chosen = 0
        for choice in choices:
            stored |= choice.stored
            chosen |= choice.alone
        copies: Copies = []
        for port in ports_of((stored | chosen) & ~(1 << ingress_port - 1)):
            if port in held.host_ports:
                copies.append((port, None))
                continue
            left = tuple(
                label
                for label, each in zip(stack, choices, strict=True)
                if (stored if each.goes is None else each.goes) >> port - 1 & 1
            )
            if left:
                copies.append((port, left))
        return copies


class Choice(NamedTuple):
    """What a switch does by a label, as ports, bit port - 1.

    stored: those of what is stored under it. alone: those that it chooses otherwise. goes: those by
    which it goes along itself; None: of anything stored.
    """

    stored: int = 0
    alone: int = 0
    goes: int | None = 0


class StoredIds(IdLabels, StoredRoute):
    """Labels that all name what is stored: none names a link."""

    def hold(self, held: SwitchTables, link: int, port: int) -> None:
        pass

    def scan(self, held: SwitchTables, stack: tuple[int, ...]) -> Iterator[Choice]:
        for label in stack:
            ports = held.trees.get(label, 0)
            yield Choice(stored=ports, goes=ports)


class DestinationLabels(StoredIds):
    """Labels that name a host, by the directed link that leads to it (WERNECKE 4.2.2)."""

    to_hosts = True

    def meaning(self, label: int) -> Meaning:
        return Meaning("host", label, "the path to")

    def labels_of_host(self, link: int, device: int) -> tuple[list[int], list[int]]:
        return [link], [link]


class TreeLabels(StoredIds):
    """Labels that name a stored tree (WERNECKE 4.2.3)."""

    trees = "alone"

    def meaning(self, label: int) -> Meaning:
        return Meaning("tree", label, "the stored tree")


class HybridLabels(TypedLabels, StoredRoute):
    """Labels of a type and an id: the root of a subtree by its device id, a tree, a hop (WERNECKE
    4.3)."""

    kinds: ClassVar[Mapping[int, str]] = {ROOT: "root", TREE: "tree", HOP: "hop"}
    trees = "whole"

    @property
    def max_device(self) -> int:
        return self.max_id

    def meaning(self, label: int) -> Meaning:
        kind, number = self.split(label)
        if kind == TREE:
            return Meaning("tree", number, "the stored tree")
        if kind == ROOT:
            return Meaning("switch", number, "hops from")
        return Meaning("link", number, "a copy from")

    def hold(self, held: SwitchTables, link: int, port: int) -> None:
        held.hops[link] = port

    def rows(self, held: SwitchTables) -> Iterator[LookUp]:
        for number, mask in sorted(held.trees.items()):
            yield LookUp("label", self.label(TREE, number), "stored", {"ports": mask})
        for number, port in sorted(held.hops.items()):
            yield LookUp("label", self.label(HOP, number), "hop", {"ports": 1 << port - 1})
        yield LookUp("label", self.label(ROOT, held.device), "root", {})

    def scan(self, held: SwitchTables, stack: tuple[int, ...]) -> Iterator[Choice]:
        """Hops are a switch's own if they follow its root, or no root at all.

        A copy by a hop takes along what stands between this hop and the next own one, and nothing
        that is stored: a switch of the tree below would flood it once more. Roots and hops of other
        switches go along with the tree.
        """
        own, under = True, 0
        for label in stack:
            kind, number = label >> self.id_bits, label & self.max_id
            if kind == TREE:
                ports = held.trees.get(number, 0)
                yield Choice(stored=ports, goes=ports)
            elif kind == ROOT:
                own, under = number == held.device, 0
                yield Choice(goes=0 if own else None)
            elif kind != HOP:
                yield Choice()
            elif not own:
                yield Choice(goes=None)
            elif number in held.hops:
                under = 1 << held.hops[number] - 1
                yield Choice(alone=under)
            else:
                yield Choice(goes=under)


@dataclass(frozen=True)
class BitmapLabels(StoredRoute):
    """Labels of 16 bits: ``0`` and a host, by its directed link; ``10`` and a switch, by its device
    id; or ``11``, a block of 11 ports of the switch named last, 3 bits, and a bit for each of them.

    Bit p is port 11 * block + p + 1. A host whose link has an id beyond 15 bits has no label of its
    own: it is named by switch and port alone. One behind a port above 88 is named by its own alone.
    """

    to_hosts = True

    @property
    def max_id(self) -> int:
        return (1 << 30) - 1

    @property
    def max_device(self) -> int:
        return _SWITCHES

    @property
    def max_labels(self) -> int:
        return 512

    def host(self, link: int) -> int | None:
        """Makes the label of a host, by the link that leads to it; None where none has room."""
        return link if 0 < link <= _HOSTS else None

    def switch(self, device: int) -> int:
        """Makes the label of a switch. Raises StackError ``BAD_LABEL``."""
        if not 0 < device <= _SWITCHES:
            self._bad(f"switch {device}")
        return _SWITCH | device

    def reaches(self, port: int, link: int) -> bool:
        return port <= BLOCKS * BLOCK or link <= _HOSTS

    def ports(self, mask: int) -> list[int]:
        """Makes the labels of a switch's ports, bit p - 1 for port p, of up to 88."""
        blocks = ((at, mask >> BLOCK * at & _BLOCK) for at in range(-(-mask.bit_length() // BLOCK)))
        return [_PORTS | at << BLOCK | some for at, some in blocks if some]

    def split(self, value: int) -> tuple[int, int]:
        """Splits a label: TREE and the link of a host, ROOT and a device id, PORTS and a mask."""
        self.check(value)
        if value < _SWITCH:
            return TREE, value
        if value < _PORTS:
            return ROOT, value & _SWITCHES
        return PORTS, self.mask(value)

    def mask(self, label: int) -> int:
        """Returns the ports that a label of ports names, bit p - 1 for port p."""
        return (label & _BLOCK) << BLOCK * (label >> BLOCK & 7)

    def meaning(self, label: int) -> Meaning:
        kind, number = self.split(label)
        if kind == PORTS:
            return Meaning("ports", number, "copies to these ports of the preceding switch")
        return Meaning("host" if kind == TREE else "switch", number, "the path to")

    def hold(self, held: SwitchTables, link: int, port: int) -> None:
        held.own[held.device] = held.own.get(held.device, 0) | 1 << port - 1

    def labels_of_host(self, link: int, device: int) -> tuple[list[int], list[int]]:
        number = self.host(link)
        own = [number] if number else []
        return own, [*own, self.switch(device)]

    def rows(self, held: SwitchTables) -> Iterator[LookUp]:
        for device, ports in sorted(held.own.items()):
            yield LookUp("label", self.switch(device), "own", {"ports": ports})
        yield from super().rows(held)

    def scan(self, held: SwitchTables, stack: tuple[int, ...]) -> Iterator[Choice]:
        """The label of a switch is a destination everywhere but there: the labels of ports behind
        it go along with it, and choose ports of the switch itself."""
        own, under = True, 0
        for label in stack:
            if label >= _PORTS:
                chosen = self.mask(label) & under if own else 0
                yield Choice(alone=chosen, goes=0 if own else under)
                continue
            own = label >= _SWITCH and label & _SWITCHES == held.device
            under = held.own.get(held.device, 0) if own else held.trees.get(label, 0)
            yield Choice(stored=0 if own else under, goes=0 if own else under)

    def check(self, value: int) -> None:
        empty = value in (0, _SWITCH) or (value >= _PORTS and not value & _BLOCK)
        if empty or not 0 < value < 1 << self.bits:
            self._bad(f"{value:#x}")

    def describe(self, value: int) -> str:
        kind, number = self.split(value)
        if kind != PORTS:
            return f"{'host' if kind == TREE else 'switch'} {number}"
        named = [str(port) for port in range(1, number.bit_length() + 1) if number >> port - 1 & 1]
        return f"ports {','.join(named)}"

    def parse(self, text: str) -> int:
        word, _, number = text.partition(":")
        numbers = [int(n) for n in number.split(",") if n.isascii() and n.isdecimal()]
        known = len(numbers) == number.count(",") + 1
        if word == "ports" and known and min(numbers) > 0 and max(numbers) <= BLOCKS * BLOCK:
            made = self.ports(sum(1 << port - 1 for port in set(numbers)))
            if len(made) == 1:
                return made[0]
        elif word == "switch" and known and len(numbers) == 1:
            return self.switch(numbers[0])
        elif word == "host" and known and len(numbers) == 1 and (label := self.host(numbers[0])):
            return label
        self._bad(repr(text))

    def _bad(self, what: str) -> NoReturn:
        raise StackError(
            "BAD_LABEL",
            f"{what} is not a label of encoding {self.encoding}: write host:1 to host:{_HOSTS}, "
            f"switch:1 to switch:{_SWITCHES}, or ports such as ports:2,5,9 from one block of "
            f"{BLOCK} ports",
        )


#: Ports that one label of `BitmapLabels` names.
BLOCK = 11
BLOCKS = 8
_BLOCK = (1 << BLOCK) - 1
_HOSTS, _SWITCHES = (1 << 15) - 1, (1 << 14) - 1
_SWITCH, _PORTS = 2 << 14, 3 << 14

DESTINATIONS = DestinationLabels(
    16, 0x99A9, "destinations", "stored_routes_destinations", word="host"
)
TREES = TreeLabels(16, 0x99AA, "tree", "stored_routes_tree", word="tree")
HYBRID = HybridLabels(16, 0x99AB, "hybrid", "stored_routes")
PORT_BITMAPS = BitmapLabels(16, 0x99AC, "port_bitmaps", "stored_routes_port_bitmaps")
STORED_ROUTES: dict[str, StoredRoute] = {
    form.encoding: form for form in (DESTINATIONS, TREES, HYBRID, PORT_BITMAPS)
}
