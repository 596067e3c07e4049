"""Sends attribute/value events at a rate, and shows the progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stackcast.cli.attributes.files import RecordBatch
from stackcast.cli.attributes.records import Encoded
from stackcast.jobs.adapters.wire import Sink
from stackcast.lab.traffic.publisher import Published, publish_records
from stackcast.udfs.stop_request import StopRequest

#: Time between two sends at a limited rate, in seconds.
_INTERVAL = 0.05


def paced(batches: Iterable[RecordBatch], rate: float, stop: StopRequest) -> Iterator[RecordBatch]:
    """Yield the batches, or with a rate parts of them when they are due.

    Events that are late are not sent in a burst.

    Args:
        batches: the batches.
        rate: events per second; 0 for no limit.
        stop: ends the iteration.
    """
    due = time.monotonic()
    size = max(1, round(rate * _INTERVAL))
    for batch in batches:
        step = size if rate else max(1, len(batch.records))
        for start in range(0, max(1, len(batch.records)), step):
            wait = due - time.monotonic() if rate else 0.0
            if stop.wait(wait) if wait > 0 else stop.is_set():
                return
            records = batch.records[start : start + step]
            if rate:
                due = max(due, time.monotonic() - _INTERVAL) + len(records) / rate
            yield RecordBatch(
                batch.places[start : start + step], records, [] if start else batch.faults
            )


class Progress:
    """Counts sent events, and shows the count on a terminal.

    Args:
        noun: word for the events.
    """

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._began = time.monotonic()
        self.events = self.bytes = 0

    def set(self, events: int, size: int) -> None:
        """Set the number of events and of bytes that were sent."""
        self.events, self.bytes = events, size
        self.show()

    def show(self) -> None:
        if sys.stderr.isatty():
            rate = self.events / max(1e-9, self.seconds)
            sys.stderr.write(f"\r\x1b[K{self.events:,} {self._noun}, {rate:,.0f} per second")
            sys.stderr.flush()

    def clear(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def __str__(self) -> str:
        return f"{self.events:,} {self._noun}, {self.bytes:,} bytes, {self.seconds:.1f} s"


def send(batches: Iterable[Encoded], sink: Sink, progress: Progress) -> None:
    """Send all batches through a sink."""
    try:
        for batch in batches:
            sink.send(batch.data, batch.offsets)
            progress.set(progress.events + len(batch), progress.bytes + int(batch.data.size))
        sink.flush()
    finally:
        progress.clear()


def to_topic(
    batches: Iterable[Encoded],
    topic: str,
    brokers: str,
    client: Mapping[str, Any],
    partitions: int,
    stop: StopRequest,
    progress: Progress,
) -> None:
    """Publish all batches to Kafka, one event per record.

    Args:
        batches: the events.
        topic: topic, which is created if it does not exist.
        brokers: addresses of the brokers.
        client: options of kafka-python.
        partitions: number of partitions if the topic is created.
        stop: ends publishing.
        progress: counts the events.
    """

    def show(published: Published) -> None:
        progress.set(published.packets, published.payload_bytes)

    records = (record for batch in batches for record in batch.records())
    try:
        publish_records(
            brokers,
            topic,
            records,
            partitions=partitions,
            stop=stop,
            progress=show,
            **client,
        )
    finally:
        progress.clear()
