"""Rows of which no two match one event: the ways through a decision diagram of the attributes.

A node asks for one attribute: it has a child for each interval of its values and one for events
that lack it. Equal nodes are one, and a node with one child alone is that child.
Source: KUNDEL III-C; CAMUS 3.2 for the diagram.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from udfs.filters.intervals import Intervals, union
from udfs.messages.attributes.registry import BITS
from udfs.network_match.generic.boxes import Box, Spans, in_order, prefixes_of
from udfs.network_match.generic.priorities import Found

_WORK_PER_ROW = 64
"""Boxes looked at for each row that the limit allows."""

_Wish = tuple[Spans, frozenset[str]]
"""Attributes that are still to be asked for, and the receivers then."""

_Rows = tuple[tuple[int, Intervals], ...]


class _TooMuchError(Exception):
    """More work than the limit allows."""


def apart(boxes: Sequence[Box], limit: int) -> list[Found] | None:
    """Returns the rows of boxes without overlaps; None if more than ``limit``, or it takes too
    long."""
    diagram = _Diagram(boxes, limit)
    try:
        root = diagram.make(
            frozenset((diagram.sorted(box.spans), frozenset(box.receivers)) for box in boxes)
        )
    except _TooMuchError:
        return None
    if diagram.count(root) > limit:
        return None
    return list(diagram.ways(root, 0, 0, ()))


class _Diagram:
    """One decision diagram. Leaves are below 0: -1 - n is set n. Set 0 is nobody."""

    def __init__(self, boxes: Sequence[Box], limit: int) -> None:
        readers: dict[int, int] = {}
        for box in boxes:
            for attribute, _ in box.spans:
                readers[attribute] = readers.get(attribute, 0) + 1
        # The attribute of most boxes comes first: it parts them best.
        order = sorted(readers, key=lambda attribute: (-readers[attribute], attribute))
        self._place = {attribute: at for at, attribute in enumerate(order)}
        self._work = _WORK_PER_ROW * limit
        self._sets: dict[frozenset[str], int] = {frozenset(): -1}
        self._members: list[tuple[str, ...]] = [()]
        self._nodes: dict[tuple[int, _Rows, int], int] = {}
        self._node: list[tuple[int, _Rows, int]] = []
        self._made: dict[frozenset[_Wish], int] = {}
        self._counts: dict[int, int] = {}

    def sorted(self, spans: Spans) -> Spans:
        return tuple(sorted(spans, key=lambda span: self._place[span[0]]))

    def make(self, wishes: frozenset[_Wish]) -> int:
        """Returns the node of these wishes."""
        wishes = _simpler(wishes)
        found = self._made.get(wishes)
        if found is None:
            found = self._made[wishes] = self._new(wishes)
        return found

    def _new(self, wishes: frozenset[_Wish]) -> int:
        asking = [wish for wish in wishes if wish[0]]
        if not asking:
            return self._leaf(frozenset(name for _, names in wishes for name in names))
        attribute = min((wish[0][0][0] for wish in asking), key=self._place.__getitem__)
        here = [wish for wish in asking if wish[0][0][0] == attribute]
        others = wishes.difference(here)
        changes: dict[int, list[tuple[bool, _Wish]]] = {0: [], 1 << BITS: []}
        for spans, names in here:
            rest = (spans[1:], names)
            for low, high in spans[0][1]:
                changes.setdefault(low, []).append((True, rest))
                changes.setdefault(high + 1, []).append((False, rest))
        active: dict[_Wish, int] = {}
        values: dict[int, list[tuple[int, int]]] = {}
        for start, end in pairwise(sorted(changes)):
            for begins, wish in changes[start]:
                active[wish] = active.get(wish, 0) + (1 if begins else -1)
                if not active[wish]:
                    del active[wish]
            self._work -= 1 + len(others) + len(active)
            if self._work < 0:
                raise _TooMuchError
            child = self.make(others.union(active))
            values.setdefault(child, []).append((start, end - 1))
        absent = self.make(others)
        if values.keys() == {absent}:
            return absent
        rows = tuple((child, union((tuple(spans),))) for child, spans in values.items())
        return self._inner((attribute, rows, absent))

    def _leaf(self, names: frozenset[str]) -> int:
        if names not in self._sets:
            self._sets[names] = -1 - len(self._members)
            self._members.append(in_order(names))
        return self._sets[names]

    def _inner(self, node: tuple[int, _Rows, int]) -> int:
        if node not in self._nodes:
            self._nodes[node] = len(self._node)
            self._node.append(node)
        return self._nodes[node]

    def count(self, number: int) -> int:
        """Counts the rows of a node."""
        if number < 0:
            return int(number < -1)
        found = self._counts.get(number)
        if found is None:
            _, rows, absent = self._node[number]
            found = self.count(absent)
            for child, values in rows:
                found += len(prefixes_of(values)) * self.count(child)
            self._counts[number] = found
        return found

    def ways(
        self, number: int, bits: int, care: int, prefixes: tuple[tuple[int, int, int], ...]
    ) -> Iterator[Found]:
        """Yields the rows of a node, after the attributes asked for before it."""
        if number < 0:
            if number < -1:
                yield bits, care, tuple(sorted(prefixes)), self._members[-1 - number]
            return
        attribute, rows, absent = self._node[number]
        bit = 1 << attribute
        yield from self.ways(absent, bits, care | bit, prefixes)
        for child, values in rows:
            for value, length in prefixes_of(values):
                own = ((attribute, value, length),) if length else ()
                yield from self.ways(child, bits | bit, care | bit, (*prefixes, *own))


def _simpler(wishes: frozenset[_Wish]) -> frozenset[_Wish]:
    """Drops wishes whose receivers receive anyway."""
    sure = frozenset(name for spans, names in wishes if not spans for name in names)
    if not sure:
        return wishes
    left = {(spans, names - sure) for spans, names in wishes if spans and not names <= sure}
    return frozenset(left | {((), sure)})
