"""Files with rows of a table as JSON objects, one per line. They are read without Spark."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from stackcast.udfs.errors import TableError

#: Bits of whole numbers.
_BITS = {pa.int32(): 32, pa.int64(): 64}
#: Columns, and fields of structs, that hold a MAC address as a number.
_MAC_COLUMNS = frozenset({"mac", "next_hop"})
_MAC = re.compile(r"[0-9A-Fa-f]{2}(?:([:-])[0-9A-Fa-f]{2})(?:\1[0-9A-Fa-f]{2}){4}")


def read_rows(path: Path, columns: pa.Schema) -> list[dict[str, Any]]:
    """Returns the rows of a file, with the types of a table.

    Args:
        path: the file, in UTF-8. Empty lines are skipped.
        columns: the columns of the table. Those that may be null may be missing.

    Raises:
        TableError: BAD_ROW, with file, line and column.
        OSError: the file cannot be read.
    """
    return [row for _, row in numbered_rows(path, columns)]


def numbered_rows(path: Path, columns: pa.Schema) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the number of each line, from 1, with its row. Arguments and errors: `read_rows`."""
    for number, line in lines_of(path):
        yield number, parse_row(line, columns, f"{path}, line {number}")


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the lines of a file that are not empty, with their numbers from 1.

    Raises:
        TableError: BAD_ROW, if the file is not UTF-8 text.
        OSError: the file cannot be read.
    """
    try:
        lines = path.read_text("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise TableError("BAD_ROW", f"{path}: the file is not UTF-8 text ({error})") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield number, line


def parse_row(text: str, columns: pa.Schema, place: str) -> dict[str, Any]:
    """Returns the row that a JSON object describes: all columns, with the types of a table.

    Times are ISO 8601 text, in UTC unless the text has an offset. Exact decimals are numbers or
    text. MAC addresses are text, such as ``02:00:00:00:00:01``, or numbers.

    Args:
        text: the JSON object.
        columns: the columns of the table.
        place: file and line, for the message.

    Raises:
        TableError: BAD_ROW.
    """
    row, errors = examine_row(text, columns, place)
    if errors:
        raise errors[0]
    return row


def examine_row(
    text: str, columns: pa.Schema, place: str
) -> tuple[dict[str, Any], list[TableError]]:
    """Returns the row as `parse_row` does, and an error for each column that has a fault."""
    try:
        # A float would change decimals with many digits.
        row = json.loads(text, parse_float=Decimal)
    except RecursionError:
        return {}, [TableError("BAD_ROW", f"{place}: objects or lists are nested too deeply")]
    except (ValueError, InvalidOperation) as error:
        return {}, [TableError("BAD_ROW", f"{place}: not valid JSON ({error})")]
    if not isinstance(row, dict):
        return {}, [TableError("BAD_ROW", f"{place}: not a JSON object")]
    errors = [
        TableError(
            "BAD_ROW",
            f"{place}: column {name!r} does not exist; the columns are {', '.join(columns.names)}",
        )
        for name in sorted(set(row) - set(columns.names))
    ]
    values = {}
    for field in columns:
        try:
            values[field.name] = _field(row.get(field.name), field, field.name, place)
        except TableError as error:
            errors.append(error)
    return values, errors


def _field(value: Any, field: pa.Field, column: str, place: str) -> Any:
    """Returns the value of a column, or of a field of a struct."""
    if value is None:
        if not field.nullable:
            raise TableError("BAD_ROW", f"{place}: column {column!r} is missing")
        return None
    return _value(value, field.type, column, place)


def _value(value: Any, kind: pa.DataType, column: str, place: str) -> Any:
    """Returns a value with the type of its column."""
    if kinds.is_struct(kind) and isinstance(value, dict):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        names = [field.name for field in fields]
        unknown = sorted(set(value) - set(names))
        if unknown:
            raise TableError(
                "BAD_ROW",
                f"{place}: column {column!r} has no field {unknown[0]!r}; the fields are "
                f"{', '.join(names)}",
            )
        return {f.name: _field(value.get(f.name), f, f"{column}.{f.name}", place) for f in fields}
    if kinds.is_list(kind) and isinstance(value, list):
        return [
            _field(element, kind.value_field, f"{column}[{index}]", place)
            for index, element in enumerate(value)
        ]
    if kinds.is_map(kind) and isinstance(value, dict):
        return {
            key: _field(element, kind.item_field, f"{column}.{key}", place)
            for key, element in value.items()
        }
    convert, expected = _conversion(kind)
    if column.rpartition(".")[2] in _MAC_COLUMNS and kinds.is_integer(kind):
        convert, expected = _mac, "a MAC address, such as 02:00:00:00:00:01, or its number"
    try:
        return convert(value)
    except (ValueError, TypeError, InvalidOperation):
        raise TableError(
            "BAD_ROW",
            f"{place}: column {column!r} is {_shown(value)}, but must be {expected}",
        ) from None


def _conversion(kind: pa.DataType) -> tuple[Callable[[Any], Any], str]:
    """Returns a function that converts JSON values to a type, and what it expects.

    The function raises ValueError, TypeError or InvalidOperation for other values.
    """
    if kinds.is_string(kind):
        return _text, "text"
    if kinds.is_boolean(kind):
        return _boolean, "true or false"
    if kinds.is_floating(kind):
        return _float, "a number"
    if kinds.is_timestamp(kind):
        return _time, "an ISO 8601 time, such as 2026-01-31T09:30:00Z"
    if kind in _BITS:
        bits = _BITS[kind]
        return lambda value: _integer(value, bits), f"a whole number of {bits} bits"
    if kinds.is_decimal(kind):
        precision, scale = kind.precision, kind.scale
        return (
            lambda value: _decimal(value, precision, scale),
            f"a number with at most {precision - scale} digits before the decimal point and "
            f"{scale} after it",
        )
    if kinds.is_struct(kind) or kinds.is_map(kind):
        return _refuse, "an object"
    return _refuse, "a list" if kinds.is_list(kind) else f"{kind}, which JSON cannot express"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    # Half of a surrogate pair is no character, and cannot be stored.
    value.encode()
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _integer(value: Any, bits: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError
    return value


def _mac(value: Any) -> int:
    if isinstance(value, str) and _MAC.fullmatch(value):
        return int(value.replace(":", "").replace("-", ""), 16)
    return _integer(value, 64)


def _float(value: Any) -> float:
    if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        raise TypeError
    try:
        number = float(value)
    except OverflowError:
        raise ValueError from None
    if not math.isfinite(number):
        raise ValueError
    return number


def _decimal(value: Any, precision: int, scale: int) -> Decimal:
    if not isinstance(value, int | Decimal | str) or isinstance(value, bool):
        raise TypeError
    number = Decimal(value)
    if not number.is_finite():
        raise ValueError
    # Not Decimal.normalize, which rounds to 28 digits.
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    while len(digits) > 1 and not digits[-1]:
        digits, exponent = digits[:-1], exponent + 1
    if not number:
        exponent = 0
    if -exponent > scale or len(digits) + exponent > precision - scale:
        raise ValueError
    return Decimal((sign, digits, exponent))


def _time(value: Any) -> dt.datetime:
    if not isinstance(value, str):
        raise TypeError
    time = dt.datetime.fromisoformat(value)
    try:
        return time.astimezone(dt.UTC) if time.tzinfo else time.replace(tzinfo=dt.UTC)
    except OverflowError:
        # The year is not one of 1 to 9999 in UTC.
        raise ValueError from None


def _refuse(value: Any) -> Any:
    raise TypeError


def _shown(value: Any) -> str:
    """Returns a value as the file has it."""
    return str(value) if isinstance(value, Decimal) else json.dumps(value, default=str)
