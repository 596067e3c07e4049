"""The levels of a diagram: the field, lane or cell that each tests, and the kind of its table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.errors import FilterError
from stackcast.udfs.filters.compiler.tables import ENTRY, MESSAGE_TYPE_MAXIMUM
from stackcast.udfs.filters.meaning.normal_form import MESSAGE_TYPE, STATE_MAXIMUM
from stackcast.udfs.filters.meaning.state import Cell, resolve_variables
from stackcast.udfs.filters.nodes import Update
from stackcast.udfs.messages.specification import Field, Specification

MOST_LEVELS: Final = int(np.iinfo(ENTRY["field"]).max)
"""The number of levels that a row of the tables can tell apart."""


@dataclass(frozen=True)
class Levels:
    """Holds the levels: 0 is the message type; ``fields[i]`` is tested at i + 1, the cells last.

    optional: by field, True if an event may lack it. cells: those among ``fields``, in order.
    """

    fields: tuple[Field, ...]
    optional: tuple[bool, ...]
    cells: tuple[Cell, ...] = ()

    def __len__(self) -> int:
        return len(self.fields) + 1

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of levels as in terms: a cell goes by its own name."""
        return (MESSAGE_TYPE, *(level_name(field) for field in self.fields))

    @cached_property
    def of_name(self) -> dict[str, int]:
        return {name: level for level, name in enumerate(self.names)}

    @cached_property
    def maxima(self) -> list[int]:
        return [MESSAGE_TYPE_MAXIMUM, *((1 << field.bits) - 1 for field in self.fields)]

    @cached_property
    def may_lack(self) -> list[bool]:
        return [False, *self.optional]

    @cached_property
    def exact(self) -> NDArray[np.bool_]:
        """True for levels whose table is annotated exact."""
        return np.array([True, *(field.match == "exact" for field in self.fields)])

    @cached_property
    def prefixes(self) -> tuple[int, ...]:
        """The levels whose tables match the longest prefix."""
        return tuple(i for i, field in enumerate(self.fields, 1) if field.match == "lpm")


def level_name(field: Field) -> str:
    """Returns the name of a field, lane or cell in terms."""
    return field.qualified if field.header else field.name


def make_levels(
    specification: Specification,
    order: Sequence[str] = (),
    cells: Iterable[Cell] = (),
    used: Iterable[str] | None = None,
    optional: bool | None = None,
) -> Levels:
    """Makes levels for the specification's fields and some cells.

    order: fields that come first, qualified; the others follow as in the specification, the lanes
        of a wide field one after the other. Cells come last, by name. used: names to which the
        levels are limited. optional: True if events may lack fields of headers that they
        have; None: as the specification says.

    Errors: ``FilterError`` TOO_MANY_FIELDS.
    """
    may_lack = specification.is_optional
    first = [specification.field(name) for name in order]
    chosen = dict.fromkeys((*first, *specification.order()))
    lanes = [lane for field in chosen for lane in field.lanes()]
    if used is not None:
        wanted = frozenset(used)
        lanes = [lane for lane in lanes if lane.qualified in wanted]
    held = tuple(sorted(cells, key=lambda cell: cell.name))
    count = 1 + len(lanes) + len(held)
    if count > MOST_LEVELS:
        raise FilterError(
            "TOO_MANY_FIELDS",
            f"the subscriptions compare {count} fields and state cells together, but at most "
            f"{MOST_LEVELS} are supported; a macro needs a separate cell for each condition that "
            "it is combined with, so use fewer combinations",
            count=count,
        )
    return Levels(
        (*lanes, *(cell_field(cell, specification) for cell in held)),
        (
            *(may_lack(lane) if optional is None else optional for lane in lanes),
            *(True for _ in held),
        ),
        held,
    )


def live_cells(
    cells: Iterable[tuple[Cell, ...]], updates: Iterable[tuple[Update, ...]]
) -> dict[str, Cell]:
    """Returns the cells of live rules by name; the function of a variable follows from all
    rules."""
    functions = resolve_variables(updates)
    return {
        cell.name: replace(cell, function=functions.get(cell.name, "count"))
        if cell.variable
        else cell
        for held in cells
        for cell in held
    }


def cell_field(cell: Cell, specification: Specification) -> Field:
    """Returns a field of 64 bits for a cell, whose values are shown as those of its field."""
    number = cell.function in ("count", "moved")
    of = specification.fields[cell.field] if cell.field and not number else None
    if of is None or of.kind == "string":
        return Field("", cell.name, STATE_MAXIMUM.bit_length(), 0)
    if type(of) is not Field:
        # It has a way of its own to show values, as attributes have.
        return replace(of, header="", name=cell.name, bits=STATE_MAXIMUM.bit_length())
    return Field("", cell.name, STATE_MAXIMUM.bit_length(), 0, of.kind, of.decimals)
