"""An edit that meets another editor's commit is tried again, and nothing else is."""

from __future__ import annotations

import shutil
from pathlib import Path

import delta.exceptions
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from memory_tables import MemoryTables
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.storage_errors import StorageError
from stackcast.jobs.adapters.tables.attribute_registry import register
from stackcast.jobs.adapters.tables.conflicts import retried
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.spark_errors import storage_errors
from stackcast.udfs.messages.attributes.registry import Registry

pytestmark = pytest.mark.integration

CLASSES = [
    each
    for each in vars(delta.exceptions).values()
    if isinstance(each, type) and issubclass(each, Exception)
]


def test_every_conflict_that_delta_raises_is_one() -> None:
    assert len(CLASSES) >= 8
    # Only its name and text matter here; none is raised by a JVM.
    for each in CLASSES:
        with pytest.raises(StorageError) as conflict, storage_errors():
            raise each("text")
        assert conflict.value.conflict and not conflict.value.gone
    with pytest.raises(ValueError, match="no error of Spark"), storage_errors():
        raise ValueError("no error of Spark")


def test_a_spark_edit_is_tried_again_after_an_append_that_came_meanwhile(
    spark: SparkSession, filled: Path, tmp_path: Path
) -> None:
    shutil.copytree(filled, tmp_path / "tables")
    tables = open_tables(spark, str(tmp_path / "tables"))
    place, appended = f"{tables.location}/subscriptions", tmp_path / "appended"
    row = {"id": "other", "subscriber": "h2", "format": "itch", "filter": "shares > 0"}

    def meanwhile(_: str) -> bool:
        """Append a row while Spark reads the table for the first time."""
        if not appended.exists():
            appended.touch()
            rows = pa.Table.from_pylist([row | {"enabled": True}])
            write_deltalake(place, rows, mode="append", schema_mode="merge")
        return False

    spark.udf.register("meanwhile", meanwhile, "boolean")
    tries = []

    def edit() -> None:
        tries.append(len(tries))
        with storage_errors():
            spark.sql(f"UPDATE delta.`{place}` SET enabled = meanwhile(id) WHERE id = 'high'")

    retried(edit)
    assert len(tries) == 2
    enabled = {row["id"]: row["enabled"] for row in tables.rows("subscriptions")}
    assert enabled == {"high": False, "side": True, "both": True, "other": True}


def test_another_error_is_not_tried_again() -> None:
    tries = []

    def edit() -> None:
        tries.append(len(tries))
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        retried(edit)
    assert tries == [0]


@pytest.mark.parametrize("conflict", [True, False])
def test_attributes_are_registered_after_a_conflict_and_after_no_other_error(
    conflict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = MemoryTables()
    tables.create("attributes")
    _, new = Registry(()).with_new({"hum": "unsigned"})

    def refused(*_: object, **__: object) -> bool:
        monkeypatch.undo()
        raise StorageError("/data/concurrent has no room", conflict=conflict)

    monkeypatch.setattr(tables, "merge", refused)
    if conflict:
        assert "hum" in register(tables, new, "test").by_name
        return
    with pytest.raises(StorageError, match="no room"):
        register(tables, new, "test")
