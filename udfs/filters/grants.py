"""Grants: the events that each host may subscribe to.

A grant is a condition; the grants of a host, and those of everybody, count together. A rule is
within them if each event that it may forward is one that they grant, and else it is not live: it
is never narrowed, so who wrote it learns what is left out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Final, NamedTuple

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.intervals import Intervals, complement, intersection
from stackcast.udfs.filters.language.rule import parse_rule, subscription_error
from stackcast.udfs.filters.language.syntax_errors import check_names
from stackcast.udfs.filters.meaning.evaluate import is_stateful
from stackcast.udfs.filters.meaning.normal_form import MESSAGE_TYPE, Term, merged
from stackcast.udfs.filters.meaning.state import field_terms
from stackcast.udfs.messages.specification import Specification

EVERYBODY: Final = "*"
"""The subscriber of a grant to all hosts."""

_MAXIMUM_TYPE = 255
_PIECES = 10_000
"""What is left of a term is cut into so many pieces at most: bounds the time of a term made to be
slow, which then counts as not granted."""
_CACHED = 200_000
_SHOWN = 3
_SHOWN_LENGTH = 80


class Grant(NamedTuple):
    """One grant: the events of a condition, to a host or to `EVERYBODY`."""

    id: str
    subscriber: str
    filter: str


def select_grants(rows: Sequence[Mapping[str, Any]], wanted: str) -> tuple[Grant, ...] | None:
    """Returns the rows of the table that are written for the format ``wanted``, by id.

    None where the table has no rows at all: then everybody may subscribe to everything. From its
    first row on, of whatever format, a host may subscribe to what is granted, and to nothing else.
    """
    if not rows:
        return None
    chosen = sorted((row for row in rows if row["format"] == wanted), key=lambda row: row["id"])
    return tuple(Grant(row["id"], row["subscriber"], row["filter"] or "") for row in chosen)


class Grants:
    """Tells whether rules are within what is granted.

    rows: of one format. errors: ids of grants that cannot be read, and why; they grant nothing.
    """

    def __init__(self, rows: Iterable[Grant], specification: Specification) -> None:
        self._specification = specification
        self._texts: dict[str, list[str]] = defaultdict(list)
        self.errors: list[tuple[str, SubscriptionError]] = []
        terms: dict[str, list[Term]] = defaultdict(list)
        for row in rows:
            try:
                terms[row.subscriber] += _granted_terms(row, specification)
            except SubscriptionError as error:
                self.errors.append((row.id, error))
            else:
                self._texts[row.subscriber].append(row.filter)
        self._terms = {
            name: merged(chain(found, terms.get(EVERYBODY, ()) if name != EVERYBODY else ()))
            for name, found in list(terms.items())
        }
        self._within: dict[tuple[str, tuple[Term, ...]], bool] = {}

    @classmethod
    def of_table(
        cls, rows: Sequence[Mapping[str, Any]], wanted: str, specification: Specification
    ) -> Grants | None:
        """Returns those of `select_grants`; None where everything is granted."""
        chosen = select_grants(rows, wanted)
        return None if chosen is None else cls(chosen, specification)

    def allows(self, receiver: str, terms: Sequence[Term]) -> bool:
        """Returns True if the host is granted all events that one of the terms holds for.

        terms: of a rule, over lanes and without state, as of ``field_terms``.
        """
        granted = self._terms.get(receiver, self._terms.get(EVERYBODY, ()))
        if () in granted:
            return True
        key = receiver, tuple(terms)
        found = self._within.get(key)
        if found is None:
            if len(self._within) >= _CACHED:
                self._within.clear()
            left = [_PIECES]
            found = all(self._covered(dict(term), granted, left) for term in terms)
            self._within[key] = found
        return found

    def refusal(self, receiver: str, text: str) -> SubscriptionError:
        """Returns the error of a rule that asks for more than its receiver is granted."""
        own = self._texts.get(receiver, []) + self._texts.get(EVERYBODY, [])
        shown = [f"'{text[:_SHOWN_LENGTH]}'" for text in own[:_SHOWN]]
        more = f" and {len(own) - _SHOWN} more" if len(own) > _SHOWN else ""
        granted = (
            f"contains only the grants {', '.join(shown)}{more} for it"
            if own
            else "contains no grant for it"
        )
        return subscription_error(
            "NOT_GRANTED",
            text,
            (1, 1),
            f"{receiver!r} is not allowed to receive all events that the rule matches: table "
            f"grants {granted}; narrow the rule, or add a grant",
        )

    @cached_property
    def _fields(self) -> dict[str, tuple[int, bool]]:
        """The largest value of each lane that grants name, and whether events may lack it."""
        named = {name for terms in self._terms.values() for term in terms for name, _ in term}
        specification = self._specification
        found = {MESSAGE_TYPE: (_MAXIMUM_TYPE, False)}
        for field in specification.fields.values():
            for lane in field.lanes():
                if lane.qualified in named:
                    found[lane.qualified] = (1 << lane.bits) - 1, specification.is_optional(lane)
        return found

    def _covered(
        self, piece: dict[str, Intervals], granted: Sequence[Term], left: list[int]
    ) -> bool:
        """Returns True if every event of a piece is granted.

        piece: allowed values by name, as in a term; none where the field is not there. What the
        first grant that meets the piece leaves of it is cut into pieces, a field at a time, for the
        other grants to cover. left: how many pieces there may still be.
        """
        left[0] -= 1
        if left[0] < 0:
            return False
        if any(_contains(term, piece) for term in granted):
            return True
        for number, term in enumerate(granted):
            if not all(
                name not in piece or intersection(piece[name], allowed) for name, allowed in term
            ):
                continue
            # The type first: it says which fields are there.
            for name, allowed in sorted(term, key=lambda literal: literal[0] != MESSAGE_TYPE):
                maximum, optional = self._fields[name]
                held = piece.get(name)
                whole = ((0, maximum),) if held is None else held
                beside = [intersection(whole, complement(allowed, maximum))]
                outside = [values for values in beside if values]
                if held is None and optional:
                    outside.append(())
                for values in outside:
                    if not self._covered({**piece, name: values}, granted[number + 1 :], left):
                        return False
                piece = {**piece, name: intersection(whole, allowed)}
            return True
        return False


def _granted_terms(row: Grant, specification: Specification) -> list[Term]:
    check_names(id=row.id, subscriber=row.subscriber)
    rule = parse_rule(row.filter, specification)
    if rule.actions or is_stateful(rule.condition):
        raise subscription_error(
            "SYNTAX",
            row.filter,
            (1, 1),
            f"the grant of {row.subscriber!r} may contain only a condition on fields: remove "
            "macros, variables and the actions after the colon",
        )
    return field_terms(rule.condition, specification)


def _contains(term: Term, piece: Mapping[str, Intervals]) -> bool:
    """Returns True if the term holds for every event of the piece."""
    for name, allowed in term:
        if not piece.get(name):
            return False
        for low, high in piece[name]:
            at = bisect_right(allowed, low, key=lambda interval: interval[0]) - 1
            if at < 0 or allowed[at][1] < high:
                return False
    return True
