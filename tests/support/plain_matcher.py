"""The matcher without compiled loops, as an oracle: vectors for events, level by level."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.filters.compiler.tables import CompiledFilter
from stackcast.udfs.filters.matching.cells import FUNCTIONS, StatefulMatcher
from stackcast.udfs.filters.matching.lookup import Lookup, hashed
from stackcast.udfs.filters.matching.matcher import Matcher
from stackcast.udfs.filters.meaning.state import reading, updated


class PlainMatcher(Matcher):
    """A ``Matcher`` that walks by vectors of numpy."""

    def _walk(
        self,
        message_type: NDArray[np.uint8],
        values: NDArray[np.uint64],
        present: NDArray[np.bool_],
    ) -> NDArray[np.int32]:
        return walk(message_type, values, present, self._first, self._start, self.stop, self.lookup)


class PlainStatefulMatcher(StatefulMatcher):
    """A ``StatefulMatcher`` that runs on Python's integers."""

    def __init__(self, compiled: CompiledFilter, units: int = 1) -> None:
        super().__init__(compiled, units)
        self.matcher = PlainMatcher(compiled)

    def _run(self, *arguments: Any) -> None:
        run(*arguments, self.matcher.lookup)


_BLOCK = 1 << 15
"""Events at a time: what they need stays in the core's cache."""


def walk(
    message_type: NDArray[np.uint8],
    values: NDArray[np.uint64],
    present: NDArray[np.bool_],
    first: NDArray[np.int32],
    start: int,
    stop: int,
    lookup: Lookup,
) -> NDArray[np.int32]:
    """As ``stackcast.udfs.filters.matching.kernels.walk``."""
    count = values.shape[1]
    codes = first[message_type] if len(message_type) else np.full(count, start, np.int32)
    for begin in range(0, count, _BLOCK):
        block = slice(begin, begin + _BLOCK)
        _walk(codes[block], values[:, block], present[:, block], stop, lookup)
    return codes


def _walk(
    codes: NDArray[np.int32],
    values: NDArray[np.uint64],
    present: NDArray[np.bool_],
    stop: int,
    lookup: Lookup,
) -> None:
    """Nodes are numbered by field: the lowest node under way names the next level."""
    waiting = np.flatnonzero((codes >= 0) & (codes < stop))
    while len(waiting):
        nodes = codes[waiting]
        lane = int(lookup.lane[nodes.min()])
        here = lookup.lane[nodes] == lane
        if here.all():
            events, later = waiting, waiting[:0]
        else:
            events, later, nodes = waiting[here], waiting[~here], nodes[here]
        following = _follow(lookup, nodes, values[lane, events])
        if len(present):
            following = np.where(present[lane, events], following, lookup.absent[nodes])
        codes[events] = following
        going = (following >= 0) & (following < stop)
        waiting = np.concatenate((later, events[going])) if len(later) else events[going]


def _follow(
    lookup: Lookup, node: NDArray[np.int32], value: NDArray[np.uint64]
) -> NDArray[np.int32]:
    """The code that follows at each node, for the value there."""
    mixed = lookup.by_hash[node]
    key = value
    if mixed.all():
        key = hashed(value)
    elif mixed.any():
        key = np.where(mixed, hashed(value), value)
    base = lookup.base[node]
    offset = np.maximum(key, base) - base
    offset >>= lookup.shift[node]
    np.minimum(offset, lookup.last[node], out=offset)
    place = lookup.begin[node] + offset.astype(np.int64)
    at = lookup.bucket[place]
    end = lookup.bucket[place + 1]
    open_ = np.flatnonzero(at < end)
    # Halving, all at once: as many rounds as the most crowded bucket needs.
    low, high, key = at[open_], end[open_], key[open_]
    while len(open_):
        middle = (low + high + 1) >> 1
        reached = lookup.low[middle] <= key
        low = np.where(reached, middle, low)
        high = np.where(reached, high, middle - 1)
        at[open_] = low
        left = low < high
        if not left.all():
            open_, low, high, key = open_[left], low[left], high[left], key[left]
    result: NDArray[np.int32] = lookup.following[at]
    return result


def run(
    events: NDArray[np.int64],
    codes: NDArray[np.int32],
    values: NDArray[np.uint64],
    time: NDArray[np.int64],
    starts: NDArray[np.int64],
    counts: NDArray[np.uint64],
    held: NDArray[np.uint64],
    function: NDArray[np.uint8],
    window: NDArray[np.int64],
    compared: NDArray[np.int32],
    cell_of: NDArray[np.int32],
    update_begin: NDArray[np.int64],
    update_cell: NDArray[np.int32],
    update_lane: NDArray[np.int32],
    lookup: Lookup,
) -> None:
    """As ``stackcast.udfs.filters.matching.kernels.run``, with Python's integers."""
    states = list(zip(starts.tolist(), counts.tolist(), held.tolist(), strict=True))
    cells = list(zip(map(FUNCTIONS.__getitem__, function), window.tolist(), strict=True))
    for i, now in zip(events.tolist(), time[events].tolist(), strict=True):
        code = int(codes[i])
        while code >= 0:
            cell = int(cell_of[code])
            kind, length = cells[cell]
            raw = int(values[compared[cell], i]) if kind == "moved" else None
            found = reading(kind, states[cell], length, now, raw)
            if found is None:
                code = int(lookup.absent[code])
            else:
                node, value = np.array([code], np.int32), np.array([found], np.uint64)
                code = int(_follow(lookup, node, value)[0])
        codes[i] = code
        for at in range(int(update_begin[~code]), int(update_begin[~code + 1])):
            cell, lane = int(update_cell[at]), int(update_lane[at])
            kind, length = cells[cell]
            raw = int(values[lane, i]) if lane >= 0 else 0
            states[cell] = updated(kind, states[cell], length, now, raw)
    starts[:], counts[:], held[:] = np.array(states, object).reshape(-1, 3).T
