"""Names and values of flat JSON objects, ``{"temp": 25.5, "hum": 30}``, to events.

A record is one object in UTF-8 (RFC 8259); NaN, Infinity and -Infinity may stand for a number. Its
``pairs`` are a map of names to the JSON texts of the values: ``25.5``, ``"25.5"`` with its quotes,
``true``; ``null`` or a null of Arrow for an attribute that is absent. Pairs are null where a record
is no such object, and then its bytes say why.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from udfs.messages.attributes.attribute_field import Attribute
from udfs.messages.attributes.events import FINE, Events, code_of
from udfs.messages.attributes.ordered_fields import CHARACTERS, raw_floats
from udfs.messages.attributes.registry import Registry
from udfs.messages.attributes.times import read_times

PAIRS = pa.map_(pa.string(), pa.string())

NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
"""A number of JSON, as a regular expression of RE2, Java and Python."""

_MOST = (1 << 32) - 1

LONGEST_NUMBER, LONGEST_NAME = 1000, 50_000
"""Characters of a number and of a name; a record with longer ones is malformed."""

#: One character, in UTF-8 as bytes, and in text.
_BYTES = (
    r"[\x20\x21\x23-\x5b\x5d-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]"
    r"|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}"
    r"|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
)
_TEXT = r'[^"\\\x00-\x1f]'
_HEX = "[0-9a-fA-F]"
# Half of a surrogate pair is no character.
_ESCAPE = (
    rf'\\(?:["\\/bfnrt]|u(?:[0-9a-cA-CefEF]{_HEX}{{3}}|[dD][0-7]{_HEX}{{2}}'
    rf"|[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}))"
)
_NONE = 255


def _grammar(character: str, again: str) -> tuple[str, str]:
    """Makes regular expressions of a flat object, and of an object up to its first nested value.

    ``again``: how to repeat. Java's must not come back to what it has read (``*+``), as its stack
    is as deep as it could go back.
    """
    blank = rf"[ \t\n\r]{again}"
    text = rf'"(?:{character}|{_ESCAPE}){again}"'
    name = rf"{text}{blank}:{blank}"
    member = rf"{name}(?:{text}|{NUMBER}|true|false|null|NaN|-?Infinity){blank}"
    flat = rf"\A{blank}\{{{blank}(?:{member}(?:,{blank}{member}){again})?\}}{blank}\z"
    return flat, rf"\A{blank}\{{{blank}(?:{member},{blank}){again}{name}[\[{{]"


FLAT_IN_JAVA = _grammar(_TEXT, "*+")[0]
"""One flat object and nothing else, as text, as a regular expression of Java."""

_NESTED = _grammar(_BYTES, "*")[1]


def read_pairs(
    records: pa.BinaryArray, pairs: pa.MapArray, registry: Registry, longest: int
) -> Events:
    """Reads n records and their pairs, map<string, string>[n]; null records are malformed.

    longest: bytes of a record that is not event_too_large. One fault makes the record no event:

    1. event_too_large, whatever is in it;
    2. nested_json or malformed_json, whichever comes first in the record;
    3. of its pairs, in this order: unknown_attribute (unless it is null), id_twice (also where one
       is null), value_out_of_range, not_a_number, not_a_text;
    4. empty_event, if no attribute is left.

    Values are rounded as `raw_values` does. There is no payload: its ends are 0.
    """
    count = len(records)
    compute: Any = pc
    held = np.asarray(compute.is_valid(pairs).to_numpy(zero_copy_only=False), np.bool_)
    mask, values, reason = _read(pairs, held, registry)
    reason[held & (mask == 0) & (reason == FINE)] = code_of("empty_event")
    if not held.all():
        lost = records.filter(pa.array(~held))
        # In an expression over binaries a character is a byte.
        nested = compute.fill_null(compute.match_substring_regex(lost, _NESTED), False)
        is_nested = np.asarray(nested.to_numpy(zero_copy_only=False), np.bool_)
        reason[~held] = np.where(is_nested, code_of("nested_json"), code_of("malformed_json"))
    length = compute.fill_null(compute.binary_length(records), 0).to_numpy(zero_copy_only=False)
    reason[length > longest] = code_of("event_too_large")
    mask[reason != FINE] = 0
    values[:, reason != FINE] = 0
    return Events(mask, values, reason, np.zeros(count, np.int64), np.zeros(count, np.int64))


def _read(
    pairs: pa.MapArray, held: NDArray[np.bool_], registry: Registry
) -> tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.uint8]]:
    """Reads masks, values and reasons from the pairs alone."""
    count = len(pairs)
    mask = np.zeros(count, np.uint64)
    values = np.zeros((registry.widths.bitmask, count), np.uint32)
    offsets = np.asarray(pairs.offsets.to_numpy(), np.int64)
    row = np.repeat(np.arange(count), np.diff(offsets))
    # A null may stand over pairs that mean nothing.
    here = pa.array(held[row])
    row = row[held[row]]
    first, size = int(offsets[0]), int(offsets[-1] - offsets[0])
    names = pairs.keys.slice(first, size).filter(here).dictionary_encode()
    texts = pairs.items.slice(first, size).filter(here)
    compute: Any = pc
    given = compute.fill_null(compute.not_equal(texts, "null"), False)
    given = np.asarray(given.to_numpy(zero_copy_only=False), np.bool_)
    number = np.asarray(names.indices.to_numpy(zero_copy_only=False), np.int64)
    known = {name: one.id for name, one in registry.by_name.items()}
    distinct = names.dictionary.to_pylist()
    ids = np.array([known.get(name, -1) for name in distinct] or [-1], np.int64)[number]
    fault = np.full(count, _NONE, np.uint8)
    _blame(fault, row[given & (ids < 0)], "unknown_attribute")
    place = np.sort(row * max(1, len(distinct)) + number)
    twice = place[1:][place[1:] == place[:-1]] // max(1, len(distinct))
    _blame(fault, twice, "id_twice")
    for one in registry.attributes:
        at = np.flatnonzero(given & (ids == one.id))
        if at.size:
            raw, why = read_values(texts.take(pa.array(at)), one)
            values[one.id, row[at]] = raw
            mask[row[at]] |= np.uint64(1 << one.id)
            for name in ("value_out_of_range", "not_a_number", "not_a_text"):
                _blame(fault, row[at[why == code_of(name)]], name)
    return mask, values, np.where(fault == _NONE, FINE, fault).astype(np.uint8)


def _blame(fault: NDArray[np.uint8], rows: NDArray[np.int64], reason: str) -> None:
    """Notes a fault of rows; of several the lowest code stays, the order in which faults win."""
    fault[rows] = np.minimum(fault[rows], code_of(reason))


def raw_values(
    values: NDArray[np.float64], attribute: Attribute
) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Converts doubles in units of the attribute to raw values, uint32[n], and reasons, uint8[n].

    ``rint((value - offset) / scale)``, half to even. Where the reason is not 0 the value is 0:
    not_a_number for NaN and infinities, and so for numbers beyond doubles, as ``1e400``;
    value_out_of_range beyond 32 bits, or all floats. A float is the nearest one.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if attribute.type == "float":
            fits = np.isfinite(values.astype(np.float32))
            raw = raw_floats(np.where(fits, values, 0)).astype(np.float64)
        else:
            raw = np.rint((values - float(attribute.offset)) / float(attribute.scale))
            fits = (raw >= 0) & (raw <= _MOST)
    reason = np.full(len(values), FINE, np.uint8)
    reason[~fits] = code_of("value_out_of_range")
    reason[~np.isfinite(values)] = code_of("not_a_number")
    return np.where(fits, raw, 0).astype(np.uint32), reason


def read_values(
    texts: pa.StringArray, attribute: Attribute
) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Reads JSON texts as raw values: a number ``25.5``, or, of a timestamp, ISO 8601 in quotes.

    As `raw_values`; all other texts are not_a_number: ``"25.5"``, ``true``, ``NaN``. Of an
    attribute of text, texts in quotes are read: value_out_of_range beyond four characters; what is
    none, or does not print in ASCII, is not_a_text.
    """
    if attribute.type == "text":
        return _read_texts(texts)
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


def _read_texts(texts: pa.StringArray) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    distinct = texts.dictionary_encode()
    found = [_raw_text(text) for text in distinct.dictionary.to_pylist()] or [(0, FINE)]
    raw, reason = np.array(found, np.uint32).T
    at = distinct.indices.to_numpy(zero_copy_only=False)
    return raw[at], reason[at].astype(np.uint8)


def _raw_text(text: str) -> tuple[int, int]:
    value = json.loads(text) if text.startswith('"') else None
    if value is None or not value.isascii() or not value.isprintable():
        return 0, code_of("not_a_text")
    if len(value) > CHARACTERS:
        return 0, code_of("value_out_of_range")
    return int.from_bytes(value.encode().ljust(CHARACTERS)), FINE


def pairs_of_lines(lines: Iterable[bytes]) -> tuple[pa.BinaryArray, pa.MapArray]:
    """Parses records to pairs with the standard library: for the command line, line by line."""
    records = list(lines)
    return pa.array(records, pa.binary()), pa.array([_pairs(each) for each in records], PAIRS)


class _Number(str):
    """A number as it was written."""


class _Object(list[tuple[str, Any]]):
    """Names and values in their order, twice where they are there twice."""


_JSON = json.JSONDecoder(
    object_pairs_hook=_Object, parse_int=_Number, parse_float=_Number, parse_constant=_Number
)


def _pairs(record: bytes) -> list[tuple[str, str | None]] | None:
    try:
        found = _JSON.decode(record.decode("utf-8"))
        if not isinstance(found, _Object):
            return None
        if any(len(name) > LONGEST_NAME for name, _ in found):
            return None
        read = [(name, _text(value)) for name, value in found]
        "".join(part for pair in read for part in pair if part).encode("utf-8")
    except (ValueError, RecursionError):
        return None
    return read


def _text(value: object) -> str | None:
    """Returns the JSON text of a value. Raises ValueError for one that is nested, or too long a
    number."""
    if value is None:
        return None
    if isinstance(value, list):
        raise ValueError("nested")
    if isinstance(value, _Number):
        if len(value) > LONGEST_NUMBER:
            raise ValueError("too long")
        return str(value)
    return json.dumps(value, ensure_ascii=False)
