"""Names of tables in the catalog of a session, given without reading the tables.

``CREATE TABLE ... USING delta LOCATION`` reads the log of the table with Spark, which takes tenths
of a second per table. The catalog itself needs only the location: Delta reads the schema and the
properties from the log when a statement uses the name.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from stackcast.udfs.errors import TableError


def put(spark: SparkSession, places: Mapping[str, str | None]) -> None:
    """Give names to Delta tables, all of them or none.

    A name of another external table is given away; that table itself stays as it is.

    Args:
        spark: the session. The schemas of the names exist.
        places: location of each table, by its name with the schema; None if there is no such
            table, so that the name must not mean one of another deployment.

    Raises:
        TableError: NAME_TAKEN, if a name belongs to a table that Spark would delete with its name.
    """
    state: Any = spark._jsparkSession.sessionState()
    catalog = state.catalog()
    identifiers = {name: state.sqlParser().parseTableIdentifier(name) for name in places}
    entries = _Entries(spark)
    new = {}
    outdated = []
    for name, place in places.items():
        location = None if place is None else entries.location(place)
        # Only the catalog is asked: the folder of a table may be gone.
        if catalog.tableExists(identifiers[name]):
            metadata = catalog.getTableMetadata(identifiers[name])
            if place is not None:
                _check_external(name, place, metadata)
            elif not _is_external(metadata):
                continue
            if location is not None and metadata.location().equals(location):
                continue
            outdated.append(name)
        if location is not None:
            new[name] = location
    for name in outdated:
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    for name, location in new.items():
        # With no check of the location, which Spark makes for tables that it creates.
        catalog.createTable(entries.table(identifiers[name], location), False, False)


def _is_external(metadata: Any) -> bool:
    return bool(metadata.tableType().name() == "EXTERNAL")


def _check_external(name: str, place: str, metadata: Any) -> None:
    if not _is_external(metadata):
        kind = metadata.tableType().name()
        raise TableError(
            "NAME_TAKEN",
            f"{name} already exists with type {kind}, but this name is needed for the table in "
            f"{place}: rename the existing object, or set spark.stackcast.tables to the name of "
            "your own schema",
            table=name.rpartition(".")[2],
        )


class _Entries:
    """Makes entries of the catalog, which are records of Scala."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._some = jvm.scala.Option.apply
        self._package = jvm.org.apache.spark.sql.catalyst.catalog
        self._no_columns = jvm.org.apache.spark.sql.types.StructType
        self._tables = getattr(self._package, "CatalogTable$").__getattr__("MODULE$")
        self._defaults = [*_defaults(self._tables, 6)]

    def location(self, place: str) -> Any:
        """Returns the URI of a place."""
        return self._package.CatalogUtils.stringToURI(place)

    def table(self, identifier: Any, location: Any) -> Any:
        """Returns the entry of an external Delta table at a location."""
        formats = self._package.CatalogStorageFormat
        storage = _with_first(formats.empty(), self._some(location))
        return self._tables.apply(
            identifier,
            self._package.CatalogTableType.EXTERNAL(),
            storage,
            self._no_columns(),
            self._some("delta"),
            *(default() for default in self._defaults),
        )


def _defaults(companion: Any, first: int) -> Any:
    """Yields functions that return the defaults of a record's parameters, from a number on."""
    for number in count(first):
        default = getattr(companion, f"apply$default${number}")
        try:
            default()
        except Py4JError:
            return
        yield default


def _with_first(record: Any, value: Any) -> Any:
    """Returns a copy of a record with another first field."""
    others = (record.productElement(index) for index in range(1, record.productArity()))
    return record.copy(value, *others)
