"""Tables in a folder of this machine, read and written by delta-rs without Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Transaction,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError
from pyarrow import fs

from stackcast.jobs.adapters.app.durability import sync
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.jobs.adapters.tables import edited, folder_creation, layouts
from stackcast.jobs.adapters.tables.arrow_rows import rows_of
from stackcast.jobs.adapters.tables.changes import added_files
from stackcast.jobs.adapters.tables.definitions import NAMES, definition
from stackcast.jobs.adapters.tables.log import FolderLog
from stackcast.jobs.adapters.tables.tables import Action, Number, Row
from stackcast.udfs.errors import TableError

log = logging.getLogger(__name__)

#: An additional column that marks rows to delete.
_GONE = "stackcast_gone"
#: Work after a commit may fail, and must not make the commit seem to have failed.
_COMMIT_ALONE = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
#: Commits from one checkpoint of a log to the next, unless the table sets it: Delta's default.
_CHECKPOINT_INTERVAL = "10"
#: Linux writes data to disk after at most half of this time, in seconds.
_WRITTEN_SECONDS = 60.0
#: Tables that are created at the same time.
_PARALLEL = 4
#: Errors of delta-rs and Arrow: FileNotFoundError for a file that VACUUM removed, ValueError and
#: TypeError for values of another type than the column.
_ERRORS = (DeltaError, pa.ArrowException, OSError, ValueError, TypeError)


class NeedsSparkError(TableError):
    """delta-rs cannot read or write a table, or does not say what is wrong. Nothing is written."""


class FolderTables:
    """Implementation of `Tables` for a folder.

    Each call raises `NeedsSparkError` for a table that delta-rs cannot read or write, such as one
    with deletion vectors.

    Args:
        location: path of the folder.
        default_properties: returns the properties of new tables besides those of their definition.
        clock: clock of the program.
    """

    local = True

    def __init__(
        self,
        location: str,
        default_properties: Callable[[], Mapping[str, str]] = dict,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.location = str(Path(location).absolute())
        self._default_properties = default_properties
        self._clock = clock
        self._logs: dict[str, FolderLog] = {}
        self._layouts_checked: set[str] = set()
        #: Versions that are known to survive a power failure.
        self._durable: dict[str, int] = {}

    def create(self, *names: str) -> None:
        defaults = self._default_properties()

        def create(name: str) -> None:
            with self._delta_rs("create", name):
                folder_creation.create(self._path(name), definition(name), defaults, self._clock)

        # Most of a creation is waiting for files.
        with ThreadPoolExecutor(max_workers=_PARALLEL) as pool:
            list(pool.map(create, names or NAMES))

    def version(self, name: str) -> int:
        """Return the newest version of a table, which takes 10 us."""
        newest = self._log(name).version()
        if newest is None:
            raise layouts.missing(name, self.location)
        if name not in self._layouts_checked:
            with self._delta_rs("read", name):
                properties = DeltaTable(self._path(name)).metadata().configuration
            layouts.check(name, self.location, properties.get(layouts.PROPERTY))
            self._layouts_checked.add(name)
        return newest

    def head(self, name: str) -> tuple[str, int]:
        version = self.version(name)
        with self._delta_rs("read", name):
            return self._log(name).id() or str(DeltaTable(self._path(name)).metadata().id), version

    def commit(self, name: str, version: int) -> Sequence[Action]:
        return self._log(name).commit(version)

    def arrow(
        self,
        name: str,
        version: int | None = None,
        since: Mapping[str, Any] | None = None,
        columns: Sequence[str] = (),
    ) -> pa.Table:
        self._require(name)
        with self._delta_rs("read", name):
            table = DeltaTable(self._path(name), version)
            label = layouts.label(name, self.location, version)
            edited.check_columns(label, name, table.schema().to_json)
            condition = _all(ds.field(column) >= value for column, value in (since or {}).items())
            return self._dataset(name, table).to_table(list(columns) or None, condition)

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

    def rows_of_files(self, name: str, files: Sequence[str]) -> list[Row]:
        path = self._path(name)
        with self._delta_rs("read", name):
            schema = pa.schema(DeltaTable(path).schema().to_arrow())
            paths = [f"{path}/{file}" for file in files]
            return rows_of(ds.dataset(paths, schema, format="parquet").to_table())

    def last_rows(
        self, name: str, key: str, order: str, column: str, since: Mapping[Any, Any]
    ) -> list[Row]:
        self._require(name)
        with self._delta_rs("read", name):
            condition = _all(
                (ds.field(key) != value) | (ds.field(order) >= least)
                for value, least in since.items()
            )
            dataset = self._dataset(name, DeltaTable(self._path(name)))
            rows = dataset.to_table([key, order, column], condition)
            places = pc.sort_indices(rows, [(order, "ascending")])
            last = dict(zip(rows[key].take(places).to_pylist(), places.to_pylist(), strict=True))
            return rows_of(rows.take(list(last.values())))

    def append(
        self,
        name: str,
        rows: Sequence[Row] | pa.Table,
        transaction: Number | None = None,
        epoch: Number | None = None,
    ) -> bool:
        if not len(rows) and epoch is None:
            return True
        return self._write(name, rows, "append", transaction, epoch)

    def overwrite(self, name: str, rows: Sequence[Row] | pa.Table) -> None:
        self._write(name, rows, "overwrite")

    def _write(
        self,
        name: str,
        rows: Sequence[Row] | pa.Table,
        mode: Literal["append", "overwrite"],
        transaction: Number | None = None,
        epoch: Number | None = None,
    ) -> bool:
        numbers = [number for number in (transaction, epoch) if number is not None]
        # The commit fails if another program commits one of the numbers in the meantime.
        properties = CommitProperties(app_transactions=[Transaction(*number) for number in numbers])
        with self._delta_rs("write", name):
            while True:
                table = DeltaTable(self._path(name))
                if epoch and _last_number(table, epoch[0]) > epoch[1]:
                    return False
                if transaction and _last_number(table, transaction[0]) >= transaction[1]:
                    return True
                try:
                    write_deltalake(
                        table,
                        _shaped(rows, pa.schema(table.schema().to_arrow())),
                        mode=mode,
                        commit_properties=properties,
                        post_commithook_properties=_COMMIT_ALONE,
                    )
                except CommitFailedError:
                    if not self._has_newer(name, table):
                        raise
                    continue
                self._keep_log_short(name, table)
                return True

    def merge(
        self,
        name: str,
        changed: Sequence[Row],
        gone: Sequence[Row],
        keys: Sequence[str],
        onto: int | None = None,
        unique: Sequence[str] = (),
    ) -> bool:
        if not changed and not gone:
            return False
        rows = [*changed, *gone]
        marks = pa.array([False] * len(changed) + [True] * len(gone))
        # Without retries, no other commit can come between version ``onto`` and this one.
        properties = None if onto is None else CommitProperties(max_commit_retries=0)
        with self._delta_rs("write", name):
            while onto is None or self.version(name) == onto:
                table = DeltaTable(self._path(name), version=onto)
                schema = pa.schema(table.schema().to_arrow())
                # Rows to delete may have only their keys.
                nullable = pa.schema([field.with_nullable(True) for field in schema])
                source = pa.Table.from_pylist(rows, schema=nullable).append_column(_GONE, marks)
                columns = {column: f"source.{column}" for column in schema.names}
                merger = table.merge(
                    source,
                    edited.merge_condition(keys, unique),
                    "source",
                    "target",
                    commit_properties=properties,
                    post_commithook_properties=_COMMIT_ALONE,
                )
                if not unique:
                    merger = merger.when_matched_delete(f"source.{_GONE}")
                    merger = merger.when_matched_update(columns)
                merger = merger.when_not_matched_insert(columns, f"NOT source.{_GONE}")
                try:
                    counts: dict[str, int] = merger.execute()
                except CommitFailedError:
                    if not self._has_newer(name, table):
                        raise
                    continue
                self._keep_log_short(name, table)
                kinds = ("inserted", "updated", "deleted")
                return any(counts[f"num_target_rows_{kind}"] for kind in kinds)
        return False

    def last_transaction(self, name: str, writer: str) -> int | None:
        self._require(name)
        with self._delta_rs("read", name):
            number = DeltaTable(self._path(name)).transaction_version(writer)
            return None if number is None else int(number)

    def make_durable(self, name: str, version: int | None = None) -> None:
        """Write a version to disk, which neither delta-rs nor Spark does.

        This concerns its commit, earlier commits back to the last call or to old ones, and their
        files.
        """
        version = self.version(name) if version is None else version
        table, folders = Path(self._path(name)), set[Path]()
        for number in range(version, self._durable.get(name, -1), -1):
            commit = table / "_delta_log" / f"{number:020d}.json"
            if not commit.exists() or self._age(commit) > _WRITTEN_SECONDS:
                break
            # A file that was added and replaced since no longer exists.
            files = [table / file for file in added_files(self.commit(name, number)) or ()]
            for path in (*filter(Path.exists, files), commit):
                folders.add(path.parent)
                sync(path)
        sync(*folders)
        self._durable[name] = version

    def prepare_overwrite(self, name: str) -> None:
        """Do nothing: delta-rs needs no preparation."""

    def exists(self, name: str) -> bool:
        """Return True if a table exists."""
        return self._log(name).version() is not None

    def _age(self, path: Path) -> float:
        return self._clock.wall_time() - path.stat().st_mtime

    def _dataset(self, name: str, table: DeltaTable) -> ds.Dataset:
        """Return a version as a dataset that reads its files by Arrow's own file system.

        By default, delta-rs reads them by a file system in Python. Arrow's threads may still close
        its files when the program ends, and the program then aborts.
        """
        files = fs.SubTreeFileSystem(self._path(name), fs.LocalFileSystem())
        return table.to_pyarrow_dataset(filesystem=files)

    def _keep_log_short(self, name: str, table: DeltaTable) -> None:
        """Write a checkpoint of the log if one is due, and remove old entries of the log."""
        try:
            interval = table.metadata().configuration.get("delta.checkpointInterval")
            if table.version() % int(interval or _CHECKPOINT_INTERVAL) == 0:
                table.create_checkpoint()
                folder = Path(self._path(name)) / "_delta_log"
                sync(*folder.glob(f"{table.version():020d}.checkpoint*"), folder)
                table.cleanup_metadata()
        except _ERRORS as error:
            path = self._path(name)
            log.warning("no new checkpoint of the log of %s could be written: %s", path, error)

    def _has_newer(self, name: str, table: DeltaTable) -> bool:
        """Return True if another program has committed since a version was read."""
        return self._log(name).version() != table.version()

    def _require(self, name: str) -> None:
        if not self.exists(name):
            raise layouts.missing(name, self.location)

    @contextmanager
    def _delta_rs(self, action: str, name: str) -> Iterator[None]:
        try:
            yield
        except _ERRORS as error:
            log.debug("delta-rs cannot %s table %s: %s", action, self._path(name), error)
            raise NeedsSparkError(
                "NEEDS_SPARK",
                f"delta-rs cannot read or write the tables in {self.location}, for example because "
                "one has deletion vectors: use jobs/run_sql.py",
            ) from error

    def _log(self, name: str) -> FolderLog:
        return self._logs.setdefault(name, FolderLog(Path(self._path(name))))

    def _path(self, name: str) -> str:
        return f"{self.location}/{name}"


def open_folder(location: str) -> FolderTables:
    """Return the tables in a folder, read and written by delta-rs alone.

    Args:
        location: path of the folder, or the value of ``spark.stackcast.tables``.

    Raises:
        TableError: NEEDS_SPARK, if the tables are in an object store or in a catalog.
    """
    path = location.removeprefix("file://" if "://" in location else "file:")
    if "://" in path or ("/" not in path and ":" not in path and not Path(path).is_dir()):
        raise NeedsSparkError(
            "NEEDS_SPARK",
            f"the tables are in {location}, which is not a local folder: use jobs/run_sql.py, "
            "which supports object stores and catalogs",
        )
    return FolderTables(path)


def _last_number(table: DeltaTable, writer: str) -> int:
    number = table.transaction_version(writer)
    return -1 if number is None else int(number)


def _all(conditions: Iterator[ds.Expression]) -> ds.Expression | None:
    expressions = list(conditions)
    return reduce(and_, expressions) if expressions else None


def _shaped(rows: Sequence[Row] | pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows as an Arrow table with a schema."""
    if not isinstance(rows, pa.Table):
        return pa.Table.from_pylist(list(rows), schema=schema)
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.schema.names
        else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
