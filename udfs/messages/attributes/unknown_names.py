"""Names in JSON that no attribute has: how often they come, and which type holds their values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stackcast.udfs.messages.attributes.json_events import JsonReader, Scan, names_of, numbers_of
from stackcast.udfs.messages.attributes.json_kernels import NUMBER_OF_NONE, TIME_OF_NONE
from stackcast.udfs.messages.attributes.registry import Type, attribute, is_name
from stackcast.udfs.messages.buffers import Batch

MOST_NAMES = 1000
"""Names that are looked at: a registry has room for 64."""

Source = Callable[[Iterator[pa.RecordBatch]], Iterator[Batch | pa.RecordBatch]]
Counts = dict[str, NDArray[np.int64]]

_NUMBERS: tuple[Type, ...] = ("decimal", "signed", "unsigned")
_TYPES: tuple[Type, ...] = ("timestamp", *_NUMBERS)
_COLUMNS = ("values", *_TYPES)

SCHEMA = pa.schema([("name", pa.string()), *((column, pa.int64()) for column in _COLUMNS)])
"""Columns of `count_names`: values of a name, and how many of these a type holds."""


def count_names(
    reader: JsonReader, source: Source = iter
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for ``mapInArrow`` over records, or over what ``source`` makes these of.

    Yields rows of `SCHEMA`: of names that the registry lacks and could take (`is_name`), and that
    have a number, or a time as text, in a record that is right by its grammar. Of more than
    `MOST_NAMES` those that are seldom are left out.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: Counts = {}
        for batch in source(batches):
            held = Batch.of_arrow(batch) if isinstance(batch, pa.RecordBatch) else batch
            _add(found, _counts(reader.scan(held.borders, held.content, collects=True)))
        table = np.array(list(found.values()), np.int64).reshape(-1, len(_COLUMNS))
        columns = [pa.array(list(found), pa.string()), *map(pa.array, table.T)]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    return run


def types_of(rows: pa.Table) -> dict[str, Type | None]:
    """Returns the type of each name, names ascending, from all rows of `count_names`.

    It is timestamp where most values are times; else decimal, or signed, or unsigned, the first
    that most values fit; None where there is none.
    """
    found: Counts = {}
    for row in rows.to_pylist():
        _add(found, {row["name"]: np.array([row[column] for column in _COLUMNS], np.int64)})
    return {
        name: next((kind for kind, n in zip(_TYPES, fits, strict=True) if 2 * n > every), None)
        for name, (every, *fits) in sorted((name, each.tolist()) for name, each in found.items())
    }


def _counts(scan: Scan) -> Counts:
    """Counts the values of a batch."""
    kind = scan.rest[:, 1]
    rest = scan.rest[(kind == NUMBER_OF_NONE) | (kind == TIME_OF_NONE)]
    of, names = names_of(rest, scan.data)
    is_time = rest[:, 1] == TIME_OF_NONE
    numbers = np.full(len(rest), np.nan)
    numbers[~is_time] = numbers_of(rest[~is_time], scan.data)
    usual = [attribute(0, "any", kind) for kind in _NUMBERS]
    fits = [(numbers >= float(one.offset)) & (numbers <= float(one.most)) for one in usual]
    columns = [np.ones(len(rest), np.bool_), is_time, *fits]
    table = np.array([np.bincount(of[each], minlength=len(names)) for each in columns], np.int64)
    return {name: table[:, at] for at, name in enumerate(names) if is_name(name)}


def _add(found: Counts, more: Counts) -> None:
    for name, counts in more.items():
        found[name] = found[name] + counts if name in found else counts
    if len(found) > MOST_NAMES:
        most = Counter({name: int(counts[0]) for name, counts in found.items()})
        seldom = found.keys() - dict(most.most_common(MOST_NAMES))
        for name in seldom:
            del found[name]
