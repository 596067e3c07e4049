"""The registry of attributes: ids, names, and how values become 32-bit numbers of the same order.

``value = offset + raw * scale``. An id is never used again for another attribute.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal

from udfs.messages.fields import Field
from udfs.messages.formats import Header, Specification

Type = Literal["unsigned", "signed", "decimal", "timestamp"]

FORMAT = "attributes"
"""Name of the message format, in ``subscriptions`` and errors."""

BITS = 32


@dataclass(frozen=True)
class Attribute:
    """One row of table ``attributes``. ``value = offset + raw * scale``, raw in 0..2^32 - 1."""

    id: int
    name: str
    type: Type
    scale: Decimal
    offset: Decimal


@dataclass(frozen=True)
class AttributeField(Field):
    """An attribute as a field of rules: its constants are in units of the attribute."""

    attribute: Attribute | None = None

    @property
    def qualified(self) -> str:
        """The name: an attribute is a header by itself, which an event may lack."""
        return self.name


@dataclass(frozen=True)
class Registry:
    """All attributes, by ascending id."""

    attributes: tuple[Attribute, ...]

    @staticmethod
    def from_rows(rows: Iterable[Mapping[str, Any]]) -> Registry:
        """From rows of table ``attributes``."""
        found = [
            Attribute(r["id"], r["name"], r["type"], Decimal(r["scale"]), Decimal(r["offset"]))
            for r in rows
        ]
        return Registry(tuple(sorted(found, key=lambda one: one.id)))

    @cached_property
    def by_name(self) -> dict[str, Attribute]:
        return {one.name: one for one in self.attributes}

    @cached_property
    def known(self) -> int:
        """Bitmask of the ids in use."""
        return sum(1 << one.id for one in self.attributes)

    def specification(self) -> Specification:
        """The message format that rules are written for: a field for each attribute, all optional.

        A missing attribute makes a predicate on it false, so each stands in a header of its own.
        """
        headers = tuple(
            Header(
                one.name,
                one.name,
                (AttributeField(one.name, one.name, BITS, 0, attribute=one),),
            )
            for one in self.attributes
        )
        return Specification(FORMAT, headers, optional=True)

    def ids_of(self, fields: Iterable[Field]) -> list[int]:
        """The id of each field of `specification`."""
        return [self.by_name[field.name].id for field in fields]
