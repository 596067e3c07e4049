"""What `Tables.create` brings up to date in tables of earlier versions of ours."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class FormerConstraint:
    """A constraint as an earlier version made it, and the name of today's in its place."""

    table: str
    name: str
    condition: str
    now: str


CONSTRAINTS = (
    FormerConstraint(
        "virtual_trees",
        "state_known",
        "state IN ('installing', 'active', 'retiring')",
        "state_known",
    ),
    FormerConstraint(
        "virtual_trees", "tree_id_14_bits", "tree_id BETWEEN 1 AND 16383", "tree_id_fits_label"
    ),
    FormerConstraint(
        "links", "link_id_14_bits", "link_id BETWEEN 1 AND 16383", "link_id_fits_label"
    ),
)

#: Columns whose type was too narrow: (table, column) → types, the former and today's.
TYPES = {("header_stacks", "labels"): ("array<int>", "array<bigint>")}

#: Columns that earlier versions lacked: table → column → its definition.
COLUMNS = {
    "egress_ledger": {
        "settings": "MAP<STRING, STRING> COMMENT 'Settings that shaped the bytes of notifications; "
        "null in rows of earlier versions'"
    }
}

#: Tables of which there is an earlier version to be brought up to date.
TABLES = {former.table for former in CONSTRAINTS} | {table for table, _ in TYPES} | {*COLUMNS}


def steps(table: str, text: str, properties: Mapping[str, str]) -> list[str]:
    """What to say after ``ALTER TABLE …``, in this order, so that constraints are today's.

    text: the table's statement of schemas/tables. properties: those that it has, by name. One that
    somebody has changed stays as it is. Where names differ, both hold in between, so that whoever
    is cut off there does the rest next time.
    """
    held = {key.lower(): value for key, value in properties.items()}
    found = []
    for former in CONSTRAINTS:
        key = f"delta.constraints.{former.name}"
        if former.table != table or held.get(key.lower()) != former.condition:
            continue
        drop = f"DROP CONSTRAINT {former.name}"
        add = f"ADD CONSTRAINT {former.now} CHECK ({_condition(table, text, former.now)})"
        if former.now == former.name:
            found += [drop, add]
        elif f"delta.constraints.{former.now}".lower() in held:
            found.append(drop)
        else:
            found += [add, drop]
    return found


def new_columns(table: str, held: Collection[str]) -> list[str]:
    """What to say after ``ALTER TABLE …`` so that none is missing; held: columns that it has."""
    known = {name.lower() for name in held}
    return [
        f"ADD COLUMN {name} {definition}"
        for name, definition in COLUMNS.get(table, {}).items()
        if name.lower() not in known
    ]


def _condition(table: str, text: str, constraint: str) -> str:
    found = re.search(rf"'delta\.constraints\.{constraint}' = '((?:\\.|[^'\\])*)'", text)
    assert found is not None, f"{table}.sql lacks constraint {constraint}"
    return found.group(1).replace("\\'", "'")
