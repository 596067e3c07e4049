"""Delta tables: where they are, which version is current, reading one version, writing.

``location`` is a path (``var/tables``, ``s3a://bucket/stackcast``) with one folder a table, or the
name of a schema (``catalog.schema``). In both cases SQL sees the tables under `Tables.sql_name`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from delta.exceptions import ConcurrentTransactionException
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession, functions
from pyspark.sql.types import StructField, StructType

from stackcast.jobs.adapters.app import session
from stackcast.jobs.adapters.app.places import qualified
from stackcast.jobs.adapters.tables import catalog_names, definitions, edited, local
from stackcast.jobs.adapters.tables.definitions import LAYOUT, NAMES, definition
from stackcast.jobs.adapters.tables.log import LocalLog, SparkLog, actions, added_files, only_adds
from stackcast.udfs.errors import TableError

#: Those that several rooms name.
TREES = "virtual_trees"
SUBSCRIPTIONS = "subscriptions"
SENIORITY = "subscription_seniority"
LIVE = "live_subscriptions"
REJECTED = "rejected_subscriptions"
GRANTS = "grants"
DELIVERIES = "delivery_statistics"
DROPS = "switch_drops"
REREQUESTS = "rerequest_statistics"
PUBLICATIONS = "publication_statistics"
LEDGER = "egress_ledger"

#: Above so many new commits, reading a table anew takes no longer than looking at each.
MOST_COMMITS = 100

PARALLEL = 4
SCHEMA_OF_PATHS = "stackcast"


class Tables:
    """The tables of one deployment.

    Reads name a version of Delta's, so that a batch can be computed again.
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._spark = spark
        self.location = qualified(spark, location.rstrip("/"))
        self._by_path = "/" in self.location or ":" in self.location
        self._local = self._by_path and "://" not in self.location
        if self._local:
            self.location = str(Path(self.location.removeprefix("file:")).absolute())
        self._logs: dict[str, LocalLog] = {}
        self._readable: set[str] = set()
        #: Types of the columns that tables must have, of those that were read.
        self._columns: dict[str, dict[str, str]] = {}
        #: Versions of which it is known that they survive a power failure.
        self._durable: dict[str, int] = {}

    def sql_name(self, table: str) -> str:
        """Name of the table in SQL; for tables in a path, after `attach`."""
        return f"{self.schema}.{table}"

    @property
    def schema(self) -> str:
        """Name of the schema in SQL."""
        return SCHEMA_OF_PATHS if self._by_path else self.location

    @property
    def local(self) -> bool:
        """True where the tables are in a folder of this machine, so that a look at a version is one
        at a file."""
        return self._local

    def create(self, *names: str) -> None:
        """Makes the tables that are missing (all by default); existing ones stay as they are."""
        if not self._by_path:
            self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")
        # Most of a creation is waiting for files: side by side they take a third of the time.
        with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
            list(pool.map(self._create, names or NAMES))

    def _create(self, name: str) -> None:
        if not (self._local and self._create_locally(name)):
            self._spark.sql(definitions.statement(name, self._statement_name(name)))

    def _create_locally(self, name: str) -> bool:
        defined = definition(name)
        prefix = "spark.databricks.delta.properties.defaults."
        usual = {
            f"delta.{key.removeprefix(prefix)}": value
            for key, value in session.configuration(self._spark).items()
            if key.startswith(prefix)
        }
        properties = usual | dict(defined.properties)
        return local.create(self._path(name), defined.schema, defined.comment, properties)

    def _statement_name(self, name: str) -> str:
        """Returns what a statement calls the table, attached or not."""
        path = self._path(name).replace("`", "``")
        return f"delta.`{path}`" if self._by_path else self.sql_name(name)

    def attach(self) -> None:
        """Give the tables their SQL names in this session, without reading them.

        In a folder of this machine, tables that are missing get no name.

        Raises:
            TableError: MISSING, if there is no table of subscriptions; NAME_TAKEN.
        """
        self.version(SUBSCRIPTIONS)
        if not self._by_path:
            return
        # A folder of its own: who drops the schema loses that folder, not the tables.
        folder = _quoted(self._path(".schema"))
        self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {self.schema} LOCATION {folder}")
        places: dict[str, str | None] = {}
        for name in NAMES:
            missing = self._local and self._log(name).version() is None
            place = f"file:{self._path(name)}" if self._local else self._path(name)
            places[self.sql_name(name)] = None if missing else place
        catalog_names.put(self._spark, places)

    def version(self, name: str) -> int:
        """Returns the current version. On a local path it looks for new commits (10 us), else it
        asks Delta.

        Raises TableError MISSING, NEWER_LAYOUT.
        """
        newest = self._log(name).version() if self._local else self._spark_log(name).version()
        if newest is None:
            raise self._missing(name)
        if name not in self._readable:
            self._check_layout(name)
        return newest

    def _check_layout(self, name: str) -> None:
        """Refuses a table of another layout; asked once of each."""
        # A table that somebody else created says none.
        layout = int(self._property(name, "stackcast.layout") or LAYOUT)
        if layout < LAYOUT:
            raise TableError(
                "OLDER_LAYOUT",
                f"table {name} in {self.location} has layout {layout}, but this version of "
                f"Stackcast requires layout {LAYOUT}: create new tables in another location with "
                "jobs/create_tables.py, and copy the edited tables",
                table=name,
            )
        if layout > LAYOUT:
            raise TableError(
                "NEWER_LAYOUT",
                f"table {name} in {self.location} has layout {layout}, but this version of "
                f"Stackcast supports layouts up to {LAYOUT}: use the version that wrote it, or a "
                "newer one, or restore the earlier tables",
                table=name,
            )
        self._readable.add(name)

    def _property(self, name: str, key: str) -> str | None:
        if self._local and (given := local.properties(self._path(name))) is not None:
            return given.get(key)
        snapshot = self._spark_log(name).snapshot()
        if snapshot is None:
            raise self._missing(name)
        said = snapshot.metadata().configuration().get(key)
        return str(said.get()) if said.isDefined() else None

    def head(self, name: str) -> tuple[str, int]:
        """Delta's id of the table, and its version: one that is made anew has another id.

        Raises TableError MISSING.
        """
        if self._local and (known := self._log(name).id()):
            return known, self.version(name)
        head = self._spark_log(name).head()
        if head is None:
            raise self._missing(name)
        return head

    def only_added(self, name: str, before: int, version: int) -> bool:
        """Tells whether ``version`` has all rows of the version ``before``; False if it is hard to
        tell.

        Rewritten files with the same rows, as by OPTIMIZE, take none away. The table is the one
        that it was: `head` tells.
        """
        if not before <= version <= before + MOST_COMMITS:
            return False
        log = self._log(name) if self._local else self._spark_log(name)
        return all(only_adds(log.commit(v)) for v in range(before + 1, version + 1))

    def added(self, name: str, before: int, version: int) -> list[dict[str, Any]] | None:
        """The rows that came after version ``before`` up to ``version``; None where others went, or
        it is hard to tell: read all then. Only files that are new are opened.
        """
        if not self.only_added(name, before, version):
            return None
        log = self._log(name) if self._local else self._spark_log(name)
        files = [added_files(log.commit(v)) for v in range(before + 1, version + 1)]
        paths = []
        for each in files:
            if each is None:
                return None
            paths += each
        if not paths:
            return []
        base = self._path(name) if self._by_path else self._located(name)
        if self._local and (rows := local.rows_of_files(base, paths)) is not None:
            return rows
        reader = self._spark.read.schema(self.read(name).schema)
        return _pylist(reader.parquet(*(p if ":/" in p else f"{base}/{p}" for p in paths)))

    def _located(self, name: str) -> str:
        detail = self._spark.sql(f"DESCRIBE DETAIL {self.sql_name(name)}").collect()[0]
        return str(detail["location"]).rstrip("/")

    def _log(self, name: str) -> LocalLog:
        return self._logs.setdefault(name, LocalLog(Path(self._path(name))))

    def _spark_log(self, name: str) -> SparkLog:
        where = self._path(name) if self._by_path else self._identifier(name)
        return SparkLog(self._spark, where)

    def read(self, name: str, version: int | None = None) -> DataFrame:
        """The rows of a table, as of a version (the current one by default)."""
        reader = self._spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self._path(name)) if self._by_path else reader.table(self.sql_name(name))

    def rows(
        self,
        name: str,
        version: int | None = None,
        since: Mapping[str, Any] | None = None,
        columns: Sequence[str] = (),
    ) -> list[dict[str, Any]]:
        """Returns the rows as dictionaries, brought to the driver; maps are dictionaries in them.

        Args:
            name: name of the table.
            version: the newest by default.
            since: lower bounds of columns; Delta opens no file without such rows.
            columns: columns to read; all by default.

        Raises:
            TableError: MISSING if the table is not in the folder of this machine, WRONG_COLUMNS if
                people edit the table and it has other columns, DUPLICATE_KEY if two of its rows
                have the same key (`KEYS`).
        """
        if name in edited.EDITED:
            self._check_columns(name, version)
        rows = self._rows(name, version, since, columns)
        if name in edited.KEYS and not columns:
            edited.check_keys(self._label(name, version), edited.KEYS[name], rows)
        return rows

    def _rows(
        self,
        name: str,
        version: int | None,
        since: Mapping[str, Any] | None,
        columns: Sequence[str],
    ) -> list[dict[str, Any]]:
        if self._local:
            found = local.rows(self._path(name), version, since, columns)
            if found is not None:
                return found
            if version is None and self._log(name).version() is None:
                raise self._missing(name)
        frame = self.read(name, version)
        for column, value in (since or {}).items():
            frame = frame.where(functions.col(column) >= functions.lit(value))
        return _pylist(frame.select(*columns) if columns else frame)

    def _check_columns(self, name: str, version: int | None) -> None:
        """Refuses a version in which a column is missing or has another type.

        An edit may rewrite the schema of a table. Its values would then mean something else: the
        text 'false' is true.
        """
        if name not in self._columns:
            self._columns[name] = edited.column_types(definition(name).schema)
        found = local.schema(self._path(name), version) if self._local else None
        columns = edited.column_types(found or self.read(name, version).schema.json())
        edited.check_columns(self._label(name, version), self._columns[name], columns)

    def last_of_each(
        self, name: str, key: str, order: str, column: str, since: Mapping[Any, Any]
    ) -> list[dict[str, Any]]:
        """``column`` of the last row, by ``order``, of each value of ``key``.

        ``since``: an order for some keys; of those, rows before it are not looked at, and
        there is no row in the result where nothing else is left.
        """
        if self._local:
            found = local.last_of_each(self._path(name), key, order, column, since)
            if found is not None:
                return found
        frame = self.read(name)
        conditions = [
            (functions.col(key) != functions.lit(value))
            | (functions.col(order) >= functions.lit(least))
            for value, least in since.items()
        ]
        if conditions:
            frame = frame.where(reduce(and_, conditions))
        last = functions.max_by(functions.col(column), functions.col(order)).alias(column)
        return _pylist(frame.groupBy(key).agg(functions.max(order).alias(order), last))

    def committed_at(self, name: str, version: int) -> dt.datetime | None:
        """Returns when a version was committed, or None if the log no longer has it."""
        milliseconds = self.commit_info(name, version).get("timestamp")
        if milliseconds is None:
            return None
        return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)

    def commit_info(self, name: str, version: int) -> dict[str, Any]:
        """Returns what Delta notes about a commit: ``timestamp`` (milliseconds since 1970),
        ``operation``, ``operationParameters``, ``operationMetrics`` and others; empty if the log
        no longer has it."""
        if self._local:
            noted = actions(self._log(name).commit(version) or "")
            infos = [action["commitInfo"] for action in noted if "commitInfo" in action]
            return infos[0] if infos else {}
        history = self._delta(name).history(self.version(name) - version + 1)
        rows = _pylist(
            history.where(functions.col("version") == version).select(
                functions.unix_millis("timestamp").alias("timestamp"),
                *("operation", "operationParameters", "operationMetrics"),
            )
        )
        return rows[0] if rows else {}

    def is_empty(self, name: str) -> bool:
        """Returns whether a table has no rows. Raises TableError MISSING."""
        self.version(name)
        if self._local and (empty := local.is_empty(self._path(name))) is not None:
            return empty
        return bool(self.read(name).isEmpty())

    def changes(self, name: str, version: int) -> DataFrame:
        """A stream of the table's change data feed, from ``version`` on."""
        reader = (
            self._spark.readStream.format("delta")
            .option("readChangeFeed", "true")
            .option("startingVersion", version)
        )
        return reader.load(self._path(name)) if self._by_path else reader.table(self.sql_name(name))

    def move(
        self,
        name: str,
        key: str,
        column: str,
        moves: Mapping[int, tuple[str, str]],
        onto: int | None = None,
    ) -> bool:
        """Change texts of a column in one commit: by number ``key``, from one text to another.

        Rows that hold neither that key nor that text stay as they are. ``onto``: as for
        `replace_changed`; False: nothing is written.
        """
        if not moves:
            return True
        if onto is not None and self._local:
            rows = [row for row in self.rows(name, onto) if row[key] in moves]
            moved = [
                row | {column: moves[row[key]][1]}
                for row in rows
                if moves[row[key]][0] == row[column]
            ]
            if local.merge(self._path(name), moved, [], (key,), onto) is not None:
                return True
        if not self._is_at(name, onto):
            return False
        cases, conditions = [], []
        for number, (before, after) in sorted(moves.items()):
            condition = f"({key} = {int(number)} AND {column} = {_quoted(before)})"
            cases.append(f"WHEN {condition} THEN {_quoted(after)}")
            conditions.append(condition)
        text = f"CASE {' '.join(cases)} END"
        self._delta(name).update(" OR ".join(conditions), {column: text})
        return True

    def move_and_add(
        self,
        name: str,
        key: str,
        column: str,
        moves: Mapping[int, tuple[dict[str, Any], str]],
        added: list[dict[str, Any]],
        onto: int,
    ) -> bool:
        """Change texts of a column, rows with them, and add rows, in one commit.

        moves: by number ``key``, the row to come but for the text as it is, and the text that
        comes. ``onto``: the version that the rows are of, as for `replace_changed`; False: nothing
        is written. Where Spark writes, rows that do not hold the same text in that column any more,
        and new rows whose key is there, stay as they are: read the table again to see. Raises
        Delta's errors where somebody else writes meanwhile.
        """
        rows = [row | {column: after} for row, after in moves.values()] + added
        if not rows:
            return True
        path = self._path(name)
        if self._local and local.merge(path, rows, [], (key,), onto) is not None:
            return True
        if not self._is_at(name, onto):
            return False
        before = {number: row[column] for number, (row, _) in moves.items()}
        cases = [f"WHEN wanted.{key} = {int(n)} THEN {_quoted(t)}" for n, t in before.items()]
        held = f"CASE {' '.join(cases)} END" if cases else "NULL"
        new = f"{held} IS NULL"
        columns = {each: f"wanted.{each}" for each in self.read(name).columns}
        (
            self._delta(name)
            .alias("held")
            .merge(self._frame(name, rows).alias("wanted"), f"held.{key} = wanted.{key}")
            .whenMatchedUpdate(f"held.{column} = {held}", columns)
            .whenNotMatchedInsert(new, columns)
            .execute()
        )
        return True

    def _is_at(self, name: str, version: int | None) -> bool:
        return version is None or self.version(name) == version

    def append(
        self,
        name: str,
        rows: list[dict[str, Any]] | pa.Table,
        transaction: tuple[str, int] | None = None,
        epoch: tuple[str, int] | None = None,
    ) -> bool:
        """Append rows. With ``transaction`` = (writer, number), each number counts once.

        ``epoch`` = (role, number): False, and nothing is written, where a commit with a higher
        number of the role was before, or comes in between.

        Columns that an Arrow table lacks are null; those that only it has are left out.
        """
        if not len(rows) and epoch is None:
            return True
        return self._write(name, rows, "append", transaction, epoch)

    def make_durable(self, name: str, version: int | None = None) -> None:
        """Returns when a version (the current one by default) will be there after a power failure:
        on a local path by telling the kernel; elsewhere a commit is as durable as the storage says.

        Raises OSError.
        """
        if self._local:
            version = self.version(name) if version is None else version
            local.make_durable(self._path(name), version, self._durable.get(name, -1))
            self._durable[name] = version

    def last_transaction(self, name: str, writer: str) -> int | None:
        """The last number that counted of a writer of `append`; None where it wrote nothing.

        Raises TableError MISSING.
        """
        if self._local:
            known = local.last_transaction(self._path(name), writer)
            if known is not None:
                return None if known < 0 else known
        snapshot = self._spark_log(name).snapshot()
        if snapshot is None:
            raise self._missing(name)
        number = snapshot.transactions().get(writer)
        return int(number.get()) if number.isDefined() else None

    def overwrite(self, name: str, rows: list[dict[str, Any]] | pa.Table) -> None:
        """Replace all rows in one commit."""
        self._write(name, rows, "overwrite", None)

    def prepare_overwrite(self, name: str) -> None:
        """Has Delta find out which files the table has, where Spark writes: the next `overwrite`
        begins with that, and takes a third of the time if it is known."""
        if not self._local:
            self.read(name).inputFiles()

    def replace_changed(
        self,
        name: str,
        rows: list[dict[str, Any]],
        keys: tuple[str, ...],
        held: list[dict[str, Any]] | None = None,
        onto: int | None = None,
    ) -> bool:
        """Make the table hold exactly ``rows``, touching only rows that differ.

        The change data feed then reports real changes and nothing else; no difference makes no
        version. ``held`` is what the table holds, if the caller knows. Returns whether it made a
        version. ``onto``: the version that ``held`` is of; if the table has a later one, nothing
        is written. A merge in a folder is exact in that, also into an empty table; otherwise the
        version is compared right before the write, and Delta refuses the second of two merges.
        """
        held = self.rows(name, onto) if held is None else held
        before = {tuple(row[key] for key in keys): row for row in held}
        after = {tuple(row[key] for key in keys): row for row in rows}
        if len(before) < len(held):
            # A merge cannot distinguish two rows of one key.
            if not self._is_at(name, onto):
                return False
            self.overwrite(name, rows)
            return True
        changed = [row for key, row in after.items() if before.get(key) != row]
        gone = [row for key, row in before.items() if key not in after]
        return self.merge(name, changed, gone, keys, onto)

    def merge(
        self,
        name: str,
        changed: list[dict[str, Any]],
        gone: list[dict[str, Any]],
        keys: tuple[str, ...],
        onto: int | None = None,
    ) -> bool:
        """Insert or update ``changed`` rows and delete ``gone`` ones, by their keys, in one commit.

        Of ``gone`` rows the keys are enough. Returns whether it made a version. ``onto``: as for
        `replace_changed`.
        """
        if not changed and not gone:
            return False
        path = self._path(name)
        if self._local and (n := local.merge(path, changed, gone, keys, onto)) is not None:
            return bool(n)
        if not self._is_at(name, onto):
            return False
        wanted = self._frame(name, changed, False).unionAll(self._frame(name, gone, True))
        same = " AND ".join(f"held.{k} = wanted.{k}" for k in keys)
        columns = {column: f"wanted.{column}" for column in wanted.columns if column != "gone"}
        made = (
            self._delta(name)
            .alias("held")
            .merge(wanted.alias("wanted"), same)
            .whenMatchedDelete("wanted.gone")
            .whenMatchedUpdate(set=columns)
            .whenNotMatchedInsert("NOT wanted.gone", columns)
            .execute()
        )
        # Nothing is committed where somebody else has deleted meanwhile what was to go.
        return bool(made.collect()[0]["num_affected_rows"])

    def _delta(self, name: str) -> DeltaTable:
        if self._by_path:
            return DeltaTable.forPath(self._spark, self._path(name))
        return DeltaTable.forName(self._spark, self.sql_name(name))

    def _write(
        self,
        name: str,
        rows: list[dict[str, Any]] | pa.Table,
        mode: Literal["append", "overwrite"],
        transaction: tuple[str, int] | None,
        epoch: tuple[str, int] | None = None,
    ) -> bool:
        if self._local and local.write(self._path(name), rows, mode, transaction, epoch):
            return True
        made = self._arrow_frame if isinstance(rows, pa.Table) else self._frame
        frame = made(name, rows).coalesce(1)
        if epoch is not None:
            return self._spark_log(name).append(frame, transaction, epoch)
        writer = frame.write.format("delta").mode(mode)
        if transaction is not None:
            writer = writer.option("txnAppId", transaction[0]).option("txnVersion", transaction[1])
        while True:
            try:
                self._save(name, writer)
            except ConcurrentTransactionException:
                # Delta refuses the second of two at once, also where it would not count any more.
                assert transaction is not None
                counted = self.last_transaction(name, transaction[0])
                if counted is None or counted < transaction[1]:
                    continue
            return True

    def _save(self, name: str, writer: DataFrameWriter) -> None:
        if self._by_path:
            writer.save(self._path(name))
        else:
            writer.saveAsTable(self.sql_name(name))

    def _frame(self, name: str, rows: list[dict[str, Any]], gone: bool | None = None) -> DataFrame:
        """Rows as a frame with the table's columns, in its order, and perhaps a column ``gone``."""
        schema = self.read(name).schema
        if gone:
            schema = StructType([StructField(f.name, f.dataType) for f in schema.fields])
        frame = self._spark.createDataFrame(
            [tuple(row.get(column) for column in schema.names) for row in rows], schema
        )
        return frame if gone is None else frame.withColumn("gone", functions.lit(gone))

    def _arrow_frame(self, name: str, rows: pa.Table) -> DataFrame:
        """The same of an Arrow table: no Python object is made of a value."""
        frame = self._spark.createDataFrame(rows)
        return frame.select(
            *(
                (frame[f.name] if f.name in rows.schema.names else functions.lit(None))
                .cast(f.dataType)
                .alias(f.name)
                for f in self.read(name).schema.fields
            )
        )

    def _label(self, name: str, version: int | None) -> str:
        """Returns what messages call a version of a table."""
        at = "" if version is None else f", version {version}"
        return f"table {name} in {self.location}{at}"

    def place(self, name: str) -> str:
        """Returns the path of a table, or its name where it is one of a catalog."""
        return self._path(name) if self._by_path else self.sql_name(name)

    def _path(self, name: str) -> str:
        return f"{self.location}/{name}"

    def _identifier(self, name: str) -> Any:
        """The table's SQL name as Spark's Java classes take it."""
        state: Any = self._spark._jsparkSession.sessionState()
        return state.sqlParser().parseTableIdentifier(self.sql_name(name))

    def _missing(self, name: str) -> TableError:
        return TableError(
            "MISSING",
            f"Delta table {name} does not exist in {self.location}: run jobs/create_tables.py, "
            "or set spark.stackcast.tables to its location",
            table=name,
        )


def _pylist(frame: DataFrame) -> list[dict[str, Any]]:
    table = frame.toArrow()
    rows: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="strict")
    return rows


def _quoted(text: str) -> str:
    """A string literal of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
