"""ISO 8601 texts to seconds since 1970, one exactly or many as doubles.

Written are a date of four-digit year, maybe ``T`` or a blank and a time of day to the minute, the
second or any part of it up to 18 digits, maybe ``Z`` or an offset. Without either it is UTC.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_TIME = (
    r"^(?P<year>[0-9]{4})-(?P<month>0[1-9]|1[0-2])-(?P<day>0[1-9]|[12][0-9]|3[01])"
    r"(?:[Tt ](?P<hour>[01][0-9]|2[0-3]):(?P<minute>[0-5][0-9])"
    r"(?::(?P<second>[0-5][0-9])(?:\.(?P<fraction>[0-9]{1,18}))?)?"
    r"(?:[Zz]|(?P<sign>[+-])(?P<east>[01][0-9]|2[0-3]):?(?P<minutes>[0-5][0-9]))?)?$"
)
_PATTERN = re.compile(_TIME, re.ASCII)
_EPOCH = dt.date(1970, 1, 1).toordinal()
_UNITS = {"hour": 3600, "minute": 60, "second": 1}


def seconds_of(text: str) -> Decimal | None:
    """Returns the seconds since 1970 of a text, exactly; None if it is no time."""
    found = _PATTERN.match(text)
    if found is None or text.endswith("\n"):
        return None
    part = found.groupdict()
    try:
        day = dt.date(int(part["year"]), int(part["month"]), int(part["day"])).toordinal()
    except ValueError:
        return None
    seconds = (day - _EPOCH) * 86_400
    seconds += sum(int(part[name] or 0) * unit for name, unit in _UNITS.items())
    east = int(part["east"] or 0) * 3600 + int(part["minutes"] or 0) * 60
    seconds -= -east if part["sign"] == "-" else east
    return Decimal(f"{seconds}") + Decimal(f"0.{part['fraction'] or 0}")


def read_times(texts: pa.StringArray) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Reads texts as seconds since 1970, float64[n], and returns True for those that are times,
    bool[n].

    A fraction counts to the nanosecond. Nulls are no times.
    """
    compute: Any = pc
    parts = compute.extract_regex(texts, _TIME.replace(r"$", r"\z"))
    valid = _numpy(parts.is_valid()).astype(np.bool_)

    def number(name: str) -> NDArray[np.int64]:
        text = compute.struct_field(parts, name)
        digits = compute.if_else(compute.equal(text, ""), "0", text)
        column: NDArray[np.int64] = _numpy(compute.fill_null(compute.cast(digits, pa.int64()), 0))
        return column

    year, month, day = number("year"), number("month"), number("day")
    months = (year - 1970).astype("datetime64[Y]").astype("datetime64[M]") + (month - 1)
    first = months.astype("datetime64[D]")
    valid &= (first + (day - 1)).astype("datetime64[M]") == months
    valid &= year > 0
    seconds = (first.astype(np.int64) + day - 1) * 86_400
    for name, unit in _UNITS.items():
        seconds += number(name) * unit
    east = number("east") * 3600 + number("minutes") * 60
    west = _numpy(compute.fill_null(compute.equal(compute.struct_field(parts, "sign"), "-"), False))
    seconds += np.where(west.astype(np.bool_), east, -east)
    fraction = compute.utf8_slice_codeunits(compute.struct_field(parts, "fraction"), 0, 9)
    padded = compute.utf8_rpad(fraction, 9, "0")
    nanoseconds = _numpy(compute.fill_null(compute.cast(padded, pa.int64()), 0))
    return seconds + nanoseconds / 1e9, valid


def _numpy(array: pa.Array) -> Any:
    return array.to_numpy(zero_copy_only=False)
