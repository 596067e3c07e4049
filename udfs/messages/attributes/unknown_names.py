"""Names in JSON that no attribute has: how often they come, and which type holds their values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stackcast.udfs.messages.attributes.json_events import JsonReader, Scan, names_of, numbers_of
from stackcast.udfs.messages.attributes.json_kernels import NUMBER_OF_NONE, TIME_OF_NONE
from stackcast.udfs.messages.attributes.registry import Attribute, Type, is_name
from stackcast.udfs.messages.attributes.steps import USUAL_STEPS, Steps, between_steps
from stackcast.udfs.messages.buffers import Batch

MOST_NAMES = 1000
"""Names that are looked at: a registry has room for 64."""

Source = Callable[[Iterator[pa.RecordBatch]], Iterator[Batch | pa.RecordBatch]]
Counts = dict[str, NDArray[np.int64]]

_NUMBERS: tuple[Type, ...] = ("decimal", "signed", "unsigned")
_TYPES: tuple[Type, ...] = ("timestamp", *_NUMBERS)
_BETWEEN = tuple(f"{kind}_between" for kind in _NUMBERS)
_COLUMNS = ("values", *_TYPES, *_BETWEEN)

SCHEMA = pa.schema([("name", pa.string()), *((column, pa.int64()) for column in _COLUMNS)])
"""Columns of `count_names`: values of a name, how many of these a type holds, and how many of those
are between two of its steps."""


@dataclass(frozen=True)
class NewName:
    """The values of a name that no attribute has.

    Attributes:
        type: type that most values fit; None if there is none.
        values: number of values.
        rounded: number of values that the type holds, but only rounded to its steps.
    """

    type: Type | None
    values: int
    rounded: int


def count_names(
    reader: JsonReader, source: Source = iter, steps: Steps = USUAL_STEPS
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for ``mapInArrow`` over records, or over what ``source`` makes these of.

    Yields rows of `SCHEMA`: of names that the registry lacks and could take (`is_name`), and that
    have a number, or a time as text, in a record that is right by its grammar. Of more than
    `MOST_NAMES` those that are seldom are left out. steps: those of the attributes to be.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: Counts = {}
        for batch in source(batches):
            held = Batch.of_arrow(batch) if isinstance(batch, pa.RecordBatch) else batch
            scan = reader.scan(held.borders, held.content, collects=True)
            _add(found, _counts(scan, steps))
        table = np.array(list(found.values()), np.int64).reshape(-1, len(_COLUMNS))
        columns = [pa.array(list(found), pa.string()), *map(pa.array, table.T)]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    return run


def new_names(rows: pa.Table) -> dict[str, NewName]:
    """Return each name in all rows of `count_names`, names ascending.

    The type is timestamp where most values are times; otherwise decimal, signed or unsigned, the
    first that most values fit.
    """
    found: Counts = {}
    for row in rows.to_pylist():
        _add(found, {row["name"]: np.array([row[column] for column in _COLUMNS], np.int64)})
    return {name: _new_name(*counts.tolist()) for name, counts in sorted(found.items())}


def _new_name(values: int, *counts: int) -> NewName:
    fits = dict(zip(_TYPES, counts, strict=False))
    rounded = dict(zip(_NUMBERS, counts[len(_TYPES) :], strict=True))
    kind = next((kind for kind, number in fits.items() if 2 * number > values), None)
    return NewName(kind, values, rounded.get(kind, 0) if kind else 0)


def _counts(scan: Scan, steps: Steps) -> Counts:
    """Counts the values of a batch."""
    kind = scan.rest[:, 1]
    rest = scan.rest[(kind == NUMBER_OF_NONE) | (kind == TIME_OF_NONE)]
    of, names = names_of(rest, scan.data)
    is_time = rest[:, 1] == TIME_OF_NONE
    numbers = np.full(len(rest), np.nan)
    numbers[~is_time] = numbers_of(rest[~is_time], scan.data)
    # Only a decimal has the step that the settings name, so the name gets no other type.
    chosen = np.array([name in steps.of_name for name in names] or [False], np.bool_)[of]
    fits, between = [], []
    for number_type in _NUMBERS:
        usual = steps.attribute(0, "any", number_type)
        fit, rounded = _fit(numbers, usual)
        if number_type == "decimal":
            for name in steps.of_name.keys() & set(names):
                own = of == names.index(name)
                fit[own], rounded[own] = _fit(numbers[own], steps.attribute(0, name, number_type))
        else:
            fit &= ~chosen
        fits.append(fit)
        between.append(fit & rounded)
    columns = [np.ones(len(rest), np.bool_), is_time, *fits, *between]
    table = np.array([np.bincount(of[each], minlength=len(names)) for each in columns], np.int64)
    return {name: table[:, at] for at, name in enumerate(names) if is_name(name)}


def _fit(
    numbers: NDArray[np.float64], target: Attribute
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which numbers are within the range of an attribute, and which are between steps."""
    in_range = (numbers >= float(target.offset)) & (numbers <= float(target.most))
    return in_range, between_steps(numbers, target)


def _add(found: Counts, more: Counts) -> None:
    for name, counts in more.items():
        found[name] = found[name] + counts if name in found else counts
    if len(found) > MOST_NAMES:
        most = Counter({name: int(counts[0]) for name, counts in found.items()})
        seldom = found.keys() - dict(most.most_common(MOST_NAMES))
        for name in seldom:
            del found[name]
