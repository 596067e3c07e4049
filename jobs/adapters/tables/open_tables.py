"""The choice between the implementations of `Tables`, and the fallback from delta-rs to Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app import session
from stackcast.jobs.adapters.app.places import qualified
from stackcast.jobs.adapters.tables.folder_tables import FolderTables, NeedsSparkError
from stackcast.jobs.adapters.tables.spark_tables import SparkTables
from stackcast.jobs.adapters.tables.tables import Action, Number, Row

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

#: Properties of a session that new tables get as defaults.
_DEFAULTS = "spark.databricks.delta.properties.defaults."


def open_tables(spark: SparkSession, location: str) -> SparkTables:
    """Return the tables at a location.

    Args:
        spark: the session. It may be a `LateSession`, which starts only if Spark is needed.
        location: a path with a folder per table (``var/tables``, ``s3a://bucket/stackcast``), or
            the name of a schema (``catalog.schema``).
    """
    location = qualified(spark, location.rstrip("/"))
    if "://" in location or ("/" not in location and ":" not in location):
        return SparkTables(spark, location)
    return _FolderFirst(spark, str(Path(location.removeprefix("file:")).absolute()))


class _FolderFirst(SparkTables):
    """Tables in a folder of this machine: Spark does what delta-rs cannot do."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        super().__init__(spark, location)
        self._folder = FolderTables(location, self._default_properties)

    @property
    def local(self) -> bool:
        return True

    def create(self, *names: str) -> None:
        _first(self._folder.create, super().create)(*names)

    def version(self, name: str) -> int:
        return _first(self._folder.version, super().version)(name)

    def head(self, name: str) -> tuple[str, int]:
        return _first(self._folder.head, super().head)(name)

    def commit(self, name: str, version: int) -> Sequence[Action]:
        return self._folder.commit(name, version)

    def arrow(
        self,
        name: str,
        version: int | None = None,
        since: Mapping[str, Any] | None = None,
        columns: Sequence[str] = (),
    ) -> pa.Table:
        return _first(self._folder.arrow, super().arrow)(name, version, since, columns)

    def rows(
        self,
        name: str,
        version: int | None = None,
        since: Mapping[str, Any] | None = None,
        columns: Sequence[str] = (),
    ) -> list[Row]:
        return _first(self._folder.rows, super().rows)(name, version, since, columns)

    def rows_of_files(self, name: str, files: Sequence[str]) -> list[Row]:
        return _first(self._folder.rows_of_files, super().rows_of_files)(name, files)

    def last_rows(
        self, name: str, key: str, order: str, column: str, since: Mapping[Any, Any]
    ) -> list[Row]:
        return _first(self._folder.last_rows, super().last_rows)(name, key, order, column, since)

    def append(
        self,
        name: str,
        rows: Sequence[Row] | pa.Table,
        transaction: Number | None = None,
        epoch: Number | None = None,
    ) -> bool:
        return _first(self._folder.append, super().append)(name, rows, transaction, epoch)

    def overwrite(self, name: str, rows: Sequence[Row] | pa.Table) -> None:
        _first(self._folder.overwrite, super().overwrite)(name, rows)

    def merge(
        self,
        name: str,
        changed: Sequence[Row],
        gone: Sequence[Row],
        keys: Sequence[str],
        onto: int | None = None,
        unique: Sequence[str] = (),
    ) -> bool:
        return _first(self._folder.merge, super().merge)(name, changed, gone, keys, onto, unique)

    def last_transaction(self, name: str, writer: str) -> int | None:
        return _first(self._folder.last_transaction, super().last_transaction)(name, writer)

    def make_durable(self, name: str, version: int | None = None) -> None:
        self._folder.make_durable(name, self.version(name) if version is None else version)

    def prepare_overwrite(self, name: str) -> None:
        self._folder.prepare_overwrite(name)

    def _catalog_place(self, name: str) -> str | None:
        return f"file:{self._path(name)}" if self._folder.exists(name) else None

    def _default_properties(self) -> Mapping[str, str]:
        return {
            f"delta.{key.removeprefix(_DEFAULTS)}": value
            for key, value in session.configuration(self._spark).items()
            if key.startswith(_DEFAULTS)
        }


def _first(by_delta_rs: Callable[P, T], by_spark: Callable[P, T]) -> Callable[P, T]:
    """Return a function that uses delta-rs, and Spark if delta-rs cannot do it."""

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return by_delta_rs(*args, **kwargs)
        except NeedsSparkError as error:
            log.debug("using Spark: %s", error.__cause__)
            return by_spark(*args, **kwargs)

    return run
