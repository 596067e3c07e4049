"""The messages that each rule matched: how many, and some of them, spread over all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.filters.meaning.evaluate import fields_of
from stackcast.udfs.filters.nodes import Node

#: So many are taken of each block of events.
_OF_A_BLOCK = 3
#: So many are kept; then each second one goes.
_KEPT = 24

Columns = Mapping[str, NDArray[np.uint64]]
Masks = Mapping[str, NDArray[np.bool_]]


class Place(NamedTuple):
    """A message's place in its topic: ``message`` is its index in its record."""

    partition: int
    offset: int
    message: int


@dataclass
class RuleMatches:
    """Counts messages; ``places``: of some of them, in the order in which they came."""

    count: int = 0
    places: list[Place] = field(default_factory=list)

    def add(
        self, matched: Sequence[int] | NDArray[np.int64], place: Callable[[int], Place]
    ) -> None:
        """Adds messages by their numbers, ascending; ``place`` tells where one is."""
        count = len(matched)
        self.count += count
        few = {round(step * (count - 1) / (_OF_A_BLOCK - 1)) for step in range(_OF_A_BLOCK)}
        self.places += (place(int(matched[each])) for each in sorted(few) if count)
        if len(self.places) > _KEPT:
            self.places = self.places[::2]


def event_columns(
    events: Sequence[Mapping[str, int]], conditions: Sequence[Node]
) -> tuple[Columns, Masks]:
    """Returns the fields that conditions name, by column: values (0 where absent), and presence."""
    count = len(events)
    columns, present = {}, {}
    for name in sorted({name for node in conditions for name in fields_of(node)}):
        columns[name] = np.fromiter((event.get(name, 0) for event in events), "u8", count)
        present[name] = np.fromiter((name in event for event in events), "?", count)
    return columns, present
