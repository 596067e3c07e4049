"""Sends attribute/value events at a pace: onto a wire, and what is told meanwhile."""

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

_MOMENT = 0.05
"""Seconds between two sends, where a rate is kept."""


def paced(batches: Iterable[RecordBatch], rate: float, stop: StopRequest) -> Iterator[RecordBatch]:
    """Yields the batches, or where there is a rate (events a second) pieces of them when they are
    due.

    What is late does not come in a rush. Ends when ``stop`` is set.
    """
    due = time.monotonic()
    size = max(1, round(rate * _MOMENT))
    for batch in batches:
        step = size if rate else max(1, len(batch.records))
        for begin in range(0, max(1, len(batch.records)), step):
            wait = due - time.monotonic() if rate else 0.0
            if stop.wait(wait) if wait > 0 else stop.is_set():
                return
            records = batch.records[begin : begin + step]
            if rate:
                due = max(due, time.monotonic() - _MOMENT) + len(records) / rate
            yield RecordBatch(
                batch.places[begin : begin + step], records, [] if begin else batch.faults
            )


class Progress:
    """Counts what was sent, and tells of it on a terminal."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = time.monotonic()
        self.events = self.bytes = 0

    def set(self, events: int, size: int) -> None:
        """So much was sent so far."""
        self.events, self.bytes = events, size
        self.show()

    def show(self) -> None:
        if sys.stderr.isatty():
            rate = self.events / max(1e-9, self.seconds)
            sys.stderr.write(f"\r\x1b[K{self.events:,} {self._what}, {rate:,.0f} a second")
            sys.stderr.flush()

    def clear(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def __str__(self) -> str:
        return f"{self.events:,} {self._what}, {self.bytes:,} bytes, {self.seconds:.1f} s"


def send(made: Iterable[Encoded], sink: Sink, progress: Progress) -> None:
    """All of them onto the wire."""
    try:
        for one in made:
            sink.send(one.data, one.offsets)
            progress.set(progress.events + len(one), progress.bytes + int(one.data.size))
        sink.flush()
    finally:
        progress.clear()


def to_topic(
    made: Iterable[Encoded],
    topic: str,
    brokers: str,
    client: Mapping[str, Any],
    partitions: int,
    stop: StopRequest,
    progress: Progress,
) -> None:
    """All of them to Kafka, one event a record; ``client``: options of kafka-python."""

    def show(done: Published) -> None:
        progress.set(done.packets, done.payload_bytes)

    records = (record for one in made for record in one.records())
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
