"""SQL's answer to "who would get this?", for a session: a view and a table function."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pyspark.sql import SparkSession

from jobs.adapters.tables import Tables
from udfs.filters.explanation.sql import (
    FUNCTION,
    RANGES,
    STATES,
    ranges_view,
    states_query,
    who_gets_function,
)
from udfs.messages.specification import Specification

_NAMED = re.compile(rf"\b({RANGES}|{FUNCTION})\b", re.IGNORECASE)


def asks(statements: Iterable[str]) -> bool:
    """Whether a statement names the view or the function."""
    return any(_NAMED.search(statement) for statement in statements)


def define(spark: SparkSession, tables: Tables, specification: Specification) -> None:
    """Make the view ``filter_ranges`` and the function ``who_gets`` in this session.

    The tables must be attached. Answers are of the tables as they are now: to ask later ones,
    define again.
    """
    entries, leaves = (
        f"{tables.sql_name(name)} VERSION AS OF {tables.version(name)}"
        for name in ("filter_entries", "filter_leaves")
    )
    define_over(spark, entries, leaves, specification)


def define_over(
    spark: SparkSession, entries: str, leaves: str, specification: Specification
) -> None:
    """The same over any two relations with the columns of the tables, by their names in SQL."""
    spark.sql(ranges_view(entries))
    # Every step of a walk reads the states: held as rows, no step plans or reads Delta's files.
    states = spark.sql(states_query(entries, leaves)).coalesce(1).localCheckpoint()
    states.createOrReplaceTempView(STATES)
    (found,) = spark.sql(
        "SELECT collect_set(field) AS fields, collect_set(state) AS states,"
        " collect_set(state) FILTER (WHERE rows IS NULL) AS leaves,"
        f" array_distinct(flatten(collect_list(rows.next))) AS following FROM {STATES}"
    ).collect()
    # The root is the one state that no row leads to; without entries it is a leaf.
    read = set(found.states) - set(found.leaves)
    roots = read - set(found.following) or set(found.leaves)
    spark.sql(who_gets_function(sorted(found.fields), min(roots, default=0), specification))
