"""Values of events that are rounded to the steps of their attributes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stackcast.cli.attributes.files import MAX_EVENT_BYTES, RecordBatch
from stackcast.udfs.messages.attributes.attribute_field import Attribute
from stackcast.udfs.messages.attributes.json_events import (
    JsonReader,
    names_of,
    numbers_of,
    raw_values,
)
from stackcast.udfs.messages.attributes.json_kernels import NUMBER_OF_NONE
from stackcast.udfs.messages.attributes.registry import Registry
from stackcast.udfs.messages.attributes.steps import between_steps

_EVEN_STEPS = ("decimal", "signed", "timestamp", "unsigned")


class RoundedValues:
    """Counts the numbers in events that are between two steps of their attribute.

    Attributes:
        count: number of these values so far.
    """

    def __init__(self, registry: Registry) -> None:
        self._attributes = {
            name: attribute
            for name, attribute in registry.by_name.items()
            if attribute.type in _EVEN_STEPS
        }
        # A reader without attributes reports each number as one of an unknown name.
        self._reader = JsonReader(Registry((), registry.widths), MAX_EVENT_BYTES)
        self._first = ""
        self.count = 0

    def look_at(self, batch: RecordBatch, chosen: NDArray[np.intp], noun: str) -> None:
        """Count the rounded values of some records.

        Args:
            batch: records in JSON.
            chosen: indexes of the records, int[n].
            noun: word for a record, such as ``line``.
        """
        offsets, data = batch.columns()
        scan = self._reader.scan(offsets, data, collects=True)
        members = scan.rest[scan.rest[:, 1] == NUMBER_OF_NONE]
        members = members[np.isin(members[:, 0], chosen)]
        name_indexes, names = names_of(members, scan.data)
        numbers = numbers_of(members, scan.data)
        is_rounded = np.zeros(len(members), np.bool_)
        for index, name in enumerate(names):
            if name in self._attributes:
                has_name = name_indexes == index
                is_rounded[has_name] = between_steps(numbers[has_name], self._attributes[name])
        rounded = np.flatnonzero(is_rounded)
        if rounded.size and not self.count:
            first = rounded[0]
            attribute = self._attributes[names[name_indexes[first]]]
            record, _, start, end = members[first, :4].tolist()
            text = scan.data[start:end].tobytes().decode()
            value = _rounded(numbers[first], attribute)
            self._first = f"{noun} {batch.places[record]}: {attribute.name} {text} is {value}"
        self.count += int(rounded.size)

    def __str__(self) -> str:
        """Return a sentence on the values so far; empty if there are none."""
        if not self.count:
            return ""
        values = "value is" if self.count == 1 else "values are"
        return f"{self.count:,} {values} rounded to steps of the attribute, as in {self._first}"


def _rounded(number: float, attribute: Attribute) -> str:
    raw, _ = raw_values(np.array([number]), attribute)
    return f"{attribute.value(int(raw[0])):f}"
