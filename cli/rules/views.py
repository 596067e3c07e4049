"""Rules and their states as text and as JSON."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stackcast.cli.filters.fault_text import fault_text
from stackcast.udfs.errors import printable

Row = Mapping[str, Any]

_COLUMNS = ("id", "subscriber", "format", "state", "filter")


def json_lines(rows: Iterable[Row]) -> str:
    """Return lines with a JSON object per rule, and with times as ISO 8601 text."""
    return "".join(json.dumps(dict(row), default=_json) + "\n" for row in rows)


def _json(value: Any) -> str:
    return value.isoformat() if isinstance(value, dt.datetime) else str(value)


def table(rows: Sequence[Row]) -> str:
    """Return the rules as a table, one line per rule, and their number."""
    cells = [[printable(" ".join(str(row[name]).split())) for name in _COLUMNS] for row in rows]
    lines_of_cells = [["id", "subscriber", "format", "state", "rule"], *cells]
    widths = [
        max(len(row[column]) for row in lines_of_cells) for column in range(len(_COLUMNS) - 1)
    ]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in lines_of_cells
    ]
    return "\n".join([*lines, _number(len(rows))]) if rows else "no rules"


def details(row: Row) -> str:
    """Return all information about a rule."""
    author = printable(row["updated_by"] or "an unknown author")
    written = f", {_time(row['updated_at'])}" if row["updated_at"] else ""
    lines = [
        f"id          {printable(row['id'])}",
        f"subscriber  {printable(row['subscriber'])}",
        f"format      {printable(row['format'])}",
        f"state       {_state(row)}",
        f"written     by {author}{written}",
        f"rule        {_indented(row['filter'], 12)}",
    ]
    return "\n".join([*lines, *_remarks(row)])


def status(rows: Sequence[Row], streams: Sequence[Row]) -> str:
    """Return the state of each rule, the number of rules in each state, and the streams."""
    lines = []
    width = max((len(printable(row["id"])) for row in rows), default=0)
    for row in rows:
        lines.append(f"{printable(row['id']):<{width}}  {_state(row)}")
        lines += _remarks(row)
    counts = Counter(row["state"] for row in rows)
    counted = ", ".join(f"{count:,} {state}" for state, count in sorted(counts.items()))
    lines.append(f"{_number(len(rows))}{': ' if counted else ''}{counted}")
    lines += [
        f"{printable(row['role'])} {'is starting' if row['starting'] else 'runs'} since "
        f"{_time(row['since'])}: process {row['pid']} on {printable(row['host'])}"
        for row in streams
    ]
    return "\n".join(lines if streams else [*lines, "no stream runs on these tables"])


def _number(count: int) -> str:
    return "1 rule" if count == 1 else f"{count:,} rules"


def _state(row: Row) -> str:
    if row["state"] != "live":
        return str(row["state"])
    return f"live since version {row['since_version']}, {_time(row['since'])}"


def _remarks(row: Row) -> list[str]:
    mark = "" if row["state"] == "rejected" else "warning: "
    return [
        printable(line)
        for remark in row["remarks"]
        for line in fault_text(
            row["id"],
            f"{mark}{remark['code']}",
            remark["message"],
            line=remark["line"] or 1,
            column=remark["column"] or 1,
        ).split("\n")
    ]


def _indented(text: str, width: int) -> str:
    first, *following = (printable(line) for line in text.split("\n"))
    return "\n".join([first, *(" " * width + line for line in following)])


def _time(time: dt.datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"
