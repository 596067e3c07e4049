"""Entries in the form of P4Runtime: names, kinds of match, values as bytes."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from stackcast.udfs.errors import FilterError
from stackcast.udfs.switches.entry import SwitchEntry
from stackcast.udfs.switches.match import Match


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One entry of the program; the larger ``priority`` wins, 0 where none is needed."""

    table: str
    match: tuple[Match, ...]
    action: str
    params: tuple[tuple[str, bytes], ...]
    priority: int = 0

    @property
    def key(self) -> str:
        """The key of the entry in its switch, as in ``stackcast.udfs.switches.entry``."""
        fields = sorted((match.name, match.joined().hex()) for match in self.match)
        text = "|".join(f"{name}={value}" for name, value in fields)
        return f"{self.table}|{text}" + (f"|priority={self.priority}" if self.priority else "")

    def on(self, switch: str) -> SwitchEntry:
        """Returns this as an entry of a switch."""
        fields = tuple((match.name, match.kind, match.joined()) for match in self.match)
        return SwitchEntry(switch, self.table, fields, self.action, self.params, self.priority)


@dataclass(frozen=True)
class ProgramEntries:
    """Holds the entries of one switch.

    entries: in the order of the program's tables, each by match.
    ports: all that an event may be sent to, ascending; ``stackcast.udfs.switches.ports`` has their
    groups.
    """

    entries: tuple[TableEntry, ...]
    ports: tuple[int, ...] = ()


def argument_value(text: str, bits: int) -> int:
    """Parses the number of an argument: decimal, hex, an IPv4, IPv6 or MAC address.

    Raises FilterError BAD_ACTION if it is none of them or does not fit ``bits``.
    """
    value = _number(text.strip())
    if value is None or not 0 <= value < 1 << bits:
        raise FilterError(
            "BAD_ACTION", f"argument {text!r} is not a number or address of at most {bits} bits"
        )
    return value


def _number(text: str) -> int | None:
    if text.count(":") == 5 and all(len(part) <= 2 for part in text.split(":")):
        try:
            return int.from_bytes(bytes(int(part, 16) for part in text.split(":")), "big")
        except ValueError:
            return None
    if text[:2] in ("0x", "0X") or text.isdecimal():
        try:
            return int(text[:80], 0 if "x" in text.lower() else 10)
        except ValueError:
            return None
    for kind in (IPv4Address, IPv6Address):
        try:
            return int(kind(text))
        except AddressValueError:
            continue
    return None
