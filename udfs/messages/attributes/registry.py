"""The registry of attributes: ids, names, and the map of values to 32-bit numbers, in order.

``value = offset + raw * scale``. An id is never used again for another attribute.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, DecimalException
from fractions import Fraction
from functools import cached_property
from typing import Any, cast, get_args

from stackcast.udfs.errors import AttributeTableError
from stackcast.udfs.messages.attributes.attribute_field import BITS, Attribute, AttributeField, Type
from stackcast.udfs.messages.attributes.events import WIDTHS, Widths
from stackcast.udfs.messages.attributes.ordered_fields import FloatField, TextField
from stackcast.udfs.messages.fields import Field
from stackcast.udfs.messages.formats import Header, Specification

__all__ = [
    "BITS",
    "FORMAT",
    "RESERVED",
    "Attribute",
    "AttributeField",
    "Registry",
    "Type",
    "attribute",
    "is_name",
]

FORMAT = "attributes"
"""Name of the message format, in ``subscriptions`` and errors."""

Maker = Callable[[int, str, Type, Widths], Attribute]
"""Makes an attribute of id, name, type and the widths of headers."""

RESERVED = frozenset({"and", "or", "not", "in", "between", "fwd", "message_type"})
"""Words that mean something else in rules, in any case of letters."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_LOWEST = -(1 << (BITS - 1))
_DEFAULTS: dict[str, tuple[Decimal, Decimal]] = {
    "unsigned": (Decimal(1), Decimal(0)),
    "signed": (Decimal(1), Decimal(_LOWEST)),
    "decimal": (Decimal("0.01"), Decimal(_LOWEST) / 100),
    "timestamp": (Decimal(1), Decimal(0)),
}
_PLAIN = (Decimal(1), Decimal(0))
#: DECIMAL(38,18), as the table has it.
_PLACES, _WHOLE = 18, 20
_REMEDY = (
    "attributes is append-only: to delete a wrong row, run ALTER TABLE attributes UNSET "
    "TBLPROPERTIES ('delta.appendOnly'), DELETE the row, and run SET TBLPROPERTIES "
    "('delta.appendOnly' = 'true')"
)


def is_name(name: str) -> bool:
    """Returns True if an attribute may be called so: a word that means nothing else in rules."""
    return bool(_NAME.fullmatch(name)) and name.lower() not in RESERVED


def attribute(
    id: int,
    name: str,
    type: Type,
    scale: Decimal | str | int | None = None,
    offset: Decimal | str | int | None = None,
    widths: Widths = WIDTHS,
) -> Attribute:
    """Makes an attribute; scale and offset are by default those of its type.

    unsigned 1 and 0, signed 1 and -2^31, decimal 0.01 and -2^31 * 0.01, timestamp 1 and 0: seconds
    since 1970. Those of a float or a text are always 1 and 0. Raises AttributeTableError BAD_ROW.
    """
    usual = _DEFAULTS.get(type, _PLAIN)
    row = {
        "id": id,
        "name": name,
        "type": type,
        "scale": usual[0] if scale is None else scale,
        "offset": usual[1] if offset is None else offset,
    }
    return _from_row(row, "correct it", widths)


def usual_attribute(id: int, name: str, type: Type, widths: Widths = WIDTHS) -> Attribute:
    """Return an attribute with the usual scale and offset of its type; see `attribute`."""
    return attribute(id, name, type, widths=widths)


@dataclass(frozen=True)
class Registry:
    """Holds all attributes, by ascending id, and the widths of the headers that they are in."""

    attributes: tuple[Attribute, ...]
    widths: Widths = WIDTHS

    @staticmethod
    def from_rows(rows: Iterable[Mapping[str, Any]], widths: Widths = WIDTHS) -> Registry:
        """Reads rows of table ``attributes``.

        Raises AttributeTableError BAD_ROW, DUPLICATE_ID, DUPLICATE_NAME.
        """
        found = sorted((_from_row(row, _REMEDY, widths) for row in rows), key=lambda one: one.id)
        _check_distinct(found)
        return Registry(tuple(found), widths)

    @cached_property
    def by_name(self) -> dict[str, Attribute]:
        return {one.name: one for one in self.attributes}

    @cached_property
    def known(self) -> int:
        """The bitmask of the ids in use."""
        return sum(1 << one.id for one in self.attributes)

    @property
    def free(self) -> list[int]:
        """The ids that are not in use, ascending."""
        return [id for id in range(self.widths.bitmask) if not self.known >> id & 1]

    def specification(self) -> Specification:
        """Returns the message format of rules: a field for each attribute, all optional.

        A missing attribute makes a predicate on it false, so each stands in a header of its own.
        """
        headers = tuple(Header(one.name, one.name, (_field(one),)) for one in self.attributes)
        return Specification(FORMAT, headers, optional=True)

    def ids_of(self, fields: Iterable[Field]) -> list[int]:
        """Returns the id of each field of `specification`."""
        return [self.by_name[field.name].id for field in fields]

    def with_new(
        self, names: Mapping[str, Type], make: Maker = usual_attribute
    ) -> tuple[Registry, list[Attribute]]:
        """Registers names by type: returns the registry then, and its new attributes.

        They get the lowest free ids in the order of their names. Names that are known or no words
        (`is_name`) are left out, and those that no id is left for.

        Args:
            names: types by name.
            make: makes an attribute of its id, name and type and the widths of headers; by default
                with the usual scale and offset of the type.
        """
        unknown = sorted(name for name in names if name not in self.by_name and is_name(name))
        new = [
            make(id, name, names[name], self.widths)
            for id, name in zip(self.free, unknown, strict=False)
        ]
        return self.extended(new), new

    def extended(self, new: Sequence[Attribute]) -> Registry:
        """Returns the registry with other attributes as well.

        Raises AttributeTableError DUPLICATE_ID, DUPLICATE_NAME.
        """
        found = sorted((*self.attributes, *new), key=lambda one: one.id)
        _check_distinct(found)
        return replace(self, attributes=tuple(found))


def _field(one: Attribute) -> AttributeField:
    if one.type == "text":
        return TextField(one.name, one.name, BITS, 0, "string", takes_text=False, attribute=one)
    kind = FloatField if one.type == "float" else AttributeField
    return kind(one.name, one.name, BITS, 0, takes_text=False, attribute=one)


def _check_distinct(found: Sequence[Attribute]) -> None:
    ids: dict[int, Attribute] = {}
    names: dict[str, Attribute] = {}
    for one in found:
        if (other := names.setdefault(one.name, one)) is not one:
            raise AttributeTableError(
                "DUPLICATE_NAME",
                f"table attributes contains attribute {one.name!r} twice, with ids {other.id} and "
                f"{one.id}; {_REMEDY}",
                name=one.name,
            )
        if (other := ids.setdefault(one.id, one)) is not one:
            raise AttributeTableError(
                "DUPLICATE_ID",
                f"table attributes contains id {one.id} twice, for {other.name!r} and "
                f"{one.name!r}; {_REMEDY}",
                id=one.id,
            )


def _from_row(row: Mapping[str, Any], remedy: str, widths: Widths) -> Attribute:
    id, name, type = row.get("id"), row.get("name"), row.get("type")

    def bad(why: str) -> AttributeTableError:
        shown = f"{str(name)[:63]!r} (id {str(id)[:12]})"
        return AttributeTableError(
            "BAD_ROW", f"attribute {shown} {why}; {remedy}", id=id, name=name
        )

    if not isinstance(id, int) or isinstance(id, bool) or not 0 <= id < widths.bitmask:
        raise bad(f"needs an id from 0 to {widths.bitmask - 1}")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise bad(
            "needs a name of 1 to 63 letters, digits and underscores that does not start with a "
            "digit"
        )
    if name.lower() in RESERVED:
        raise bad("has a name that is a reserved word of the rule language")
    if type not in get_args(Type):
        raise bad(f"has type {str(type)[:40]!r}, but the types are {', '.join(get_args(Type))}")
    scale, offset = _decimal(row.get("scale")), _decimal(row.get("offset"))
    if scale is None or offset is None:
        raise bad("has a scale or an offset that is not a DECIMAL(38,18)")
    if scale <= 0:
        raise bad(f"has scale {scale}, but a scale must be above 0")
    found = Attribute(id, name, cast(Type, type), scale, offset)
    if type not in _DEFAULTS and (scale, offset) != _PLAIN:
        raise bad(f"has type {type}, whose scale must be 1 and whose offset must be 0")
    if not _is_exact(found):
        raise bad(
            "has values that cannot be distinguished as doubles: use a larger scale, or an offset "
            "closer to 0"
        )
    return found


def _decimal(written: Any) -> Decimal | None:
    """Reads a number without zeros at its end, so that it is the same however it was written."""
    try:
        value = Decimal(written)
    except (DecimalException, TypeError, ValueError):
        return None
    if not value.is_finite() or (value and not -_PLACES <= value.adjusted() < _WHOLE):
        return None
    scaled = value.scaleb(_PLACES)
    if scaled != scaled.to_integral_value():
        return None
    value = value.normalize()
    return value.quantize(Decimal(1)) if value == value.to_integral_value() else value


def _is_exact(one: Attribute) -> bool:
    """Returns True if a value read as a double is nearer to its raw value than to any other."""
    farthest = max(abs(one.offset), abs(one.most))
    rounding = Fraction(math.ulp(float(farthest))) / 2
    rounding += abs(Fraction(float(one.offset)) - Fraction(one.offset))
    return rounding / Fraction(one.scale) < Fraction(1, 4)
