"""Compiled loops of the predicate index. An importable module, so that numba's cache works."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from stackcast.udfs.filters.matching.lookup import HASH_FACTOR, HASH_SHIFT
from stackcast.udfs.filters.predicate_index import bit_vectors

_ONE = np.uint64(1)
_SIX, _LOW_SIX = np.uint64(6), np.uint64(63)
WORDS = bit_vectors.WORDS
"""Of 64 events each: a block."""
BLOCK = 64 * WORDS
GROUP = 256
"""Of outcomes, whose events in a block fit the nearest cache."""
_WORDS = np.uint64(WORDS)
_NONE, _ALL, _SPARE, _FIELDS = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3)
"""Rows of slices: of no event, of all, of a term that is not complete, and the first of a field."""
_EVENTS = 1024
"""Of a block whose values are looked up."""
_PADDING = 8
"""Keeps fields of a block from the same lines of a cache."""
_ROOM = np.uint64(4096)
_TWO, _THREE, _FOUR = np.uint64(2), np.uint64(3), np.uint64(4)
_HALF, _LOW_HALF = np.uint64(32), np.uint64(0xFFFFFFFF)
# As in stackcast.udfs.filters.matching.kernels: references to arrays are not counted.
_helper: Any = njit(cache=True, nogil=True, _nrt=False)


@_helper
def _unite(found: Any, i: Any, words: Any, outcome: Any) -> None:
    # Compiled apart for either: without words the other branch is left out.
    if words is None:
        found[0, 0] += _ONE
        if found[0, 0] < np.uint64(found.shape[0]):
            found[found[0, 0], 0] = (np.uint64(i) << _HALF) | np.uint64(outcome)
    else:
        for word in range(np.uint64(words.shape[1])):
            found[i, word] |= words[outcome, word]


@_helper
def _copy(
    block_values: Any,
    there: Any,
    first: Any,
    size: Any,
    types: Any,
    values: Any,
    present: Any,
    partial: Any,
) -> None:
    """Copies a block of events: fields apart lie where caches hold them together, whatever m is."""
    rows = np.uint64(values.shape[0])
    for row in range(rows):
        for event in range(size):
            block_values[row, event] = values[row, first + event]
        if partial:
            for event in range(size):
                there[row, event] = present[row, first + event]
    if types.shape[0]:
        for event in range(size):
            block_values[rows, event] = np.uint64(types[first + event])


@_helper
def _candidates(
    candidate: Any,
    event: Any,
    size: Any,
    block_values: Any,
    there: Any,
    partial: Any,
    row: Any,
    base: Any,
    shift: Any,
    begin: Any,
) -> Any:
    """Lists event << 32 | term of terms whose value has the hash of the event's.

    From ``event`` on; returns the first event that there was no room for, and how many there are.
    """
    count = np.uint64(0)
    while event < size and count < _ROOM:
        value = block_values[row, event]
        place = base + (((value ^ (value >> HASH_SHIFT)) * HASH_FACTOR) >> shift)
        first = np.uint64(begin[place])
        terms = np.uint64(begin[place + _ONE]) - first
        if partial:
            terms *= np.uint64(there[row, event])
        # Few have more than four. How many of these there are is not asked: it cannot be foretold.
        here = (event << _HALF) | first
        candidate[count] = here
        candidate[count + _ONE] = here + _ONE
        candidate[count + _TWO] = here + _TWO
        candidate[count + _THREE] = here + _THREE
        for term in range(_FOUR, terms):
            candidate[count + term] = here + term
        count += terms
        event += _ONE
    return event, count


@_helper
def _true(
    candidate: Any,
    count: Any,
    block_values: Any,
    there: Any,
    partial: Any,
    lane: Any,
    low: Any,
    span: Any,
) -> Any:
    """Keeps the candidates whose tested value is in the term's range; returns how many."""
    kept = np.uint64(0)
    for at in range(count):
        each = candidate[at]
        term, event = each & _LOW_HALF, each >> _HALF
        row = np.uint64(lane[term])
        holds = (block_values[row, event] - low[term]) <= span[term]
        if partial:
            holds &= there[row, event]
        candidate[kept] = each
        kept += np.uint64(holds)
    return kept


@_helper
def _holds(
    first: Any,
    last: Any,
    event: Any,
    block_values: Any,
    there: Any,
    partial: Any,
    lane: Any,
    start: Any,
    low: Any,
    span: Any,
) -> Any:
    """Returns True if the event satisfies all predicates from ``first`` up to ``last``."""
    for at in range(np.uint64(first), np.uint64(last)):
        row = np.uint64(lane[at])
        if partial and not there[row, event]:
            return False
        value = block_values[row, event]
        held = False
        for interval in range(np.uint64(start[at]), np.uint64(start[at + _ONE])):
            held |= (value - low[interval]) <= span[interval]
        if not held:
            return False
    return True


@njit(cache=True, nogil=True)
def match_postings(
    found: NDArray[np.uint64],
    types: NDArray[np.uint8],
    values: NDArray[np.uint64],
    present: NDArray[np.bool_],
    access_lane: NDArray[np.int32],
    table_begin: NDArray[np.int64],
    table_shift: NDArray[np.uint64],
    begin: NDArray[np.int32],
    key: NDArray[np.uint64],
    outcome: NDArray[np.int32],
    tested_lane: NDArray[np.int32],
    tested_low: NDArray[np.uint64],
    tested_span: NDArray[np.uint64],
    predicate: NDArray[np.int32],
    lane: NDArray[np.int32],
    start: NDArray[np.int32],
    low: NDArray[np.uint64],
    span: NDArray[np.uint64],
    longest: int,
    words: NDArray[np.uint64] | None,
) -> None:
    """Adds to ``found``, uint64[m, w], the receivers of terms that hang on a value of a field.

    Without ``words``, to ``found``, uint64[n, 1], event << 32 | outcome of each term that is true:
    the first says how many, and those for which there is no room are left out.

    ``access_lane``: int32[a], rows of ``values``. Table a begins at ``table_begin[a]``; its place
    of a value is the value's hash ``>> table_shift[a]``, and the terms of a place those from
    ``begin`` there up to the next, ``longest`` at most. Term t asks for the value ``key[t]``, for
    one in row ``tested_lane[t]`` from ``tested_low`` to ``tested_low + tested_span``, and for the
    predicates from ``predicate[t]`` up to ``predicate[t + 1]``; its receivers are
    ``words[outcome[t]]``. Predicate p asks that the value in row ``lane[p]`` is in one of the
    intervals ``low``, ``low + span`` from ``start[p]`` up to ``start[p + 1]``. The row behind all
    is the type of the message.

    Candidates are listed first and tested then, without branches that cannot be foretold.
    """
    count = values.shape[1]
    partial = present.shape[0] > 0
    block_values = np.zeros((values.shape[0] + 1, _EVENTS + _PADDING), np.uint64)
    there = np.ones(block_values.shape if partial else (0, 0), np.bool_)
    candidate = np.empty(_ROOM + np.uint64(longest) + _FOUR, np.uint64)
    for block in range(0, count, _EVENTS):
        before, size = np.uint64(block), np.uint64(min(_EVENTS, count - block))
        _copy(block_values, there, before, size, types, values, present, partial)
        for access in range(access_lane.shape[0]):
            row, event = np.uint64(access_lane[access]), np.uint64(0)
            while event < size:
                event, listed = _candidates(
                    candidate,
                    event,
                    size,
                    block_values,
                    there,
                    partial,
                    row,
                    np.uint64(table_begin[access]),
                    table_shift[access],
                    begin,
                )
                kept = _true(
                    candidate,
                    listed,
                    block_values,
                    there,
                    partial,
                    tested_lane,
                    tested_low,
                    tested_span,
                )
                for at in range(kept):
                    term, i = candidate[at] & _LOW_HALF, candidate[at] >> _HALF
                    if block_values[row, i] == key[term] and _holds(
                        predicate[term],
                        predicate[term + _ONE],
                        i,
                        block_values,
                        there,
                        partial,
                        lane,
                        start,
                        low,
                        span,
                    ):
                        _unite(found, before + i, words, np.uint64(outcome[term]))


@_helper
def _mark(
    slices: Any,
    row_of: Any,
    value: Any,
    place: Any,
    used: Any,
    block: Any,
    size: Any,
    types: Any,
    values: Any,
    present: Any,
    partial: Any,
    row: Any,
    boundary: Any,
    first: Any,
    last: Any,
    base: Any,
    shift: Any,
    step: Any,
    bucket: Any,
) -> None:
    """Writes which events of a block have a value of each boundary of a field or more.

    Rows from ``used`` on, one an event: by a counting sort of the events, that of a boundary begins
    with the first of them that is not below it.
    """
    for event in range(size):
        value[event] = np.uint64(types[block + event]) if row < 0 else values[row, block + event]
    # Loops over events are short, so that they become loops over vectors.
    most = np.uint64(bucket.shape[0] - 1)
    for event in range(size):
        place[event] = bucket[min((max(value[event], base) - base) >> shift, most)]
    while step:
        for event in range(size):
            middle = place[event] + step
            place[event] = middle if boundary[first + middle] <= value[event] else place[event]
        step >>= _ONE
    # Before the first boundary: what is absent.
    for event in range(size):
        place[event] = min(place[event], last) + _ONE
    if partial and row >= 0:
        for event in range(size):
            place[event] *= np.uint64(present[row, block + event])
    for event in range(size):
        row_of[first + place[event]] += np.int32(1)
    free = np.int32(used)
    for at in range(first, first + last + _TWO):
        events = row_of[at]
        row_of[at] = free
        free += events
    for event in range(size):
        mine = row_of[first + place[event]]
        row_of[first + place[event]] = mine + np.int32(1)
        # The values are not needed any more.
        value[np.uint64(mine) - used] = event
    # What was the first row of events from a boundary on is now that of those from the next on.
    bit_vectors.fill(slices, used, value, size)


@_helper
def _spread(found: Any, i: Any, left: Any, words: Any, outcome: Any) -> None:
    if left == np.uint64(0):
        return
    if words is not None and words.shape[1] == 1 and i + np.uint64(64) <= np.uint64(found.shape[0]):
        bit_vectors.spread(found, i, left, words[outcome, 0])
        return
    while left:
        if left & _ONE:
            _unite(found, i, words, outcome)
        left >>= _ONE
        i += _ONE


@_helper
def _rows(row_of: Any, low: Any, above: Any, pair: Any) -> Any:
    return (
        np.uint64(row_of[np.uint64(low[pair, 0])]),
        np.uint64(row_of[np.uint64(above[pair, 0])]),
        np.uint64(row_of[np.uint64(low[pair, 1])]),
        np.uint64(row_of[np.uint64(above[pair, 1])]),
    )


@_helper
def _accumulate(
    held: Any,
    slices: Any,
    row_of: Any,
    first: Any,
    last: Any,
    first_outcome: Any,
    outcome: Any,
    pair_begin: Any,
    low: Any,
    above: Any,
) -> None:
    """Adds the events on which terms from ``first`` up to ``last`` are true to those of their
    outcomes."""
    for term in range(first, last):
        pair, end = np.uint64(pair_begin[term]), np.uint64(pair_begin[term + _ONE])
        mine = np.uint64(outcome[term]) - first_outcome
        if pair + _ONE == end:
            bit_vectors.unite(held, mine, slices, *_rows(row_of, low, above, pair))
            continue
        bit_vectors.unite(slices, _SPARE, slices, _ALL, _NONE, _ALL, _NONE)
        while pair < end:
            bit_vectors.intersect(slices, _SPARE, slices, *_rows(row_of, low, above, pair))
            pair += _ONE
        bit_vectors.unite(held, mine, slices, _SPARE, _NONE, _ALL, _NONE)


@njit(cache=True, nogil=True)
def match_slices(
    found: NDArray[np.uint64],
    types: NDArray[np.uint8],
    values: NDArray[np.uint64],
    present: NDArray[np.bool_],
    lanes: NDArray[np.int32],
    boundary_begin: NDArray[np.int64],
    boundary_last: NDArray[np.int64],
    boundary: NDArray[np.uint64],
    base: NDArray[np.uint64],
    shift: NDArray[np.uint64],
    step: NDArray[np.uint64],
    bucket: NDArray[np.uint64],
    group_begin: NDArray[np.int32],
    outcome: NDArray[np.int32],
    pair_begin: NDArray[np.int32],
    low: NDArray[np.int32],
    above: NDArray[np.int32],
    start: NDArray[np.int32],
    part_low: NDArray[np.int32],
    part_above: NDArray[np.int32],
    words: NDArray[np.uint64] | None,
) -> None:
    """Adds to ``found``, uint64[m, w], the receivers of terms, 512 events at a time; without
    ``words`` as in `match_postings`.

    A row of slices says which events of a block have a value of ``boundary[k]`` or more; field f
    has those from ``boundary_begin[f]`` on, ascending, the first 0, numbered from there up to
    ``boundary_last[f]``, and two times ``step[f]`` behind them as large as can be, one at least.
    Behind all n are one that no event has, n, one that all have, n + 1, and unions: of number
    n + 2 + u for the events that are from ``part_low`` on and not from ``part_above`` on, of the
    intervals from ``start[u]`` up to ``start[u + 1]``. ``lanes``: rows of ``values``, -1 for the
    type of the message. ``bucket``: uint64[f, b], the last boundary of the field at or below the
    start of each bucket of 2^shift values from ``base`` on; none has more of them in it than
    2 ``step[f]`` - 1, a power of two or 0. Group g of ``GROUP`` outcomes has the
    terms from ``group_begin[g]`` up to ``group_begin[g + 1]``, of which term t has ``outcome[t]``
    and is true on events that are from ``low``, int32[p, 2], on and not from ``above`` on, both
    times, for pairs from ``pair_begin[t]`` up to ``pair_begin[t + 1]``, one at least.
    """
    count = values.shape[1]
    partial = present.shape[0] > 0
    unions = start.shape[0] - 1
    # Behind the rows of a field one that stays without events.
    slices = np.zeros((_FIELDS + lanes.shape[0] * (BLOCK + 1) + unions, WORDS), np.uint64)
    behind = boundary.shape[0]
    row_of = np.zeros(behind + 2 + unions, np.int32)
    value, place = np.zeros(BLOCK, np.uint64), np.zeros(BLOCK, np.uint64)
    held = np.zeros((GROUP, WORDS), np.uint64)
    for block in range(0, count, BLOCK):
        size = np.uint64(min(BLOCK, count - block))
        slices[_ALL, :] = np.uint64(0)
        for event in range(size):
            slices[_ALL, event >> _SIX] |= _ONE << (event & _LOW_SIX)
        row_of[:] = 0
        row_of[behind + 1] = _ALL
        used = _FIELDS
        for field in range(lanes.shape[0]):
            _mark(
                slices,
                row_of,
                value,
                place,
                used,
                np.uint64(block),
                size,
                types,
                values,
                present,
                partial,
                lanes[field],
                boundary,
                np.uint64(boundary_begin[field]),
                np.uint64(boundary_last[field]),
                base[field],
                shift[field],
                step[field],
                bucket[field],
            )
            used += np.uint64(BLOCK + 1)
        for union in range(unions):
            row_of[behind + 2 + union] = used
            slices[used, :] = np.uint64(0)
            for part in range(start[union], start[union + 1]):
                lower, upper = row_of[part_low[part]], row_of[part_above[part]]
                bit_vectors.unite(
                    slices, used, slices, np.uint64(lower), np.uint64(upper), _ALL, _NONE
                )
            used += _ONE
        for group in range(group_begin.shape[0] - 1):
            first = np.uint64(group * GROUP)
            _accumulate(
                held,
                slices,
                row_of,
                np.uint64(group_begin[group]),
                np.uint64(group_begin[group + 1]),
                first,
                outcome,
                pair_begin,
                low,
                above,
            )
            for mine in range(np.uint64(GROUP)):
                for word in range(_WORDS):
                    i = np.uint64(block) + (word << _SIX)
                    _spread(found, i, held[mine, word], words, first + mine)
                    held[mine, word] = np.uint64(0)


@njit(cache=True, nogil=True)
def look_up(
    delivery: NDArray[np.int32],
    found: NDArray[np.uint64],
    slot: NDArray[np.int32],
    of_delivery: NDArray[np.int32],
    of_words: NDArray[np.uint64],
    known: int,
    entry: NDArray[np.int32],
) -> Any:
    """Writes to ``entry``, int32[m], the number of each pair of delivery and receivers.

    Pairs are numbered from 0 on in ``of_delivery`` and ``of_words``, which new ones are added to,
    and found by the table ``slot`` of open addressing, a power of two, -1 where it is free. No
    receivers: -1. Returns how many pairs are known then, or ``-1 - known`` if there is no more
    room.
    """
    words = found.shape[1]
    last = np.uint64(slot.shape[0] - 1)
    for i in range(delivery.shape[0]):
        mixed = np.uint64(0)
        for word in range(words):
            mixed = (mixed ^ found[i, word]) * HASH_FACTOR
            mixed ^= mixed >> HASH_SHIFT
        if mixed == np.uint64(0):
            empty = True
            for word in range(words):
                empty &= found[i, word] == np.uint64(0)
            if empty:
                entry[i] = -1
                continue
        mixed = (mixed ^ np.uint64(delivery[i])) * HASH_FACTOR
        at = (mixed >> HASH_SHIFT) & last
        while True:
            number = slot[at]
            if number < 0:
                if known == of_delivery.shape[0]:
                    return -1 - known
                of_delivery[known] = delivery[i]
                for word in range(words):
                    of_words[known, word] = found[i, word]
                slot[at] = known
                entry[i] = known
                known += 1
                break
            same = of_delivery[number] == delivery[i]
            for word in range(words):
                same &= of_words[number, word] == found[i, word]
            if same:
                entry[i] = number
                break
            at = (at + _ONE) & last
    return known
