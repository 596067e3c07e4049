"""Names of tables in SQL: attached names, names that are taken, and schemas of a catalog."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.errors import TableError
from stackcast.udfs.network.rows import link_to_row
from stackcast.udfs.network.topology import fabric

pytestmark = pytest.mark.integration

LINK = link_to_row(fabric(pods=1, racks=1, hosts=1, planes=1, spines=1).links[0])


@pytest.mark.long
def test_sql_names_follow_the_deployment_that_was_attached(
    spark: SparkSession, tables: Tables, tmp_path: Path
) -> None:
    tables.overwrite("links", [LINK])
    tables.attach()
    spark.sql(
        f"UPDATE {tables.sql_name('links')} SET weight = 2.5 WHERE link_id = {LINK['link_id']}"
    )
    assert [row["weight"] for row in tables.rows("links")] == [2.5]
    # The names now belong to a second deployment in the same session; no row is lost.
    second = open_tables(spark, str(tmp_path / "second"))
    second.create("links")
    assert second.rows("links") == []
    with pytest.raises(TableError) as failure:
        second.attach()
    assert failure.value.code == "TABLE.MISSING"
    assert "subscriptions" in failure.value.message
    spark.sql("DROP SCHEMA stackcast CASCADE")
    assert [row["link_id"] for row in tables.rows("links")] == [LINK["link_id"]]
    tables.attach()
    (row,) = spark.sql(f"SELECT link_id FROM {tables.sql_name('links')}").collect()
    assert row.link_id == LINK["link_id"]


@pytest.mark.long
def test_a_table_of_another_owner_is_never_dropped_for_its_name(
    spark: SparkSession, tables: Tables, tmp_path: Path
) -> None:
    tables.attach()
    # A name whose folder was deleted is free again.
    spark.sql(f"DROP TABLE {tables.sql_name('hosts')}")
    deleted = tmp_path / "deleted"
    spark.sql(f"CREATE TABLE {tables.sql_name('hosts')} (a INT) USING delta LOCATION '{deleted}'")
    shutil.rmtree(deleted)
    tables.attach()
    spark.sql(f"DROP TABLE {tables.sql_name('links')}")
    spark.sql(f"CREATE TABLE {tables.sql_name('links')} USING delta AS SELECT 42 AS theirs")
    try:
        with pytest.raises(TableError, match=r"NAME_TAKEN: stackcast\.links .* MANAGED"):
            tables.attach()
        assert spark.sql(f"SELECT theirs FROM {tables.sql_name('links')}").collect() == [(42,)]
    finally:
        spark.sql(f"DROP TABLE {tables.sql_name('links')}")
    tables.attach()


@pytest.mark.parametrize("where", ["{0}", "file://{0}", "no_such_schema"])
def test_the_error_of_a_missing_table_names_it_and_the_remedy(
    spark: SparkSession, tmp_path: Path, where: str
) -> None:
    nothing = open_tables(spark, where.format(tmp_path / "nothing"))
    for call in (lambda: nothing.version("hosts"), nothing.attach):
        with pytest.raises(TableError) as failure:
            call()
        assert failure.value.code == "TABLE.MISSING"
        assert failure.value.table in ("hosts", "subscriptions")
        assert failure.value.table in failure.value.message
        assert "create_tables" in failure.value.message


@pytest.mark.long
def test_tables_can_live_in_a_schema_of_the_catalog(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE SCHEMA lake LOCATION '{tmp_path}/lake'")
    try:
        named = open_tables(spark, "lake")
        named.create("links")
        named.create("links")
        assert named.version("links") == 0
        named.append("links", [LINK], ("writer", 1))
        named.append("links", [LINK], ("writer", 1))
        assert named.version("links") == 1
        assert named.rows("links", 0) == []
        (row,) = named.rows("links")
        assert {column: row[column] for column in LINK} == LINK
        assert named.sql_name("links") == "lake.links"
    finally:
        spark.sql("DROP SCHEMA lake CASCADE")
