"""Terms to a reduced ordered multi-terminal interval decision diagram.

A node tests one field and sends disjoint intervals of its values, which cover the
domain, to children at later fields; a leaf is a set of receivers. This is the
diagram of CAMUS 3.2 with the predicates of one field drawn as one node, and its
three reductions hold by construction: equal nodes are one (hash-consing), a node whose
children are all equal is its child, and no interval is empty or implied.

Two passes without recursion, so that the number of fields is not bounded by the
Python stack: downwards from the root, level by level, expand each distinct set of
live residual terms once; upwards, replace each by its reduced, shared node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from udfs.errors import FilterError
from udfs.filters.intervals import Intervals, union
from udfs.filters.normal_form import Term

_WORK_PER_ENTRY = 64
"""Mean live terms per row that the limit on rows is to allow for."""
_MAX_UNIONS = 500_000
"""Remembered unions of residuals: about 100 MB at most."""

Child = int
Row = tuple[int, int, Child]


@dataclass(frozen=True)
class Diagram:
    """``nodes[i]`` is (level, rows by ascending low covering the domain) or a leaf.

    A leaf has level ``levels`` and no rows; ``receivers[i]`` is its set as a bit mask
    (0 for inner nodes). Node 0 is the leaf of nobody.
    """

    nodes: list[tuple[int, tuple[Row, ...]]]
    receivers: list[int]
    root: int
    levels: int


def build(
    terms: Iterable[tuple[Term, int]],
    levels: Mapping[str, int],
    maxima: Sequence[int],
    max_entries: int,
) -> Diagram:
    """The reduced diagram of weighted terms.

    ``terms``: (term, bit mask of its receivers). ``levels``: field name to level,
    0 first. ``maxima``: greatest value at each level. Errors: ``FilterError``
    TOO_LARGE once more than ``max_entries`` rows, or work to match, would be needed.
    """
    expansion = _Expansion(maxima, max_entries)
    expansion.start(terms, levels)
    expansion.run()
    return _reduce(expansion)


class _Expansion:
    """The downward pass: distinct sets of live residual terms, and rows between them.

    A *residual* is what is left of a term from some level on: (level, allowed
    values, next residual). Equal ones are one number, so terms that agree from a
    level on are the same thing there. A *state* is (receivers already certain,
    live residuals that could still add some).
    """

    def __init__(self, maxima: Sequence[int], max_entries: int) -> None:
        self.maxima = maxima
        self.bottom = len(maxima)
        self.level: list[int] = []
        self.allowed: list[Intervals] = []
        self.next: list[int] = []
        self.mask: list[int] = []
        self._family: list[int] = []
        self._families: dict[tuple[int, int], int] = {}
        self._united: dict[tuple[int, int], int] = {}
        self._residuals: dict[tuple[int, Intervals, int], int] = {}
        self.states: list[tuple[int, tuple[int, ...]]] = []
        self._state_ids: dict[tuple[int, tuple[int, ...]], int] = {}
        self.by_level: list[list[int]] = [[] for _ in range(self.bottom + 1)]
        self.rows: dict[int, list[Row]] = {}
        self.root = 0
        self._max_entries = max_entries
        self._entries = 0
        self._work = 0

    def start(self, terms: Iterable[tuple[Term, int]], levels: Mapping[str, int]) -> None:
        live: dict[int, None] = {}
        for term, mask in terms:
            residual = self._residual(self.bottom, (), mask)
            for field, allowed in sorted(term, key=lambda part: levels[part[0]], reverse=True):
                residual = self._residual(levels[field], allowed, residual)
            live[residual] = None
        self.root = self._state(0, live)

    def run(self) -> None:
        for level, maximum in enumerate(self.maxima):
            for state in self.by_level[level]:
                self.rows[state] = self._expand(state, level, maximum)

    def _residual(self, level: int, allowed: Intervals, following: int) -> int:
        key = (level, allowed, following)
        found = self._residuals.get(key)
        if found is None:
            found = self._residuals[key] = len(self.level)
            self.level.append(level)
            self.allowed.append(allowed)
            self.next.append(following)
            family = (level, following)
            self._family.append(self._families.setdefault(family, len(self._families)))
            # At the bottom ``following`` is the mask itself.
            self.mask.append(following if level == self.bottom else self.mask[following])
        return found

    def _state(self, mask: int, live: Iterable[int]) -> int:
        # Residuals that lead to the same thing by the same field are one, with more values:
        # many thresholds of one receiver come down to one.
        waiting: dict[int, int] = {}
        for residual in live:
            if self.level[residual] == self.bottom:
                mask |= self.mask[residual]
            else:
                family = self._family[residual]
                other = waiting.get(family)
                waiting[family] = residual if other is None else self._union(other, residual)
                self._work += 1
        # What could only add receivers that are certain already adds nothing.
        key = (mask, tuple(sorted(r for r in waiting.values() if self.mask[r] & ~mask)))
        found = self._state_ids.get(key)
        if found is None:
            found = self._state_ids[key] = len(self.states)
            self.states.append(key)
            level = min((self.level[r] for r in key[1]), default=self.bottom)
            self.by_level[level].append(found)
        return found

    def _union(self, left: int, right: int) -> int:
        """The residual that holds where one of two of the same level and next holds."""
        found = self._united.get((left, right))
        if found is None:
            if len(self._united) > _MAX_UNIONS:
                self._united.clear()
            allowed = union((self.allowed[left], self.allowed[right]))
            found = self._residual(self.level[left], allowed, self.next[left])
            self._united[left, right] = found
        return found

    def _expand(self, state: int, level: int, maximum: int) -> list[Row]:
        mask, live = self.states[state]
        later = [r for r in live if self.level[r] > level]
        changes: dict[int, list[tuple[int, int]]] = {0: []}
        for residual in live:
            if self.level[residual] == level:
                following = self.next[residual]
                for low, high in self.allowed[residual]:
                    changes.setdefault(low, []).append((following, 1))
                    changes.setdefault(high + 1, []).append((following, -1))
        active: dict[int, int] = {}
        rows: list[Row] = []
        points = sorted(point for point in changes if point <= maximum)
        for point, end in zip(points, [*points[1:], maximum + 1], strict=True):
            for following, change in changes[point]:
                count = active.get(following, 0) + change
                if count:
                    active[following] = count
                else:
                    del active[following]
            child = self._state(mask, [*later, *active])
            if rows and rows[-1][2] == child:
                rows[-1] = (rows[-1][0], end - 1, child)
            else:
                rows.append((point, end - 1, child))
        self._entries += len(rows)
        if self._entries > self._max_entries or self._work > self._max_entries * _WORK_PER_ENTRY:
            raise FilterError(
                "TOO_LARGE",
                f"the subscriptions need more than {self._max_entries} table entries. Rules that "
                "compare several fields with many different constants multiply: use fewer "
                "distinct thresholds, or name the stock in each rule",
                max_entries=self._max_entries,
            )
        return rows


def _reduce(expansion: _Expansion) -> Diagram:
    """The upward pass: merge neighbours with equal children, skip and share nodes."""
    bottom = expansion.bottom
    nodes: list[tuple[int, tuple[Row, ...]]] = [(bottom, ())]
    receivers = [0]
    leaf_ids = {0: 0}
    inner_ids: dict[tuple[int, tuple[Row, ...]], int] = {}
    node_of = [0] * len(expansion.states)
    for state in expansion.by_level[bottom]:
        mask = expansion.states[state][0]
        if mask not in leaf_ids:
            leaf_ids[mask] = len(nodes)
            nodes.append((bottom, ()))
            receivers.append(mask)
        node_of[state] = leaf_ids[mask]
    for level in range(bottom - 1, -1, -1):
        for state in expansion.by_level[level]:
            rows: list[Row] = []
            for low, high, child_state in expansion.rows[state]:
                child = node_of[child_state]
                if rows and rows[-1][2] == child:
                    rows[-1] = (rows[-1][0], high, child)
                else:
                    rows.append((low, high, child))
            if len(rows) == 1:
                node_of[state] = rows[0][2]
                continue
            key = (level, tuple(rows))
            if key not in inner_ids:
                inner_ids[key] = len(nodes)
                nodes.append(key)
                receivers.append(0)
            node_of[state] = inner_ids[key]
    return Diagram(nodes, receivers, node_of[expansion.root], bottom)
