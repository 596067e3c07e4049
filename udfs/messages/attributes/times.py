"""ISO 8601 texts to seconds since 1970, exactly.

Written are a date of four-digit year, maybe ``T`` or a blank and a time of day to the minute, the
second or any part of it up to 18 digits, maybe ``Z`` or an offset. Without either it is UTC.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal

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
