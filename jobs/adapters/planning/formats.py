"""The message format of a job: a shipped specification, or the rows of table `attributes`."""

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

#: Defaults of settings for attribute/value events.
_DEFAULTS = {
    "topic": "attributes.raw",
    "deadLetter.topic": "attributes.dead",
    "checkpoint": "checkpoint/attributes",
}


def sources(settings: Settings) -> tuple[str, ...]:
    """Return the tables that define events and grants."""
    registry = (ATTRIBUTES,) if settings.format == ATTRIBUTES else ()
    return (*registry, "advertisements", GRANTS)


def of_settings(settings: Settings, job: str) -> Settings:
    """Return the settings of a job for one format, with the defaults of this format.

    Args:
        settings: settings of the job.
        job: format that the job delivers.

    Raises:
        SettingsError: BAD_VALUE, if a setting is for another format or does not fit this one.
    """
    if "format" in settings.given and settings.format != job:
        name = "attribute_stream" if settings.format == ATTRIBUTES else "itch_stream"
        raise SettingsError(
            "BAD_VALUE",
            f"{PREFIX}format is {settings.format!r}, but this job delivers format {job!r}: start "
            f"jobs/{name}.py, or change the setting",
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
    values: dict[str, Any] = {"format": ATTRIBUTES}
    if "filters.order" not in settings.given:
        # The order of ids does not show which attributes divide the rules well.
        values["filter_order"] = "auto"
    for field in dataclasses.fields(Settings):
        default = _DEFAULTS.get(field.metadata.get("key", ""))
        if default is not None and field.metadata["key"] not in settings.given:
            # The settings determine the folder of checkpoints.
            folder = str(getattr(settings, field.name)).removesuffix("checkpoint/itch")
            values[field.name] = folder + default if "/" in default else default
    result = dataclasses.replace(settings, **values)
    if (missing := result.widths.longest - longest_event(result)) > 0:
        raise SettingsError(
            "BAD_VALUE",
            f"{PREFIX}mtu is {result.mtu}, which is {missing} bytes too small for an event of "
            f"{result.widths.bitmask} attributes with a full header stack: increase it",
        )
    return result


def format_of(settings: Settings, tables: Tables, versions: Mapping[str, int]) -> Format:
    """Return the format of a stream, given versions of its tables."""
    if settings.format != ATTRIBUTES:
        return Packets(specification_of(settings, tables))
    return AttributeEvents(
        registry_of(tables, settings.widths, versions[ATTRIBUTES]),
        cast(Input, settings.attributes_input),
        cast(Encoding, settings.attributes_encoding),
        longest_event(settings),
    )


def longest_event(settings: Settings) -> int:
    """Return the maximum bytes of an attribute/value event in a frame with the longest stack."""
    labels = max(MAX_LABELS, settings.max_labels)
    return message_capacity(settings.mtu, labels, settings.labels)


def event_of(form: Format, message: bytes) -> tuple[dict[str, str], dict[str, int]]:
    """Return the fields of a message by qualified name, as texts and as raw values.

    Raises:
        MessageError: the message is not valid.
    """
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
