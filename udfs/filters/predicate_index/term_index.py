"""Common parts of indexes of terms: receivers as bits, and rows for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.filters.compiler.outcomes import outcome_of, token_order
from stackcast.udfs.filters.compiler.tables import leaf_row
from stackcast.udfs.filters.nodes import CellUpdate, Outcome
from stackcast.udfs.filters.predicate_index.terms import FlatTerms, Told
from stackcast.udfs.messages.specification import Field, Specification


class TermIndex:
    """Holds terms, and who is told of the events on which they are true.

    fields: qualified names of the fields and lanes whose raw values ``match`` takes, in this order.
    definitions: of these. tokens: all receivers, then all named actions, sorted; bit t % 64 of word
    t // 64 of a result is for token t. hosts: the receivers among them. receivers: distinct ones of
    rules. terms: how many. rules: how many have terms.
    """

    fields: tuple[str, ...]
    definitions: tuple[Field, ...]

    def __init__(self, flat: FlatTerms, specification: Specification) -> None:
        self._flat, self._specification = flat, specification
        self._outcomes = flat.outcomes
        told = {t for each in flat.outcomes for t in each if not isinstance(t, CellUpdate)}
        self.tokens: Told = tuple(sorted(told, key=token_order))
        self.hosts = tuple(token for token in self.tokens if isinstance(token, str))
        self.receivers = tuple(dict.fromkeys(map(_receivers, flat.outcomes)))
        self.terms, self.rules = len(flat), int(np.count_nonzero(np.bincount(flat.rule)))

    def __getstate__(self) -> dict[str, Any]:
        # Rows are asked of whom has compiled them.
        kept = self.__dict__.keys() - {"_flat", "_specification"}
        return {name: self.__dict__[name] for name in kept}

    def _shown(self) -> dict[str, Field]:
        """Returns the fields, lanes and cells that predicates ask for, by name."""
        return dict(zip(self.fields, self.definitions, strict=True))

    def described(self) -> Iterator[tuple[list[dict[str, Any]], Outcome]]:
        """Yields predicates of each term, as in table ``filter_leaves``, and its outcome."""
        flat, shown = self._flat, self._shown()
        bounds = list(zip(flat.low.tolist(), flat.high.tolist(), strict=True))
        starts, intervals = flat.predicate.tolist(), flat.interval.tolist()
        predicates = []
        for at, field in enumerate(flat.field.tolist()):
            name = flat.names[field]
            allowed = bounds[intervals[at] : intervals[at + 1]]
            predicates.append(_predicate_row(name, shown.get(name), allowed))
        for (begin, end), outcome in zip(pairwise(starts), flat.outcome.tolist(), strict=True):
            yield predicates[begin:end], outcome_of(flat.outcomes[outcome])

    def term_rows(self, first: int = 0) -> list[dict[str, Any]]:
        """Returns rows of table ``filter_leaves``, one a term: receivers and predicates.

        first: the number of the first term.
        """
        return [
            leaf_row(-1 - term, outcome) | {"leaf": -1 - term, "predicates": predicates}
            for term, (predicates, outcome) in enumerate(self.described(), first)
        ]

    def outcome(self, found: NDArray[np.uint64]) -> Outcome:
        """Returns receivers and named actions of one result, uint64[words]."""
        bits = int.from_bytes(found.astype("<u8").tobytes(), "little")
        return outcome_of(token for at, token in enumerate(self.tokens) if bits >> at & 1)

    @property
    def forms(self) -> int:
        """The number of different sets of fields that terms compare."""
        flat = self._flat
        starts, fields = flat.predicate.tolist(), flat.field.tolist()
        return len({frozenset(fields[a:b]) for a, b in pairwise(starts)})

    @property
    def words(self) -> int:
        """The words of a result."""
        return int(self._words.shape[1])

    @cached_property
    def _words(self) -> NDArray[np.uint64]:
        """By outcome, its tokens as bits: uint64[n, w]."""
        number = {token: at for at, token in enumerate(self.tokens)}
        words = np.zeros((len(self._outcomes), max(1, -(-len(self.tokens) // 64))), np.uint64)
        for at, each in enumerate(self._outcomes):
            for token in each:
                if not isinstance(token, CellUpdate):
                    word, bit = divmod(number[token], 64)
                    words[at, word] |= np.uint64(1 << bit)
        return words


def _predicate_row(
    name: str, field: Field | None, allowed: Sequence[tuple[int, int]]
) -> dict[str, Any]:
    """``field``: None for the type of the message."""
    width = 1 if field is None else (field.bits + 7) // 8
    shown = chr if field is None else field.show
    text = " or ".join(
        f"{name} == {shown(low)}" if low == high else f"{name} in {shown(low)}..{shown(high)}"
        for low, high in allowed
    )
    intervals = [{"low": a.to_bytes(width), "high": b.to_bytes(width)} for a, b in allowed]
    return {"field": name, "intervals": intervals, "text": text}


def _receivers(told: Iterable[object]) -> tuple[str, ...]:
    return tuple(token for token in told if isinstance(token, str))
