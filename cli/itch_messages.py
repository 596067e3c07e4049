"""ITCH messages as rows and as text."""

from __future__ import annotations

from typing import Any

from stackcast.lab.traffic.itch_writer import itch_specification
from stackcast.udfs.errors import MessageError, printable
from stackcast.udfs.messages.reference import read_message
from stackcast.udfs.messages.specification import Field


def message_row(message: bytes) -> dict[str, Any] | MessageError:
    """Return type, name and fields of a message, or its error; integers stay numbers."""
    specification = itch_specification()
    try:
        values = read_message(specification, message)
    except MessageError as error:
        return error
    header = specification.header_of_type(message[0])
    assert header is not None  # read_message has checked the type
    row: dict[str, Any] = {"type": chr(message[0]), "name": header.name}
    for field in header.fields[1:]:
        row[field.name] = _value(field, values[field.qualified])
    return row


def _value(field: Field, raw: int) -> str | int:
    return raw if field.kind == "integer" else field.render(raw)


def message_text(row: dict[str, Any]) -> str:
    """Return a row on one line: time, type, name, and the fields that describe the event."""
    hidden = ("type", "name", "timestamp", "stock_locate", "tracking_number")
    fields = " ".join(f"{name}={value}" for name, value in row.items() if name not in hidden)
    return printable(f"{_time(int(row['timestamp']))}  {row['type']} {row['name']}  {fields}")


def _time(nanoseconds: int) -> str:
    seconds, fraction = divmod(nanoseconds, 1_000_000_000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:09}"
