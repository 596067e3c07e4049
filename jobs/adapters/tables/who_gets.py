"""SQL's answer to "who would get this?", for a session: a view and a table function."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS
from stackcast.jobs.adapters.tables.spark_tables import SparkTables
from stackcast.udfs.errors import TableError
from stackcast.udfs.filters.explanation.sql import (
    FUNCTION,
    RANGES,
    STATES,
    TERMS,
    ranges_view,
    states_query,
    terms_query,
    who_gets_function,
)
from stackcast.udfs.messages.specification import Specification

#: How often the tables are looked at, and seconds between.
ATTEMPTS = 20
PAUSE = 0.5
#: Versions of each table, the newest among them, that are tried.
BACK = 4

_PAIR = ("filter_entries", "filter_leaves")
_NAMED = re.compile(rf"\b({RANGES}|{FUNCTION})\b", re.IGNORECASE)


@dataclass(frozen=True)
class TableAt:
    """Contents of a table at a version.

    compiled: versions of ``subscriptions`` that its rows are from. states: those of leaves; in
    entries, those that rows lead to and no row is of.
    """

    compiled: frozenset[int]
    states: frozenset[int]


def asks(statements: Iterable[str]) -> bool:
    """Tells whether a statement names the view or the function."""
    return any(_NAMED.search(statement) for statement in statements)


def define(spark: SparkSession, tables: SparkTables, specification: Specification) -> None:
    """Make the view ``filter_ranges`` and the function ``who_gets`` in this session.

    The tables must be attached. Answers are of the tables as they are now: to ask later ones,
    define again. Raises TableError VERSIONS_DIFFER.
    """

    def at(name: str, version: int) -> str:
        return f"{tables.sql_name(name)} VERSION AS OF {version}"

    def held(name: str, version: int) -> TableAt:
        states = "collect_set(state) FILTER (WHERE predicates IS NULL)"
        if name == "filter_entries":
            states = "array_except(collect_set(next), collect_set(state))"
        (row,) = spark.sql(
            f"SELECT collect_set(subscriptions_version) AS compiled, {states} AS states"
            f" FROM {at(name, version)}"
        ).collect()
        return TableAt(frozenset(row.compiled), frozenset(row.states))

    entries, leaves = agreeing(tables.version, held)
    define_over(spark, at("filter_entries", entries), at("filter_leaves", leaves), specification)


def agreeing(
    current: Callable[[str], int],
    held: Callable[[str, int], TableAt],
    pause: Callable[[float], None] = time.sleep,
) -> tuple[int, int]:
    """The newest versions of ``filter_entries`` and ``filter_leaves`` that are of one compilation.

    The stream commits one table after the other. ``current``: version of a table. ``held``: what
    the rows of a table, as of a version, say; errors of SQL where the version cannot be read.
    Raises TableError VERSIONS_DIFFER if there is no such pair for ``ATTEMPTS`` times ``PAUSE``
    seconds.
    """
    known: dict[tuple[str, int], TableAt | None] = {}

    def look(name: str, version: int, back: int) -> TableAt | None:
        if version < 0:
            return None
        if (name, version) not in known:
            try:
                known[name, version] = held(name, version)
            except SQL_ERRORS:
                if not back:
                    raise
                # Its files may be gone.
                known[name, version] = None
        return known[name, version]

    for attempt in range(ATTEMPTS):
        if attempt:
            pause(PAUSE)
        entries, leaves = (current(name) for name in _PAIR)
        for back in sorted(product(range(BACK), repeat=2), key=sum):
            found = look(_PAIR[0], entries - back[0], back[0])
            reached = look(_PAIR[1], leaves - back[1], back[1])
            nothing = back == (0, 0) and found == reached == TableAt(frozenset(), frozenset())
            if found and reached and (nothing or _agree(found, reached)):
                return entries - back[0], leaves - back[1]
    raise TableError(
        "VERSIONS_DIFFER",
        "filter_entries and filter_leaves belong to different versions of subscriptions, and the "
        "stream that writes them has not synchronized them: check its log, or edit a "
        "subscription, so that both are written again",
        table="filter_entries",
    )


def _agree(entries: TableAt, leaves: TableAt) -> bool:
    if not entries.compiled:
        # Such a filter has one leaf, where every event is.
        return len(leaves.states) == 1
    return entries.compiled == leaves.compiled and entries.states <= leaves.states


def define_over(
    spark: SparkSession, entries: str, leaves: str, specification: Specification
) -> None:
    """The same over any two relations with the columns of the tables, by their names in SQL."""
    spark.sql(ranges_view(entries))
    # Every step of a walk reads the states, and its end the terms: held as rows, no step plans or
    # reads Delta's files.
    for view, query in (
        (STATES, states_query(entries, leaves)),
        (TERMS, terms_query(leaves)),
    ):
        spark.sql(query).coalesce(1).localCheckpoint().createOrReplaceTempView(view)
    (found,) = spark.sql(
        "SELECT collect_set(field) AS fields, collect_set(state) AS states,"
        " collect_set(state) FILTER (WHERE rows IS NULL) AS leaves,"
        f" array_distinct(flatten(collect_list(rows.next))) AS following FROM {STATES}"
    ).collect()
    # Numbers of states say nothing after edits: the root is the one that no row leads to, and
    # without entries the only leaf.
    read = set(found.states) - set(found.leaves)
    roots = read - set(found.following) or set(found.leaves)
    (asked,) = spark.sql(
        "SELECT array_distinct(flatten(transform(terms, t -> t.predicates.field))) AS fields"
        f" FROM {TERMS}"
    ).collect()
    fields = sorted({*found.fields, *asked.fields})
    spark.sql(who_gets_function(fields, min(roots, default=0), specification))
