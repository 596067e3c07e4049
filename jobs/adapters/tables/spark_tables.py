"""Tables in any storage or catalog, read and written by Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import and_
from typing import Any, Literal

import pyarrow as pa
from delta.exceptions import ConcurrentTransactionException
from delta.tables import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession, functions
from pyspark.sql.types import StructField, StructType

from stackcast.jobs.adapters.tables import catalog_names, definitions, edited, layouts
from stackcast.jobs.adapters.tables.arrow_rows import rows_of
from stackcast.jobs.adapters.tables.definitions import NAMES
from stackcast.jobs.adapters.tables.spark_errors import storage_errors
from stackcast.jobs.adapters.tables.spark_log import Snapshot, SparkLog
from stackcast.jobs.adapters.tables.tables import SUBSCRIPTIONS, Action, Number, Row

#: Tables that are created at the same time.
_PARALLEL = 4
#: Name of the schema in SQL for tables in a path.
_SCHEMA_OF_PATHS = "stackcast"
#: Additional columns of the source of a merge: whether a row is deleted, and its version that the
#: caller has read.
_GONE, _BEFORE = "stackcast_gone", "stackcast_before"


class SparkTables:
    """Implementation of `Tables` with Spark, and access to the tables by DataFrames and SQL.

    Args:
        spark: the session.
        location: a path (``s3a://bucket/stackcast``) with a folder per table, or the name of a
            schema (``catalog.schema``).
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._spark = spark
        self._location = location
        self._by_path = "/" in location or ":" in location
        self._layouts_checked: set[str] = set()

    @property
    def location(self) -> str:
        return self._location

    @property
    def local(self) -> bool:
        return False

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self._spark

    @property
    def schema(self) -> str:
        """The name of the schema in SQL."""
        return _SCHEMA_OF_PATHS if self._by_path else self.location

    def sql_name(self, name: str) -> str:
        """Return the name of a table in SQL. Call `attach` before using it for tables in a path."""
        return f"{self.schema}.{name}"

    def place(self, name: str) -> str:
        """Return the path of a table, or its name in the catalog."""
        return self._path(name) if self._by_path else self.sql_name(name)

    def attach(self) -> None:
        """Give the tables their SQL names in this session, without reading them.

        In a folder of this machine, tables that do not exist get no name.

        Raises:
            TableError: MISSING, if there is no table of subscriptions; NAME_TAKEN.
        """
        self.version(SUBSCRIPTIONS)
        if not self._by_path:
            return
        with storage_errors():
            # A folder of its own: dropping the schema deletes that folder, and no table.
            folder = _quoted(self._path(".schema"))
            self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {self.schema} LOCATION {folder}")
            places = {self.sql_name(name): self._catalog_place(name) for name in NAMES}
            catalog_names.put(self._spark, places)

    def _catalog_place(self, name: str) -> str | None:
        """Return the location of a table for the catalog, or None if it does not exist."""
        return self._path(name)

    def read(self, name: str, version: int | None = None) -> DataFrame:
        """Return a version of a table (the newest by default) as a DataFrame."""
        reader = self._spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self._path(name)) if self._by_path else reader.table(self.sql_name(name))

    def changes(self, name: str, version: int) -> DataFrame:
        """Return a stream of the change data feed of a table, starting with a version."""
        reader = (
            self._spark.readStream.format("delta")
            .option("readChangeFeed", "true")
            .option("startingVersion", version)
        )
        return reader.load(self._path(name)) if self._by_path else reader.table(self.sql_name(name))

    @storage_errors()
    def create(self, *names: str) -> None:
        if not self._by_path:
            self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")

        def create(name: str) -> None:
            path = self._path(name).replace("`", "``")
            target = f"delta.`{path}`" if self._by_path else self.sql_name(name)
            self._spark.sql(definitions.statement(name, target))

        # Most of a creation is waiting for files.
        with ThreadPoolExecutor(max_workers=_PARALLEL) as pool:
            list(pool.map(create, names or NAMES))

    def version(self, name: str) -> int:
        return self._snapshot(name).version

    def head(self, name: str) -> tuple[str, int]:
        snapshot = self._snapshot(name)
        return snapshot.id, snapshot.version

    @storage_errors()
    def commit(self, name: str, version: int) -> Sequence[Action]:
        return self._log(name).commit(version)

    @storage_errors()
    def arrow(
        self,
        name: str,
        version: int | None = None,
        since: Mapping[str, Any] | None = None,
        columns: Sequence[str] = (),
    ) -> pa.Table:
        try:
            frame = self.read(name, version)
        except AnalysisException:
            # Raises MISSING if that is the reason.
            self._snapshot(name)
            raise
        label = layouts.label(name, self.location, version)
        edited.check_columns(label, name, frame.schema.json)
        for column, value in (since or {}).items():
            frame = frame.where(functions.col(column) >= functions.lit(value))
        return (frame.select(*columns) if columns else frame).toArrow()

    def rows(
        self,
        name: str,
        version: int | None = None,
        since: Mapping[str, Any] | None = None,
        columns: Sequence[str] = (),
    ) -> list[Row]:
        rows = rows_of(self.arrow(name, version, since, columns))
        if not columns:
            edited.check_rows(layouts.label(name, self.location, version), name, rows)
        return rows

    @storage_errors()
    def rows_of_files(self, name: str, files: Sequence[str]) -> list[Row]:
        folder = self._path(name) if self._by_path else self._location_of(name)
        paths = [file if ":/" in file else f"{folder}/{file}" for file in files]
        frame = self._spark.read.schema(self.read(name).schema).parquet(*paths)
        return rows_of(frame.toArrow())

    @storage_errors()
    def last_rows(
        self, name: str, key: str, order: str, column: str, since: Mapping[Any, Any]
    ) -> list[Row]:
        frame = self.read(name)
        conditions = [
            (functions.col(key) != functions.lit(value))
            | (functions.col(order) >= functions.lit(least))
            for value, least in since.items()
        ]
        if conditions:
            frame = frame.where(reduce(and_, conditions))
        last = functions.max_by(functions.col(column), functions.col(order)).alias(column)
        frame = frame.groupBy(key).agg(functions.max(order).alias(order), last)
        return rows_of(frame.toArrow())

    @storage_errors()
    def append(
        self,
        name: str,
        rows: Sequence[Row] | pa.Table,
        transaction: Number | None = None,
        epoch: Number | None = None,
    ) -> bool:
        if epoch is not None:
            return self._log(name).append(self._frame(name, rows).coalesce(1), transaction, epoch)
        if not len(rows):
            return True
        writer = self._writer(name, rows, "append")
        if transaction is None:
            self._save(name, writer)
            return True
        writer = writer.option("txnAppId", transaction[0]).option("txnVersion", transaction[1])
        while True:
            try:
                self._save(name, writer)
                return True
            except ConcurrentTransactionException:
                # Delta refuses the second of two such writes, even if its number is no higher.
                newest = self.last_transaction(name, transaction[0])
                if newest is not None and newest >= transaction[1]:
                    return True

    @storage_errors()
    def overwrite(self, name: str, rows: Sequence[Row] | pa.Table) -> None:
        self._save(name, self._writer(name, rows, "overwrite"))

    @storage_errors()
    def merge(
        self,
        name: str,
        changed: Sequence[Row],
        gone: Sequence[Row],
        keys: Sequence[str],
        onto: int | None = None,
        unique: Sequence[str] = (),
    ) -> bool:
        if (not changed and not gone) or (onto is not None and self.version(name) != onto):
            return False
        source = self._source(name, changed, False).unionAll(self._source(name, gone, True))
        columns = {column: f"source.{column}" for column in source.columns if column != _GONE}
        is_unchanged, is_new = functions.lit(True), functions.lit(True)
        if onto is not None:
            # Another program may commit before the merge starts. Its rows stay as they are.
            before = self.read(name, onto)
            content = functions.to_json(functions.struct("*"))
            source = source.join(before.select(*keys, content.alias(_BEFORE)), [*keys], "left")
            columns_before = [f"target.{column}" for column in before.columns]
            current = functions.to_json(functions.struct(*columns_before))
            is_unchanged = current == functions.col(f"source.{_BEFORE}")
            is_new = functions.col(f"source.{_BEFORE}").isNull()
        is_gone = functions.col(f"source.{_GONE}")
        target = self._delta(name).alias("target")
        merger = target.merge(source.alias("source"), edited.merge_condition(keys, unique))
        if not unique:
            merger = merger.whenMatchedDelete(is_gone & is_unchanged)
            merger = merger.whenMatchedUpdate(~is_gone & is_unchanged, columns)
        result = merger.whenNotMatchedInsert(~is_gone & is_new, columns).execute()
        # Nothing is committed if another program has deleted the rows to delete in the meantime.
        return bool(result.collect()[0]["num_affected_rows"])

    @storage_errors()
    def last_transaction(self, name: str, writer: str) -> int | None:
        return self._snapshot(name).last_number(writer)

    def make_durable(self, name: str, version: int | None = None) -> None:
        """Do nothing: a commit is as durable as the storage makes it."""

    def prepare_overwrite(self, name: str) -> None:
        """Let Delta list the files of a table, which is a third of the time of an overwrite."""
        with storage_errors():
            self.read(name).inputFiles()

    def _snapshot(self, name: str) -> Snapshot:
        with storage_errors():
            snapshot = self._log(name).snapshot()
            if snapshot is None:
                raise layouts.missing(name, self.location)
            if name not in self._layouts_checked:
                layout = snapshot.property(layouts.PROPERTY)
                layouts.check(name, self.location, layout)
                self._layouts_checked.add(name)
            return snapshot

    def _writer(
        self, name: str, rows: Sequence[Row] | pa.Table, mode: Literal["append", "overwrite"]
    ) -> DataFrameWriter:
        return self._frame(name, rows).coalesce(1).write.format("delta").mode(mode)

    def _save(self, name: str, writer: DataFrameWriter) -> None:
        if self._by_path:
            writer.save(self._path(name))
        else:
            writer.saveAsTable(self.sql_name(name))

    def _frame(self, name: str, rows: Sequence[Row] | pa.Table) -> DataFrame:
        """Return rows as a DataFrame with the columns of a table, in their order."""
        schema = self.read(name).schema
        if not isinstance(rows, pa.Table):
            return self._frame_of(rows, schema)
        frame = self._spark.createDataFrame(rows)
        return frame.select(
            *(
                (frame[field.name] if field.name in rows.schema.names else functions.lit(None))
                .cast(field.dataType)
                .alias(field.name)
                for field in schema.fields
            )
        )

    def _source(self, name: str, rows: Sequence[Row], gone: bool) -> DataFrame:
        """Return rows of a merge. Rows to delete may have only their keys."""
        schema = self.read(name).schema
        if gone:
            schema = StructType([StructField(f.name, f.dataType) for f in schema.fields])
        return self._frame_of(rows, schema).withColumn(_GONE, functions.lit(gone))

    def _frame_of(self, rows: Sequence[Row], schema: StructType) -> DataFrame:
        values = [tuple(row.get(column) for column in schema.names) for row in rows]
        return self._spark.createDataFrame(values, schema)

    def _delta(self, name: str) -> DeltaTable:
        if self._by_path:
            return DeltaTable.forPath(self._spark, self._path(name))
        return DeltaTable.forName(self._spark, self.sql_name(name))

    def _location_of(self, name: str) -> str:
        detail = self._spark.sql(f"DESCRIBE DETAIL {self.sql_name(name)}").collect()[0]
        return str(detail["location"]).rstrip("/")

    def _log(self, name: str) -> SparkLog:
        if self._by_path:
            return SparkLog(self._spark, self._path(name))
        state: Any = self._spark._jsparkSession.sessionState()
        return SparkLog(self._spark, state.sqlParser().parseTableIdentifier(self.sql_name(name)))

    def _path(self, name: str) -> str:
        return f"{self.location}/{name}"


def _quoted(text: str) -> str:
    """Return a string literal of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
