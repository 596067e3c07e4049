"""Columns of numbers, as JSON writes them or as doubles, to raw values of attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from udfs.messages.attributes.attribute_field import Attribute
from udfs.messages.attributes.events import FINE, code_of
from udfs.messages.attributes.times import read_times

NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
"""A number of JSON, as a regular expression of RE2, Java and Python."""

_MOST = (1 << 32) - 1


def raw_values(
    values: NDArray[np.float64], attribute: Attribute
) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Raw values of doubles in units of the attribute: uint32[n], and uint8[n], the reasons.

    ``rint((value - offset) / scale)``, half to even. Where the reason is not 0 the value is 0:
    not_a_number for NaN and infinities, and so for numbers beyond doubles, as ``1e400``;
    value_out_of_range for what is beyond 32 bits.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        raw = np.rint((values - float(attribute.offset)) / float(attribute.scale))
    reason = np.full(len(values), FINE, np.uint8)
    fits = (raw >= 0) & (raw <= _MOST)
    reason[~fits] = code_of("value_out_of_range")
    reason[~np.isfinite(values)] = code_of("not_a_number")
    return np.where(fits, raw, 0).astype(np.uint32), reason


def read_values(
    texts: pa.StringArray, attribute: Attribute
) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Raw values of JSON texts: a number ``25.5``, or, of a timestamp, ISO 8601 in quotes.

    As `raw_values`; all other texts are not_a_number: ``"25.5"``, ``true``, ``NaN``.
    """
    compute: Any = pc
    is_number = compute.match_substring_regex(texts, rf"\A{NUMBER}\z")
    numerals = compute.if_else(is_number, texts, None)
    numbers = compute.fill_null(compute.cast(numerals, pa.float64()), np.nan)
    values = numbers.to_numpy(zero_copy_only=False)
    if attribute.type == "timestamp" and not compute.all(is_number).as_py():
        quoted = compute.match_substring_regex(texts, r'\A"[^"\\]{10,44}"\z')
        inner = compute.if_else(quoted, compute.utf8_slice_codeunits(texts, 1, -1), None)
        seconds, is_time = read_times(inner)
        values = np.where(is_time, seconds, values)
    return raw_values(values, attribute)
