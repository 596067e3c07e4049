"""What one switch holds for a program: table entries, registers, counters."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lab.bmv2.packet import Packet
from udfs.switches.entry import SwitchEntry


class State:
    """Tables, registers and counters of one switch, and the program's functions bound to them.

    ``registers``: values by name of a register array. ``parse_vsets``: values by name of a value
    set (change, then call `changed`). Names are those of the JSON (and of the P4Info).
    """

    parse: Callable[[Packet], None]
    ingress: Callable[[Packet], None]
    egress: Callable[[Packet], None]
    deparse: Callable[[Packet], bytes]
    registers: dict[str, list[int]]
    parse_vsets: dict[str, set[int]]

    def check(self, entry: SwitchEntry) -> None:
        """Raise SwitchError ``BAD_ENTRY`` if ``entry`` fits no table of the program."""
        raise NotImplementedError

    def apply(self, changes: Mapping[str, SwitchEntry | None]) -> None:
        """Make each key (`SwitchEntry.key`) hold its entry, or nothing if None."""
        raise NotImplementedError

    def set_default(self, table: str, action: str, params: Mapping[str, int]) -> None:
        """Change a table's default action; SwitchError ``BAD_ENTRY`` if it is const or unknown."""
        raise NotImplementedError

    def reset_default(self, table: str) -> None:
        """Give a table the default action of the program again."""
        raise NotImplementedError

    def counter(self, name: str, index: int) -> tuple[int, int]:
        """``(packets, bytes)`` of an indexed counter."""
        raise NotImplementedError

    def direct_counter(self, table: str, key: str) -> tuple[int, int]:
        """``(packets, bytes)`` of an entry (`SwitchEntry.key`) of a table with a direct counter."""
        raise NotImplementedError

    def write_counter(self, name: str, index: int, packets: int, size: int) -> None:
        """Set a cell of an indexed counter."""
        raise NotImplementedError

    def write_register(self, name: str, index: int, value: int) -> None:
        """Set a cell of a register array, cut to its width."""
        raise NotImplementedError

    def reset(self) -> None:
        """Empty tables, registers and counters."""
        raise NotImplementedError
