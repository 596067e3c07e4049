"""The predicate index: receivers of events by the predicates of rules, one by one.

Sources: Fabret et al., SIGMOD 2001 (a term hangs on one of its predicates); Lakshman and Stiliadis,
SIGCOMM 1998 (a bit vector a predicate), turned by 90 degrees: a bit an event.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.filters.matching.lookup import hashed
from stackcast.udfs.filters.meaning.normal_form import MESSAGE_TYPE
from stackcast.udfs.filters.predicate_index import kernels
from stackcast.udfs.filters.predicate_index.postings import postings
from stackcast.udfs.filters.predicate_index.term_index import TermIndex
from stackcast.udfs.filters.predicate_index.terms import FlatTerms
from stackcast.udfs.messages.specification import Specification

_T = TypeVar("_T", np.int64, np.uint64)

_CANDIDATE, _TERM, _FIELD = 2.5, 0.01, 3.5
"""Nanoseconds an event, as measured: of a term listed for its value, of any term of slices, and how
much more a field costs in slices than a look-up."""
_BUCKETS = 1024


class PredicateIndex(TermIndex):
    """Finds the receivers of each event, at a cost that is a sum over the rules.

    Terms that ask for one value of a field, where few ask for the same, are found by that value and
    then verified; of all others every block of events is asked, a bit an event. ``candidate`` says
    what it costs to verify one: 0 for all by values, much for none. Picklable.
    """

    def __init__(
        self,
        flat: FlatTerms,
        specification: Specification,
        *,
        candidate: float = _CANDIDATE,
    ) -> None:
        super().__init__(flat, specification)
        lanes = {f.qualified: f for each in specification.order() for f in each.lanes()}
        asked = set(flat.names)
        self.fields = tuple(name for name in lanes if name in asked)
        self.definitions = tuple(lanes[name] for name in self.fields)
        row = {MESSAGE_TYPE: -1} | {name: at for at, name in enumerate(self.fields)}
        self._row = np.array([row[name] for name in flat.names], np.int32)
        chosen, at = _access(flat, self._row, candidate)
        self._postings = postings(flat, self._row, chosen, at) if len(chosen) else None
        others = np.ones(len(flat), np.bool_)
        others[chosen] = False
        self._slices = self._make_slices(flat, np.flatnonzero(others))

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        parts = (*(self._postings or ()), *(self._slices or ()), self._words)
        return sum(array.nbytes for array in parts)

    def match(
        self,
        message_type: NDArray[np.uint8] | None,
        values: NDArray[np.uint64],
        present: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.uint64]:
        """Returns the receivers of each event: uint64[m, words].

        Arguments as of ``stackcast.udfs.filters.matching.matcher.Matcher.match``, for ``fields``.
        """
        count = values.shape[1] if message_type is None else len(message_type)
        found = np.zeros((count, self.words), np.uint64)
        self._match(found, count, message_type, values, present, self._words)
        return found

    def pairs(
        self,
        message_type: NDArray[np.uint8] | None,
        values: NDArray[np.uint64],
        present: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns each event with the number of each outcome that it has, in ascending order.

        Arguments as of ``match``. Outcomes are numbered as the terms have them.
        """
        # Several terms of a rule may be true on an event.
        kept = distinct(self.true(message_type, values, present)).astype(np.int64)
        return kept >> 32, kept & 0xFFFFFFFF

    def true(
        self,
        message_type: NDArray[np.uint8] | None,
        values: NDArray[np.uint64],
        present: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.uint64]:
        """Returns event << 32 | outcome for each term that is true, uint64[n] in any order.

        Arguments as of ``match``.
        """
        count = values.shape[1] if message_type is None else len(message_type)
        room = 4 * count + 1
        while True:
            found = np.zeros((room, 1), np.uint64)
            self._match(found, count, message_type, values, present, None)
            true = int(found[0, 0])
            if true < room:
                return found[1 : true + 1, 0]
            room = true + 1

    def _match(
        self,
        found: NDArray[np.uint64],
        count: int,
        message_type: NDArray[np.uint8] | None,
        values: NDArray[np.uint64],
        present: NDArray[np.bool_] | None,
        words: NDArray[np.uint64] | None,
    ) -> None:
        if values.shape != (len(self.fields), count):
            raise ValueError(
                f"values has shape {values.shape}, but {len(self.fields)}, {count} is expected"
            )
        types = np.zeros(0 if message_type is None else count, np.uint8)
        if message_type is not None:
            types = np.require(message_type, np.uint8, ["C", "W"])
        lacking = np.zeros((0, 0), np.bool_) if present is None else present
        columns = (
            found,
            types,
            np.require(values, np.uint64, ["C", "W"]),
            np.require(lacking, np.bool_, ["C", "W"]),
        )
        if self._postings is not None:
            kernels.match_postings(*columns, *self._postings, words)
        if self._slices is not None:
            kernels.match_slices(*columns, *self._slices, words)

    def _make_slices(
        self, flat: FlatTerms, chosen: NDArray[np.int64]
    ) -> tuple[NDArray[Any], ...] | None:
        if not len(chosen):
            return None
        chosen = _uncovered(flat, chosen)
        terms = flat.select(chosen[_by_group_and_field(flat, chosen)])
        row = np.repeat(self._row[terms.field], np.diff(terms.interval))
        rows = np.unique(row)
        boundaries, low, above = [], np.empty(len(row), np.int32), np.empty(len(row), np.int32)
        begins, lasts, places = [0], [], []
        for each in rows.tolist():
            mine = row == each
            lows, highs = terms.low[mine], terms.high[mine]
            ended = highs < np.iinfo(np.uint64).max
            after = np.where(ended, highs, 0) + np.uint64(1)
            boundary = np.unique(np.concatenate(([np.uint64(0)], lows, after[ended])))
            low[mine] = begins[-1] + np.searchsorted(boundary, lows)
            above[mine] = np.where(ended, begins[-1] + np.searchsorted(boundary, after), -1)
            places.append(_buckets(boundary))
            behind = np.full(1 + 2 * places[-1][2], np.iinfo(np.uint64).max, np.uint64)
            boundaries.append(np.concatenate((boundary, behind)))
            lasts.append(len(boundary) - 1)
            begins.append(begins[-1] + len(boundaries[-1]))
        above[above < 0] = begins[-1]
        return (
            rows.astype(np.int32),
            np.array(begins, np.int64),
            np.array(lasts, np.int64),
            np.concatenate([*boundaries, np.empty(0, np.uint64)]),
            np.array([place[0] for place in places], np.uint64),
            np.array([place[1] for place in places], np.uint64),
            np.array([place[2] for place in places], np.uint64),
            np.array([place[3] for place in places], np.uint64).reshape(len(places), _BUCKETS),
            np.searchsorted(
                terms.outcome // kernels.GROUP,
                np.arange(-(-len(flat.outcomes) // kernels.GROUP) + 1),
            ).astype(np.int32),
            terms.outcome,
            *_pairs(terms, low, above, begins[-1]),
        )


def distinct(values: NDArray[_T]) -> NDArray[_T]:
    """Returns the different ones, ascending; ``numpy.unique`` takes ten times as long where many
    are near one another."""
    ordered = np.sort(values)
    found: NDArray[_T] = ordered[np.diff(ordered, prepend=~ordered[:1]) != 0]
    return found


def _pairs(
    terms: FlatTerms, low: NDArray[np.int32], above: NDArray[np.int32], behind: int
) -> tuple[NDArray[np.int32], ...]:
    """Returns predicates two by two, and those of several intervals, as ``match_slices`` takes
    them: low and above by interval, and the number behind all boundaries."""
    size = np.diff(terms.interval)
    several = np.flatnonzero(size > 1)
    lower, upper = low[terms.interval[:-1]], above[terms.interval[:-1]]
    lower[several] = behind + 2 + np.arange(len(several))
    upper[several] = behind
    parted = np.repeat(size > 1, size)
    predicates = np.diff(terms.predicate)
    pairs = np.maximum(1, -(-predicates // 2))
    begin = np.concatenate(([0], np.cumsum(pairs)))
    # Where there is none to be the other, all events are from it on, and none from above it on.
    paired = np.full((begin[-1] * 2, 2), (behind + 1, behind), np.int32)
    first = np.repeat(2 * begin[:-1] - terms.predicate[:-1], predicates)
    place = first + np.arange(len(lower))
    paired[place, 0], paired[place, 1] = lower, upper
    return (
        begin.astype(np.int32),
        np.ascontiguousarray(paired[:, 0].reshape(-1, 2)),
        np.ascontiguousarray(paired[:, 1].reshape(-1, 2)),
        np.concatenate(([0], np.cumsum(size[several]))).astype(np.int32),
        low[parted],
        above[parted],
    )


def _uncovered(flat: FlatTerms, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Leaves out terms of one range that lies in that of another of their outcome and field."""
    alone = chosen[flat.predicate[chosen + 1] - flat.predicate[chosen] == 1]
    alone = alone[np.diff(flat.interval)[flat.predicate[alone]] == 1]
    at = flat.predicate[alone]
    low, high = flat.low[flat.interval[at]], flat.high[flat.interval[at]]
    group = flat.outcome[alone].astype(np.int64) * len(flat.names) + flat.field[at]
    order = np.lexsort((~high, low, group))
    _, rank = np.unique(high, return_inverse=True)
    reach = (group * len(high) + rank)[order]
    # A later group reaches further than any before it.
    before = np.maximum.accumulate(np.concatenate((np.full(1, -1), reach)))[:-1]
    return np.setdiff1d(chosen, alone[order[reach <= before]], assume_unique=True)


def _by_group_and_field(flat: FlatTerms, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns an order of terms in which those of a group of outcomes that ask for a field first
    follow one another from low to high, so that few bits are in use at a time."""
    begin, end = flat.predicate[chosen], flat.predicate[chosen + 1]
    asks = begin < end
    field = np.where(asks, np.append(flat.field, -1)[begin], -1)
    low = np.where(asks, np.append(flat.low, np.uint64(0))[flat.interval[begin]], np.uint64(0))
    return np.lexsort((low, field, flat.outcome[chosen] // kernels.GROUP))


def _access(
    flat: FlatTerms, row: NDArray[np.int32], candidate: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns terms that hang on a value, and of each the predicate with the rarest value."""
    count = len(flat.field)
    single = np.add.reduceat(flat.low != flat.high, flat.interval[:-1]) == 0 if count else []
    points = np.flatnonzero(np.asarray(single, np.bool_) & (row[flat.field] >= 0))
    first = flat.low[flat.interval[points]]
    field = flat.field[points]
    # Pairs of field and value by a hash: two that share a place pass for one, which costs a little
    # time where it misleads, and nothing else.
    bits = max(10, (4 * len(points)).bit_length())
    mixed = hashed(hashed(first) + field.astype(np.uint64))
    place = (mixed >> np.uint64(64 - bits)).astype(np.int64)
    often = np.bincount(place, minlength=1 << bits)[place]
    last = np.zeros(1 << bits, np.int64)
    last[place] = np.arange(len(points))
    values = np.bincount(field[last[place] == np.arange(len(points))], minlength=len(flat.names))
    asked = np.bincount(field, minlength=len(flat.names))
    kept = (asked * (candidate / np.maximum(values, 1) - _TERM) < _FIELD)[field]
    points, often = points[kept], often[kept]
    if not len(points):
        return points, points
    term = np.repeat(np.arange(len(flat)), np.diff(flat.predicate))[points]
    first_of = np.flatnonzero(np.diff(term, prepend=-1))
    rarest = np.minimum.reduceat(often << 32 | np.arange(len(points)), first_of) & 0xFFFFFFFF
    return term[first_of], points[rarest]


def _buckets(boundary: NDArray[np.uint64]) -> tuple[int, int, int, NDArray[np.int64]]:
    """Returns base, shift, the first step of a search in any bucket, and the last boundary at or
    below the start of each bucket."""
    base = int(boundary[1]) if len(boundary) > 1 else 0
    span = int(boundary[-1]) - base
    shift = max(0, span.bit_length() - _BUCKETS.bit_length() + 1)
    starts = np.arange(_BUCKETS, dtype=np.uint64) << np.uint64(shift)
    starts = np.uint64(base) + np.minimum(starts, np.uint64(span))
    place = np.searchsorted(boundary, starts, side="right") - 1
    place[0] = 0
    most = int(np.diff(place, append=len(boundary) - 1).max())
    return base, shift, 1 << most.bit_length() >> 1, place
