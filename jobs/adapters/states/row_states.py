"""Rows of tables and records of topics as replicated states: which state each belongs to, and what
that is published as.

A filter of the table `state_filters` makes a state of its own. Switches tell updates by the number
of their state alone, so what a replica gets is decided where rows get their states: here, exactly.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.functions import col, lit
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS
from stackcast.jobs.adapters.tables.edited import check_keys
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.columns import match
from stackcast.udfs.errors import SubscriptionError, TableError
from stackcast.udfs.filters.row_matcher import RowMatcher
from stackcast.udfs.filters.subscriptions import Subscription

log = logging.getLogger(__name__)

FILTERS = "state_filters"
#: Versions of the table that are tried, from the newest back, until one can be used.
MOST_VERSIONS = 100
#: Column of the names of a row's states, and what is added by the way.
STATES = "_states"
_RULES, _RECEIVERS = "_rules", "_receivers"


@dataclass(frozen=True)
class StateNames:
    """What the states of a source are called: ``base``, for each value of the columns ``by`` one
    more part behind a slash, and for a filter its name behind a question mark."""

    base: str
    by: tuple[str, ...] = ()

    def whole(self, filters: Sequence[Subscription]) -> set[str]:
        """Returns the names where there are no columns: they are there without any row."""
        return {self.base, *(f"{self.base}?{rule.id}" for rule in filters)}

    def of(self, rows: DataFrame, filters: Sequence[Subscription]) -> DataFrame:
        """Returns the rows with a column `STATES`, the names of their states."""
        if filters:
            rows = match(rows, filters, rules_column=_RULES, receivers_column=_RECEIVERS)
        plain = functions.concat(lit(self.base), *map(_part, self.by))
        names = functions.array(plain)
        if filters:
            filtered = functions.transform(
                _RULES, lambda rule: functions.concat(plain, lit("?"), rule)
            )
            names = functions.concat(names, filtered)
        return rows.withColumn(STATES, names).drop(_RULES, _RECEIVERS)


def _part(column: str) -> Column:
    """A value as a part of a name: what would be taken for more of it is written as in a URL."""
    text = functions.coalesce(col(column).cast("string"), lit(""))
    for sign, written in (("%", "%25"), ("/", "%2F"), ("?", "%3F")):
        text = functions.replace(text, lit(sign), lit(written))
    return functions.concat(lit("/"), text)


class StateFilters:
    """The filters of one source, from the table of all."""

    def __init__(self, tables: Tables, source: str) -> None:
        self._tables, self._source = tables, source
        self._version = -1
        self.valid: tuple[Subscription, ...] = ()

    def is_stale(self) -> bool:
        """Tells whether the table has changed since `refresh`."""
        return self._tables.version(FILTERS) != self._version

    def refresh(self, columns: StructType) -> set[str]:
        """Reads the table if it has changed, and returns the names of filters that have changed.

        A filter that is wrong is left out, and the log says why. A version that cannot be used,
        because two filters of the source have the same name or the table has other columns, is
        replaced by the newest usable one before it. So a restart makes no difference.
        """
        newest = self._tables.version(FILTERS)
        if newest == self._version:
            return set()
        rows = self._usable_rows(newest)
        self._version = newest
        if rows is None:
            return set()
        wanted = [
            Subscription(row["name"], row["name"], row["filter"])
            for row in sorted(rows, key=lambda row: row["name"])
            if row["enabled"]
        ]
        valid = tuple(rule for rule in wanted if self._is_right(rule, columns))
        before, after = {rule.id: rule for rule in self.valid}, {rule.id: rule for rule in valid}
        self.valid = valid
        return {name for name in before.keys() | after if before.get(name) != after.get(name)}

    def _usable_rows(self, newest: int) -> list[dict[str, Any]] | None:
        """Returns the rows of the newest usable version since `refresh`, at most `MOST_VERSIONS`
        back; None if there is none, so that the filters stay as they are."""
        # A table that was created again starts with version 0.
        known = self._version if self._version < newest else -1
        versions = range(newest, max(known, newest - MOST_VERSIONS), -1)
        for version in versions:
            try:
                rows = self._rows(version)
            except TableError as error:
                if version == newest:
                    log.error("the newest filters of %s cannot be used: %s", self._source, error)
            except SQL_ERRORS as error:
                if version == newest:
                    raise
                log.error("version %d of %s cannot be read: %s", version, FILTERS, one_line(error))
                break  # VACUUM has deleted the versions before it, too
            else:
                if version != newest:
                    log.error("using the filters of %s from version %d", self._source, version)
                return rows
        if known >= 0:
            log.error("the filters of %s remain unchanged", self._source)
        else:
            log.error(
                "%s has no filters: none of the newest %d versions of table %s can be used",
                self._source,
                len(versions),
                FILTERS,
            )
        return None

    def _rows(self, version: int) -> list[dict[str, Any]]:
        """Returns the rows of the source. Raises TableError WRONG_COLUMNS, DUPLICATE_KEY."""
        rows = [row for row in self._tables.rows(FILTERS, version) if row["source"] == self._source]
        check_keys(f"table {FILTERS}, version {version}", ("source", "name"), rows)
        return rows

    def _is_right(self, rule: Subscription, columns: StructType) -> bool:
        try:
            RowMatcher(to_arrow_schema(columns, timezone="UTC"), [rule])
        except SubscriptionError as error:
            log.warning(
                "ignoring an invalid filter of %s, which matches no row: %s", self._source, error
            )
            return False
        return True


def table_values(rows: DataFrame, names: StateNames, filters: Sequence[Subscription]) -> DataFrame:
    """Returns the states that rows make, ``state`` and ``value``: a JSON array of all its rows,
    sorted as texts, null written as such."""
    columns = rows.columns
    whole = functions.to_json(functions.struct(*columns), {"ignoreNullFields": "false"})
    listed = functions.array_join(functions.sort_array(functions.collect_list("row")), ",")
    return (
        names.of(rows, filters)
        .select(functions.explode(STATES).alias("state"), whole.alias("row"))
        .groupBy("state")
        .agg(functions.concat(lit("["), listed, lit("]")).alias("value"))
    )


def touched(rows: DataFrame, names: StateNames, filters: Sequence[Subscription]) -> set[str]:
    """Returns the names of the states that rows are, or were, in."""
    found = names.of(rows, filters).select(functions.explode(STATES).alias("state")).distinct()
    return set(found.toArrow().column("state").to_pylist())
