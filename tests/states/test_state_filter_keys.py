"""Filters of states: an unusable version changes nothing, also after a restart of the publisher."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.types import DoubleType, StringType, StructField, StructType

from stackcast.jobs.adapters.states.row_states import FILTERS, MOST_VERSIONS, StateFilters
from stackcast.udfs.errors import TableError

pytestmark = pytest.mark.unit

COLUMNS = StructType([StructField("room", StringType()), StructField("celsius", DoubleType())])


class FakeTables:
    """Holds the versions of `state_filters`."""

    def __init__(self) -> None:
        self.versions: list[list[dict[str, Any]]] = [[]]
        #: Errors of versions that cannot be read.
        self.errors: dict[int, Exception] = {}
        self.reads: list[int] = []

    def commit(self, *rows: tuple[str, str, str]) -> None:
        names = ("source", "name", "filter")
        self.versions.append([dict(zip(names, row, strict=True), enabled=True) for row in rows])

    def version(self, name: str) -> int:
        assert name == FILTERS
        return len(self.versions) - 1

    def rows(self, _name: str, version: int) -> list[dict[str, Any]]:
        self.reads.append(version)
        if version in self.errors:
            raise self.errors[version]
        return self.versions[version]


def test_two_filters_of_one_name_are_named_in_the_log_and_the_last_good_ones_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tables: Any = FakeTables()
    filters = StateFilters(tables, "rooms")
    warm = ("rooms", "warm", "celsius > 20")
    # Two filters of another source are not for this one to report.
    tables.commit(warm, *[("halls", "warm", "celsius > 25")] * 2)
    assert filters.refresh(COLUMNS) == {"warm"}
    tables.commit(warm, ("rooms", "warm", "celsius > 30"), ("rooms", "cold", "celsius < 5"))
    assert filters.is_stale() and filters.refresh(COLUMNS) == set()
    assert [rule.filter for rule in filters.valid] == ["celsius > 20"]
    assert "2 rows have source 'rooms' and name 'warm'" in caplog.text
    tables.commit(("rooms", "warm", "celsius > 30"), ("rooms", "cold", "celsius < 5"))
    assert filters.refresh(COLUMNS) == {"cold", "warm"} and not filters.is_stale()


WARM = ("rooms", "warm", "celsius > 20")
HOT = ("rooms", "warm", "celsius > 30")


def filters_after_restart(tables: Any) -> list[str]:
    """Returns the filters of a publisher that starts now."""
    filters = StateFilters(tables, "rooms")
    filters.refresh(COLUMNS)
    assert not filters.is_stale()
    return [rule.filter for rule in filters.valid]


def test_a_restart_and_a_running_publisher_use_the_newest_usable_version(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tables: Any = FakeTables()
    running = StateFilters(tables, "rooms")
    tables.commit(WARM)
    running.refresh(COLUMNS)
    # The running publisher does not look between these commits.
    tables.commit(HOT)
    tables.commit(WARM, HOT)
    tables.commit(WARM, HOT, HOT)
    assert running.refresh(COLUMNS) == {"warm"}
    assert [rule.filter for rule in running.valid] == ["celsius > 30"]
    assert filters_after_restart(tables) == ["celsius > 30"]
    assert "2 rows" not in caplog.text and "3 rows have source 'rooms'" in caplog.text
    assert "using the filters of rooms from version 2" in caplog.text
    tables.commit(("rooms", "cold", "celsius < 5"))
    assert running.refresh(COLUMNS) == {"cold", "warm"}
    assert filters_after_restart(tables) == ["celsius < 5"]


def test_a_version_with_other_columns_ends_no_publisher() -> None:
    tables: Any = FakeTables()
    running = StateFilters(tables, "rooms")
    tables.commit(WARM)
    running.refresh(COLUMNS)
    tables.commit()
    tables.errors[2] = TableError("WRONG_COLUMNS", "table state_filters, version 2: no column name")
    assert running.refresh(COLUMNS) == set() and not running.is_stale()
    assert [rule.filter for rule in running.valid] == ["celsius > 20"]
    assert filters_after_restart(tables) == ["celsius > 20"]


def test_versions_are_tried_up_to_a_limit_or_a_deleted_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tables: Any = FakeTables()
    tables.commit(WARM)
    for _ in range(MOST_VERSIONS):
        tables.commit(WARM, HOT)
    assert filters_after_restart(tables) == []
    assert len(tables.reads) == MOST_VERSIONS
    assert "rooms has no filters: none of the newest 100 versions" in caplog.text
    tables.versions[-1:] = []
    assert filters_after_restart(tables) == ["celsius > 20"]
    tables.reads.clear()
    tables.errors[5] = AnalysisException("a file of this version is gone")
    assert filters_after_restart(tables) == []
    assert min(tables.reads) == 5 and "version 5 of state_filters cannot be read" in caplog.text


def test_a_table_that_was_created_again_is_read_from_its_first_version() -> None:
    tables: Any = FakeTables()
    running = StateFilters(tables, "rooms")
    for _ in range(5):
        tables.commit(WARM)
    running.refresh(COLUMNS)
    tables.versions[:] = [[], []]
    tables.commit(HOT)
    assert running.refresh(COLUMNS) == {"warm"}
    assert [rule.filter for rule in running.valid] == ["celsius > 30"]
