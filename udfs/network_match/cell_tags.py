"""Tags of cells: registers say by them whose state they hold, across edits and starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from stackcast.udfs.filters.meaning.state import Cell
from stackcast.udfs.network_match.values import TableEntry
from stackcast.udfs.switches.entry import SwitchEntry

EDIT_BITS = 32


@dataclass(frozen=True)
class HeldCells:
    """Holds the cells that the entries of a switch name so far.

    edit: a number that grows with each edit; new cells have it in their tags, so one that comes
    back is another than the one that went. params: of an entry, by identity of the cell.
    """

    edit: int = 0
    params: Mapping[int, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[SwitchEntry | TableEntry], edit: int = 0) -> HeldCells:
        """Reads the cells of entries: those with a parameter ``tag``."""
        found = {}
        for entry in entries:
            if any(name == "tag" for name, _ in entry.params):
                params = {name: int.from_bytes(value) for name, value in entry.params}
                found[params["tag"] >> EDIT_BITS] = params
        return cls(edit, found)

    def place(self, cell: Cell) -> Mapping[str, int]:
        """Returns the parameters that place a cell in registers; none of a new one."""
        return self.params.get(cell.number, {})

    def tag(self, cell: Cell) -> int:
        """Returns the tag of a cell, never 0: the one that it has, or a new one."""
        new = cell.number << EDIT_BITS | self.edit % (1 << EDIT_BITS)
        return self.place(cell).get("tag", new)
