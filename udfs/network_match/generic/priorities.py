"""Overlapping rows of which the smallest decides: boxes closed under intersection.

Matches are products of prefixes, so two of them that overlap have a product of prefixes in common.
Where all of these have rows too, an event's rows have one among them that lies in all others. It
has the most fixed bits, so these are its priority, and it says which boxes the event is in.
Source: KUNDEL III-C, which leaves it to the controller.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.messages.attributes.registry import BITS
from stackcast.udfs.network_match.generic.boxes import Box, in_order, pieces_of

Found = tuple[int, int, tuple[tuple[int, int, int], ...], tuple[str, ...]]
"""bits, care, prefixes, receivers of a row."""

# A match is a uint64 an attribute: 0 if it does not ask for it, else (1 + length) << 32 | value.
# Of two that overlap the greater one is then their intersection.
_Matches = NDArray[np.uint64]
_Mask = NDArray[np.bool_]

_SHIFT = np.uint64(32)
_FIXED = np.array(
    [0, *(((1 << length) - 1) << (BITS - length) for length in range(BITS + 1))], np.uint64
)
_PAIRS = 1 << 20
"""Pairs of matches that are intersected at once."""


def overlapping(boxes: Sequence[Box], holes: bool, limit: int) -> list[Found] | None:
    """Returns the rows of boxes by priorities; None if more than ``limit`` would be needed.

    holes: a box may become a larger one and rows for the surplus, which may have no receivers.
    """
    columns = sorted({attribute for box in boxes for attribute, _ in box.spans})
    place = {attribute: at for at, attribute in enumerate(columns)}
    matches: _Matches = np.empty((0, max(len(columns), 1)), np.uint64)
    for box in boxes:
        own = _family(box, place, holes, limit)
        if own is None:
            return None
        parts = [matches, own]
        step = max(_PAIRS // len(own), 1)
        for begin in range(0, len(matches), step):
            common = _common(matches[begin : begin + step], own)
            parts.append(np.unique(common, axis=0))
        matches = np.unique(np.concatenate(parts), axis=0)
        if len(matches) > limit:
            return None
    names = in_order({name for box in boxes for name in box.receivers})
    wanted = _wanted(boxes, matches, place, names, holes)
    sets, outcome = np.unique(wanted, axis=0, return_inverse=True)
    outcome = outcome.reshape(-1)
    nobody = np.flatnonzero(~sets.any(axis=1))
    kept = _needed(matches, outcome, int(nobody[0]) if len(nobody) else -1)
    receivers = [tuple(names[at] for at in np.flatnonzero(one)) for one in sets]
    return [
        (*_as_row(match, columns), receivers[number])
        for match, number in zip(matches[kept].tolist(), outcome[kept].tolist(), strict=True)
    ]


def _family(box: Box, place: dict[int, int], holes: bool, limit: int) -> _Matches | None:
    """Returns all products of the pieces of a box."""
    pieces = [pieces_of(values, holes) for _, values in box.spans]
    count = 1
    for one in pieces:
        count *= len(one)
    if count > limit:
        return None
    result = np.zeros((count, max(len(place), 1)), np.uint64)
    columns = [place[attribute] for attribute, _ in box.spans]
    if columns:
        codes = [[(1 + length) << 32 | value for value, length, _ in one] for one in pieces]
        result[:, columns] = np.array(list(product(*codes)), np.uint64)
    return result


def _common(left: _Matches, right: _Matches) -> _Matches:
    """Returns the intersections that are not empty."""
    meet = np.ones((len(left), len(right)), np.bool_)
    for column in range(left.shape[1]):
        a, b = left[:, None, column], right[None, :, column]
        meet &= ((a ^ b) & _FIXED[np.minimum(a >> _SHIFT, b >> _SHIFT)]) == 0
    at, by = np.nonzero(meet)
    return np.maximum(left[at], right[by])


def _holding(column: _Matches, code: int) -> _Mask:
    """Returns True for the prefixes of a column that lie in one."""
    length = code >> 32
    inside = ((column ^ np.uint64(code)) & _FIXED[length]) == 0
    return np.asarray(inside & (column >> _SHIFT >= length), np.bool_)


def _wanted(
    boxes: Sequence[Box],
    matches: _Matches,
    place: dict[int, int],
    names: Sequence[str],
    holes: bool,
) -> _Mask:
    """Returns bool[matches, names]: True for who wants an event of which a match is the
    smallest."""
    number = {name: at for at, name in enumerate(names)}
    result: _Mask = np.zeros((len(matches), len(names)), np.bool_)
    known: dict[tuple[int, Any], _Mask] = {}
    for box in boxes:
        inside = np.ones(len(matches), np.bool_)
        for attribute, values in box.spans:
            found = known.get((attribute, values))
            if found is None:
                column = matches[:, place[attribute]]
                found = np.zeros(len(matches), np.bool_)
                for value, length, within in sorted(
                    pieces_of(values, holes), key=lambda piece: piece[1]
                ):
                    found[_holding(column, (1 + length) << 32 | value)] = within
                known[attribute, values] = found
            inside &= found
        own = np.array([number[name] for name in box.receivers], np.int64)
        result[np.ix_(np.flatnonzero(inside), own)] = True
    return result


def _needed(matches: _Matches, outcome: NDArray[np.int64], nobody: int) -> NDArray[np.int64]:
    """Returns the places of the matches without which some event would go elsewhere.

    Where a match is the smallest of an event's, all others hold it. So if it goes, the largest
    number of fixed bits among those that hold it and stay decides, for all its events alike.
    """
    bits = (matches >> _SHIFT).sum(axis=1).astype(np.int64)
    order = np.lexsort((*matches.T, bits))
    kept_bits = np.empty(len(order), np.int64)
    kept_outcome = np.empty(len(order), np.int64)
    kept = np.empty(matches.shape, np.uint64)
    places: list[int] = []
    for at in order.tolist():
        count = len(places)
        match = matches[at]
        holds = np.ones(count, np.bool_)
        for column in range(matches.shape[1]):
            others = kept[:count, column]
            fits = ((others ^ match[column]) & _FIXED[others >> _SHIFT]) == 0
            holds &= fits & (others <= match[column] | np.uint64((1 << 32) - 1))
        above = np.flatnonzero(holds)
        if len(above):
            above = above[kept_bits[above] == kept_bits[above[-1]]]
            if (kept_outcome[above] == outcome[at]).all():
                continue
        elif outcome[at] == nobody:
            continue
        kept[count], kept_bits[count], kept_outcome[count] = match, bits[at], outcome[at]
        places.append(at)
    return _uncovered(matches, places)


def _uncovered(matches: _Matches, places: Sequence[int]) -> NDArray[np.int64]:
    """Drops those of which both halves are there: they never decide."""
    rows = [tuple(match) for match in matches[list(places)].tolist()]
    there = set(rows)

    def halved(row: tuple[int, ...]) -> bool:
        for column, code in enumerate(row):
            if 0 < code >> 32 <= BITS:
                longer = code + (1 << 32)
                other = longer | 1 << (BITS - (code >> 32))
                before, after = row[:column], row[column + 1 :]
                if (*before, longer, *after) in there and (*before, other, *after) in there:
                    return True
        return False

    return np.array([at for at, row in zip(places, rows, strict=True) if not halved(row)], np.int64)


def _as_row(
    match: Sequence[int], columns: Sequence[int]
) -> tuple[int, int, tuple[tuple[int, int, int], ...]]:
    bits = 0
    prefixes = []
    for attribute, code in zip(columns, match, strict=False):
        if code:
            bits |= 1 << attribute
        if code >> 32 > 1:
            prefixes.append((attribute, code & (1 << 32) - 1, (code >> 32) - 1))
    return bits, bits, tuple(prefixes)
