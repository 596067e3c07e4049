"""Columns of a table as fields of rules: constants and values to raw values in the same order."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stackcast.udfs.messages.attributes.attribute_field import Attribute, AttributeField, Type
from stackcast.udfs.messages.attributes.registry import is_name
from stackcast.udfs.messages.fields import MAX_VALUE_BITS, Field
from stackcast.udfs.messages.formats import Header, Specification

__all__ = ["ColumnField", "raw_values", "table_specification"]

_SIGN = 1 << 63
_DAY = 86_400
_MOST_DIGITS = 18
"""Digits of a decimal that 63 bits hold."""
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_TRUTHS = {"true": 1, "false": 0}
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_HINTED = 4
"""Fields of a struct that a hint names."""


@dataclass(frozen=True)
class ColumnField(Field):
    """A column of text, of floating-point numbers or of truth values as a field of rules.

    longest: the bytes of the longest constant of text that was read, which the field needs to be
    longer than; a constant that is not shorter is read as any value.
    """

    of: Literal["text", "double", "boolean"] = "text"
    longest: list[int] = field(default_factory=lambda: [0], compare=False, repr=False)

    @property
    def qualified(self) -> str:
        """The name: a column is a header by itself, which a row may lack."""
        return self.name

    def show(self, raw: int) -> str:
        """Writes a raw value as a rule asks for it."""
        return str(raw)

    def _parse(self, text: str, quoted: bool) -> tuple[int, int]:
        if self.of == "text":
            data = text.encode()
            self.longest[0] = max(self.longest[0], len(data))
            size = self.bits // 8
            raw = int.from_bytes(data.ljust(size, b"\0")) if len(data) < size else 0
        elif self.of == "boolean":
            if text.lower() not in _TRUTHS:
                raise self._refuse("NOT_NUMBER", text, "is neither true nor false")
            raw = _TRUTHS[text.lower()]
        else:
            if not _NUMBER.fullmatch(text):
                raise self._refuse("NOT_NUMBER", text, "is not a number")
            (raw,) = struct.unpack(">Q", struct.pack(">d", float(text) + 0.0))
            raw = raw ^ ((1 << 64) - 1) if raw & _SIGN else raw | _SIGN
        return raw, raw


def table_specification(
    schema: pa.Schema, text_bytes: Mapping[str, int] | None = None
) -> Specification:
    """Returns the format of a table's rows: a field for each column that rules can name.

    Those are columns of text, whole numbers, decimals of up to 18 digits, floating-point numbers,
    dates, times and truth values. Their names are words that mean nothing else in rules, or several
    words with dots between them, and each is the name of one column. Hints say what to do about
    other columns.

    Args:
        schema: the columns.
        text_bytes: by name of a column of text, the number of its bytes that are compared, a
            multiple of 8; 8 by default.
    """
    sizes = text_bytes or {}
    columns = Counter(schema.names)
    headers: list[Header] = []
    hints: dict[str, str] = {}
    for column in schema:
        name = column.name
        if columns[name] > 1:
            hints[name] = f"{columns[name]} columns have this name: rename all but one"
            continue
        compared = _field(name, column.type, sizes.get(name, 8))
        if compared is None:
            hints[name] = _hint(name, column.type)
        elif _is_writable(name):
            headers.append(Header(name, name, (compared,)))
    return Specification("the table", tuple(headers), optional=True, hints=hints)


def _is_writable(name: str) -> bool:
    """Returns whether a rule can contain the name of a column."""
    first, *others = name.split(".")
    return is_name(first) if not others else all(map(_WORD.fullmatch, (first, *others)))


def _hint(name: str, type_: pa.DataType) -> str:
    """Returns what to do about a column of a type that rules do not compare."""
    if pa.types.is_struct(type_):
        fields = ", ".join(f"'{part.name}'" for part in list(type_)[:_HINTED])
        return (
            f"column '{name}' is a struct, but rules compare only plain columns: "
            f'select("*", "{name}.*") turns its fields into the columns {fields}'
        )
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return (
            f"column '{name}' is an array, but rules compare only single values: explode it, "
            f'as in select("*", explode("{name}").alias("element"))'
        )
    if pa.types.is_map(type_):
        return (
            f"column '{name}' is a map, but rules compare only single values: create a column "
            f'from one entry, as in withColumn("value", col("{name}")["key"])'
        )
    return f"column '{name}' has type {type_}, which rules cannot compare: cast it to another type"


def _field(name: str, type_: pa.DataType, text_bytes: int) -> Field | None:
    def number(kind: Type, scale: Decimal) -> AttributeField:
        attribute = Attribute(0, name, kind, scale, -_SIGN * scale)
        return AttributeField(name, name, MAX_VALUE_BITS, 0, takes_text=False, attribute=attribute)

    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return ColumnField(name, name, 8 * text_bytes, 0, "string", of="text")
    if pa.types.is_floating(type_):
        return ColumnField(name, name, MAX_VALUE_BITS, 0, "string", of="double")
    if pa.types.is_boolean(type_):
        return ColumnField(name, name, 1, 0, "string", of="boolean")
    if pa.types.is_signed_integer(type_):
        return number("signed", Decimal(1))
    if pa.types.is_decimal128(type_) and type_.precision <= _MOST_DIGITS:
        return number("decimal", Decimal(1).scaleb(-type_.scale))
    if pa.types.is_timestamp(type_):
        return number("timestamp", Decimal("0.000001"))
    if pa.types.is_date32(type_):
        return number("timestamp", Decimal(_DAY))
    return None


def raw_values(column: pa.Array, of: Field) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Returns raw values of a column, uint64[lanes, m], and True where there is one, bool[m].

    There is none where the column is null, or NaN.
    """
    present: NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    if isinstance(of, ColumnField) and of.of == "text":
        return _text(column, of.bits // 8), present
    if isinstance(of, ColumnField) and of.of == "double":
        numbers = _numpy(column.cast(pa.float64()), 0.0) + 0.0
        bits = numbers.view(np.int64)
        raw = np.where(bits < 0, ~bits, bits ^ np.int64(-_SIGN)).view(np.uint64)
        return raw[np.newaxis], present & ~np.isnan(numbers)
    if isinstance(of, ColumnField):
        return _numpy(column, False).astype(np.uint64)[np.newaxis], present
    if pa.types.is_decimal128(column.type):
        # Little-endian, of 128 bits: up to 18 digits are in the lower half.
        halves = np.frombuffer(column.buffers()[1] or b"", np.int64).reshape(-1, 2)
        values = halves[column.offset : column.offset + len(column), 0]
    else:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz))
        elif pa.types.is_date32(column.type):
            column = column.cast(pa.int32())
        values = _numpy(column.cast(pa.int64()), 0)
    return (values ^ np.int64(-_SIGN)).view(np.uint64)[np.newaxis], present


def _numpy(column: pa.Array, absent: Any) -> NDArray[Any]:
    filled = column.fill_null(absent) if column.null_count else column
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def _text(column: pa.Array, size: int) -> NDArray[np.uint64]:
    """Returns the first bytes of texts, big-endian words: they sort as the texts do.

    A text that ends before is padded with zeros. Those in texts count as ones, so no constant,
    which has none and is shorter, is taken for a longer text.
    """
    count = len(column)
    plain = column.cast(pa.large_binary())
    _, borders, data = plain.buffers()
    offsets = np.frombuffer(borders, np.int64)[plain.offset :][: count + 1]
    characters = np.frombuffer(data or b"\0", np.uint8)
    if not characters.size:
        return np.zeros((size // 8, count), np.uint64)
    at = offsets[:-1, np.newaxis] + np.arange(size)
    there = at < offsets[1:, np.newaxis]
    found = np.maximum(characters[np.minimum(at, characters.size - 1)], 1)
    words = np.where(there, found, 0).astype(np.uint8).view(">u8")
    return words.T.astype(np.uint64)
