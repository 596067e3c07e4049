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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NoReturn

from udfs.errors import StackError
from udfs.network.labels import HOP, TREE, IdLabels, LabelFormat, TypedLabels

ROOT = 0
PORTS = 4


class StoredRoute(LabelFormat):
    """Labels some of which name what switches hold: ``split`` says of a label which."""

    @abstractmethod
    def split(self, value: int) -> tuple[int, int]:
        """Splits a label into its kind (TREE for all that is stored) and its id.

        Raises StackError ``BAD_LABEL``.
        """


class StoredIds(IdLabels, StoredRoute):
    """Labels that all name what is stored: a destination or a tree."""

    def split(self, value: int) -> tuple[int, int]:
        self.check(value)
        return TREE, value


class HybridLabels(TypedLabels, StoredRoute):
    """Labels of a type and an id: the root of a subtree by its device id, a tree, a hop."""

    kinds: ClassVar[Mapping[int, str]] = {ROOT: "root", TREE: "tree", HOP: "hop"}

    @property
    def max_device(self) -> int:
        return self.max_id


@dataclass(frozen=True)
class BitmapLabels(StoredRoute):
    """Labels of 16 bits: ``0`` and a host, by its directed link; ``10`` and a switch, by its device
    id; or ``11``, a block of 11 ports of the switch named last, 3 bits, and a bit for each of them.

    Bit p is port 11 * block + p + 1. A host whose link has an id beyond 15 bits has no label of its
    own: it is named by switch and port alone. One behind a port above 88 is named by its own alone.
    """

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
            f"{what} is no label of encoding {self.encoding}: they are as in host:17, 1..{_HOSTS}, "
            f"switch:3, 1..{_SWITCHES}, and ports:2,5,9, of one block of {BLOCK}",
        )


#: Ports that one label of `BitmapLabels` names.
BLOCK = 11
BLOCKS = 8
_BLOCK = (1 << BLOCK) - 1
_HOSTS, _SWITCHES = (1 << 15) - 1, (1 << 14) - 1
_SWITCH, _PORTS = 2 << 14, 3 << 14

DESTINATIONS = StoredIds(16, 0x99A9, "destinations", "host")
TREES = StoredIds(16, 0x99AA, "tree", "tree")
HYBRID = HybridLabels(16, 0x99AB, "hybrid")
PORT_BITMAPS = BitmapLabels(16, 0x99AC, "port_bitmaps")
STORED_ROUTES: dict[str, StoredRoute] = {
    form.encoding: form for form in (DESTINATIONS, TREES, HYBRID, PORT_BITMAPS)
}
