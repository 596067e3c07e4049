"""Delta tables: where they are, which version is current, reading one version, writing.

``location`` is a path (``var/tables``, ``s3a://bucket/stackcast``) with one folder a table, or the
name of a schema (``catalog.schema``). In both cases SQL sees the tables under `Tables.sql_name`.
"""

from __future__ import annotations

import string
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from delta.tables import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import schemas
from udfs.errors import TableError

#: Every table, in the order of the design's section 4.
NAMES = (
    "subscriptions",
    "rejected_subscriptions",
    "switches",
    "hosts",
    "links",
    "filter_entries",
    "filter_leaves",
    "virtual_trees",
    "header_stacks",
    "switch_entries",
    "switch_status",
    "delivery_statistics",
    "egress_ledger",
)

PARALLEL = 4
SCHEMA_OF_PATHS = "stackcast"


class Tables:
    """The tables of one deployment.

    Reads name a version of Delta's, so that a batch can be computed again.
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._spark = spark
        self.location = location.rstrip("/")
        self._by_path = "/" in location or ":" in location
        self._local = self._by_path and "://" not in location
        if self._local:
            self.location = str(Path(self.location.removeprefix("file:")).absolute())

    def sql_name(self, table: str) -> str:
        """Name of the table in SQL; for tables in a path, after `attach`."""
        return f"{self.schema}.{table}"

    @property
    def schema(self) -> str:
        """Name of the schema in SQL."""
        return SCHEMA_OF_PATHS if self._by_path else self.location

    def create(self, *names: str) -> None:
        """Make the tables that are missing (all by default).

        Existing ones stay as they are, columns that somebody added included.
        """
        if not self._by_path:
            self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")
        # Most of a creation is waiting for files: side by side they take a third of the time.
        with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
            list(pool.map(self._create, names or NAMES))

    def _create(self, name: str) -> None:
        text = string.Template(schemas.read_text(f"tables/{name}.sql"))
        path = self._path(name).replace("`", "``")
        table = f"delta.`{path}`" if self._by_path else self.sql_name(name)
        self._spark.sql(text.substitute(table=table))

    def attach(self) -> None:
        """Give the tables their SQL names in this session.

        Raises TableError MISSING, NAME_TAKEN.
        """
        for name in NAMES:
            self.version(name)
        if not self._by_path:
            return
        # A folder of its own: who drops the schema loses that folder, not the tables.
        folder = _quoted(self._path(".schema"))
        self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {self.schema} LOCATION {folder}")
        for name in NAMES:
            self._check_droppable(name)
        for name in NAMES:
            # The name may still mean a table of another place, which stays as it is.
            self._spark.sql(f"DROP TABLE IF EXISTS {self.sql_name(name)}")
            place = _quoted(self._path(name))
            self._spark.sql(f"CREATE TABLE {self.sql_name(name)} USING delta LOCATION {place}")

    def _check_droppable(self, name: str) -> None:
        """A metastore may know the name already; dropping an external table deletes no row."""
        full = self.sql_name(name)
        # What the metastore says: Spark's own catalog would look for the folder, which may be gone.
        catalog: Any = self._spark._jsparkSession.sessionState().catalog()
        identifier = self._identifier(name)
        if not catalog.tableExists(identifier):
            return
        kind = catalog.getTableMetadata(identifier).tableType().name()
        if kind != "EXTERNAL":
            raise TableError(
                "NAME_TAKEN",
                f"{full} is there already and of type {kind}, and the name is needed for the table "
                f"in {self.location}: rename that one, or set spark.stackcast.tables to the name "
                "of a schema of your own",
                table=name,
            )

    def version(self, name: str) -> int:
        """Current version. On a local path it lists the log (under 1 ms), else it asks Delta.

        Raises TableError MISSING.
        """
        if self._local:
            log = Path(self._path(name)) / "_delta_log"
            try:
                commits = [e.name for e in log.iterdir() if e.name.endswith(".json")]
            except FileNotFoundError:
                commits = []
            numbers = [
                int(c.removesuffix(".json")) for c in commits if c[0].isdigit() and len(c) == 25
            ]
            if not numbers:
                raise self._missing(name)
            return max(numbers)
        jvm: Any = self._spark._jvm
        log_of = jvm.org.apache.spark.sql.delta.DeltaLog.forTable
        session = self._spark._jsparkSession
        try:
            where = self._path(name) if self._by_path else self._identifier(name)
            delta_log = log_of(session, where)
        except AnalysisException as error:
            raise self._missing(name) from error
        version = int(
            delta_log.update(False, jvm.scala.Option.empty(), jvm.scala.Option.empty()).version()
        )
        if version < 0:
            raise self._missing(name)
        return version

    def read(self, name: str, version: int | None = None) -> DataFrame:
        """The rows of a table, as of a version (the current one by default)."""
        reader = self._spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self._path(name)) if self._by_path else reader.table(self.sql_name(name))

    def rows(self, name: str, version: int | None = None) -> list[dict[str, Any]]:
        """The rows as dictionaries, brought to the driver."""
        rows: list[dict[str, Any]] = self.read(name, version).toArrow().to_pylist()
        return rows

    def changes(self, name: str, version: int) -> DataFrame:
        """A stream of the table's change data feed, from ``version`` on."""
        reader = (
            self._spark.readStream.format("delta")
            .option("readChangeFeed", "true")
            .option("startingVersion", version)
        )
        return reader.load(self._path(name)) if self._by_path else reader.table(self.sql_name(name))

    def append(
        self, name: str, rows: list[dict[str, Any]], transaction: tuple[str, int] | None = None
    ) -> None:
        """Append rows. With ``transaction`` = (writer, number), each number counts once."""
        if not rows:
            return
        self._write(name, rows, "append", transaction)

    def overwrite(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Replace all rows in one commit."""
        self._write(name, rows, "overwrite", None)

    def replace_changed(
        self,
        name: str,
        rows: list[dict[str, Any]],
        keys: tuple[str, ...],
        held: list[dict[str, Any]] | None = None,
    ) -> None:
        """Make the table hold exactly ``rows``, touching only rows that differ.

        So the change data feed tells real changes and nothing else; no difference makes no
        version. ``held`` is what the table holds, if the caller knows.
        """
        held = self.rows(name) if held is None else held
        if not held:
            self.append(name, rows)  # a merge into nothing takes ten times as long
            return
        if _by(keys, held) == _by(keys, rows):
            return
        schema = self.read(name).schema
        frame = self._spark.createDataFrame(
            [tuple(r[c] for c in schema.names) for r in rows], schema
        )
        others = [c for c in schema.names if c not in keys]
        same = " AND ".join(f"held.{k} = wanted.{k}" for k in keys)
        differs = " OR ".join(f"NOT (held.{c} <=> wanted.{c})" for c in others)
        target = self._delta(name)
        (
            target.alias("held")
            .merge(frame.alias("wanted"), same)
            .whenMatchedUpdateAll(condition=differs)
            .whenNotMatchedInsertAll()
            .whenNotMatchedBySourceDelete()
            .execute()
        )

    def _delta(self, name: str) -> DeltaTable:
        if self._by_path:
            return DeltaTable.forPath(self._spark, self._path(name))
        return DeltaTable.forName(self._spark, self.sql_name(name))

    def _write(
        self,
        name: str,
        rows: list[dict[str, Any]],
        mode: str,
        transaction: tuple[str, int] | None,
    ) -> None:
        schema = self.read(name).schema
        frame = self._spark.createDataFrame(
            [tuple(r[c] for c in schema.names) for r in rows], schema
        )
        writer = frame.coalesce(1).write.format("delta").mode(mode)
        if transaction is not None:
            writer = writer.option("txnAppId", transaction[0]).option("txnVersion", transaction[1])
        if self._by_path:
            writer.save(self._path(name))
        else:
            writer.saveAsTable(self.sql_name(name))

    def _path(self, name: str) -> str:
        return f"{self.location}/{name}"

    def _identifier(self, name: str) -> Any:
        """The table's SQL name as Spark's Java classes take it."""
        state: Any = self._spark._jsparkSession.sessionState()
        return state.sqlParser().parseTableIdentifier(self.sql_name(name))

    def _missing(self, name: str) -> TableError:
        return TableError(
            "MISSING",
            f"there is no Delta table {name} in {self.location}: run jobs/create_tables.py, "
            "or point spark.stackcast.tables at where it is",
            table=name,
        )


def _by(keys: tuple[str, ...], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: tuple(row[key] for key in keys))


def _quoted(text: str) -> str:
    """A string literal of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
