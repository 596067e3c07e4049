"""Names of JSON that no attribute has yet: registered before their batch is planned, where settings
say so."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS, one_line
from stackcast.jobs.adapters.app.settings import PREFIX, Settings
from stackcast.jobs.adapters.planning.specifications import registry_of
from stackcast.jobs.adapters.stream.input import Records
from stackcast.jobs.adapters.tables.attribute_registry import register
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.delivery.deliver import without_summaries
from stackcast.udfs.errors import StackcastError
from stackcast.udfs.messages.attributes.json_events import JsonReader
from stackcast.udfs.messages.attributes.registry import FORMAT, Attribute, Registry
from stackcast.udfs.messages.attributes.steps import USUAL_STEPS, Steps
from stackcast.udfs.messages.attributes.unknown_names import (
    SCHEMA,
    NewName,
    count_names,
    new_names,
)

log = logging.getLogger(__name__)

REGISTRANT = "stream"
#: Most names that one line of the log shows.
_SHOWN = 10


class NewAttributes:
    """Gives ids to the names that batches bring and the table lacks."""

    def __init__(self, settings: Settings, tables: Tables) -> None:
        self._tables = tables
        self._widths = settings.widths
        self._steps = Steps.parse(settings.attributes_steps)
        self._registers = (
            settings.format == FORMAT
            and settings.attributes_input == "json"
            and settings.attributes_unknown == "register"
        )

    def register(self, records: Records, batch_id: int) -> None:
        """Registers the new names of a batch before it is planned, so that its events go out with
        them, in their order.
        """
        if not self._registers:
            return
        try:
            registry = registry_of(self._tables, self._widths)
            names = unknown_names(records, registry, self._steps)
            if not names:
                return
            types = {name: found.type for name, found in names.items() if found.type is not None}
            _, new = registry.with_new(types, self._steps.attribute)
            if new:
                # Another stream may have been faster: then the names have the ids that it gave.
                registry = register(self._tables, new, REGISTRANT, self._widths)
        except (StackcastError, *SQL_ERRORS) as error:
            # Events of names without an id are dead letters, and the others go on.
            log.error(
                "batch %d: new attributes could not be registered: %s", batch_id, one_line(error)
            )
            return
        found = registry.by_name
        for name in sorted(names.keys() & found.keys()):
            report_registration(batch_id, found[name], names[name])
        left = sorted(names.keys() - found.keys())
        if left:
            log.warning(
                "batch %d: %d attribute names could not be registered: %s",
                batch_id,
                len(left),
                _shown(left),
            )


def unknown_names(
    records: Records, registry: Registry, steps: Steps = USUAL_STEPS
) -> dict[str, NewName]:
    """Returns the names that records have and the registry lacks, and that could be registered.

    Where all ids are in use it is none, without a look at the records.
    """
    if not registry.free:
        return {}
    count = partial(count_names, JsonReader(registry), steps=steps)
    names = new_names(records.through(lambda source: count(without_summaries(source)), SCHEMA))
    without = sorted(name for name, found in names.items() if found.type is None)
    if without:
        log.warning("no attribute type can represent most values of: %s", _shown(without))
    return {name: found for name, found in names.items() if found.type is not None}


def report_registration(batch_id: int, one: Attribute, name: NewName) -> None:
    """Log how a name was registered, with a warning if that rounds its values."""
    log.info(
        "batch %d: registered attribute %s with id %d: %s, from %s to %s in steps of %s",
        *(batch_id, one.name, one.id, one.type),
        *(f"{number:f}" for number in (one.value(0), one.most, one.scale)),
    )
    if name.rounded and name.type == one.type:
        log.warning(
            "batch %d: %d of %d values of attribute %s are between two steps of %s and were "
            "rounded, and so will later values, because the step of an attribute never changes. "
            "For smaller steps, send the values under a new name, but first add %s=STEP to "
            "%sattributes.steps",
            *(batch_id, name.rounded, name.values, one.name, f"{one.scale:f}", "NAME", PREFIX),
        )


def _shown(names: Iterable[str]) -> str:
    return ", ".join(list(names)[:_SHOWN])
