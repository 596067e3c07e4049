"""New rows of table ``attributes``, also while other jobs register attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stackcast.jobs.adapters.app.storage_errors import StorageError
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock, utc
from stackcast.jobs.adapters.tables.tables import Row, Tables
from stackcast.udfs.errors import TableError
from stackcast.udfs.messages.attributes.events import WIDTHS, Widths
from stackcast.udfs.messages.attributes.registry import Attribute, Registry

TABLE = "attributes"

_ATTEMPTS = 10
#: Time before the second attempt, which doubles from attempt to attempt, and its limit, in seconds.
_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


def register(
    tables: Tables,
    attributes: Sequence[Attribute],
    author: str,
    widths: Widths = WIDTHS,
    clock: Clock = SYSTEM_CLOCK,
) -> Registry:
    """Add attributes to the table, and return all attributes.

    If a name exists, its row stays as it is. If an id exists, the new attribute gets the lowest
    free id. Attributes for which no id is free are missing in the result. Jobs that register at the
    same time never use an id or a name twice.

    Args:
        tables: the tables.
        attributes: attributes that may be new.
        author: value of column ``registered_by``.
        widths: widths of ids and values.
        clock: clock of the program.

    Raises:
        TableError: BUSY, if other jobs keep writing to the table.
        AttributeTableError: the rows of the table are no registry.
        StorageError: the table could not be read or written.
    """
    pause = _PAUSE
    for attempt in range(_ATTEMPTS):
        if attempt:
            clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        version = tables.version(TABLE)
        registry = Registry.from_rows(tables.rows(TABLE, version), widths)
        new = _placed(attributes, registry)
        if not new:
            return registry
        rows = [_row(attribute, author, clock) for attribute in sorted(new, key=lambda a: a.id)]
        try:
            if tables.merge(TABLE, rows, [], ("id",), version, unique=("name",)):
                continue
        except StorageError as error:
            if not error.conflict:
                raise
    names = ", ".join(attribute.name for attribute in attributes)[:200]
    raise TableError(
        "BUSY",
        f"{names} could not be registered, because other jobs kept writing to table {TABLE} in "
        f"{tables.location}: try again",
        table=TABLE,
    )


def _placed(attributes: Sequence[Attribute], registry: Registry) -> list[Attribute]:
    """Return the attributes whose names are new, with ids that are free."""
    new = [attribute for attribute in attributes if attribute.name not in registry.by_name]
    ids = {attribute.id for attribute in new}
    # Attributes keep their ids if these are free. The others get the remaining ids, by name.
    placed = [attribute for attribute in new if not registry.known >> attribute.id & 1]
    remaining = iter([id for id in registry.free if id not in ids])
    moved = sorted(
        (attribute for attribute in new if registry.known >> attribute.id & 1),
        key=lambda attribute: attribute.name,
    )
    placed += [replace(attribute, id=id) for attribute, id in zip(moved, remaining, strict=False)]
    registry.extended(placed)
    return placed


def _row(attribute: Attribute, author: str, clock: Clock) -> Row:
    return {
        "id": attribute.id,
        "name": attribute.name,
        "type": attribute.type,
        "scale": attribute.scale,
        "offset": attribute.offset,
        "registered_by": author,
        "registered_at": utc(clock),
    }
