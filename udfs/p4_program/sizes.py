"""How many rows each table of the program can come to hold."""

from __future__ import annotations

from collections.abc import Mapping

from udfs.network_match.pipeline import Options, Pipeline

SETS = 2
"""Sets of states that a switch holds at once: those in use, and those it is being moved to."""


def stage_sizes(program: Pipeline) -> Mapping[tuple[str, str], int]:
    """Rows of each table of a stage, by names of the stage and of the table.

    A table holds a row a state and value at most, so the first ones, which few states read, are
    small whatever the rules are; ``Options.rows`` is the most for each.
    """
    most = program.options.rows
    found: dict[tuple[str, str], int] = {}
    states = min(SETS, most)
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


def cell_sizes(options: Options) -> Mapping[str, int]:
    """Rows of the tables of one position among the cells that an event reads or updates.

    Leaves update, so there ``Options.rows`` is the bound as it is for leaves.
    """
    states = min(options.cell_rows, options.rows)
    return {
        "load": states,
        "exact": states,
        "range": states,
        "otherwise": min(2 * states, options.rows),
        "update": options.rows,
    }
