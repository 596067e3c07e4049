"""Advertisements of publishers: rows of table ``advertisements`` as a filter of their events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.compiler.term_table import TermTable
from stackcast.udfs.filters.grouped import GroupedCompiler
from stackcast.udfs.filters.language.rule import parse_rule, subscription_error
from stackcast.udfs.filters.language.syntax_errors import check_names
from stackcast.udfs.filters.matching.matcher import Matcher
from stackcast.udfs.filters.meaning.normal_form import Term
from stackcast.udfs.filters.meaning.state import field_terms
from stackcast.udfs.filters.subscriptions import Rejection
from stackcast.udfs.messages.specification import Specification

__all__ = [
    "Advertisement",
    "Announced",
    "advertised_terms",
    "check_advertisements",
    "select_advertisements",
]

_ADVERTISED = "advertised"


class Advertisement(NamedTuple):
    """One advertisement of a publisher: a condition in the subscription language, without actions.

    All advertisements of one publisher count together, as if joined by ``or``.
    """

    publisher: str
    filter: str
    id: str = ""


def select_advertisements(
    rows: Iterable[Mapping[str, Any]], wanted: str, publisher: str | None = None
) -> list[Advertisement]:
    """Returns the enabled rows of the table that are written for the format ``wanted``, by id.

    ``publisher``: of this one alone.
    """
    return [
        Advertisement(row["publisher"], row["filter"], row["id"])
        for row in sorted(rows, key=lambda row: str(row["id"]))
        if row["enabled"] and row["format"] == wanted and publisher in (None, row["publisher"])
    ]


def check_advertisements(
    rows: Iterable[Advertisement], specification: Specification, hosts: Iterable[str]
) -> tuple[list[Advertisement], list[Rejection]]:
    """Parts the rows into those that can be used and rejections, by id or else publisher's name.

    ``hosts``: all hosts of the network. Never raises for what a user wrote.
    """
    known = set(hosts)
    fine: list[Advertisement] = []
    rejections: list[Rejection] = []
    for row in rows:
        name = row.id or row.publisher
        try:
            advertised_terms(row, specification)
        except SubscriptionError as error:
            line, column = error.fields["line"], error.fields["column"]
            rejections.append(Rejection(name, error.code, line, column, error.message))
            continue
        if row.publisher in known:
            fine.append(row)
        else:
            message = f"publisher {row.publisher!r} is not a host of the network"
            rejections.append(Rejection(name, "SUBSCRIPTION.UNKNOWN_HOST", 1, 1, message))
    return fine, rejections


def advertised_terms(row: Advertisement, specification: Specification) -> list[Term]:
    """Returns terms over fields whose disjunction holds for all announced events.

    State is not known beforehand: conditions on it are left out, so the terms cover more events
    than are published. Errors: ``SubscriptionError`` as ``parse_rule``, and for actions.
    """
    check_names(id=row.id, publisher=row.publisher)
    rule = parse_rule(row.filter or "", specification)
    if rule.actions:
        raise subscription_error(
            "SYNTAX",
            row.filter,
            (1, 1),
            f"the advertisement of {row.publisher!r} may contain only a condition: remove the "
            "actions after the colon",
        )
    return field_terms(rule.condition, specification)


class Announced:
    """Finds the events that advertisements announce.

    fields: those whose raw values ``of`` takes, in this order. Picklable. Errors: as
    `advertised_terms`.
    """

    def __init__(self, rows: Sequence[Advertisement], specification: Specification) -> None:
        table = TermTable()
        outcome = table.outcome_number([_ADVERTISED])
        table.terms = [
            (term, number, outcome)
            for number, row in enumerate(rows)
            for term in advertised_terms(row, specification)
        ]
        named = range(len(rows)), table
        grouped = GroupedCompiler(specification).update_table(*named, (), lambda: named)
        self._matcher, self._index = Matcher(grouped.diagram), grouped.index
        indexed = self._index.definitions if self._index else ()
        self.fields = tuple(dict.fromkeys((*self._matcher.definitions, *indexed)))
        self._rows = [self.fields.index(field) for field in self._matcher.definitions]
        self._indexed = [self.fields.index(field) for field in indexed]

    def of(
        self,
        message_type: NDArray[np.uint8] | None,
        values: NDArray[np.uint64],
        present: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.bool_]:
        """Returns True for each event that is announced: bool[m]; arguments as of
        ``Matcher.match``."""

        def columns(
            rows: Sequence[int],
        ) -> tuple[NDArray[np.uint64], NDArray[np.bool_] | None]:
            return values[rows], None if present is None else present[rows]

        found = np.not_equal(self._matcher.match(message_type, *columns(self._rows)), 0)
        if self._index is not None:
            found |= self._index.match(message_type, *columns(self._indexed)).any(axis=1)
        return found
