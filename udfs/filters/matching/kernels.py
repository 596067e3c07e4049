"""Compiled loops of the matcher. An importable module, so that numba's cache works."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_HASH_SHIFT = np.uint64(32)
_NONE, _ONE, _TWO = np.uint64(0), np.uint64(1), np.uint64(2)
_LOWER = np.uint64(0xFFFFFFFF)
_MAXIMUM = np.uint64(0xFFFFFFFFFFFFFFFF)
_BLOCK = 512
"""Events that take a step together: while one waits for memory, the next ones are under way."""
_COUNT, _SUM, _AVG, _MIN, _MAX, _MOVED = range(6)
# Counting references to the arrays, at every call, would take nine tenths of the time; ``_nrt`` is
# numba's own option for helpers.
_helper: Any = njit(cache=True, nogil=True, _nrt=False)


@_helper
def follow(
    node: Any,
    value: Any,
    by_hash: Any,
    base: Any,
    shift: Any,
    last: Any,
    begin: Any,
    bucket: Any,
    low: Any,
    following: Any,
) -> Any:
    """Returns the code that follows at ``node`` (see
    ``stackcast.udfs.filters.matching.lookup.Lookup``)."""
    # Unsigned, since numba asks of every signed index whether it counts from the end.
    node = np.uint64(node)
    key = value
    if by_hash[node]:
        key = (value ^ (value >> _HASH_SHIFT)) * _HASH_FACTOR
    least = base[node]
    offset = min((max(key, least) - least) >> shift[node], last[node])
    place = np.uint64(begin[node]) + offset
    at = np.uint64(bucket[place])
    end = np.uint64(bucket[place + _ONE])
    # Without a branch, which random values would make the core guess wrong; the segments end with
    # two more that nothing reaches.
    crowded = end > at + _TWO
    ahead = np.uint64((at < end) & (low[at + _ONE] <= key))
    ahead += np.uint64((at + _ONE < end) & (low[at + _TWO] <= key))
    at += ahead
    # Asked of the bucket, which is mostly the same, and not of the value.
    if crowded:
        while at < end:
            middle = (at + end + _ONE) >> _ONE
            if low[middle] <= key:
                at = middle
            else:
                end = middle - _ONE
    return following[at]


@_helper
def walk_into(
    result: Any,
    waiting: Any,
    message_type: Any,
    values: Any,
    present: Any,
    first: Any,
    start: Any,
    stop: Any,
    lane: Any,
    by_hash: Any,
    base: Any,
    shift: Any,
    last: Any,
    begin: Any,
    absent: Any,
    bucket: Any,
    low: Any,
    following: Any,
) -> None:
    """Does the work of `walk`: writes to result, int32[m]. waiting: uint64, room for a block, and
    one more. values: of m events at least."""
    typed = message_type.shape[0] > 0
    partial = present.shape[0] > 0
    count = result.shape[0]
    for block in range(0, count, _BLOCK):
        under_way = np.uint64(0)
        for event in range(block, min(block + _BLOCK, count)):
            i = np.uint64(event)
            code = np.int32(start)
            if typed:
                code = first[message_type[i]]
            result[i] = code
            waiting[under_way] = i
            under_way += np.uint64(0 <= code < stop)
        while under_way > 0:
            left = np.uint64(0)
            for at in range(under_way):
                i = waiting[np.uint64(at)]
                node = np.uint64(result[i])
                field = np.uint64(lane[node])
                if partial and not present[field, i]:
                    code = absent[node]
                else:
                    code = follow(
                        node,
                        values[field, i],
                        by_hash,
                        base,
                        shift,
                        last,
                        begin,
                        bucket,
                        low,
                        following,
                    )
                result[i] = code
                waiting[left] = i
                left += np.uint64(0 <= code < stop)
            under_way = left


@njit(cache=True, nogil=True)
def walk(
    message_type: NDArray[np.uint8],
    values: NDArray[np.uint64],
    present: NDArray[np.bool_],
    first: NDArray[np.int32],
    start: int,
    stop: int,
    lane: NDArray[np.int32],
    by_hash: NDArray[np.bool_],
    base: NDArray[np.uint64],
    shift: NDArray[np.uint64],
    last: NDArray[np.uint64],
    begin: NDArray[np.int64],
    absent: NDArray[np.int32],
    bucket: NDArray[np.int32],
    low: NDArray[np.uint64],
    following: NDArray[np.int32],
) -> Any:
    """Returns the code at which each of m events leaves the nodes below ``stop``: int32[m].

    An event starts at ``first[its message type]``, or at ``start`` if ``message_type`` is empty. An
    empty ``present`` says that no field is absent. For the rest see
    ``stackcast.udfs.filters.matching.lookup.Lookup``.
    """
    result = np.empty(values.shape[1], np.int32)
    walk_into(
        result,
        np.empty(_BLOCK + 1, np.uint64),
        message_type,
        values,
        present,
        first,
        start,
        stop,
        lane,
        by_hash,
        base,
        shift,
        last,
        begin,
        absent,
        bucket,
        low,
        following,
    )
    return result


@_helper
def _is_open(cell: Any, now: Any, starts: Any, counts: Any, window: Any) -> Any:
    return counts[cell] > _NONE and -window[cell] < now - starts[cell] < window[cell]


@_helper
def _moved(cell: Any, raw: Any, counts: Any, held: Any, window: Any) -> Any:
    away = max(raw, held[cell]) - min(raw, held[cell])
    return counts[cell] == _NONE or away >= np.uint64(window[cell])


@_helper
def _read(
    cell: Any,
    event: Any,
    values: Any,
    now: Any,
    starts: Any,
    counts: Any,
    held: Any,
    function: Any,
    window: Any,
    compared: Any,
) -> Any:
    """Returns whether the cell has a value, and the value."""
    kind = function[cell]
    if kind == _MOVED:
        raw = values[compared[cell], event]
        return True, np.uint64(_moved(cell, raw, counts, held, window))
    if not _is_open(cell, now, starts, counts, window):
        return kind <= _SUM, _NONE
    if kind == _COUNT:
        return True, counts[cell]
    if kind == _AVG:
        return True, held[cell] // counts[cell]
    return True, held[cell]


@_helper
def _update(
    cell: Any,
    value: Any,
    now: Any,
    starts: Any,
    counts: Any,
    held: Any,
    function: Any,
    window: Any,
) -> None:
    kind = function[cell]
    if kind == _MOVED:
        opens = _moved(cell, value, counts, held, window)
    else:
        opens = not _is_open(cell, now, starts, counts, window)
    if opens:
        starts[cell] = now
        counts[cell] = _ONE
        held[cell] = value
        return
    if kind == _MOVED:
        return
    counts[cell] += _ONE
    if kind == _MIN:
        held[cell] = min(held[cell], value)
    elif kind == _MAX:
        held[cell] = max(held[cell], value)
    else:
        # The greatest sum stays.
        held[cell] += min(value, _MAXIMUM - held[cell])


@njit(cache=True, nogil=True)
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
    by_hash: NDArray[np.bool_],
    base: NDArray[np.uint64],
    shift: NDArray[np.uint64],
    last: NDArray[np.uint64],
    begin: NDArray[np.int64],
    absent: NDArray[np.int32],
    bucket: NDArray[np.int32],
    low: NDArray[np.uint64],
    following: NDArray[np.int32],
) -> None:
    """Takes ``events`` in order from their codes to leaves (in ``codes``), through the cells.

    ``starts``, ``counts`` and ``held`` are the cells, changed in place; ``function`` indexes
    ``stackcast.udfs.filters.matching.cells.FUNCTIONS``. ``compared``: by cell, the row of
    ``values`` that moved compares with what the cell holds. ``cell_of``: by node, the cell it
    reads. Leaf f updates the cells ``update_cell[update_begin[f]:update_begin[f + 1]]``, each with
    the value in ``update_lane``. For the rest see
    ``stackcast.udfs.filters.matching.lookup.Lookup``.
    """
    for i in events:
        now = time[i]
        code = codes[i]
        while code >= 0:
            cell = cell_of[code]
            there, value = _read(
                cell, i, values, now, starts, counts, held, function, window, compared
            )
            if there:
                code = follow(
                    code, value, by_hash, base, shift, last, begin, bucket, low, following
                )
            else:
                code = absent[code]
        codes[i] = code
        leaf = ~code
        for at in range(update_begin[leaf], update_begin[leaf + 1]):
            value = _NONE
            if update_lane[at] >= 0:
                value = values[update_lane[at], i]
            _update(update_cell[at], value, now, starts, counts, held, function, window)


@njit(cache=True, nogil=True)
def run_terms(
    true: NDArray[np.uint64],
    unread: NDArray[np.bool_],
    values: NDArray[np.uint64],
    time: NDArray[np.int64],
    found: NDArray[np.uint64],
    starts: NDArray[np.int64],
    counts: NDArray[np.uint64],
    held: NDArray[np.uint64],
    function: NDArray[np.uint8],
    window: NDArray[np.int64],
    compared: NDArray[np.int32],
    term_begin: NDArray[np.int32],
    outcome: NDArray[np.int32],
    asked_begin: NDArray[np.int32],
    asked: NDArray[np.int32],
    interval: NDArray[np.int32],
    low: NDArray[np.uint64],
    high: NDArray[np.uint64],
    words: NDArray[np.uint64],
    made_begin: NDArray[np.int32],
    made: NDArray[np.int32],
    update_cell: NDArray[np.int32],
    update_lane: NDArray[np.int32],
) -> None:
    """Adds to ``found``, uint64[m, w], the receivers of terms that are true, through the cells.

    ``true``: event << 32 | rest for each rest of terms that is true on an event, in any order;
    events that are ``unread`` are left out. Rest r has the terms from ``term_begin[r]`` up to
    ``term_begin[r + 1]``, of which term t asks that cells ``asked`` from ``asked_begin[t]`` up to
    ``asked_begin[t + 1]`` each have a value in one of its intervals, ``low`` and ``high`` from
    ``interval`` on. Its ``outcome`` has the receivers ``words`` and the updates ``made`` from
    ``made_begin`` on, which an event makes once, after all comparisons: of ``update_cell`` with the
    value in ``update_lane``. For the rest see ``run``.
    """
    events = time.shape[0]
    begin = np.zeros(events + 1, np.int64)
    for pair in true:
        begin[np.int64(pair >> _HASH_SHIFT) + 1] += 1
    for i in range(events):
        begin[i + 1] += begin[i]
    rests = np.empty(true.shape[0], np.int32)
    place = begin[:-1].copy()
    for pair in true:
        of = np.int64(pair >> _HASH_SHIFT)
        rests[place[of]] = np.int32(pair & _LOWER)
        place[of] += 1
    last = np.full(update_cell.shape[0], -1, np.int64)
    waiting = np.empty(update_cell.shape[0], np.int32)
    for i in range(events):
        if unread[i]:
            continue
        now = time[i]
        updates = 0
        cell = -1
        there, value = False, _NONE
        for rest in rests[begin[i] : begin[i + 1]]:
            for term in range(term_begin[rest], term_begin[rest + 1]):
                holds = True
                for at in range(asked_begin[term], asked_begin[term + 1]):
                    if asked[at] != cell:
                        cell = asked[at]
                        there, value = _read(
                            cell, i, values, now, starts, counts, held, function, window, compared
                        )
                    holds = False
                    for part in range(interval[at], interval[at + 1]):
                        holds |= there and low[part] <= value <= high[part]
                    if not holds:
                        break
                if not holds:
                    continue
                number = outcome[term]
                for word in range(words.shape[1]):
                    found[i, word] |= words[number, word]
                for at in range(made_begin[number], made_begin[number + 1]):
                    update = made[at]
                    if last[update] != i:
                        last[update] = i
                        waiting[updates] = update
                        updates += 1
        for at in range(updates):
            update = waiting[at]
            value = _NONE
            if update_lane[update] >= 0:
                value = values[update_lane[update], i]
            _update(update_cell[update], value, now, starts, counts, held, function, window)
