"""Tables in local folders, read and written by delta-rs, in milliseconds instead of the tenths of a
second that a query of Spark takes.

delta-rs supports no other storage, no deletion vectors and only some constraints. In these cases,
and for errors (a missing version, a row that violates a constraint), a function returns None or
False and changes nothing, and the caller uses Spark.
"""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from collections.abc import Mapping, Sequence
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
    Schema,
    Transaction,
    write_deltalake,
)
from deltalake.exceptions import DeltaError
from pyarrow import fs

from stackcast.jobs.adapters.app.places import sync
from stackcast.jobs.adapters.tables.log import LocalLog, added_files

log = logging.getLogger(__name__)

#: An additional column that marks rows to delete.
_GONE = "stackcast_gone"

#: Work after a commit may fail. As part of the write, it would make Spark write the rows again.
_COMMIT_ALONE = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
#: Commits from one checkpoint of a log to the next, unless the table sets it: Delta's default.
_CHECKPOINT_INTERVAL = "10"

#: Properties that make delta-rs require a version of the protocol in which constraints are checked.
_FEATURES = ("delta.enableChangeDataFeed",)

#: Linux writes data to disk after at most half of this time.
_WRITTEN_SECONDS = 60.0

#: Errors of delta-rs and Arrow: FileNotFoundError for a file that VACUUM removed, ValueError and
#: TypeError for values of another type than the column.
_ERRORS = (DeltaError, pa.ArrowException, OSError, ValueError, TypeError)


def create(path: str, schema: str, comment: str, properties: Mapping[str, str]) -> bool:
    """Create a table if it does not exist.

    Args:
        schema: in Spark's JSON.

    Returns:
        False if nothing was created, and Spark must create it.
    """
    # delta-rs requires support for constraints only together with support for change feeds.
    constraints = any(key.startswith("delta.constraints.") for key in properties)
    features = {key for key, value in properties.items() if key in _FEATURES and value == "true"}
    try:
        if constraints and not features:
            _commit_constrained(Path(path), schema, comment, properties)
            return True
        DeltaTable.create(
            path,
            Schema.from_json(schema),
            mode="ignore",
            description=comment,
            configuration=dict(properties),
            raise_if_key_not_exists=False,
        )
    except _ERRORS as error:
        log.debug("using Spark to create %s: %s", path, error)
        return False
    return True


def _commit_constrained(
    path: Path, schema: str, comment: str, properties: Mapping[str, str]
) -> None:
    """Commit version 0 of a table whose only feature is constraints, unless the table exists.

    Raises:
        OSError: the commit could not be written.
    """
    now = time.time_ns() // 1_000_000
    actions = (
        {
            "commitInfo": {
                "timestamp": now,
                "operation": "CREATE TABLE",
                "operationParameters": {"properties": json.dumps(dict(properties))},
                "engineInfo": "Stackcast",
            }
        },
        # Writers of this version check constraints.
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 3}},
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "description": comment,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": schema,
                "partitionColumns": [],
                "configuration": dict(properties),
                "createdTime": now,
            }
        },
    )
    log_folder = path / "_delta_log"
    log_folder.mkdir(parents=True, exist_ok=True)
    if any(log_folder.glob("*.json")):
        return
    complete = log_folder / f".{uuid.uuid4()}.tmp"
    complete.write_text("".join(json.dumps(action) + "\n" for action in actions))
    try:
        # Fails if another program has just committed this version.
        os.link(complete, log_folder / f"{0:020d}.json")
    except FileExistsError:
        log.debug("%s exists", path)
    finally:
        complete.unlink()


def properties(path: str) -> dict[str, str] | None:
    """Returns the properties of a table, or None if Spark must read them."""
    try:
        return dict(DeltaTable(path).metadata().configuration)
    except _ERRORS as error:
        log.debug("using Spark to read the properties of %s: %s", path, error)
        return None


def schema(path: str, version: int | None = None) -> str | None:
    """Returns the schema of a table in Spark's JSON, or None if Spark must read it."""
    try:
        return DeltaTable(path, version).schema().to_json()
    except _ERRORS as error:
        log.debug("using Spark to read the schema of %s: %s", path, error)
        return None


def has_no_files(path: str) -> bool:
    """Returns True if the newest version of a table has no file, and so no row; False if it has
    one, or if Spark must find out."""
    try:
        return not DeltaTable(path).file_uris()
    except _ERRORS as error:
        log.debug("using Spark to find files of %s: %s", path, error)
        return False


def dataset(path: str, version: int | None = None) -> ds.Dataset:
    """Returns the Arrow dataset of a table (version: the newest by default).

    It reads files by Arrow's own file system. By default, delta-rs reads them by one in Python;
    Arrow's threads may still close its files when the program ends, and the program then aborts.
    """
    files = fs.SubTreeFileSystem(path, fs.LocalFileSystem())
    return DeltaTable(path, version).to_pyarrow_dataset(filesystem=files)


def rows(
    path: str,
    version: int | None = None,
    since: Mapping[str, Any] | None = None,
    columns: Sequence[str] = (),
) -> list[dict[str, Any]] | None:
    """Returns the rows of a table, or None if Spark must read them.

    Args:
        version: the newest by default.
        since: lower bounds of columns; only rows that meet all of them are read.
        columns: columns to read; all by default.
    """
    try:
        conditions = [ds.field(name) >= value for name, value in (since or {}).items()]
        condition = reduce(and_, conditions) if conditions else None
        return _pylist(dataset(path, version).to_table(list(columns) or None, filter=condition))
    except _ERRORS as error:
        log.debug("using Spark to read %s: %s", path, error)
        return None


def is_empty(path: str) -> bool | None:
    """Returns whether a table has no rows, or None if Spark must look."""
    try:
        return bool(dataset(path).head(1).num_rows == 0)
    except _ERRORS as error:
        log.debug("using Spark to read %s: %s", path, error)
        return None


def last_of_each(
    path: str, key: str, order: str, column: str, since: Mapping[Any, Any]
) -> list[dict[str, Any]] | None:
    """Returns ``column`` of the last row, by ``order``, of each value of ``key``.

    Args:
        since: lower bound of ``order`` for some keys; earlier rows of these keys are not read.

    Returns:
        The rows, or None if Spark must read them.
    """
    try:
        conditions = [
            (ds.field(key) != value) | (ds.field(order) >= least) for value, least in since.items()
        ]
        condition = reduce(and_, conditions) if conditions else None
        found = dataset(path).to_table([key, order, column], filter=condition)
        places = pc.sort_indices(found, [(order, "ascending")])
        last = dict(zip(found[key].take(places).to_pylist(), places.to_pylist(), strict=True))
        return _pylist(found.take(list(last.values())))
    except _ERRORS as error:
        log.debug("using Spark to read %s: %s", path, error)
        return None


def rows_of_files(path: str, files: list[str]) -> list[dict[str, Any]] | None:
    """Returns the rows of files in the table's folder, or None if Spark must read them."""
    try:
        schema = pa.schema(DeltaTable(path).schema().to_arrow())
        found = ds.dataset([f"{path}/{file}" for file in files], schema, format="parquet")
        return _pylist(found.to_table())
    except _ERRORS as error:
        log.debug("using Spark to read %d files of %s: %s", len(files), path, error)
        return None


def write(
    path: str,
    rows: list[dict[str, Any]] | pa.Table,
    mode: Literal["append", "overwrite"],
    transaction: tuple[str, int] | None = None,
    epoch: tuple[str, int] | None = None,
) -> bool:
    """Append rows or replace all of them, in one commit.

    Args:
        rows: an Arrow table may have fewer columns, which are null, or more, which are ignored.
        transaction: (writer, number); each number of a writer is committed once.
        epoch: (role, number); nothing is written if a commit has a higher number of the role.

    Returns:
        False if nothing was written, and Spark must write or report the error.
    """
    try:
        table = DeltaTable(path)
        given = [each for each in (transaction, epoch) if each is not None]
        counted = {writer: table.transaction_version(writer) for writer, _ in given}
        known = {writer: -1 if last is None else last for writer, last in counted.items()}
        if epoch is not None and known[epoch[0]] > epoch[1]:
            return False
        if transaction is not None and known[transaction[0]] >= transaction[1]:
            return True
        # The commit fails if another program commits one of these in the meantime.
        commit = CommitProperties(app_transactions=[Transaction(*each) for each in given])
        write_deltalake(
            table,
            _shaped(rows, pa.schema(table.schema().to_arrow())),
            mode=mode,
            commit_properties=commit,
            post_commithook_properties=_COMMIT_ALONE,
        )
    except _ERRORS as error:
        log.debug("using Spark to write %s: %s", path, error)
        return False
    _keep_log_short(path, table)
    return True


def last_transaction(path: str, writer: str) -> int | None:
    """Returns the last committed number of a writer, -1 without any, or None if Spark must read it.

    Args:
        writer: as in ``transaction`` of `write`.
    """
    try:
        known = DeltaTable(path).transaction_version(writer)
    except _ERRORS as error:
        log.debug("using Spark to find transactions in %s: %s", path, error)
        return None
    return -1 if known is None else int(known)


def merge(
    path: str,
    changed: list[dict[str, Any]],
    gone: list[dict[str, Any]],
    keys: tuple[str, ...],
    onto: int | None = None,
) -> int | None:
    """Insert or update ``changed`` and delete ``gone`` rows, by their keys, in one commit.

    Args:
        onto: version that must be the newest one.

    Returns:
        The number of rows that changed, and nothing is committed for 0; None if nothing was
        written, because of a version after ``onto`` or because Spark must write them.
    """
    try:
        table = DeltaTable(path, version=onto)
        schema = pa.schema(table.schema().to_arrow())
        wanted = pa.Table.from_pylist(changed + gone, schema=schema)
        column = pa.array([False] * len(changed) + [True] * len(gone))
        same = " AND ".join(f"held.{key} = wanted.{key}" for key in keys)
        columns = {name: f"wanted.{name}" for name in schema.names}
        made: dict[str, int] = (
            table.merge(
                wanted.append_column(_GONE, column),
                same,
                "wanted",
                "held",
                # Without retries, no other commit can come between version ``onto`` and this one.
                commit_properties=None if onto is None else CommitProperties(max_commit_retries=0),
                post_commithook_properties=_COMMIT_ALONE,
            )
            .when_matched_delete(f"wanted.{_GONE}")
            .when_matched_update(columns)
            .when_not_matched_insert(columns, f"NOT wanted.{_GONE}")
            .execute()
        )
    except _ERRORS as error:
        log.debug("using Spark to merge into %s: %s", path, error)
        return None
    _keep_log_short(path, table)
    return sum(made[f"num_target_rows_{done}"] for done in ("inserted", "updated", "deleted"))


def make_durable(path: str, version: int, after: int) -> None:
    """Write a version to disk, so that it survives a power failure; delta-rs and Spark do not.

    This concerns its commit, earlier ones back to ``after`` or to old ones, and their files.

    Raises:
        OSError: a file could not be written.
    """
    table, log_of = Path(path), LocalLog(Path(path))
    folders: set[Path] = set()
    for number in range(version, after, -1):
        commit = table / "_delta_log" / f"{number:020d}.json"
        if not commit.exists() or time.time() - commit.stat().st_mtime > _WRITTEN_SECONDS:
            break
        files = [table / name for name in added_files(log_of.commit(number)) or ()]
        # A file that was added and replaced since no longer exists.
        for place in filter(Path.exists, files):
            folders.add(place.parent)
            sync(place)
        folders.add(commit.parent)
        sync(commit)
    sync(*folders)


def _keep_log_short(path: str, table: DeltaTable) -> None:
    """Write a checkpoint of the log if one is due, and remove old entries of the log."""
    try:
        every = table.metadata().configuration.get("delta.checkpointInterval")
        if table.version() % int(every or _CHECKPOINT_INTERVAL) == 0:
            table.create_checkpoint()
            folder = Path(path) / "_delta_log"
            sync(*folder.glob(f"{table.version():020d}.checkpoint*"), folder)
            table.cleanup_metadata()
    except _ERRORS as error:
        log.warning("no new checkpoint of the log of %s could be written: %s", path, error)


def _shaped(rows: list[dict[str, Any]] | pa.Table, schema: pa.Schema) -> pa.Table:
    if not isinstance(rows, pa.Table):
        return pa.Table.from_pylist(rows, schema=schema)
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.schema.names
        else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _pylist(table: pa.Table) -> list[dict[str, Any]]:
    names = table.schema.names
    columns = (_values(column) for column in table.columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        # Arrow's own conversion takes 3 us per value, because it creates two objects.
        times: list[Any] = column.to_pandas(timestamp_as_object=True).tolist()
        return times
    found: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    return found
