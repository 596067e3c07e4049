"""Labels of source routes: each says to one switch where its copies go (WERNECKE 3.3, 4.2.1).

``port``, ``bitmask`` and ``mc_group`` name a switch, by its device id, and a port, a mask of ports
(bit p - 1 for port p) or a multicast group of ports; ``mixed`` says in each label which of the
three it is. ``hops`` name a directed link, so a switch finds its own by a row a link: a label that
named the next node, as WERNECKE 4.2.1 has it, would be misread by every other neighbour of that
node above it in the tree.
"""

from __future__ import annotations

from dataclasses import dataclass

from udfs.errors import StackError
from udfs.network.labels import IdLabels, LabelFormat

PORT, BITMASK, MC_GROUP = 1, 2, 3
TAGS = {PORT: "port", BITMASK: "bitmask", MC_GROUP: "mc_group"}

#: Ports that one multicast group can send to, as `udfs.switches.ports` numbers groups.
SUBSET = 8
_DEVICES = 255
_EVERY = (1 << 512) - 1


class SourceRoute(LabelFormat):
    """Labels that switches read without stored trees: ``id`` says whose one is."""

    def id_of(self, label: int) -> int:
        """Returns what a switch looks a label up by."""
        return label >> self.bits - 8

    def named(self, label: int) -> int:
        """Returns the ports that a label names if it is the switch's own; bit p - 1 is port p."""
        raise NotImplementedError


@dataclass(frozen=True)
class SwitchLabels(SourceRoute):
    """Labels of one strategy: a switch's id, 8 bits, and a value of the other bits.

    tagged: 8 bits between them say the strategy; ``tag`` is that of labels without.
    """

    tag: int = 0

    @property
    def max_id(self) -> int:
        return (1 << 30) - 1

    @property
    def max_device(self) -> int:
        return _DEVICES

    @property
    def max_port(self) -> int:
        return {BITMASK: 16, PORT: 255}.get(self.tag, 511)

    def label(self, device: int, tag: int, value: int) -> int:
        """Makes the label of a switch. Raises StackError ``BAD_LABEL``."""
        bits = self.bits - (8 if self.tag else 16)
        fits = 0 < device <= _DEVICES and 0 < value < 1 << bits
        if not fits or tag not in ((self.tag,) if self.tag else TAGS):
            words = TAGS.get(tag, f"tag {tag}")
            raise StackError(
                "BAD_LABEL",
                f"no label of encoding {self.encoding} is for switch {device} and {words} {value}: "
                f"switches are 1..{_DEVICES}, values 1..{(1 << bits) - 1}",
                device=device,
                value=value,
            )
        return (device << self.bits - 8) | (0 if self.tag else tag << bits) | value

    def split(self, label: int) -> tuple[int, int, int]:
        """Splits a label into switch, strategy and value. Raises StackError ``BAD_LABEL``."""
        device, tag, value = self._parts(label)
        self.label(device, tag, value)
        return device, tag, value

    def _parts(self, label: int) -> tuple[int, int, int]:
        device = label >> self.bits - 8
        if self.tag:
            return device, self.tag, label & (1 << self.bits - 8) - 1
        return device, label >> 16 & 0xFF, label & 0xFFFF

    def named(self, label: int) -> int:
        _, tag, value = self._parts(label)
        if tag == PORT:
            return 1 << value - 1 & _EVERY if value else 0
        if tag == MC_GROUP:
            return (value & 0xFF) << SUBSET * (value >> 8) & _EVERY
        return value if tag == BITMASK else 0

    def check(self, value: int) -> None:
        self.split(value)

    def describe(self, value: int) -> str:
        device, tag, number = self.split(value)
        text = str(number) if tag == PORT else f"{number:#x}"
        return f"switch {device} {TAGS[tag]} {text}"

    def parse(self, text: str) -> int:
        words = text.split(":")
        try:
            whose, device, name, value = words
            tag = next(tag for tag, known in TAGS.items() if known == name)
            numbers = int(device), tag, int(value, 0)
            assert whose == "switch"
        except (ValueError, StopIteration, AssertionError):
            raise StackError(
                "BAD_LABEL",
                f"{text!r} is no label of encoding {self.encoding}: it is as in "
                f"switch:3:{TAGS[self.tag or PORT]}:2",
            ) from None
        return self.label(*numbers)


class HopLabels(IdLabels, SourceRoute):
    """Labels that are the ids of directed links, 16 bits."""

    def id_of(self, label: int) -> int:
        return label

    def named(self, label: int) -> int:
        """Returns every port: the row that a switch finds by the label has the one."""
        return _EVERY


SOURCE_ROUTES: dict[str, SourceRoute] = {
    form.encoding: form
    for form in (
        SwitchLabels(16, 0x99A0, "port", PORT),
        SwitchLabels(24, 0x99A1, "bitmask", BITMASK),
        SwitchLabels(24, 0x99A2, "mc_group", MC_GROUP),
        SwitchLabels(32, 0x99A3, "mixed"),
        HopLabels(16, 0x99A8, "hops", "hop"),
    )
}
