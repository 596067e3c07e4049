"""If several writers write one new row at once, one succeeds and the others know it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.tables.edits import replace_changed
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import Tables

pytestmark = pytest.mark.integration


def host(name: str, port: int = 1) -> dict[str, Any]:
    row = {"host": name, "switch": "s", "port": port, "mac": port, "ipv4": "10.0.0.1"}
    return row | {"role": "subscriber"}


@pytest.mark.parametrize("place", ["{}", "file://{}"])
@pytest.mark.parametrize("filled", [False, True], ids=["empty", "filled"])
def test_of_two_writers_of_one_new_key_at_once_only_one_writes(
    spark: SparkSession,
    tables: Tables,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    filled: bool,
) -> None:
    """The second writer commits after the first one has read the table, before it writes."""
    name, keys = "hosts", ("host",)
    first, second = (open_tables(spark, place.format(tables.location)) for _ in range(2))
    rows = [host("before")] if filled else []
    if rows:
        tables.append(name, rows)
    version = tables.version(name)
    merge = type(first).merge

    def meanwhile(self: Any, *arguments: Any) -> bool:
        if self is first:
            assert replace_changed(second, name, [*rows, host("new", port=2)], keys, rows, version)
        return merge(self, *arguments)

    monkeypatch.setattr(type(first), "merge", meanwhile)
    assert not replace_changed(first, name, [*rows, host("new")], keys, rows, version)
    stored = tables.rows(name)
    assert sorted(row["host"] for row in stored) == ["before"] * filled + ["new"]
    assert {row["port"] for row in stored if row["host"] == "new"} == {2}


def test_many_writers_of_one_new_key_leave_one_row(spark: SparkSession, tables: Tables) -> None:
    writers = [open_tables(spark, tables.location) for _ in range(4)]
    version = tables.version("hosts")
    together = threading.Barrier(len(writers))

    def write(number: int) -> bool:
        together.wait(600)
        rows = [host("new", port=number + 1)]
        return replace_changed(writers[number], "hosts", rows, ("host",), [], version)

    with ThreadPoolExecutor(len(writers)) as pool:
        wrote = list(pool.map(write, range(len(writers))))
    (row,) = tables.rows("hosts")
    assert [number + 1 for number, ours in enumerate(wrote) if ours] == [row["port"]]
