"""Labels of source routes: each says to one switch where its copies go (WERNECKE 3.3, 4.2.1).

``port``, ``bitmask`` and ``mc_group`` name a switch, by its device id, and a port, a mask of ports
(bit p - 1 for port p) or a multicast group of ports; ``mixed`` says in each label which of the
three it is. ``port_reactive`` is ``port`` with reactive pruning, the simpler and longer one of the
two that the text compares. ``hops`` name a directed link, so a switch finds its own by a row a
link: a label that named the next node, as WERNECKE 4.2.1 has it, would be misread by every other
neighbour of that node above it in the tree.

Where a network has labels of 32 bits, `WIDE_SOURCE_ROUTES` name more: 65,535 switches instead of
255, and any port where ``port`` has room for 255. A mask of 511 ports would take 64 bytes, and
``mixed`` 5 of which most labels need 3, so these two have no wide form.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from stackcast.udfs.errors import StackError
from stackcast.udfs.network.labels import (
    MAX_PORT,
    Copies,
    IdLabels,
    LabelFormat,
    LookUp,
    Meaning,
    SwitchTables,
    ports_of,
)

PORT, BITMASK, MC_GROUP = 1, 2, 3
TAGS = {PORT: "port", BITMASK: "bitmask", MC_GROUP: "mc_group"}

#: Ports that one multicast group can send to, as `stackcast.udfs.switches.ports` numbers groups.
SUBSET = 8
_EVERY = (1 << 512) - 1


class SourceRoute(LabelFormat):
    """Labels that switches read without stored trees: ``id`` says whose one is.

    A stack is a delivery tree in preorder. reactive: whether a copy takes along all labels behind
    its own, and not its subtree alone.
    """

    splits = True
    reactive: bool = False

    @abstractmethod
    def id_of(self, label: int) -> int:
        """Returns what a switch looks a label up by."""

    @abstractmethod
    def named(self, label: int) -> int:
        """Returns the ports that a label names if it is the switch's own; bit p - 1 is port p."""

    @abstractmethod
    def labels_along(self, links: Iterable[tuple[int, int, int]]) -> list[int]:
        """Makes the labels of a tree, whose links are in preorder: device, id and port of each."""

    def rows(self, held: SwitchTables) -> Iterator[LookUp]:
        before_hosts = sum(1 << port - 1 for port in held.host_ports)
        for number, ports in sorted(held.own.items()):
            yield LookUp("id", number, "own", {"ports": ports, "hosts": ports & before_hosts})

    def forward(self, held: SwitchTables, ingress_port: int, stack: tuple[int, ...]) -> Copies:
        """Takes off what stands before the switch's own labels (WERNECKE 3.3, 4.2.1).

        A run of own labels names ports; each gets what stands between this run and the next own
        label, which is the next subtree (predictive pruning); or, reactive, what stands between
        this run and the end: the switches there take off what is of no use to them. So labels that
        name several ports of a switch at once lead each of them the rest of their subtrees, and
        none is sent where it has nothing to do. Nothing goes back by the ingress port, nor to a
        switch for which no label is left.
        """
        copies: Copies = []
        at, end = 0, len(stack)
        while at < end:
            ports = 0
            while at < end and (known := held.own.get(self.id_of(stack[at]))) is not None:
                ports |= self.named(stack[at]) & known
                at += 1
            begin = at
            while at < end and self.id_of(stack[at]) not in held.own:
                at += 1
            left = stack[begin : end if self.reactive else at]
            for port in ports_of(ports & ~(1 << ingress_port - 1)):
                if port in held.host_ports:
                    copies.append((port, None))
                elif left:
                    copies.append((port, left))
        return sorted(copies, key=lambda copy: copy[0])


@dataclass(frozen=True)
class SwitchLabels(SourceRoute):
    """Labels of one strategy: a switch's id, of ``id_bits``, and a value of the other bits.

    tag: the strategy; 0: 8 bits between them say it.
    """

    tag: int = 0
    reactive: bool = False
    id_bits: int = 8

    @property
    def max_id(self) -> int:
        return (1 << 30) - 1

    @property
    def max_device(self) -> int:
        return (1 << self.id_bits) - 1

    @property
    def max_port(self) -> int:
        room = {BITMASK: self._value_bits, PORT: (1 << self._value_bits) - 1}
        return min(room.get(self.tag, MAX_PORT), MAX_PORT)

    @property
    def _value_bits(self) -> int:
        return self.bits - self.id_bits - (0 if self.tag else 8)

    def id_of(self, label: int) -> int:
        return label >> self.bits - self.id_bits

    def label(self, device: int, tag: int, value: int) -> int:
        """Makes the label of a switch. Raises StackError ``BAD_LABEL``."""
        bits = self._value_bits
        fits = 0 < device <= self.max_device and 0 < value < 1 << bits
        if not fits or tag not in ((self.tag,) if self.tag else TAGS):
            words = TAGS.get(tag, f"tag {tag}")
            raise StackError(
                "BAD_LABEL",
                f"switch {device} and {words} {value} do not form a label of encoding "
                f"{self.encoding}: switches are 1..{self.max_device}, and values "
                f"1..{(1 << bits) - 1}",
                device=device,
                value=value,
            )
        return (device << self.bits - self.id_bits) | (0 if self.tag else tag << bits) | value

    def split(self, label: int) -> tuple[int, int, int]:
        """Splits a label into switch, strategy and value. Raises StackError ``BAD_LABEL``."""
        device, tag, value = self._parts(label)
        self.label(device, tag, value)
        return device, tag, value

    def _parts(self, label: int) -> tuple[int, int, int]:
        value = label & (1 << self._value_bits) - 1
        return self.id_of(label), self.tag or label >> self._value_bits & 0xFF, value

    def named(self, label: int) -> int:
        _, tag, value = self._parts(label)
        if tag == PORT:
            return 1 << value - 1 if 0 < value <= MAX_PORT else 0
        if tag == MC_GROUP:
            return (value & 0xFF) << SUBSET * (value >> 8) & _EVERY
        return value if tag == BITMASK else 0

    def labels_along(self, links: Iterable[tuple[int, int, int]]) -> list[int]:
        if self.tag == PORT:
            return [self.label(device, PORT, port) for device, _, port in links]
        ports: dict[int, list[int]] = {}
        for device, _, port in links:
            ports.setdefault(device, []).append(port)
        return [
            self.label(device, tag, value)
            for device, some in ports.items()
            for tag, value in _values(self.tag, some)
        ]

    def meaning(self, label: int) -> Meaning:
        device, tag, value = self.split(label)
        return Meaning("switch", device, "copies from", value if tag == PORT else 0)

    def hold(self, held: SwitchTables, link: int, port: int) -> None:
        held.own[held.device] = held.own.get(held.device, 0) | 1 << port - 1

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
                f"{text!r} is not a label of encoding {self.encoding}; write labels like "
                f"switch:3:{TAGS[self.tag or PORT]}:2",
            ) from None
        return self.label(*numbers)


class HopLabels(IdLabels, SourceRoute):
    """Labels that are the ids of directed links."""

    def id_of(self, label: int) -> int:
        return label

    def named(self, label: int) -> int:
        """Returns every port: the row that a switch finds by the label has the one."""
        return _EVERY

    def labels_along(self, links: Iterable[tuple[int, int, int]]) -> list[int]:
        return [link for _, link, _ in links]

    def meaning(self, label: int) -> Meaning:
        return Meaning("link", label, "a copy from")

    def hold(self, held: SwitchTables, link: int, port: int) -> None:
        held.own[link] = 1 << port - 1


def _values(tag: int, ports: Sequence[int]) -> list[tuple[int, int]]:
    """Returns what says all of a switch's ports: strategies and values.

    A group is of one subset of ports (`stackcast.udfs.switches.ports`), so several may be needed.
    In a mixed stack: one port as a port, several of one subset as a group, else as a mask if that
    has room.
    """
    groups: dict[int, int] = {}
    for port in sorted(ports):
        subset, bit = divmod(port - 1, SUBSET)
        groups[subset] = groups.get(subset, 0) | 1 << bit
    if tag == BITMASK or (not tag and len(groups) > 1 and max(ports) <= 16):
        return [(BITMASK, sum(1 << port - 1 for port in ports))]
    found = []
    for subset, mask in groups.items():
        if tag != MC_GROUP and mask.bit_count() == 1:
            found.append((PORT, SUBSET * subset + mask.bit_length()))
        else:
            found.append((MC_GROUP, subset << SUBSET | mask))
    return found


SOURCE_ROUTES: dict[str, SourceRoute] = {
    form.encoding: form
    for form in (
        SwitchLabels(16, 0x99A0, "port", "source_routes", PORT),
        SwitchLabels(24, 0x99A1, "bitmask", "source_routes_bitmask", BITMASK),
        SwitchLabels(24, 0x99A2, "mc_group", "source_routes_mc_group", MC_GROUP),
        SwitchLabels(32, 0x99A3, "mixed", "source_routes_mixed"),
        HopLabels(16, 0x99A8, "hops", "source_routes_hops", "hop"),
        SwitchLabels(
            16, 0x99A4, "port_reactive", "source_routes_port_reactive", PORT, reactive=True
        ),
    )
}

WIDE_SOURCE_ROUTES: dict[str, SourceRoute] = {
    form.encoding: form
    for form in (
        SwitchLabels(32, 0x99B0, "port", "source_routes_32", PORT, id_bits=16),
        SwitchLabels(32, 0x99B2, "mc_group", "source_routes_mc_group_32", MC_GROUP, id_bits=16),
        HopLabels(32, 0x99B8, "hops", "source_routes_hops_32", "hop"),
        SwitchLabels(
            *(32, 0x99B4, "port_reactive", "source_routes_port_reactive_32", PORT),
            reactive=True,
            id_bits=16,
        ),
    )
}
"""Those that have labels of 32 bits, too."""
