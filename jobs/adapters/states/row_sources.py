"""What `jobs/state_stream.py` publishes: a table by its change data feed, or a Kafka topic."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from hashlib import blake2b

from pyspark.sql import DataFrame, DataFrameReader, SparkSession, functions
from pyspark.sql.functions import col
from pyspark.sql.streaming import DataStreamReader

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS
from stackcast.jobs.adapters.kafka.options import reader_options
from stackcast.jobs.adapters.states.client import StatesClient
from stackcast.jobs.adapters.states.metrics import PublisherMetrics
from stackcast.jobs.adapters.states.row_states import (
    STATES,
    StateFilters,
    StateNames,
    table_values,
    touched,
)
from stackcast.jobs.adapters.tables.definitions import NAMES
from stackcast.jobs.adapters.tables.spark_tables import SparkTables
from stackcast.udfs.errors import StateError, TableError

log = logging.getLogger(__name__)

FLUSH_SECONDS = 5.0
MOST_ON_THE_WAY = 500
"""Updates that are published before the first of them is known to be safe: a middleware keeps some
more than that for the replica controller."""


class SafePublisher:
    """Publishes by a client, and waits until the replica controller has it, or for a stop."""

    def __init__(
        self, client: StatesClient, metrics: PublisherMetrics, stopping: Callable[[], bool]
    ) -> None:
        self._client, self._metrics, self._stopping = client, metrics, stopping
        self._on_the_way = 0

    def put(self, state: str, data: bytes) -> bool:
        """Publishes a state; returns False where it is too large: replicas keep what they have."""
        try:
            self._client.publish(state, data)
        except StateError as error:
            self._metrics.refused()
            log.error("state %s was not published: %s", state, error)
            return False
        self._metrics.published(len(data))
        self._on_the_way += 1
        if self._on_the_way >= MOST_ON_THE_WAY:
            self.flush()
        return True

    def flush(self) -> None:
        """Returns when all is safe. Raises StateError NOT_CONFIRMED where a stop comes before."""
        while True:
            try:
                self._client.flush(FLUSH_SECONDS)
                self._on_the_way = 0
                self._metrics.confirmed()
                return
            except StateError as error:
                if self._stopping():
                    raise
                log.warning("%s", error)


class TableSource:
    """The rows of a table: each state is a JSON array of all of its rows, and published anew where
    one of them has come, gone or changed.

    name: of a table of ours, of one of a catalog (``catalog.schema.table``), or a path. Raises
    TableError MISSING, NO_CHANGE_FEED.
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        names: StateNames,
        filters: StateFilters,
        publisher: SafePublisher,
        tables: SparkTables,
    ) -> None:
        self._spark, self._name, self._tables = spark, name, tables
        self._names, self._filters, self._publisher = names, filters, publisher
        self._lock = threading.Lock()
        self._version: int | None = None
        self._digests: dict[str, bytes] = {}
        if self._properties().get("delta.enableChangeDataFeed") != "true":
            raise TableError(
                "NO_CHANGE_FEED",
                f"table {name} has no change data feed, which is needed to follow its changes: "
                "ALTER TABLE ... SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
                table=name,
            )

    def _properties(self) -> dict[str, str]:
        if self._name in NAMES:
            self._tables.version(self._name)
        where = f"delta.`{self._place}`" if self._is_path else self._place
        try:
            found = self._spark.sql(f"DESCRIBE DETAIL {where}").collect()[0]
        except SQL_ERRORS as error:
            raise TableError(
                "MISSING",
                f"there is no Delta table {self._name}: {one_line(error)}",
                table=self._name,
            ) from error
        return dict(found["properties"])

    @property
    def _place(self) -> str:
        if self._name not in NAMES:
            return self._name
        return self._tables.place(self._name)

    @property
    def _is_path(self) -> bool:
        return "/" in self._place

    def _load(self, reader: DataFrameReader | DataStreamReader) -> DataFrame:
        return reader.load(self._place) if self._is_path else reader.table(self._place)

    def begin(self, program: str) -> None:
        """Publishes all states there are, as of now; as empty ones those that a program of this
        name has published before, and that no row is in any more."""
        where = f"delta.`{self._place}`" if self._is_path else self._place
        version = int(self._spark.sql(f"DESCRIBE HISTORY {where} LIMIT 1").collect()[0]["version"])
        ours = {row["vnf"] for row in self._tables.rows("vnfs") if row["name"] == program}
        by_us = {
            row["state"] for row in self._tables.rows("state_publishers") if row["vnf"] in ours
        }
        known = {row["name"] for row in self._tables.rows("states") if row["state"] in by_us}
        with self._lock:
            rows = self._rows(version)
            self._filters.refresh(rows.schema)
            if not self._names.by:
                known |= self._names.whole(self._filters.valid)
            self._publish(rows, known | touched(rows, self._names, self._filters.valid))
            self._version = version

    def stream(self) -> DataFrame:
        """Returns the rows there are as a stream, and then their changes."""
        reader = self._spark.readStream.format("delta").option("readChangeFeed", "true")
        return self._load(reader)

    def take(self, changes: DataFrame) -> None:
        """Publishes the states that a batch of changes touches, as of its newest version."""
        newest = functions.max("_commit_version").alias("version")
        version = changes.agg(newest).collect()[0]["version"]
        if version is None:
            return
        with self._lock:
            rows = self._rows(version)
            self._refilter(rows)
            images = changes.select(*rows.columns)
            self._publish(rows, touched(images, self._names, self._filters.valid))
            self._version = version

    def look(self) -> None:
        """Publishes the states of filters that have changed; called some times a second."""
        with self._lock:
            if self._version is not None and self._filters.is_stale():
                self._refilter(self._rows(self._version))

    def _rows(self, version: int) -> DataFrame:
        reader = self._spark.read.format("delta").option("versionAsOf", version)
        return self._load(reader)

    def _refilter(self, rows: DataFrame) -> None:
        changed = self._filters.refresh(rows.schema)
        if changed:
            plain = touched(rows, self._names, ())
            if not self._names.by:
                plain |= self._names.whole(())
            self._publish(rows, {f"{name}?{each}" for name in plain for each in changed})

    def _publish(self, rows: DataFrame, states: set[str]) -> None:
        if not states:
            return
        wanted = self._spark.createDataFrame([(name,) for name in sorted(states)], "state string")
        made = table_values(rows, self._names, self._filters.valid).join(wanted, "state", "semi")
        values = dict.fromkeys(states, "[]")
        values |= {row["state"]: row["value"] for row in made.toArrow().to_pylist()}
        for state, value in sorted(values.items()):
            data = value.encode()
            digest = blake2b(data, digest_size=16).digest()
            # What a batch that comes again has published before is left out.
            if self._digests.get(state) != digest and self._publisher.put(state, data):
                self._digests[state] = digest
        self._publisher.flush()


class TopicSource:
    """The records of a topic: each is an update of its states, as it came.

    columns: of the JSON in its values, as ``scanner INT, rssi INT``, for names and filters; empty:
    there are ``key`` (text), ``partition``, ``offset`` and ``timestamp`` alone.
    """

    def __init__(
        self,
        spark: SparkSession,
        topic: str,
        names: StateNames,
        filters: StateFilters,
        publisher: SafePublisher,
        columns: str,
        options: Mapping[str, str],
        most: int,
    ) -> None:
        self._spark, self._topic, self._columns = spark, topic, columns
        self._names, self._filters, self._publisher = names, filters, publisher
        self._options, self._most = options, most

    def begin(self, program: str) -> None:
        """There is nothing to publish but records."""

    def stream(self) -> DataFrame:
        """Returns its records as a stream."""
        reader = self._spark.readStream.format("kafka").option("subscribe", self._topic)
        reader = reader.option("startingOffsets", "earliest")
        reader = reader.option("maxOffsetsPerTrigger", self._most)
        records = reader.options(**reader_options(self._options)).load()
        found = [
            col("key").cast("string").alias("key"),
            *("partition", "offset", "timestamp"),
            col("value").alias("_value"),
        ]
        if self._columns:
            said = functions.from_json(col("value").cast("string"), self._columns)
            return records.withColumn("_said", said).select(*found, "_said.*")
        return records.select(*found)

    def take(self, records: DataFrame) -> None:
        """Publishes the records of a batch, those of a partition in their order."""
        fields = records.drop("_value")
        self._filters.refresh(fields.schema)
        named = self._names.of(records, self._filters.valid)
        ordered = named.select(STATES, "_value").orderBy("partition", "offset")
        for row in ordered.toArrow().to_pylist():
            for state in row[STATES]:
                self._publisher.put(state, row["_value"] or b"")
        self._publisher.flush()

    def look(self) -> None:
        """Filters that have changed are for records from the next batch on."""
