"""An edit that meets another editor's commit is tried again, and nothing else is."""

from __future__ import annotations

import shutil
from pathlib import Path

import delta.exceptions
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.tables import attribute_registry
from stackcast.jobs.adapters.tables.conflicts import is_conflict, retried
from stackcast.jobs.adapters.tables.tables import Tables
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
    assert all(is_conflict(each.__new__(each)) for each in CLASSES)
    assert not is_conflict(ValueError("not a conflict"))


def test_a_spark_edit_is_tried_again_after_an_append_that_came_meanwhile(
    spark: SparkSession, filled: Path, tmp_path: Path
) -> None:
    shutil.copytree(filled, tmp_path / "tables")
    tables = Tables(spark, str(tmp_path / "tables"))
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


@pytest.mark.parametrize("error", [CLASSES[-1], PySparkException])
def test_attributes_are_registered_after_a_conflict_and_after_no_other_error(
    error: type[Exception],
    spark: SparkSession,
    empty_tables: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(empty_tables / "attributes", tmp_path / "attributes")
    tables = Tables(spark, str(tmp_path))
    _, new = Registry(()).with_new({"hum": "unsigned"})
    merge = attribute_registry._merge

    def refused(*_: object) -> None:
        monkeypatch.setattr(attribute_registry, "_merge", merge)
        raise error("attributes could not be written: /data/concurrent has no room")

    monkeypatch.setattr(attribute_registry, "_merge", refused)
    if error is PySparkException:
        with pytest.raises(PySparkException, match="no room"):
            attribute_registry.register(tables, new, "test")
        return
    assert "hum" in attribute_registry.register(tables, new, "test").by_name
