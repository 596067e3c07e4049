"""SQL's answer to "who would get this?", for a session: a view and a table function."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pyspark.sql import SparkSession

from jobs.adapters.tables import Tables
from udfs.filters.sql import FUNCTION, RANGES, ranges_view, who_gets_function
from udfs.messages.specification import Specification

_NAMED = re.compile(rf"\b({RANGES}|{FUNCTION})\b", re.IGNORECASE)


def asks(statements: Iterable[str]) -> bool:
    """Whether a statement names the view or the function."""
    return any(_NAMED.search(statement) for statement in statements)


def define(spark: SparkSession, tables: Tables, specification: Specification) -> None:
    """Make the view ``filter_ranges`` and the function ``who_gets`` in this session.

    The tables must be attached. Answers are of the tables as they are at the first question: to ask
    later ones, define again.
    """
    entries, leaves = tables.sql_name("filter_entries"), tables.sql_name("filter_leaves")
    spark.sql(ranges_view(entries))
    # The walk reads the view once a field, and the view sorts and joins.
    spark.sql(f"CACHE LAZY TABLE {RANGES}")
    # The root is the one state that is read and that no row leads to; without entries the event is
    # at a leaf from the start.
    (found,) = spark.sql(
        "SELECT collect_set(field) AS fields, collect_set(state) AS states,"
        f" collect_set(next) AS following FROM {entries}"
    ).collect()
    roots = set(found.states) - set(found.following)
    if not roots:
        roots = {row[0] for row in spark.sql(f"SELECT min(state) FROM {leaves}").collect()}
    root, fields = min(roots - {None}, default=0), found.fields
    spark.sql(who_gets_function(sorted(fields), root, specification, leaves))
