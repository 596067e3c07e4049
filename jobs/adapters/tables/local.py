"""Tables in folders of this machine, read and written by delta-rs: milliseconds where a query of
Spark takes some tenths of a second.

What it cannot do (other storage, deletion vectors, constraints that it does not know) or finds
wrong (a version that is gone, a row that a constraint forbids) is for Spark to do or to say: each
function then answers None or False, and nothing has changed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
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

from jobs.adapters.app.places import sync
from jobs.adapters.tables.log import LocalLog, added_files

log = logging.getLogger(__name__)

#: A column beside a table's own.
_GONE = "stackcast_gone"

#: What may fail behind a commit is no part of it, or Spark would write again what is written.
_COMMIT_ALONE = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
#: Commits from one checkpoint of a log to the next, where the table does not say: Delta's own.
_CHECKPOINT_INTERVAL = "10"

#: What is older Linux has written by itself: it lets nothing wait for longer than half of it.
_WRITTEN_SECONDS = 60.0

#: What delta-rs and Arrow raise: FileNotFoundError for a file that VACUUM has taken, ValueError and
#: TypeError for values that are not of the column's type.
_ERRORS = (DeltaError, pa.ArrowException, OSError, ValueError, TypeError)


def create(path: str, schema: str, comment: str, properties: Mapping[str, str]) -> bool:
    """Make a table where there is none.

    schema: as Spark writes it in JSON. False: nothing is made, ask Spark.
    """
    # delta-rs asks writers to know constraints only where they must know change feeds, too.
    constraints = any(key.startswith("delta.constraints.") for key in properties)
    if constraints and properties.get("delta.enableChangeDataFeed") != "true":
        return False
    try:
        DeltaTable.create(
            path,
            Schema.from_json(schema),
            mode="ignore",
            description=comment,
            configuration=dict(properties),
            raise_if_key_not_exists=False,
        )
    except _ERRORS as error:
        log.debug("Spark makes %s: %s", path, error)
        return False
    return True


def properties(path: str) -> dict[str, str] | None:
    """The properties that a table was given. None: ask Spark."""
    try:
        return dict(DeltaTable(path).metadata().configuration)
    except _ERRORS as error:
        log.debug("Spark reads the properties of %s: %s", path, error)
        return None


def dataset(path: str, version: int | None = None) -> ds.Dataset:
    """Returns the Arrow dataset of a table (version: the newest by default).

    It reads files by Arrow's own file system. By default, delta-rs reads them by one in Python;
    Arrow's threads may still close its files when the program ends, and the program then aborts.
    """
    files = fs.SubTreeFileSystem(path, fs.LocalFileSystem())
    return DeltaTable(path, version).to_pyarrow_dataset(filesystem=files)


def rows(
    path: str, version: int | None = None, since: Mapping[str, Any] | None = None
) -> list[dict[str, Any]] | None:
    """The rows of a table as dictionaries, as of a version (the newest by default).

    since: only those whose columns are at least these values. None: ask Spark.
    """
    try:
        conditions = [ds.field(name) >= value for name, value in (since or {}).items()]
        condition = reduce(and_, conditions) if conditions else None
        return _pylist(dataset(path, version).to_table(filter=condition))
    except _ERRORS as error:
        log.debug("Spark reads %s: %s", path, error)
        return None


def last_of_each(
    path: str, key: str, order: str, column: str, since: Mapping[Any, Any]
) -> list[dict[str, Any]] | None:
    """``column`` of the last row, by ``order``, of each value of ``key``.

    since: an order for some keys, before which their rows are not looked at. None: ask Spark.
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
        log.debug("Spark reads %s: %s", path, error)
        return None


def rows_of_files(path: str, files: list[str]) -> list[dict[str, Any]] | None:
    """The rows of some of a table's files, named from its folder on. None: ask Spark."""
    try:
        schema = pa.schema(DeltaTable(path).schema().to_arrow())
        found = ds.dataset([f"{path}/{file}" for file in files], schema, format="parquet")
        return _pylist(found.to_table())
    except _ERRORS as error:
        log.debug("Spark reads %d files of %s: %s", len(files), path, error)
        return None


def write(
    path: str,
    rows: list[dict[str, Any]] | pa.Table,
    mode: Literal["append", "overwrite"],
    transaction: tuple[str, int] | None = None,
    epoch: tuple[str, int] | None = None,
) -> bool:
    """Append rows or replace all, in one commit. With ``transaction`` = (writer, number), each
    number counts once; with ``epoch`` = (role, number), no commit has a higher one of the role.

    Columns that an Arrow table lacks are null; those that only it has are left out. False: nothing
    is written, ask Spark.
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
        # Where another commit of one of these comes in between, this one fails.
        commit = CommitProperties(app_transactions=[Transaction(*each) for each in given])
        write_deltalake(
            table,
            _shaped(rows, pa.schema(table.schema().to_arrow())),
            mode=mode,
            commit_properties=commit,
            post_commithook_properties=_COMMIT_ALONE,
        )
    except _ERRORS as error:
        log.debug("Spark writes %s: %s", path, error)
        return False
    _keep_log_short(path, table)
    return True


def last_transaction(path: str, writer: str) -> int | None:
    """The last number of a writer of `write` that counted, -1 where there is none. None: ask
    Spark."""
    try:
        known = DeltaTable(path).transaction_version(writer)
    except _ERRORS as error:
        log.debug("Spark looks for transactions in %s: %s", path, error)
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

    Returns how many rows of the table this concerned; without any, nothing is committed. None:
    nothing is written, as the table is beyond version ``onto``, or for Spark to write or explain.
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
                # Of a version that was named delta-rs lets no other commit be the next.
                commit_properties=None if onto is None else CommitProperties(max_commit_retries=0),
                post_commithook_properties=_COMMIT_ALONE,
            )
            .when_matched_delete(f"wanted.{_GONE}")
            .when_matched_update(columns)
            .when_not_matched_insert(columns, f"NOT wanted.{_GONE}")
            .execute()
        )
    except _ERRORS as error:
        log.debug("Spark merges into %s: %s", path, error)
        return None
    _keep_log_short(path, table)
    return sum(made[f"num_target_rows_{done}"] for done in ("inserted", "updated", "deleted"))


def make_durable(path: str, version: int, after: int) -> None:
    """Has a version be there after a power failure: its commit, those before it, back to ``after``
    or to what is old, and their files. Neither delta-rs nor Spark sees to that. Raises OSError."""
    table, log_of = Path(path), LocalLog(Path(path))
    folders: set[Path] = set()
    for number in range(version, after, -1):
        commit = table / "_delta_log" / f"{number:020d}.json"
        if not commit.exists() or time.time() - commit.stat().st_mtime > _WRITTEN_SECONDS:
            break
        files = [table / name for name in added_files(log_of.commit(number)) or ()]
        # Of one that was added and replaced since, nothing is left to see to.
        for place in filter(Path.exists, files):
            folders.add(place.parent)
            sync(place)
        folders.add(commit.parent)
        sync(commit)
    sync(*folders)


def _keep_log_short(path: str, table: DeltaTable) -> None:
    """Writes a checkpoint of the log where one is due, and removes what is too old of it."""
    try:
        every = table.metadata().configuration.get("delta.checkpointInterval")
        if table.version() % int(every or _CHECKPOINT_INTERVAL) == 0:
            table.create_checkpoint()
            folder = Path(path) / "_delta_log"
            sync(*folder.glob(f"{table.version():020d}.checkpoint*"), folder)
            table.cleanup_metadata()
    except _ERRORS as error:
        log.warning("the log of %s has no new checkpoint: %s", path, error)


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
        # Arrow makes an object of its own for each, and that a time: 3 us.
        times: list[Any] = column.to_pandas(timestamp_as_object=True).tolist()
        return times
    found: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    return found
