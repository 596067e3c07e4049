"""The message format of a job: shipped with us, or told by table ``attributes``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

from stackcast.jobs.adapters.app.settings import PREFIX, Settings
from stackcast.jobs.adapters.planning.specifications import registry_of, specification_of
from stackcast.jobs.adapters.tables.tables import GRANTS, Tables
from stackcast.udfs.errors import SettingsError
from stackcast.udfs.messages.attributes.reference import read_event
from stackcast.udfs.messages.attributes.registry import FORMAT as ATTRIBUTES
from stackcast.udfs.messages.readers import AttributeEvents, Encoding, Format, Input, Packets
from stackcast.udfs.messages.reference import read_message
from stackcast.udfs.network.labels import MAX_LABELS
from stackcast.udfs.stacks.frame import message_capacity

#: Of attribute/value events where the settings name none.
_DEFAULTS = {
    "topic": "attributes.raw",
    "deadLetter.topic": "attributes.dead",
    "checkpoint": "checkpoint/attributes",
}


def sources(settings: Settings) -> tuple[str, ...]:
    """The tables, beside those of rules and network, that say what events are, and for whom."""
    own = (ATTRIBUTES,) if settings.format == ATTRIBUTES else ()
    return (*own, "advertisements", GRANTS)


def of_settings(settings: Settings, job: str) -> Settings:
    """The settings of a job for one format, with its own names where none are given.

    Raises SettingsError ``BAD_VALUE`` where they are for another format, or ask for what it cannot.
    """
    if "format" in settings.given and settings.format != job:
        other = "attribute_stream" if settings.format == ATTRIBUTES else "itch_stream"
        raise SettingsError(
            "BAD_VALUE",
            f"{PREFIX}format is {settings.format!r}, but this job delivers format {job!r}: start "
            f"jobs/{other}.py, or change the setting",
        )
    if job != ATTRIBUTES:
        return settings
    if settings.attributes_unknown == "register" and settings.attributes_input != "json":
        raise SettingsError(
            "BAD_VALUE",
            f"{PREFIX}attributes.unknown is 'register', but records in "
            f"{settings.attributes_input} contain attribute ids without names: register "
            f"attributes in table attributes, or set {PREFIX}attributes.input to json",
        )
    made = dataclasses.replace(settings, format=ATTRIBUTES)
    if "filters.order" not in settings.given:
        # Ids say nothing of how well an attribute splits the rules.
        made = dataclasses.replace(made, filter_order="auto")
    for field in dataclasses.fields(Settings):
        name = _DEFAULTS.get(field.metadata.get("key", ""))
        if name is not None and field.metadata["key"] not in settings.given:
            before = str(getattr(settings, field.name))
            # The folder of checkpoints is where the settings have it.
            name = before.removesuffix("checkpoint/itch") + name if "/" in name else name
            values: dict[str, Any] = {field.name: name}
            made = dataclasses.replace(made, **values)
    if (lacking := made.widths.longest - longest_event(made)) > 0:
        raise SettingsError(
            "BAD_VALUE",
            f"{PREFIX}mtu is {made.mtu}, which is {lacking} bytes too small for an event of "
            f"{made.widths.bitmask} attributes with a full header stack: increase it",
        )
    return made


def format_of(settings: Settings, tables: Tables, versions: Mapping[str, int]) -> Format:
    """The format as a stream needs it, as of ``versions``."""
    if settings.format != ATTRIBUTES:
        return Packets(specification_of(settings, tables))
    return AttributeEvents(
        registry_of(tables, settings.widths, versions[ATTRIBUTES]),
        cast(Input, settings.attributes_input),
        cast(Encoding, settings.attributes_encoding),
        longest_event(settings),
    )


def longest_event(settings: Settings) -> int:
    """Most bytes of an attribute/value event: what fits a frame beside the longest stack."""
    most = max(MAX_LABELS, settings.max_labels)
    return message_capacity(settings.mtu, most, settings.labels)


def event_of(form: Format, message: bytes) -> tuple[dict[str, str], dict[str, int]]:
    """Returns the fields of a message as texts, and raw, by qualified name. Raises MessageError."""
    specification = form.specification
    if isinstance(form, AttributeEvents):
        registry = form.registry
        widths = registry.widths
        by_id, _ = read_event(message, form.encoding, widths.ids, len(message), widths)
        names = zip(
            registry.ids_of(specification.fields.values()), specification.fields, strict=True
        )
        raw = {name: by_id[number] for number, name in names if number in by_id}
    else:
        raw = read_message(specification, message)
    return {name: specification.fields[name].render(value) for name, value in raw.items()}, raw
