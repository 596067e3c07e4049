"""Registration of new attributes: names in JSON events that the registry does not contain yet."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.settings import PREFIX, Settings
from stackcast.jobs.adapters.planning.specifications import registry_of
from stackcast.jobs.adapters.stream.input import Records
from stackcast.jobs.adapters.tables.attribute_registry import register
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.delivery.deliver import without_summaries
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
#: Maximum number of names in a line of the log.
_SHOWN = 10


class NewAttributes:
    """Registers names that batches contain and the registry does not, if the settings say so.

    Args:
        settings: settings of the stream.
        tables: tables of the stream, which contain the registry.
    """

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
        """Register the new names of a batch before it is planned, so that its events contain them.

        If that fails, the error is logged, and events with these names become dead letters.
        """
        if not self._registers:
            return
        try:
            registry = registry_of(self._tables, self._widths)
            names = unknown_names(records, registry, self._steps)
            if not names:
                return
            types = {name: new.type for name, new in names.items() if new.type is not None}
            _, attributes = registry.with_new(types, self._steps.attribute)
            if attributes:
                # If another stream was faster, the names have the ids that it has registered.
                registry = register(self._tables, attributes, REGISTRANT, self._widths)
        except Exception as error:
            # The engine and the tables have errors of their own.
            log.error(
                "batch %d: new attributes could not be registered: %s", batch_id, one_line(error)
            )
            return
        registered = registry.by_name
        for name in sorted(names.keys() & registered.keys()):
            report_registration(batch_id, registered[name], names[name])
        unregistered = sorted(names.keys() - registered.keys())
        if unregistered:
            log.warning(
                "batch %d: %d attribute names could not be registered: %s",
                batch_id,
                len(unregistered),
                _shown(unregistered),
            )


def unknown_names(
    records: Records, registry: Registry, steps: Steps = USUAL_STEPS
) -> dict[str, NewName]:
    """Return the names in a batch that are not in the registry and could be registered.

    If all ids are in use, the result is empty, and the records are not read.
    """
    if not registry.free:
        return {}
    count = partial(count_names, JsonReader(registry), steps=steps)
    names = new_names(records.through(lambda source: count(without_summaries(source)), SCHEMA))
    untyped = sorted(name for name, new in names.items() if new.type is None)
    if untyped:
        log.warning("no attribute type can represent most values of: %s", _shown(untyped))
    return {name: new for name, new in names.items() if new.type is not None}


def report_registration(batch_id: int, attribute: Attribute, name: NewName) -> None:
    """Log how a name was registered, with a warning if its values are rounded."""
    log.info(
        "batch %d: registered attribute %s with id %d: %s, from %s to %s in steps of %s",
        *(batch_id, attribute.name, attribute.id, attribute.type),
        *(f"{value:f}" for value in (attribute.value(0), attribute.most, attribute.scale)),
    )
    if name.rounded and name.type == attribute.type:
        log.warning(
            "batch %d: %d of %d values of attribute %s are between two steps of %s and were "
            "rounded, and so will later values, because the step of an attribute never changes. "
            "For smaller steps, send the values under a new name, but first add %s=STEP to "
            "%sattributes.steps",
            *(batch_id, name.rounded, name.values, attribute.name),
            *(f"{attribute.scale:f}", "NAME", PREFIX),
        )


def _shown(names: Iterable[str]) -> str:
    return ", ".join(list(names)[:_SHOWN])
