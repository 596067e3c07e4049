"""Many terms of one form as columns, so that a plain rule costs no Python object."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.filters.meaning.normal_form import Term


@dataclass(frozen=True, slots=True)
class TermBlock:
    """One block of n terms on the same fields, each with one interval of values a field.

    names: the fields of the terms, sorted: qualified names, or ``message_type``.
    lows, highs: for each name a uint64[n]: first and last allowed value, low <= high.
    rule: int32[n]: the rule of each term.

    A field that is not named may have any value, so a block without names holds terms that
    are always true.
    """

    names: tuple[str, ...]
    lows: list[NDArray[np.uint64]]
    highs: list[NDArray[np.uint64]]
    rule: NDArray[np.int32]

    def __len__(self) -> int:
        return int(self.rule.size)

    def terms(self) -> Iterator[tuple[Term, int]]:
        """Yields the terms one by one, each with its rule."""
        columns: list[list[Any]] = [
            list(zip(low.tolist(), high.tolist(), strict=True))
            for low, high in zip(self.lows, self.highs, strict=True)
        ]
        for at, rule in enumerate(self.rule.tolist()):
            term = tuple(
                (name, (column[at],)) for name, column in zip(self.names, columns, strict=True)
            )
            yield term, rule
