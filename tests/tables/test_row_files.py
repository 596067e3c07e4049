"""Files with rows of a table: values of every type, and errors with file, line and column."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from stackcast.jobs.adapters.tables.definitions import NAMES, definition
from stackcast.jobs.adapters.tables.row_files import parse_row, read_rows
from stackcast.udfs.errors import TableError

pytestmark = pytest.mark.unit

PLACE = "rows.jsonl, line 7"
COLUMNS = pa.schema(
    [
        pa.field("text", pa.string()),
        pa.field("small", pa.int32()),
        pa.field("large", pa.int64()),
        pa.field("flag", pa.bool_()),
        pa.field("weight", pa.float64()),
        pa.field("exact", pa.decimal128(38, 18)),
        pa.field("time", pa.timestamp("us", tz="UTC")),
        pa.field("bytes", pa.binary()),
        pa.field("names", pa.list_(pa.string())),
        pa.field("versions", pa.map_(pa.string(), pa.int64())),
        pa.field("end", pa.struct([pa.field("mac", pa.int64()), pa.field("ip", pa.string())])),
    ]
)


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [
        ("text", '"true"', "true"),
        ("small", "-2147483648", -(2**31)),
        ("large", "9223372036854775807", 2**63 - 1),
        ("flag", "false", False),
        ("weight", "1", 1.0),
        ("weight", "2.5e-1", 0.25),
        ("exact", "1", Decimal(1)),
        ("exact", '"0.10"', Decimal("0.1")),
        # A float has no 21 digits.
        ("exact", "123.000000000000000001", Decimal("123.000000000000000001")),
        ("exact", '"99999999999999999999.999999999999999999"', Decimal(f"{'9' * 20}.{'9' * 18}")),
        ("exact", "0e30", Decimal(0)),
        ("time", '"2026-01-31T10:30:00+01:00"', dt.datetime(2026, 1, 31, 9, 30, tzinfo=dt.UTC)),
        ("time", '"2026-01-31 09:30"', dt.datetime(2026, 1, 31, 9, 30, tzinfo=dt.UTC)),
        ("names", '["a", null]', ["a", None]),
        ("versions", '{"hosts": 3}', {"hosts": 3}),
        ("end", '{"mac": 7}', {"mac": 7, "ip": None}),
        ("end", "null", None),
    ],
)
def test_values_get_the_type_of_their_column(column: str, text: str, value: Any) -> None:
    row = parse_row(f'{{"{column}": {text}}}', COLUMNS, PLACE)
    assert row == dict.fromkeys(COLUMNS.names) | {column: value}
    assert type(row[column]) is type(value)
    if not isinstance(value, dict):
        (stored,) = pa.Table.from_pylist([row], COLUMNS).to_pylist()
        assert stored[column] == value


@pytest.mark.parametrize(
    ("column", "text", "words"),
    [
        ("text", "5", ["'text' is 5", "text"]),
        ("small", "2147483648", ["'small' is 2147483648", "32 bits"]),
        ("small", "1.5", ["'small' is 1.5", "whole number"]),
        ("small", "true", ["'small' is true", "whole number"]),
        ("large", '"7"', ["'large' is \"7\"", "whole number"]),
        ("flag", '"false"', ["'flag' is \"false\"", "true or false"]),
        ("weight", '"1"', ["'weight' is \"1\"", "number"]),
        ("weight", "NaN", ["'weight' is NaN", "number"]),
        ("weight", "1e999", ["'weight' is 1E+999", "number"]),
        ("exact", '"a tenth"', ["'exact' is \"a tenth\"", "number"]),
        ("exact", "true", ["'exact' is true", "number"]),
        ("exact", "[1]", ["'exact' is [1]", "number"]),
        ("exact", "1e-19", ["'exact' is 1E-19", "18"]),
        ("exact", "100000000000000000000", ["20 digits"]),
        ("time", '"yesterday"', ["'time' is \"yesterday\"", "ISO 8601"]),
        ("text", '"\\ud800"', ["'text' is \"\\ud800\"", "text"]),
        ("text", "[" * 100_000, ["nested too deeply"]),
        ("weight", "1e9999999999999999999", ["JSON"]),
        ("time", '"0001-01-01T00:00:00+14:00"', ["'time' is", "ISO 8601"]),
        ("time", '"9999-12-31T23:59:59-14:00"', ["'time' is", "ISO 8601"]),
        ("time", "1700000000", ["'time' is 1700000000", "ISO 8601"]),
        ("bytes", '"00"', ["'bytes'", "JSON cannot express"]),
        ("names", '"a"', ["'names' is \"a\"", "a list"]),
        ("names", '["a", 1]', ["'names[1]' is 1", "text"]),
        ("versions", '{"hosts": "3"}', ["'versions.hosts' is \"3\"", "whole number"]),
        ("end", "[1]", ["'end' is [1]", "an object"]),
        ("end", '{"mac": "x"}', ["'end.mac' is \"x\"", "a MAC address"]),
        ("end", '{"port": 1}', ["'end' has no field 'port'", "mac, ip"]),
        ("ends", "1", ["column 'ends' does not exist", "end"]),
    ],
)
def test_values_of_other_types_are_named_by_line_and_column(
    column: str, text: str, words: list[str]
) -> None:
    with pytest.raises(TableError) as failure:
        parse_row(f'{{"{column}": {text}}}', COLUMNS, PLACE)
    assert failure.value.code == "TABLE.BAD_ROW"
    for word in (PLACE, *words):
        assert word in failure.value.message


def test_lines_are_counted_with_the_empty_ones(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('\n{"text": "a\u2028b"}\r\n\n{"text": 1}\n', newline="")
    with pytest.raises(TableError) as failure:
        read_rows(file, COLUMNS)
    assert f"{file}, line 4" in failure.value.message
    file.write_text('\n{"text": "a\u2028b"}\r\n\n', newline="")
    assert [row["text"] for row in read_rows(file, COLUMNS)] == ["a\u2028b"]


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(TableError) as failure:
        read_rows(file, COLUMNS)
    assert failure.value.code == "TABLE.BAD_ROW" and str(file) in failure.value.message


@pytest.mark.parametrize("name", NAMES)
def test_columns_that_may_not_be_null_are_required(name: str) -> None:
    columns = definition(name).columns
    required = [field.name for field in columns if not field.nullable]
    if not required:
        assert parse_row(json.dumps({}), columns, PLACE) == dict.fromkeys(columns.names)
        return
    with pytest.raises(TableError) as failure:
        parse_row(json.dumps({}), columns, PLACE)
    assert f"column {required[0]!r} is missing" in failure.value.message
