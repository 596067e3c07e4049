"""The matcher of compiled rows over columns: events in, leaves out, no Python statement an
event."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.filters.compiler.tables import ABSENT, DEFAULT, CompiledFilter
from stackcast.udfs.filters.matching import kernels
from stackcast.udfs.filters.matching.lookup import build
from stackcast.udfs.filters.nodes import Outcome
from stackcast.udfs.messages.specification import Field

#: Attributes that are made where they are asked for, most of them never on workers.
_MADE_AGAIN = {"outcomes", "receivers", "tables"}


class Matcher:
    """Finds the leaf of each event by the rows of a ``CompiledFilter`` and nothing else.

    fields: qualified names whose raw values ``match`` takes, in this order; first those that the
        tables read, then those that only updates of state read.
    definitions: the fields of the tables among them.
    receivers, outcomes: by leaf index; index 0 is always nobody: ``()``, nothing.
    states: int32, by leaf index, the leaf's state in the tables.
    stateful: whether leaves depend on earlier events; then only ``walk`` serves, and
        ``stackcast.udfs.filters.matching.cells.StatefulMatcher`` takes it from there.

    Holds numpy arrays and tuples only, so it pickles to executors.
    """

    fields: tuple[str, ...]
    definitions: tuple[Field, ...]
    states: NDArray[np.int32]
    stateful: bool

    def __init__(self, compiled: CompiledFilter) -> None:
        outcomes = compiled.outcomes
        states = sorted(outcomes)
        # Outcomes may be made on demand; from scratch nobody's is the last, so one is.
        nobody = next(state for state in reversed(states) if outcomes[state] == Outcome())
        states.remove(nobody)
        self.states = np.array([nobody, *states], np.int32)
        self._outcomes = outcomes

        self.definitions = tuple(d for d in compiled.definitions if d.header)
        tabled = len(self.definitions)
        read = compiled.fields[1 : 1 + tabled]
        updates = [u for o in self.outcomes for u in o.updates] if compiled.cells else []
        updated = {u.field for u in updates}
        self.fields = (*read, *sorted(f for f in updated if f is not None and f not in read))

        entries = compiled.entries
        count = int(max(self.states.max(), entries["state"].max(initial=0))) + 1
        code = np.full(count, -1, np.int32)
        code[self.states] = ~np.arange(len(self.states), dtype=np.int32)
        typed = entries["field"] == 0
        self.lookup, of = build(entries[~typed], code)
        # Nodes stand by field, and cells come behind all fields.
        self.stop = int(np.searchsorted(of, tabled, side="right"))
        self._first, self._start = _after_message_type(entries[typed], code, compiled.root)
        self.stateful = self.stop < len(of) or bool(updates)

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """The outcomes, by leaf index."""
        return [self._outcomes[state] for state in self.states.tolist()]

    @cached_property
    def receivers(self) -> list[tuple[str, ...]]:
        """The receivers, by leaf index."""
        return [outcome.receivers for outcome in self.outcomes]

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in _MADE_AGAIN}

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays that matching reads."""
        return self.lookup.nbytes + self._first.nbytes

    def match(
        self,
        message_type: NDArray[np.uint8] | None,
        values: NDArray[np.uint64],
        present: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int32]:
        """Returns the leaf index of each event: int32[m].

        ``message_type``: uint8[m], None where events have none. ``values``: uint64[len(fields), m]
        raw values. ``present``: bool[len(fields), m]; False where the event lacks the field, None
        where all are there or guarded by the message type. Values of fields that are absent are
        not read. Messages that could not be decoded are for the caller to
        leave out. Raises ValueError if the filter is stateful, or shapes do not fit.
        """
        if self.stateful:
            raise ValueError("the rules keep state: use a StatefulMatcher")
        codes = self.walk(message_type, values, present)
        return np.invert(codes, out=codes)

    def walk(
        self,
        message_type: NDArray[np.uint8] | None,
        values: NDArray[np.uint64],
        present: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int32]:
        """Walks each event as far as it gets without state: int32[m], a node of a cell, or
        ``~leaf``.

        Arguments as in ``match``. Depends on nothing but the event, so slices may be walked
        anywhere, in any order.
        """
        count = values.shape[1] if message_type is None else len(message_type)
        shape = (len(self.fields), count)
        if values.shape != shape:
            raise ValueError(f"values has shape {values.shape}, but {shape} is expected")
        if present is not None and present.shape != shape:
            raise ValueError(f"present has shape {present.shape}, but {shape} is expected")
        return self._walk(
            _plain_array(message_type, np.uint8, (0,)),
            _plain_array(values, np.uint64, shape),
            _plain_array(present, np.bool_, (0, 0)),
        )

    def _walk(
        self,
        message_type: NDArray[np.uint8],
        values: NDArray[np.uint64],
        present: NDArray[np.bool_],
    ) -> NDArray[np.int32]:
        result: NDArray[np.int32] = kernels.walk(message_type, values, present, *self.tables)
        return result

    @cached_property
    def tables(self) -> tuple[Any, ...]:
        """The last arguments of `stackcast.udfs.filters.matching.kernels.walk`."""
        return (self._first, self._start, self.stop, *self.lookup.arrays())


def _plain_array(array: NDArray[Any] | None, dtype: Any, empty: tuple[int, ...]) -> NDArray[Any]:
    """Returns one layout, writeable: otherwise numba compiles the kernel once more."""
    if array is None:
        return np.zeros(empty, dtype)
    plain = np.ascontiguousarray(array, dtype)
    return plain if plain.flags.writeable else plain.copy()


def _after_message_type(
    rows: NDArray[np.void], code: NDArray[np.int32], root: int
) -> tuple[NDArray[np.int32], int]:
    """Returns the code after the first table: int32[256] by message type, and for events of
    none."""
    if not len(rows):
        return np.full(256, code[root], np.int32), int(code[root])
    default = rows["next"][rows["kind"] == DEFAULT][0]
    absent = rows["next"][rows["kind"] == ABSENT]
    codes = np.full(256, code[default], np.int32)
    for row in rows[(rows["kind"] != DEFAULT) & (rows["kind"] != ABSENT)]:
        codes[int(row["low"]) : int(row["high"]) + 1] = code[row["next"]]
    return codes, int(code[absent[0] if len(absent) else default])
