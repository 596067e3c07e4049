"""The newest records of a topic, straight from Kafka's brokers: no task of Spark's is asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import closing

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.client import Fetcher
from stackcast.jobs.adapters.kafka.options import fetch_options
from stackcast.jobs.adapters.kafka.ranges import Range
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.udfs.messages.buffers import Batch

#: Whoever looks at a page does not wait for longer, seconds.
PATIENCE = 10.0


class NewestRecords:
    """Reads the topics of one deployment. For any thread."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark = spark
        self._settings = settings

    def read(self, count: int, topic: str = "") -> Iterator[Batch]:
        """Yields the last records of a topic, that of events by default, about as many of each
        partition, ``count`` in all at most.

        Raises SettingsError NO_BROKER; KafkaError as `Topics.spans` and `Fetcher.batches`, and
        CONNECTOR_USED.
        """
        settings = self._settings
        settings.require_broker()
        settings = dataclasses.replace(settings, topic=topic or settings.topic)
        options = fetch_options(settings.kafka, settings.publisher_header)
        options = dataclasses.replace(options, patience=PATIENCE)
        spans = Topics(self._spark, settings).spans()
        share = max(1, count // max(1, len(spans)))
        with closing(Fetcher(options)) as fetcher:
            for partition, (begin, end) in sorted(spans.items()):
                if begin < end:
                    first = max(begin, end - share)
                    yield from fetcher.batches(Range(settings.topic, partition, first, end))
