"""The newest records of a topic, straight from Kafka's brokers: no task of Spark's is asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import closing

import kafka.errors as kafka_errors
from kafka import KafkaConsumer, TopicPartition

from jobs.adapters.app.settings import Settings
from jobs.adapters.fetch.client import Fetcher, Range
from jobs.adapters.fetch.options import FetchOptions, fetch_options
from udfs.errors import KafkaError
from udfs.messages.buffers import Batch

#: Whoever looks at a page does not wait for longer, seconds.
PATIENCE = 10.0


def newest(settings: Settings, count: int) -> Iterator[Batch]:
    """Yields the last records of the topic, about as many of each partition, ``count`` in all at
    most.

    Raises SettingsError NO_BROKER; KafkaError BROKER_UNREACHABLE, FETCH_REFUSED, NOT_FETCHED and
    as `Fetcher.batches`.
    """
    settings.require_broker()
    options = fetch_options(settings.kafka, settings.publisher_header)
    options = dataclasses.replace(options, patience=PATIENCE)
    try:
        spans = _spans(settings.topic, options)
    except (OSError, kafka_errors.KafkaError) as error:
        raise KafkaError(
            "BROKER_UNREACHABLE",
            f"the end of topic {settings.topic} could not be asked for: {error!r}; check "
            "spark.stackcast.kafka.bootstrap.servers, and that the brokers are up",
        ) from error
    share = max(1, count // max(1, len(spans)))
    with closing(Fetcher(options)) as fetcher:
        for partition, (begin, end) in sorted(spans.items()):
            if begin < end:
                first = max(begin, end - share)
                yield from fetcher.batches(Range(settings.topic, partition, first, end))


def _spans(topic: str, options: FetchOptions) -> dict[int, tuple[int, int]]:
    """By partition, the first offset that is there and the one after the last."""
    with closing(KafkaConsumer(**dict(options.client))) as consumer:
        places = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic) or ()]
        begins, ends = consumer.beginning_offsets(places), consumer.end_offsets(places)
    return {place.partition: (begins[place], ends[place]) for place in places}
