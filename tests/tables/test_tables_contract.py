"""The contract of `Tables`, for all implementations: delta-rs, Spark, both, and memory."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory_tables import MemoryTables
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.storage_errors import StorageError
from stackcast.jobs.adapters.tables.changes import committed_at, only_added, rows_added
from stackcast.jobs.adapters.tables.edits import change_tree_states, is_empty, replace_changed
from stackcast.jobs.adapters.tables.folder_tables import FolderTables
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.spark_tables import SparkTables
from stackcast.jobs.adapters.tables.tables import LEDGER, TREES, Tables
from stackcast.udfs.errors import TableError

pytestmark = pytest.mark.integration

#: Tables of the tests: one without a change feed, and one with it.
HOSTS, SENIORITY = "hosts", "subscription_seniority"
NAMES = (HOSTS, SENIORITY, TREES, "attributes", "grants", LEDGER)
KINDS = ("folder", "spark", "fallback", "memory")


@pytest.fixture(params=KINDS)
def make_tables(
    request: pytest.FixtureRequest, empty_tables: Path, tmp_path: Path
) -> Iterator[Callable[[], Tables]]:
    """Return new empty tables for each call."""
    numbers = iter(range(1_000_000))

    def make() -> Tables:
        if request.param == "memory":
            tables = MemoryTables()
            tables.create(*NAMES)
            return tables
        folder = tmp_path / str(next(numbers))
        for name in NAMES:
            shutil.copytree(empty_tables / name, folder / name)
        if request.param == "folder":
            return FolderTables(str(folder))
        spark: SparkSession = request.getfixturevalue("spark")
        kind = SparkTables if request.param == "spark" else open_tables
        return kind(spark, str(folder))

    yield make


@pytest.fixture
def tables(make_tables: Callable[[], Tables]) -> Tables:
    return make_tables()


def host(name: str, port: int = 1, **columns: Any) -> dict[str, Any]:
    row = {"host": name, "switch": "s", "port": port, "mac": 1, "ipv4": "10.0.0.1"}
    return {**row, "role": "subscriber", **columns}


def grant(name: str) -> dict[str, Any]:
    return {"id": name, "subscriber": "h1", "format": "itch", "filter": "price > 1"}


def tree(number: int, state: str) -> dict[str, Any]:
    edges = [{"u": "s", "v": "t"}]
    return {"tree_id": number, "edges": edges, "strategy": "x", "state": state}


def names(tables: Tables, version: int | None = None) -> list[str]:
    return sorted(row["host"] for row in tables.rows(HOSTS, version))


def test_each_write_makes_one_version_and_earlier_versions_stay(tables: Tables) -> None:
    empty = tables.version(HOSTS)
    assert is_empty(tables, HOSTS)
    tables.append(HOSTS, [host("h1"), host("h2")])
    tables.overwrite(HOSTS, [host("h3")])
    tables.append(HOSTS, [])
    assert tables.version(HOSTS) == empty + 2
    assert names(tables, empty) == []
    assert names(tables, empty + 1) == ["h1", "h2"]
    assert tables.rows(HOSTS) == [host("h3")]
    assert tables.head(HOSTS) == (tables.head(HOSTS)[0], empty + 2)
    assert not is_empty(tables, HOSTS)
    tables.create(HOSTS)
    tables.make_durable(HOSTS)
    assert tables.version(HOSTS) == empty + 2


def test_rows_can_be_limited_by_lower_bounds_and_columns(tables: Tables) -> None:
    tables.append(HOSTS, [host(f"h{port}", port) for port in range(5)])
    assert {row["port"] for row in tables.rows(HOSTS, since={"port": 3})} == {3, 4}
    rows = tables.rows(HOSTS, since={"port": 4}, columns=("host", "mac"))
    assert rows == [{"host": "h4", "mac": 1}]
    assert tables.arrow(HOSTS, columns=("port",)).schema.types == [pa.int32()]


def test_an_arrow_table_may_have_fewer_or_other_columns(tables: Tables) -> None:
    row = grant("g")
    tables.append("grants", pa.Table.from_pylist([row | {"unknown": 1}]))
    (stored,) = tables.rows("grants")
    assert stored.keys() > row.keys() and "unknown" not in stored
    assert {value for column, value in stored.items() if column not in row} == {None}


def test_a_missing_table_and_a_missing_version_are_errors(
    make_tables: Callable[[], Tables],
) -> None:
    tables = make_tables()
    for read in (tables.version, tables.head, tables.rows):
        with pytest.raises(TableError) as missing:
            read("links")
        assert missing.value.what == "MISSING"
    with pytest.raises((StorageError, TableError)) as gone:
        tables.rows(HOSTS, 99)
    # delta-rs alone does not say why it cannot read a version.
    assert getattr(gone.value, "gone", False) or gone.value.what == "NEEDS_SPARK"


def test_a_number_of_a_writer_is_committed_once(tables: Tables) -> None:
    before = tables.version(HOSTS)
    assert tables.last_transaction(HOSTS, "stream") is None
    for name, number in (("h1", 1), ("h1", 1), ("h2", 2), ("h1", 1)):
        assert tables.append(HOSTS, [host(name)], ("stream", number))
    tables.append(HOSTS, [host("h3")], ("other", 1))
    assert names(tables) == ["h1", "h2", "h3"]
    assert tables.version(HOSTS) == before + 3
    assert tables.last_transaction(HOSTS, "stream") == 2


def test_a_higher_epoch_fences_lower_ones(tables: Tables) -> None:
    assert tables.append(HOSTS, [host("h1")], ("stream", 1), ("role", 1))
    assert tables.append(HOSTS, [], epoch=("role", 2))
    version = tables.version(HOSTS)
    assert not tables.append(HOSTS, [host("h2")], ("stream", 2), ("role", 1))
    assert tables.version(HOSTS) == version
    assert tables.append(HOSTS, [host("h3")], ("next", 1), ("role", 2))
    assert tables.append(HOSTS, [host("h3")], ("next", 1), ("role", 2))
    assert names(tables) == ["h1", "h3"]
    assert tables.last_transaction(HOSTS, "role") == 2
    assert tables.last_transaction(HOSTS, "next") == 1


def test_a_merge_touches_only_rows_that_differ(tables: Tables) -> None:
    tables.append(HOSTS, [host("h1"), host("h2"), host("h3")])
    before = tables.version(HOSTS)
    assert not replace_changed(tables, HOSTS, tables.rows(HOSTS), ("host",))
    assert tables.version(HOSTS) == before
    assert replace_changed(tables, HOSTS, [host("h1"), host("h2", 2), host("h4")], ("host",))
    assert tables.version(HOSTS) == before + 1
    assert {row["host"]: row["port"] for row in tables.rows(HOSTS)} == {"h1": 1, "h2": 2, "h4": 1}
    # The keys of rows to delete are sufficient, and rows that are missing make no version.
    assert tables.merge(HOSTS, [], [{"host": "h1"}], ("host",))
    assert not tables.merge(HOSTS, [], [{"host": "h1"}], ("host",))
    assert names(tables) == ["h2", "h4"] and tables.version(HOSTS) == before + 2


def test_a_merge_onto_an_old_version_writes_nothing(tables: Tables) -> None:
    before = tables.version(HOSTS)
    assert tables.merge(HOSTS, [host("h1")], [], ("host",), before)
    assert not tables.merge(HOSTS, [host("h2")], [], ("host",), before)
    assert not replace_changed(tables, HOSTS, [], ("host",), [host("h1")], before)
    assert names(tables) == ["h1"]
    assert replace_changed(tables, HOSTS, [host("h1", 2)], ("host",), None, before + 1)
    assert tables.rows(HOSTS) == [host("h1", 2)]


def test_a_merge_with_unique_columns_only_adds_rows(tables: Tables) -> None:
    def attribute(number: int, name: str) -> dict[str, Any]:
        row = {"id": number, "name": name, "type": "unsigned", "scale": Decimal(1)}
        return row | {"offset": Decimal(0), "registered_by": "test", "registered_at": None}

    assert tables.merge("attributes", [attribute(1, "a")], [], ("id",), unique=("name",))
    more = [attribute(1, "b"), attribute(2, "a"), attribute(3, "c")]
    assert tables.merge("attributes", more, [], ("id",), unique=("name",))
    rows = tables.rows("attributes", columns=("id", "name"))
    assert sorted((row["id"], row["name"]) for row in rows) == [(1, "a"), (3, "c")]
    assert not tables.merge("attributes", more, [], ("id",), unique=("name",))


def test_states_of_trees_change_only_from_the_expected_state(tables: Tables) -> None:
    tables.append(TREES, [tree(1, "installing"), tree(2, "active"), tree(3, "active")])
    changes = {1: ("installing", "active"), 2: ("retiring", "retired"), 9: ("active", "retired")}
    version = tables.version(TREES)
    assert change_tree_states(tables, changes, version)
    assert {row["tree_id"]: row["state"] for row in tables.rows(TREES)} == dict.fromkeys(
        (1, 2, 3), "active"
    )
    assert tables.version(TREES) == version + 1
    assert not change_tree_states(tables, {1: ("active", "retiring")}, version)
    assert change_tree_states(tables, {1: ("installing", "active")})
    assert tables.version(TREES) == version + 1


def test_the_log_says_which_rows_were_added_and_when(tables: Tables) -> None:
    before = tables.version(HOSTS)
    tables.append(HOSTS, [host("h1")])
    tables.append(HOSTS, [host("h2"), host("h3")])
    assert only_added(tables, HOSTS, before, before + 2)
    added = rows_added(tables, HOSTS, before + 1, before + 2)
    assert added is not None and sorted(row["host"] for row in added) == ["h2", "h3"]
    assert rows_added(tables, HOSTS, before + 2, before + 2) == []
    tables.overwrite(HOSTS, [host("h1")])
    assert not only_added(tables, HOSTS, before, before + 3)
    assert rows_added(tables, HOSTS, before + 2, before + 3) is None
    committed = committed_at(tables, HOSTS, before + 3)
    assert committed is not None
    assert abs(dt.datetime.now(dt.UTC) - committed) < dt.timedelta(minutes=10)
    assert committed_at(tables, HOSTS, before + 4) is None


def test_the_last_row_of_each_key_is_found(tables: Tables) -> None:
    rows = [host(name, port, switch=f"s{port}") for name, port in (("a", 2), ("a", 1), ("b", 3))]
    tables.append(HOSTS, rows)

    def last(since: dict[str, int]) -> list[tuple[str, int, str]]:
        rows = tables.last_rows(HOSTS, "host", "port", "switch", since)
        return sorted((row["host"], row["port"], row["switch"]) for row in rows)

    assert last({}) == [("a", 2, "s2"), ("b", 3, "s3")]
    assert last({"a": 2, "b": 4}) == [("a", 2, "s2")]


def test_two_rows_with_the_same_key_are_refused(tables: Tables) -> None:
    tables.append("grants", [grant("g"), grant("g")])
    with pytest.raises(TableError) as refused:
        tables.rows("grants")
    assert refused.value.what == "DUPLICATE_KEY"
    assert len(tables.rows("grants", columns=("id",))) == 2


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(0, 5), max_size=3)),
        st.tuples(st.just("transaction"), st.integers(0, 3)),
        st.tuples(st.just("epoch"), st.integers(0, 3)),
        st.tuples(st.just("overwrite"), st.lists(st.integers(0, 5), min_size=1, max_size=2)),
        st.tuples(st.just("merge"), st.sets(st.integers(0, 5), max_size=3)),
    ),
    max_size=5,
)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(STEPS)
def test_any_sequence_of_writes_has_the_versions_of_the_model(
    make_tables: Callable[[], Tables], steps: list[tuple[str, Any]]
) -> None:
    tables = make_tables()
    expected, versions, numbers = dict[str, int](), list[dict[str, int]](), dict[str, int]()
    first = tables.version(SENIORITY)

    def rows(ids: Any, since: int) -> list[dict[str, Any]]:
        return [
            {"id": f"r{i}", "subscriber": "h", "since_version": since} for i in sorted(set(ids))
        ]

    for number, (kind, value) in enumerate(steps):
        before = dict(expected)
        if kind == "append":
            new = [i for i in value if f"r{i}" not in expected]
            tables.append(SENIORITY, rows(new, number))
            expected |= {f"r{i}": number for i in new}
            changed = bool(new)
        elif kind in ("transaction", "epoch"):
            known = numbers.get(kind, -1)
            row = (
                []
                if f"t{number}" in expected
                else [{"id": f"t{number}", "subscriber": "h", "since_version": number}]
            )
            if kind == "transaction":
                assert tables.append(SENIORITY, row, ("transaction", value))
                changed = value > known
            else:
                changed = value >= known
                assert tables.append(SENIORITY, row, epoch=("epoch", value)) == changed
            if changed:
                numbers[kind] = value
                expected |= {f"t{number}": number}
        elif kind == "overwrite":
            tables.overwrite(SENIORITY, rows(value, number))
            expected = {f"r{i}": number for i in value}
            changed = True
        else:
            current = rows_of_model(expected)
            target = [row for row in current if row["id"][1:] not in map(str, value)]
            target += rows((i for i in value if f"r{i}" not in expected), number)
            changed = replace_changed(
                tables, SENIORITY, target, ("id", "subscriber"), None, tables.version(SENIORITY)
            )
            expected = {row["id"]: row["since_version"] for row in target}
            assert changed == (expected != before)
        if changed:
            versions.append(dict(expected))
    assert tables.version(SENIORITY) == first + len(versions)
    for version, model in enumerate(versions, first + 1):
        stored = tables.rows(SENIORITY, version)
        assert {row["id"]: row["since_version"] for row in stored} == model
        assert len(stored) == len(model)
    for writer, number in numbers.items():
        assert tables.last_transaction(SENIORITY, writer) == number


def rows_of_model(model: dict[str, int]) -> list[dict[str, Any]]:
    return [{"id": i, "subscriber": "h", "since_version": since} for i, since in model.items()]
