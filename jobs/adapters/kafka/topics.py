"""Kafka as the jobs use it: the source of raw packets and the topic of dead letters.

One set of options (``spark.stackcast.kafka.*``) serves Spark's connector and the administrative
client, which is the JVM's own, so TLS and SASL are configured once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.pandas.types import from_arrow_schema

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.client import Range, client_of
from stackcast.jobs.adapters.kafka.open_admin import open_admin
from stackcast.jobs.adapters.kafka.options import FetchOptions, fetch_of, reader_options
from stackcast.jobs.adapters.kafka.topic_log import TopicLog
from stackcast.udfs.replay.offset_runs import SCHEMA, offset_runs

#: Without a topic, or without enough replicas of it, a producer would wait for minutes: nothing
#: that is written beside the frames is worth that.
MAX_BLOCK_MS = 5000
REQUEST_TIMEOUT_MS = 4000
DELIVERY_TIMEOUT_MS = 6000


def impatient(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of a producer that gives up within seconds, where ``options`` set nothing
    else.

    Kafka refuses a delivery that may take less long than a request and the linger before it.
    """
    request = int(options.get("request.timeout.ms", REQUEST_TIMEOUT_MS))
    least = request + int(options.get("linger.ms", 0))
    return {
        "max.block.ms": str(MAX_BLOCK_MS),
        "request.timeout.ms": str(request),
        "delivery.timeout.ms": str(max(DELIVERY_TIMEOUT_MS, least)),
        **options,
    }


class Topics(TopicLog):
    """The topics of one deployment."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        super().__init__(open_admin(spark, settings.kafka), settings)
        self._spark = spark
        #: What the header says of each record, by partition and offset, as of `read_timed`.
        self.publishers: dict[tuple[int, int], str] = {}

    def stream(self, timestamps: bool = False, most: int | None = None) -> DataFrame:
        """Raw packets as a stream: partition (int), offset (long), value (binary).

        With ``timestamps`` also timestamp, the record's, and, where a header names publishers,
        publisher (binary). A partition is the work of one task. A batch has so many records at
        ``most``.
        """
        settings = self._settings
        reader = (
            self._spark.readStream.format("kafka")
            .option("subscribe", settings.topic)
            .option("startingOffsets", settings.starting_offsets)
            .option("failOnDataLoss", "true")
        )
        if most is not None:
            reader = reader.option("maxOffsetsPerTrigger", most)
        return reader.options(**self._options()).load().select(*self._columns(timestamps))

    def _options(self) -> dict[str, str]:
        options = reader_options(self._settings.kafka)
        if self._settings.publisher_header:
            options["includeHeaders"] = "true"
        return options

    def _columns(self, timestamps: bool) -> list[Any]:
        columns: list[Any] = ["partition", "offset", "value"]
        if timestamps:
            columns.append("timestamp")
        if name := self._settings.publisher_header:
            named = functions.filter("headers", lambda header: header["key"] == functions.lit(name))
            # As others read headers, the last of a name counts.
            last = functions.try_element_at(named, functions.lit(-1))["value"]
            columns.append(last.alias("publisher"))
        return columns

    def read_offsets(
        self, partition: int, from_: int, until: int, timestamps: bool = False
    ) -> DataFrame:
        """The records of a partition from one offset up to another, as `read_spans`."""
        return self.read_spans({partition: (from_, until)}, timestamps)

    def read_spans(
        self, spans: Mapping[int, tuple[int, int]], timestamps: bool = False
    ) -> DataFrame:
        """The records of partitions from one offset up to another, with columns as of `stream`.

        They are read as the stream reads them: by tasks that fetch, or by Spark's connector.
        Records that are gone are left out: look whether all are there. A partition is the work of
        one task. Raises as `spans`, which tasks that fetch need once per call. Batches and slices
        of the stream do not need it: they read what was planned, and end if it is gone.
        """
        options = fetch_of(self._settings)
        if not isinstance(options, str):
            return self._fetched(options, spans, timestamps)
        topic = self._settings.topic
        columns = self._columns(timestamps)
        if not spans:
            kinds = (
                "partition int, offset bigint, value binary, timestamp timestamp, "
                "headers array<struct<key: string, value: binary>>"
            )
            return self._spark.createDataFrame([], kinds).select(*columns)
        starts, ends = ({str(p): span[end] for p, span in spans.items()} for end in (0, 1))
        reader = (
            self._spark.read.format("kafka")
            .option("assign", json.dumps({topic: sorted(spans)}))
            .option("startingOffsets", json.dumps({topic: starts}))
            .option("endingOffsets", json.dumps({topic: ends}))
            .option("failOnDataLoss", "false")
        )
        return reader.options(**self._options()).load().select(*columns)

    def _fetched(
        self, options: FetchOptions, spans: Mapping[int, tuple[int, int]], timestamps: bool
    ) -> DataFrame:
        """Returns the records of `read_spans`, which tasks fetch."""
        topic, there = self._settings.topic, self.spans() if spans else {}
        ranges = [
            Range(topic, partition, max(begin, first), min(until, end))
            for partition, (begin, until) in spans.items()
            for first, end in [there.get(partition, (until, until))]
            if max(begin, first) < min(until, end)
        ]
        fields = [
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("value", pa.binary()),
            *([("timestamp", pa.timestamp("us", "UTC"))] if timestamps else []),
            *([("publisher", pa.binary())] if options.header else []),
        ]
        names = [name for name, _ in fields]

        def fetch(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in numbers:
                for number in batch.column("id").to_pylist():
                    for read in client_of(options).batches(ranges[number]):
                        yield read.to_arrow().select(names)

        numbers = self._spark.range(0, len(ranges), 1, max(1, len(ranges)))
        return numbers.mapInArrow(fetch, from_arrow_schema(pa.schema(fields)))

    def read_all(self) -> list[tuple[int, int, bytes]]:
        """Every record of the raw topic, (partition, offset, value), brought to the driver."""
        return self.read_timed()[0]

    def read_timed(self) -> tuple[list[tuple[int, int, bytes]], list[int]]:
        """As `read_all`, and the records' timestamps, microseconds since 1970."""
        reader = self._spark.read.format("kafka").option("subscribe", self._settings.topic)
        rows = (
            reader.options(**self._options())
            .load()
            .select(*self._columns(timestamps=True))
            .toArrow()
        )
        return self._records(rows), rows.column("timestamp").cast("int64").to_pylist()

    def read_records(self, partition: int, from_: int, until: int) -> list[tuple[int, int, bytes]]:
        """As `read_all`, the records from one offset of a partition up to another; `publishers`
        are those of these alone."""
        if from_ >= until:
            return []
        return self._records(self.read_offsets(partition, from_, until).toArrow())

    def _records(self, rows: pa.Table) -> list[tuple[int, int, bytes]]:
        names = ("partition", "offset", "value")
        partitions, offsets, values = (rows.column(name).to_pylist() for name in names)
        records = [(p, o, v or b"") for p, o, v in zip(partitions, offsets, values, strict=True)]
        if self._settings.publisher_header:
            told = rows.column("publisher").to_pylist()
            self.publishers = {
                (p, o): name.decode("latin-1")
                for p, o, name in zip(partitions, offsets, told, strict=True)
                if name is not None
            }
        return records

    def runs(self, spans: Mapping[int, tuple[int, int]]) -> dict[int, list[tuple[int, int]]]:
        """By partition, the offsets from one up to another that have a record: runs (from, until),
        ascending."""
        found: dict[int, list[tuple[int, int]]] = {}
        records = self.read_spans(spans).select("partition", "offset")
        rows = records.mapInArrow(offset_runs, from_arrow_schema(SCHEMA)).toArrow()
        for partition, start, until in sorted(zip(*rows.to_pydict().values(), strict=True)):
            mine = found.setdefault(partition, [])
            goes_on = mine and mine[-1][1] == start
            mine.append((mine.pop()[0] if goes_on else start, until))
        return found

    def write_dead_letters(self, letters: Sequence[dict[str, Any]]) -> None:
        """Send dead letters: one JSON object a record.

        Keys: topic, partition, offset, index (of the message; null for a whole packet), reason,
        length (bytes), sample (hexadecimal, the first bytes); field, if an attribute or a type of
        message is at fault; text, if the sample is text; publisher, as the record names it, where
        there are several.
        """
        settings = self._settings
        texts = [(json.dumps({"topic": settings.topic, **letter}),) for letter in letters]
        writer = self._spark.createDataFrame(texts, "value string").write.format("kafka")
        for key, value in impatient(settings.kafka).items():
            writer = writer.option(f"kafka.{key}", value)
        writer.option("topic", settings.dead_letter_topic).save()
