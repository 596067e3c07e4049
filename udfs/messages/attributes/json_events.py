"""Events in JSON, ``{"temp": 25.5, "hum": 30}``: from the bytes of records to columns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stackcast.udfs.messages.attributes import json_kernels as kernels
from stackcast.udfs.messages.attributes.attribute_field import Attribute
from stackcast.udfs.messages.attributes.encodings import borders_of
from stackcast.udfs.messages.attributes.events import FINE, LONGEST_JSON, Events, code_of
from stackcast.udfs.messages.attributes.json_kernels import NO_FAULT, NULL_OF_NONE, Names
from stackcast.udfs.messages.attributes.registry import Registry
from stackcast.udfs.messages.buffers import read_only

_KINDS = {"timestamp": kernels.TIME, "float": kernels.FLOAT, "text": kernels.TEXT}


class Scan(NamedTuple):
    """One pass over records, as of `json_kernels.read_objects`; data: the bytes."""

    mask: NDArray[np.uint64]
    fault: NDArray[np.uint8]
    rest: NDArray[np.int64]
    values: NDArray[np.uint32]
    data: NDArray[np.uint8]


@dataclass(frozen=True)
class JsonReader:
    """Reads records that are one object each, in UTF-8 (RFC 8259); NaN, Infinity and -Infinity may
    stand for a number.

    longest: bytes of a record that is not event_too_large.
    """

    registry: Registry
    longest: int = LONGEST_JSON

    def read(self, offsets: NDArray[Any], data: NDArray[np.uint8]) -> Events:
        """Reads the records ``data[offsets[i]:offsets[i + 1]]``, int32[n + 1] or int64[n + 1].

        One fault makes a record no event:

        1. event_too_large, whatever is in it;
        2. nested_json or malformed_json, whichever comes first in the record; it is malformed, too,
           with a number of over 1,000 characters or a name of over 50,000;
        3. of its members, in this order: unknown_attribute (unless it is null), id_twice (also
           where one is null), value_out_of_range, not_a_number, not_a_text;
        4. empty_event, if no attribute is left.

        Values are rounded as `raw_values` does. There is no payload: its ends are 0.
        Raises MessageError BAD_OFFSETS where the offsets fall or leave the data.
        """
        mask, fault, rest, values, content = self.scan(offsets, data)
        if rest.size:
            _blame(fault, _null_twice(rest, content), "id_twice")
            self._read_hard(rest, content, values, fault)
        reason = np.where(fault == NO_FAULT, np.uint8(FINE), fault)
        reason[(mask == 0) & (fault == NO_FAULT)] = code_of("empty_event")
        lost = np.flatnonzero(reason)
        mask[lost] = 0
        values[:, lost] = 0
        none = np.zeros(len(mask), np.int64)
        return Events(mask, values, reason, none, none.copy())

    def scan(self, offsets: NDArray[Any], data: NDArray[np.uint8], collects: bool = False) -> Scan:
        """Passes over records once, before `read` looks at what is rare. collects: numbers and
        times, too, under names that no attribute has."""
        borders = borders_of(offsets, data)
        content = read_only(data, np.uint8)
        values = np.zeros((self.registry.widths.bitmask, borders.size - 1), np.uint32)
        mask, fault, rest = kernels.read_objects(
            borders[:-1], borders[1:], content, self.longest, self._names, collects, values
        )
        return Scan(mask, fault, rest, values, content)

    @cached_property
    def _names(self) -> Names:
        width = self.registry.widths.bitmask
        names = Names(
            kernels.slots_of({one.id: one.name.encode() for one in self.registry.attributes}),
            np.zeros((width, 64), np.uint8),
            np.zeros(width, np.int64),
            np.zeros(width, np.uint8),
            np.zeros(width),
            np.ones(width),
        )
        for one in self.registry.attributes:
            name = one.name.encode()
            names.text[one.id, : len(name)] = np.frombuffer(name, np.uint8)
            names.size[one.id] = len(name)
            names.kind[one.id] = _KINDS.get(one.type, kernels.LINEAR)
            names.offset[one.id], names.scale[one.id] = float(one.offset), float(one.scale)
        return names

    def _read_hard(
        self,
        rest: NDArray[np.int64],
        data: NDArray[np.uint8],
        values: NDArray[np.uint32],
        fault: NDArray[np.uint8],
    ) -> None:
        """Reads the numbers that the kernel has left."""
        rest = rest[rest[:, 1] >= 0]
        numbers = numbers_of(rest, data)
        for one in self.registry.attributes:
            mine = rest[:, 1] == one.id
            rows = rest[mine, 0]
            if rows.size:
                values[one.id, rows], reason = raw_values(numbers[mine], one)
                for name in ("value_out_of_range", "not_a_number"):
                    _blame(fault, rows[reason == code_of(name)], name)


def raw_values(
    values: NDArray[np.float64], attribute: Attribute
) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Converts doubles in units of the attribute to raw values, uint32[n], and reasons, uint8[n].

    ``rint((value - offset) / scale)``, half to even. Where the reason is not 0 the value is 0:
    not_a_number for NaN and infinities, and so for numbers beyond doubles, as ``1e400``;
    value_out_of_range beyond 32 bits, or all floats. A float is the nearest one.
    """
    kind = _KINDS.get(attribute.type, kernels.LINEAR)
    units = float(attribute.offset), float(attribute.scale)
    raw, reason = kernels.raw_numbers(np.ascontiguousarray(values, np.float64), kind, *units)
    return raw, reason


def numbers_of(rest: NDArray[np.int64], data: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Returns the numbers of rows of `Scan.rest`, the nearest doubles."""
    compute: Any = pc
    texts = _texts(rest[:, 2], rest[:, 3], data)
    return np.asarray(compute.cast(texts, pa.float64()).to_numpy(zero_copy_only=False))


def names_of(
    rest: NDArray[np.int64], data: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], list[str]]:
    """Returns the names of rows of `Scan.rest`: the number of each, int64[m], and all names."""
    found = _texts(rest[:, 4], rest[:, 5], data).dictionary_encode()
    numbers: dict[str, int] = {}
    of = [
        # An escape may stand for any character of a name.
        numbers.setdefault(json.loads(f'"{name}"') if "\\" in name else name, len(numbers))
        for name in found.dictionary.to_pylist()
    ]
    at = found.indices.to_numpy(zero_copy_only=False)
    return np.array(of or [0], np.int64)[at], list(numbers)


def _null_twice(rest: NDArray[np.int64], data: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Returns the records that have null twice under a name that no attribute has."""
    rest = rest[rest[:, 1] == NULL_OF_NONE]
    numbers, names = names_of(rest, data)
    place = np.sort(rest[:, 0] * max(1, len(names)) + numbers)
    found: NDArray[np.int64] = place[1:][place[1:] == place[:-1]] // max(1, len(names))
    return found


def _texts(
    starts: NDArray[np.int64], ends: NDArray[np.int64], data: NDArray[np.uint8]
) -> pa.StringArray:
    offsets, content = kernels.gather(starts, ends, data)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.large_string(), len(starts), buffers)


def _blame(fault: NDArray[np.uint8], rows: NDArray[np.int64], reason: str) -> None:
    """Notes a fault of rows; of several the lowest code stays, the order in which faults win."""
    fault[rows] = np.minimum(fault[rows], code_of(reason))
