"""The rules of a switch as passes: rows of the generic table where these add up, else bit vectors.

Rows of one pass overlap and may multiply; those of several passes, and the terms of bit vectors,
only add up: the ports of all of them are OR-ed. So what multiplies is taken apart, first to bit
vectors, and where these have no room to passes for boxes of like attributes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest

from stackcast.udfs.errors import FilterError
from stackcast.udfs.messages.attributes.registry import BITS
from stackcast.udfs.network_match.bit_vectors import (
    BitVectors,
    Domain,
    Merged,
    merged,
    vectors_in_words,
)
from stackcast.udfs.network_match.generic.boxes import Box, Spans, groups, prefixes_of, reach
from stackcast.udfs.network_match.generic.cells import CellTerms
from stackcast.udfs.network_match.generic.table import (
    MAX_ROWS,
    WAYS,
    GenericRow,
    Way,
    table_of_boxes,
)
from stackcast.udfs.network_match.port_terms import PortTerm
from stackcast.udfs.switches.ports import NARROW_PORTS, SUBSET

WORDS, MAX_PASSES = 8, 16
"""Of ``attribute_value.p4``: words of terms in a pass, and most passes of an event."""

_FREE, _MOST = 64, 1024
"""Rows of boxes that overlap add up if they are no more than so many and one for each prefix of an
attribute of a box; in any case they are no more than that, so that the end of an edit is in sight.
"""

_PROBE = 8
"""Boxes that begin to show whether all of them multiply; then twice as many, and so on."""

_CLASSES = 32
"""Sets of attributes, those with most boxes, that passes of their own are tried for."""

_Rows = tuple[GenericRow, ...]


@dataclass(frozen=True)
class Pass:
    """Holds what an event meets at once: rows by descending priority, and terms, none if None.

    subset: 0 if terms are in words of all ports, n + 1 if they are in words of the nth 8 ports.
    cell: asked, and then updated, by events that meet a term; ports of terms mean nothing then.
    """

    rows: Sequence[GenericRow] = ()
    vectors: BitVectors | None = None
    subset: int = 0
    cell: CellTerms | None = None


@dataclass(frozen=True)
class Passes:
    """Holds the passes of a switch. refused: what found no room, as (spans, port). without: names
    of cells that found none."""

    passes: Sequence[Pass]
    refused: frozenset[tuple[Spans, str]] = frozenset()
    without: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Limits:
    """Limits of a switch. ways: as for ``table_of_boxes``. rows: of its generic table. words: of
    terms in a pass, a bit a port. passes: of an event."""

    ways: Sequence[Way] = WAYS
    rows: int = MAX_ROWS
    words: int = WORDS
    passes: int = MAX_PASSES


def passes_of(boxes: Sequence[Box], limits: Limits, cells: Sequence[CellTerms] = ()) -> Passes:
    """Makes passes of boxes whose receivers are port numbers as text: those that refuse least, of
    these the fewest, of these those with fewest rows. Each of ``cells`` has one more; the last ones
    are those that find none.

    Equal boxes have equal passes.
    """
    found = _without_state(boxes, limits)
    room = limits.passes - len(found.passes)
    asking = [
        replace(_with_vectors([], [Box(one.spans, ("1",))], limits).passes[0], cell=one)
        for one in cells[:room]
    ]
    without = frozenset(one.cell.name for one in cells[room:])
    return replace(found, passes=[*found.passes, *asking], without=without)


def _without_state(boxes: Sequence[Box], limits: Limits) -> Passes:
    best: Passes | None = None
    for found in _ways(boxes, limits):
        if not found.refused and len(found.passes) < 2:
            return found
        if best is None or _cost(found) < _cost(best):
            best = found
    assert best is not None
    return best


def _cost(found: Passes) -> tuple[int, int, int]:
    return len(found.refused), len(found.passes), sum(len(one.rows) for one in found.passes)


def _ways(boxes: Sequence[Box], limits: Limits) -> Iterator[Passes]:
    rows, over = _adding_up(boxes, limits)
    if not over:
        yield Passes([Pass(rows)] if rows else [])
        return
    found = _with_vectors([], boxes, limits)
    yield found
    if found.refused or (len(found.passes) > 1 and rows):
        found = _with_vectors([rows] if rows else [], over, limits)
        yield found
    if found.refused:
        yield _with_vectors(*_by_attributes(boxes, limits), limits)


def _by_attributes(boxes: Sequence[Box], limits: Limits) -> tuple[list[_Rows], list[Box]]:
    """Returns rows, those of a pass of boxes that ask for the same attributes, and boxes left over.

    What would not fill the vectors of a pass by itself is left over.
    """
    alike: dict[tuple[int, ...], list[Box]] = {}
    for box in boxes:
        alike.setdefault(tuple(attribute for attribute, _ in box.spans), []).append(box)
    classes = sorted(alike.items(), key=lambda item: (-len(item[1]), item[0]))
    held: list[list[Box]] = []
    made: list[_Rows] = []
    over: list[Box] = []
    for number, (_, group) in enumerate(classes):
        ports = Counter(port for box in group for port in box.receivers)
        if number >= _CLASSES or max(ports.values()) <= limits.words:
            over += group
            continue
        if held:
            rows, left = _adding_up([*held[-1], *group], limits, sum(map(len, made[:-1])))
            if not left:
                held[-1] += group
                made[-1] = rows
                continue
        rows, left = _adding_up(group, limits, sum(map(len, made)))
        over += left
        if rows and len(held) < limits.passes:
            held.append([box for box in group if box not in left])
            made.append(rows)
        elif rows:
            over += [box for box in group if box not in left]
    return made, over


def _adding_up(boxes: Sequence[Box], limits: Limits, taken: int = 0) -> tuple[_Rows, list[Box]]:
    """Returns the rows of one pass, and boxes left over: those that multiply, or find no room
    beside ``taken`` rows, which those that overlap with fewest others find first."""
    holes = "holes" in limits.ways
    parts = [
        sorted(boxes[at] for at in places)
        for places in groups([reach(box, holes) for box in boxes])
    ]
    found, over = list[GenericRow](), list[Box]()
    for group in sorted(parts, key=lambda part: (len(part), part)):
        room = limits.rows - taken - len(found)
        rows = _rows_of(tuple(group), tuple(limits.ways)) if room else None
        if rows is None or len(rows) > room:
            over += group
        else:
            found += rows
    return tuple(sorted(found, key=lambda row: (-row.priority, row))), over


@lru_cache(maxsize=1 << 16)
def _rows_of(boxes: tuple[Box, ...], ways: tuple[Way, ...]) -> _Rows | None:
    """Returns the rows of boxes that overlap, None if they multiply."""
    if len(boxes) > _PROBE and _rows_of(boxes[::2], ways) is None:
        return None
    prefixes = sum(len(prefixes_of(values)) for box in boxes for _, values in box.spans)
    try:
        return table_of_boxes(boxes, max_rows=min(_MOST, _FREE + prefixes), ways=ways).rows
    except FilterError:
        return None


def _with_vectors(made: Sequence[_Rows], boxes: Sequence[Box], limits: Limits) -> Passes:
    """Adds boxes as bit vectors to passes of rows."""
    by_port = merged(
        # Who is refused is a box at a port.
        PortTerm(
            tuple((f"{attribute:02}", values) for attribute, values in box.spans),
            number * (NARROW_PORTS + 1) + port,
            1 << port - 1,
        )
        for number, box in enumerate(boxes)
        for port in map(int, box.receivers)
    )
    wide = _vectors(by_port, limits.passes, limits.words, 0)
    # Where events go to few ports, more terms to each fit into words of 8 ports.
    narrow, lost = list[Pass](), set[int]()
    for subset in sorted({(port - 1) // SUBSET for port in by_port}):
        some = {
            port - SUBSET * subset: terms
            for port, terms in by_port.items()
            if (port - 1) // SUBSET == subset
        }
        passes, refused = _vectors(some, limits.passes - len(narrow), limits.words, subset + 1)
        narrow += passes
        lost.update(refused)
    found, refused = min(wide, (narrow, lost), key=lambda way: (len(way[1]), len(way[0])))
    return Passes(
        [replace(one or Pass(), rows=rows or ()) for rows, one in zip_longest(made, found)],
        frozenset(
            (boxes[number // (NARROW_PORTS + 1)].spans, str(number % (NARROW_PORTS + 1)))
            for number in refused
        ),
    )


def _vectors(terms: Merged, passes: int, words: int, subset: int) -> tuple[list[Pass], set[int]]:
    width = SUBSET if subset else NARROW_PORTS
    names = {name for own in terms.values() for term, _ in own for name, _ in term}
    vectors, refused = vectors_in_words(
        terms,
        passes,
        words * NARROW_PORTS // width,
        width,
        dict.fromkeys(names, Domain(BITS)),
        MAX_ROWS,
    )
    return [Pass((), one, subset) for one in vectors], refused
