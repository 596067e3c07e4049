"""Attribute/value events as text: names, and values in their units."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

from stackcast.udfs.errors import MessageError
from stackcast.udfs.messages.attributes.reference import read_event
from stackcast.udfs.messages.attributes.registry import Registry
from stackcast.udfs.messages.specification import Field

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


class EventLine(NamedTuple):
    """An event as text.

    Attributes:
        attributes: JSON object of names and values.
        payload: bytes after the header.
    """

    attributes: str
    payload: bytes

    @property
    def members(self) -> str:
        """Members of a JSON object: ``attributes``, and ``payload`` as hex if there is one."""
        payload = f', "payload": "{self.payload.hex()}"' if self.payload else ""
        return f'"attributes": {self.attributes}{payload}'

    def __str__(self) -> str:
        return (
            f"{self.attributes}  payload {self.payload.hex()}" if self.payload else self.attributes
        )


@dataclass(frozen=True)
class EventReader:
    """Reads events in messages, one by one.

    Attributes:
        encoding: ``id_pairs`` or ``bitmask``.
        registry: attributes that have names; others are ``id 9``.
    """

    encoding: str
    registry: Registry

    def line(self, message: bytes) -> EventLine | None:
        """Return an event as text; None if the message is not an event."""
        try:
            return self.read(message)
        except MessageError:
            return None

    def read(self, message: bytes) -> EventLine:
        """Return an event as text, attributes by ascending id.

        Raises:
            MessageError: an error of `read_event`.
        """
        widths = self.registry.widths
        values, payload = read_event(message, self.encoding, widths.ids, len(message), widths)
        members = []
        for number, raw in sorted(values.items()):
            field = self._fields.get(number)
            name = f"id {number}" if field is None else field.name
            value = str(raw) if field is None else json_value(field, raw)
            members.append(f"{json.dumps(name)}: {value}")
        return EventLine("{" + ", ".join(members) + "}", payload)

    @cached_property
    def _fields(self) -> dict[int, Field]:
        return fields_by_id(self.registry)


def fields_by_id(registry: Registry) -> dict[int, Field]:
    """Return the field of each id, ids ascending."""
    fields = [header.fields[0] for header in registry.specification().headers]
    return dict(sorted(zip(registry.ids_of(fields), fields, strict=True), key=itemgetter(0)))


def json_value(field: Field, raw: int) -> str:
    """Return a rendered value as JSON: a number with all its digits, or text."""
    text = field.render(raw)
    is_number = field.kind != "string" and _NUMBER.fullmatch(text)
    return text if is_number else json.dumps(text)


def texts_of(values: Mapping[int, int], registry: Registry) -> dict[str, str]:
    """Return names and values in their units of one event's raw values by id.

    An id without a name is ``id 9``.
    """
    fields = fields_by_id(registry)
    return {
        fields[number].name if number in fields else f"id {number}": (
            fields[number].render(raw) if number in fields else str(raw)
        )
        for number, raw in values.items()
    }
