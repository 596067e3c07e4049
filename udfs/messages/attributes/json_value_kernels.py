"""Texts, numbers and words of JSON in compiled loops: where each ends, and what it says.

Loops go forward from a position to the end of a record. A text goes from the byte after its opening
quote to the closing one. A fault of the grammar is a position below 0, or the kind BAD.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

# Counting references to the bytes at every call would cost more than most calls do.
helper: Any = njit(cache=True, nogil=True, _nrt=False)

BAD, NESTED, NULL, OTHER, QUOTED, NUMBER, HARD = range(7)
"""Values: none at all, an object or a list, null, another word, a text, a number, and a number that
takes more than one step of arithmetic."""

BASIS, PRIME = 0xCBF29CE484222325, 0x100000001B3
"""Of the hash of texts, FNV-1a."""
START, FACTOR = np.uint64(BASIS), np.uint64(PRIME)

_DIGITS = 19
_EXACT = np.uint64(1 << 53)
_TENS = np.array([10.0**power for power in range(23)])
"""Powers of ten that doubles hold exactly."""
_FAR = 1 << 20

# What a byte is within a text; the first byte of a longer character says how many bytes it has.
_ORDINARY, _CONTROL, _CLOSES, _ESCAPES, _TWO, _THREE, _FOUR = range(7)
_KIND = np.full(256, _CONTROL, np.uint8)
_KIND[0x20:0x80] = _ORDINARY
_KIND[ord('"')], _KIND[ord("\\")] = _CLOSES, _ESCAPES
_KIND[0xC2:0xE0], _KIND[0xE0:0xF0], _KIND[0xF0:0xF5] = _TWO, _THREE, _FOUR

_HEX = np.full(256, -1, np.int64)
for _digit in range(16):
    _HEX[[ord(f"{_digit:x}"), ord(f"{_digit:X}")]] = _digit

# The character that follows a backslash, and what both mean.
_MEANT = np.zeros(256, np.int64)
for _short, _long in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
    _MEANT[_short] = _long

QUOTE, _BACKSLASH, _U = np.frombuffer(b'"\\u', np.uint8)
OPEN, CLOSE, _LIST, COLON, COMMA = np.frombuffer(b"{}[:,", np.uint8)
_BLANK, _TAB, _LINE, _RETURN = np.frombuffer(b" \t\n\r", np.uint8)
_ZERO, _NINE, _MINUS, _PLUS, _POINT, _E, _LARGE_E = np.frombuffer(b"09-+.eE", np.uint8)
_TRUE, _FALSE, _NONE, _NAN, _INFINITY = (
    np.frombuffer(word, np.uint8) for word in (b"true", b"false", b"null", b"NaN", b"Infinity")
)


@helper
def skip(data, at, end):  # type: ignore[no-untyped-def]
    """Returns the next position that is no blank."""
    while at < end:
        byte = data[at]
        if byte not in (_BLANK, _TAB, _LINE, _RETURN):
            break
        at += 1
    return at


@helper
def pass_text(data, at, end):  # type: ignore[no-untyped-def]
    """Passes a text of UTF-8: ``(closing quote, hash, has escapes)``; the hash is one of texts of
    ASCII without escapes (FNV-1a)."""
    hash = START
    escaped = False
    while at < end:
        byte = data[at]
        kind = _KIND[byte]
        if kind == _ORDINARY:
            hash = (hash ^ np.uint64(byte)) * FACTOR
            at += 1
        elif kind == _CLOSES:
            return at, hash, escaped
        elif kind == _ESCAPES:
            escaped = True
            at = _pass_escape(data, at + 1, end)
        else:
            at = _pass_character(data, at, end, kind)
        if at < 0:
            break
    return -1, hash, escaped


@helper
def _pass_escape(data, at, end):  # type: ignore[no-untyped-def]
    """Passes what follows a backslash; half of a surrogate pair is no character."""
    if at >= end:
        return -1
    if data[at] != _U:
        return at + 1 if _MEANT[data[at]] else -1
    code = _hex(data, at + 1, end)
    if code < 0 or 0xDC00 <= code < 0xE000:
        return -1
    if code < 0xD800 or code >= 0xE000:
        return at + 5
    if at + 6 >= end or data[at + 5] != _BACKSLASH or data[at + 6] != _U:
        return -1
    return at + 11 if 0xDC00 <= _hex(data, at + 7, end) < 0xE000 else -1


@helper
def _hex(data, at, end):  # type: ignore[no-untyped-def]
    """Reads four hexadecimal digits."""
    code = 0
    if at + 4 > end:
        return -1
    for place in range(4):
        digit = _HEX[data[at + place]]
        if digit < 0:
            return -1
        code = code << 4 | digit
    return code


@helper
def _pass_character(data, at, end, kind):  # type: ignore[no-untyped-def]
    """Passes a character of several bytes: no longer than it must be, no surrogate, none beyond
    U+10FFFF."""
    if kind == _CONTROL:
        return -1
    size = kind - _TWO + 2
    if at + size > end:
        return -1
    for place in range(1, size):
        if data[at + place] & 0xC0 != 0x80:
            return -1
    first, second = data[at], data[at + 1]
    if (
        (first == 0xE0 and second < 0xA0)
        or (first == 0xED and second > 0x9F)
        or (first == 0xF0 and second < 0x90)
        or (first == 0xF4 and second > 0x8F)
    ):
        return -1
    return at + size


@helper
def next_character(data, at):  # type: ignore[no-untyped-def]
    """Reads one character of a text that is right: ``(code, next position)``.

    Codes are those of ASCII; other characters come in parts, each above them.
    """
    if data[at] != _BACKSLASH:
        return np.int64(data[at]), at + 1
    if data[at + 1] != _U:
        return _MEANT[data[at + 1]], at + 2
    return _hex(data, at + 2, at + 6), at + 6


@helper
def characters(data, at, end):  # type: ignore[no-untyped-def]
    """Counts the characters of a text that is right."""
    count = 0
    while at < end:
        byte = data[at]
        code, at = next_character(data, at)
        # Neither a byte that continues a character nor the second half of a surrogate pair.
        count += byte & 0xC0 != 0x80 and not 0xDC00 <= code < 0xE000
    return count


@helper
def unescape(data, at, end, scratch):  # type: ignore[no-untyped-def]
    """Writes a text that is right: how many characters; -1 where some are no ASCII, or too many."""
    size = 0
    while at < end:
        code, at = next_character(data, at)
        if code >= 0x80 or size == scratch.size:
            return -1
        scratch[size] = code
        size += 1
    return size


@helper
def pass_value(data, at, end):  # type: ignore[no-untyped-def]
    """Passes a value: ``(next position, kind, number)``."""
    if at >= end:
        return at, BAD, 0.0
    byte = data[at]
    if byte == QUOTE:
        closing = pass_text(data, at + 1, end)[0]
        return closing + 1, QUOTED if closing >= 0 else BAD, 0.0
    if _ZERO <= byte <= _NINE:
        return _pass_number(data, at, end, False)
    if byte == _MINUS:
        if at + 1 < end and _ZERO <= data[at + 1] <= _NINE:
            return _pass_number(data, at + 1, end, True)
        return _pass_word(data, at + 1, end, _INFINITY, OTHER)
    if byte in (OPEN, _LIST):
        return at, NESTED, 0.0
    if byte == _NONE[0]:
        return _pass_word(data, at, end, _NONE, NULL)
    if byte == _TRUE[0]:
        return _pass_word(data, at, end, _TRUE, OTHER)
    if byte == _FALSE[0]:
        return _pass_word(data, at, end, _FALSE, OTHER)
    if byte == _NAN[0]:
        return _pass_word(data, at, end, _NAN, OTHER)
    return _pass_word(data, at, end, _INFINITY, OTHER)


@helper
def _pass_word(data, at, end, word, kind):  # type: ignore[no-untyped-def]
    same = at + word.size <= end
    if same:
        for place in range(word.size):
            same = same and data[at + place] == word[place]
    return at + word.size, kind if same else BAD, 0.0


@helper
def _pass_number(data, at, end, negative):  # type: ignore[no-untyped-def]
    """Passes a number from its first digit on. It is HARD unless its digits and its power of ten
    are doubles, so that one step rounds it (Clinger 1990)."""
    mantissa = np.uint64(0)
    digits = 0
    power = np.int64(0)
    begin = at
    while at < end and _ZERO <= data[at] <= _NINE:
        mantissa = mantissa * np.uint64(10) + np.uint64(data[at] - _ZERO)
        digits += mantissa != 0 or digits > 0
        at += 1
    if data[begin] == _ZERO and at > begin + 1:
        return at, BAD, 0.0
    if at < end and data[at] == _POINT:
        at += 1
        begin = at
        while at < end and _ZERO <= data[at] <= _NINE:
            mantissa = mantissa * np.uint64(10) + np.uint64(data[at] - _ZERO)
            digits += mantissa != 0 or digits > 0
            at += 1
        if at == begin:
            return at, BAD, 0.0
        power = begin - at
    if at < end and (data[at] == _E or data[at] == _LARGE_E):
        at += 1
        below = at < end and data[at] == _MINUS
        if at < end and (data[at] == _MINUS or data[at] == _PLUS):
            at += 1
        begin = at
        written = np.int64(0)
        while at < end and _ZERO <= data[at] <= _NINE:
            if written < _FAR:
                written = written * 10 + np.int64(data[at] - _ZERO)
            at += 1
        if at == begin:
            return at, BAD, 0.0
        power += -written if below else written
    if digits > _DIGITS or mantissa > _EXACT or power < -22 or power > 22:
        return at, HARD, 0.0
    number = np.float64(mantissa)
    number = number * _TENS[power] if power >= 0 else number / _TENS[-power]
    return at, NUMBER, -number if negative else number
