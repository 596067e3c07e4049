"""The topic of a stream as Spark reads it, and the topic for dead letters.

The settings ``spark.stackcast.kafka.*`` are options of Kafka's Java client. They hold for Spark's
connector, for tasks and for the administration of Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.pandas.types import from_arrow_schema

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.client import client_of
from stackcast.jobs.adapters.kafka.open_admin import open_admin
from stackcast.jobs.adapters.kafka.options import FetchOptions, fetch_of, reader_options
from stackcast.jobs.adapters.kafka.ranges import Range
from stackcast.jobs.adapters.kafka.topic_log import TopicLog
from stackcast.udfs.replay.offset_runs import SCHEMA, offset_runs

#: A producer waits for minutes by default if its topic is missing or has too few replicas. Dead
#: letters must not delay frames for minutes.
MAX_BLOCK_MS = 5000
REQUEST_TIMEOUT_MS = 4000
DELIVERY_TIMEOUT_MS = 6000


def impatient(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a producer that gives up within seconds, unless they say otherwise.

    Kafka refuses a limit for deliveries that is shorter than a request and the linger before it.

    Args:
        options: options of the producer.
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
    """The topic of a stream, whose records Spark reads.

    Args:
        spark: session of the job.
        settings: settings of the stream.

    Attributes:
        publishers: publisher that each record of the last read names, by partition and offset.
    """

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        super().__init__(open_admin(spark, settings.kafka), settings)
        self._spark = spark
        self.publishers: dict[tuple[int, int], str] = {}

    def stream(self, timestamps: bool = False, most: int | None = None) -> DataFrame:
        """Return the records as a stream, with one task per partition.

        Args:
            timestamps: whether to add the column timestamp.
            most: maximum number of records per batch.

        Returns:
            Columns partition (int), offset (long) and value (binary), timestamp if it is requested,
            and publisher (binary) if a header names it.
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
            # The last header of a name is valid, as in other clients.
            last = functions.try_element_at(named, functions.lit(-1))["value"]
            columns.append(last.alias("publisher"))
        return columns

    def read_offsets(
        self, partition: int, from_: int, until: int, timestamps: bool = False
    ) -> DataFrame:
        """Return the records of a range of a partition, see `read_spans`."""
        return self.read_spans({partition: (from_, until)}, timestamps)

    def read_spans(
        self, spans: Mapping[int, tuple[int, int]], timestamps: bool = False
    ) -> DataFrame:
        """Return the records of ranges, with the columns of `stream` and one task per partition.

        Tasks or Spark's connector read them, as configured for the stream. Records that Kafka has
        deleted are missing in the result, and the caller has to check for them.

        Args:
            spans: by partition, the first offset, and the offset after the last one.
            timestamps: whether to add the column timestamp.

        Raises:
            KafkaError: see `spans`.
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
        """Return the records of `read_spans`, which tasks fetch."""
        topic, available = self._settings.topic, self.spans() if spans else {}
        ranges = [
            Range(topic, partition, max(begin, first), min(until, end))
            for partition, (begin, until) in spans.items()
            for first, end in [available.get(partition, (until, until))]
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
        """Return all records as (partition, offset, value)."""
        return self.read_timed()[0]

    def read_timed(self) -> tuple[list[tuple[int, int, bytes]], list[int]]:
        """Return all records, and their times in microseconds since 1970."""
        reader = self._spark.read.format("kafka").option("subscribe", self._settings.topic)
        rows = (
            reader.options(**self._options())
            .load()
            .select(*self._columns(timestamps=True))
            .toArrow()
        )
        return self._records(rows), rows.column("timestamp").cast("int64").to_pylist()

    def read_records(self, partition: int, from_: int, until: int) -> list[tuple[int, int, bytes]]:
        """Return the records of a range of a partition as (partition, offset, value)."""
        if from_ >= until:
            return []
        return self._records(self.read_offsets(partition, from_, until).toArrow())

    def _records(self, rows: pa.Table) -> list[tuple[int, int, bytes]]:
        names = ("partition", "offset", "value")
        partitions, offsets, values = (rows.column(name).to_pylist() for name in names)
        records = [(p, o, v or b"") for p, o, v in zip(partitions, offsets, values, strict=True)]
        if self._settings.publisher_header:
            names_of_publishers = rows.column("publisher").to_pylist()
            self.publishers = {
                (p, o): name.decode("latin-1")
                for p, o, name in zip(partitions, offsets, names_of_publishers, strict=True)
                if name is not None
            }
        return records

    def runs(self, spans: Mapping[int, tuple[int, int]]) -> dict[int, list[tuple[int, int]]]:
        """Return by partition the runs of offsets that have a record, in ascending order.

        Args:
            spans: by partition, the first offset, and the offset after the last one.
        """
        runs: dict[int, list[tuple[int, int]]] = {}
        records = self.read_spans(spans).select("partition", "offset")
        rows = records.mapInArrow(offset_runs, from_arrow_schema(SCHEMA)).toArrow()
        for partition, start, until in sorted(zip(*rows.to_pydict().values(), strict=True)):
            runs_of_partition = runs.setdefault(partition, [])
            continues = runs_of_partition and runs_of_partition[-1][1] == start
            first = runs_of_partition.pop()[0] if continues else start
            runs_of_partition.append((first, until))
        return runs

    def write_dead_letters(self, letters: Sequence[dict[str, Any]]) -> None:
        """Write dead letters, one JSON object per record.

        Args:
            letters: dead letters with the keys topic, partition, offset, index (of the message;
                null for a whole packet), reason, length (bytes), sample (first bytes in
                hexadecimal); field if an attribute or a message type is invalid; text if the
                sample is text; publisher, as the record names it, if there are several.
        """
        settings = self._settings
        texts = [(json.dumps({"topic": settings.topic, **letter}),) for letter in letters]
        writer = self._spark.createDataFrame(texts, "value string").write.format("kafka")
        for key, value in impatient(settings.kafka).items():
            writer = writer.option(f"kafka.{key}", value)
        writer.option("topic", settings.dead_letter_topic).save()
