"""The specification of a message format, for programs that do not decode messages."""

from __future__ import annotations

from stackcast import schemas
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.messages.attributes.events import Widths
from stackcast.udfs.messages.attributes.registry import FORMAT as ATTRIBUTES
from stackcast.udfs.messages.attributes.registry import Registry
from stackcast.udfs.messages.specification import Specification, parse_specification


def specification_of(settings: Settings, tables: Tables) -> Specification:
    """Return the specification of the format; that of attributes is read from their table.

    Raises:
        AttributeTableError: the table cannot be used.
    """
    if settings.format == ATTRIBUTES:
        return registry_of(tables, settings.widths).specification()
    text = schemas.read_text(f"messages/{settings.format}.spec")
    return parse_specification(text, settings.format)


def registry_of(tables: Tables, widths: Widths, version: int | None = None) -> Registry:
    """Return the attributes in a version of their table; by default in the newest one."""
    return Registry.from_rows(tables.rows(ATTRIBUTES, version), widths)
