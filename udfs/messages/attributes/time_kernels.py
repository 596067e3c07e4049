"""ISO 8601 texts to seconds since 1970 in compiled loops, as
`stackcast.udfs.messages.attributes.times`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

# Counting references to the bytes at every call would cost more than most calls do.
_helper: Any = njit(cache=True, nogil=True, _nrt=False)

_DATE, _TIME, _SECOND = len("2026-03-01"), len("T00:00"), len(":00")
_MOST_PLACES, _PLACES = 18, 9
_ZERO, _NINE, _DASH, _PLUS, _COLON, _POINT = np.frombuffer(b"09-+:.", np.uint8)
_T, _SMALL_T, _BLANK, _Z, _SMALL_Z = np.frombuffer(b"Tt Zz", np.uint8)
_DAYS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
#: Days of a year before its months, and from year 0 to 1970.
_BEFORE = np.cumsum(_DAYS) - _DAYS
_TO_1970 = 719_528
#: Fewer seconds than this, in microseconds, are integers that doubles represent exactly.
_EXACT = 1 << 33


@_helper
def time_at(data, at, end):  # type: ignore[no-untyped-def]
    """Reads the text ``data[at:end]``: ``(is a time, seconds)``; a fraction counts to the
    nanosecond."""
    if end - at < _DATE or data[at + 4] != _DASH or data[at + 7] != _DASH:
        return False, 0.0
    year, month, day = _digits(data, at, 4), _digits(data, at + 5, 2), _digits(data, at + 8, 2)
    if year < 1 or not 1 <= month <= 12 or day < 1:
        return False, 0.0
    leaps = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day > _DAYS[month - 1] + (leaps and month == 2):
        return False, 0.0
    last = year - 1
    days = 365 * year + last // 4 - last // 100 + last // 400 + 1 - _TO_1970
    days += _BEFORE[month - 1] + (leaps and month > 2) + day - 1
    seconds = days * 86_400
    at += _DATE
    if at == end:
        return True, np.float64(seconds)
    if end - at < _TIME or not (data[at] == _T or data[at] == _SMALL_T or data[at] == _BLANK):
        return False, 0.0
    hour, minute = _digits(data, at + 1, 2), _digits(data, at + 4, 2)
    if not 0 <= hour < 24 or data[at + 3] != _COLON or not 0 <= minute < 60:
        return False, 0.0
    seconds += hour * 3600 + minute * 60
    at += _TIME
    nanoseconds = np.int64(0)
    if at < end and data[at] == _COLON:
        second = _digits(data, at + 1, 2) if end - at >= _SECOND else -1
        if not 0 <= second < 60:
            return False, 0.0
        seconds += second
        at += _SECOND
        if at < end and data[at] == _POINT:
            at += 1
            places = 0
            while at < end and _ZERO <= data[at] <= _NINE:
                if places < _PLACES:
                    nanoseconds = nanoseconds * 10 + np.int64(data[at] - _ZERO)
                places += 1
                at += 1
            if not 1 <= places <= _MOST_PLACES:
                return False, 0.0
            for _ in range(places, _PLACES):
                nanoseconds *= 10
    if at < end:
        valid, east = _zone(data, at, end)
        if not valid:
            return False, 0.0
        seconds -= east
    microseconds = nanoseconds // 1000
    if microseconds * 1000 == nanoseconds and abs(seconds) < _EXACT:
        # One rounding gives the nearest double.
        return True, (seconds * 1_000_000 + microseconds) / 1e6
    return True, seconds + nanoseconds / 1e9


@_helper
def _zone(data, at, end):  # type: ignore[no-untyped-def]
    """Reads ``Z`` or an offset, up to the end: ``(is one, seconds east)``."""
    if data[at] == _Z or data[at] == _SMALL_Z:
        return at + 1 == end, 0
    size = end - at
    if size < 5 or not (data[at] == _PLUS or data[at] == _DASH):
        return False, 0
    hours, minutes = _digits(data, at + 1, 2), _digits(data, end - 2, 2)
    valid = 0 <= hours < 24 and 0 <= minutes < 60
    valid = valid and (size == 5 or (size == 6 and data[at + 3] == _COLON))
    east = hours * 3600 + minutes * 60
    return valid, east if data[at] == _PLUS else -east


@_helper
def _digits(data, at, count):  # type: ignore[no-untyped-def]
    """Reads so many digits; -1 where one is none."""
    number = np.int64(0)
    for place in range(count):
        byte = data[at + place]
        if not _ZERO <= byte <= _NINE:
            return -1
        number = number * 10 + np.int64(byte - _ZERO)
    return number
