"""Sizes of the tables of the generated program: most rows that each may have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from stackcast.udfs.errors import FilterError
from stackcast.udfs.network_match.layout import PREFIX, ProgramLayout, ProgramOptions, key_table
from stackcast.udfs.network_match.values import TableEntry

SETS = 2
"""Sets of states that a switch holds at once: those in use, and those it is being moved to."""


def check_sizes(entries: Iterable[TableEntry], program: ProgramLayout) -> None:
    """Raises FilterError TOO_LARGE if a table has fewer rows than ``entries`` need."""
    sizes = {f"{PREFIX}.{stage}.{kind}": n for (stage, kind), n in stage_sizes(program).items()}
    fields = {f"{PREFIX}.{stage.name}": stage.field for stage in program.stages}
    for kind, size in cell_sizes(program.options).items():
        last = program.options.updates if kind == "update" else program.options.variables
        sizes |= {f"{PREFIX}.cells.{kind}_{place}": size for place in range(1, last + 1)}
    for number in range(1, program.options.conjunctions + 1):
        for place in range(1, program.options.key_fields + 1):
            sizes[key_table(number, f"field_{place}")] = group_rows(program.options)
    for table, rows in Counter(entry.table for entry in entries).items():
        room = sizes.get(table, program.options.rows)
        if rows > room:
            raise FilterError(
                "TOO_LARGE",
                f"table {table.removeprefix(PREFIX + '.')} of the P4 program has {room} rows, but "
                f"the rules need {rows}: compare fewer values",
                field=fields.get(table.rpartition(".")[0], ""),
                needed=rows,
                room=room,
            )


def group_rows(options: ProgramOptions) -> int:
    """Returns the rows of a table with one row a group of rules."""
    return SETS * options.passes


def stage_sizes(program: ProgramLayout) -> Mapping[tuple[str, str], int]:
    """Returns the rows of each table of a stage, by names of the stage and of the table.

    A table holds a row a state and value at most, so the first ones, which few states read, are
    small whatever the rules are; ``ProgramOptions.rows`` is the most for each.
    """
    most = program.options.rows
    found: dict[tuple[str, str], int] = {}
    # The root of the diagram, and that of each group of bit vectors, which stays the same.
    states = min(SETS * (1 + program.options.passes), most)
    for stage in program.stages:
        values = 1 << stage.key_bits
        rows = {
            "exact": states * values,
            # A range of one value is a row of the exact table, and ranges do not overlap.
            "range": states * (values // 2),
            "lpm": states * (2 * values - 1),
        }
        own = {kind: rows[kind] for kind in stage.kinds}
        own["otherwise"] = states * (2 if stage.optional else 1)
        # A state that does not ask for the field is still there behind it.
        states = min(states + sum(own.values()), most)
        if stage.code_bits:
            own["map"] = SETS * values
        found |= {(stage.name, kind): max(1, min(size, most)) for kind, size in own.items()}
    return found


def cell_sizes(options: ProgramOptions) -> Mapping[str, int]:
    """Returns the rows of the tables of one position among the cells that an event reads or
    updates.

    Leaves update, so there ``ProgramOptions.rows`` is the bound as it is for leaves.
    """
    states = min(options.cell_rows, options.rows)
    return {
        "load": states,
        "exact": states,
        "range": states,
        "otherwise": min(2 * states, options.rows),
        "update": options.rows,
    }
