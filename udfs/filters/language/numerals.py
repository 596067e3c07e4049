"""Columns of decimal numerals to raw values, exactly, without a Python object a number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_LONGEST = 24
"""Characters of a numeral that is read here."""
_DIGITS = 19
"""10**19 - 1 is the longest row of nines that 64 bits hold."""


def read_numerals(
    texts: Sequence[str], decimals: int, maximum: int
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Raw values of numbers in units of ``10**-decimals``: uint64[n], and bool[n], which are sure.

    Sure are numerals of digits with at most one point that are whole in that unit without
    dropping a digit, and neither above ``maximum`` nor so long that 64 bits might not hold them
    on the way. Where it is not sure the value means nothing: whoever asks must read the text
    in another way, which may well accept it.
    """
    count = len(texts)
    values, sure = np.zeros(count, np.uint64), np.zeros(count, np.bool_)
    if not count:
        return values, sure
    characters = np.array(texts, dtype=f"U{_LONGEST + 1}").view(np.uint32)
    characters = np.ascontiguousarray(characters.reshape(count, _LONGEST + 1).T)
    width = int(characters.any(axis=1).sum())
    lengths = np.zeros(count, np.int64)
    points, places = lengths.copy(), lengths.copy()
    sure[:] = True
    for row in characters[:width]:
        digit = row - np.uint32(48)
        is_digit, is_point, ended = digit < 10, row == 46, row == 0
        sure &= is_digit | is_point | ended
        values = np.where(is_digit, values * np.uint64(10) + digit, values)
        points += is_point
        places += is_digit & (points > 0)
        lengths += is_digit
    shift = decimals - places
    sure &= (lengths > 0) & (points <= 1) & (shift >= 0) & (lengths + shift <= _DIGITS)
    # "5." is no numeral, while ".5" is.
    sure &= (points == 0) | (places > 0)
    # Neither a tail that was cut off nor NUL characters at the end, which numpy drops.
    sure &= lengths + points == np.fromiter(map(len, texts), np.int64, count)
    values *= np.uint64(10) ** np.where(sure, shift, 0).astype(np.uint64)
    return values, sure & (values <= np.uint64(maximum))
