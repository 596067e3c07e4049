"""Rows to Kafka topics from threads of their own: nothing in a real-time stream waits for one."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

from pyspark.sql import SparkSession

from jobs.adapters.app.error_texts import one_line
from jobs.adapters.app.settings import Settings
from jobs.adapters.stream.kafka import impatient

log = logging.getLogger(__name__)

Row = Mapping[str, Any]

#: Rows of one try.
_AT_ONCE = 500
#: After a try that failed.
_AGAIN_SECONDS = 1.0
#: Between two lines about a topic that cannot be written.
_QUIET_SECONDS = 60.0
#: How long an end waits for what is not written yet.
_LAST_SECONDS = 10.0


class Sender(Protocol):
    """Sends texts to a topic: yields once for each, in order, when the broker has it."""

    def send(self, topic: str, values: Sequence[str]) -> Iterator[None]: ...


class Producer:
    """Sends texts to Kafka by the JVM's client, so that its options are those of the source."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._jvm: Any = spark._jvm
        properties = self._jvm.java.util.Properties()
        text = "org.apache.kafka.common.serialization.StringSerializer"
        usual = {"key.serializer": text, "value.serializer": text, "acks": "all"}
        for key, value in (usual | impatient(settings.kafka)).items():
            properties.setProperty(key, value)
        self._producer = self._jvm.org.apache.kafka.clients.producer.KafkaProducer(properties)

    def send(self, topic: str, values: Sequence[str]) -> Iterator[None]:
        """As of `Sender`. Raises Py4JError."""
        record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord
        # The first alone: where the topic is missing, each would wait for it.
        for some in (values[:1], values[1:]):
            for future in [self._producer.send(record(topic, value)) for value in some]:
                future.get()
                yield

    def close(self) -> None:
        """Release its connections; what is under way has a moment."""
        self._producer.close(self._jvm.java.time.Duration.ofSeconds(int(_LAST_SECONDS)))


class _Waiting(NamedTuple):
    row: Row
    since: float


class TopicWriter:
    """Writes rows to a topic as JSON, in their order, beside those who give them.

    use: of the topic, in words. most: how many rows may wait. keeps: rows that cannot be written
    wait for another try; otherwise they are thrown away, and a log line says how many. written: is
    called with each row that the broker has. tell: is told after each try how many rows wait, and
    for how many seconds the first does.
    """

    def __init__(
        self,
        sender: Sender,
        topic: str,
        use: str,
        most: int,
        keeps: bool,
        written: Callable[[Row], None] = lambda row: None,
        tell: Callable[[int, float], None] = lambda waiting, oldest: None,
    ) -> None:
        self._sender = sender
        self._topic = topic
        self._use = use
        self._most = most
        self._keeps = keeps
        self._written = written
        self._tell = tell
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._lost = 0
        self._said: float | None = None
        self._thread = threading.Thread(target=self._run, name=f"to {topic}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of rows that are not in the topic yet."""
        return len(self._waiting)

    def put(self, rows: Sequence[Row]) -> bool:
        """Takes these rows, waiting for nobody; False if there is no room for them."""
        with self._changed:
            room = len(self._waiting) + len(rows) <= self._most
            if room:
                now = time.monotonic()
                self._waiting.extend(_Waiting(row, now) for row in rows)
                self._changed.notify_all()
            elif not self._keeps:
                self._lost += len(rows)
            return room

    def close(self) -> None:
        """Write what waits; gives up after some seconds, and where that fails."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(_LAST_SECONDS)
        if self._waiting:
            log.warning("%d rows are not in topic %s", len(self._waiting), self._topic)

    def _run(self) -> None:
        while self._wait():
            try:
                self._write()
            except Exception as error:  # whatever it is, the thread must go on
                self._failed(error)
                if self._closing:
                    return
            else:
                self._recovered()
            with self._changed:
                count = len(self._waiting)
                oldest = time.monotonic() - self._waiting[0].since if count else 0.0
            self._tell(count, oldest)

    def _wait(self) -> bool:
        """Returns True when something waits to be written, False at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            return bool(self._waiting)

    def _write(self) -> None:
        with self._changed:
            rows = [each.row for each in islice(self._waiting, _AT_ONCE)]
        sent = self._sender.send(self._topic, [json.dumps(row) for row in rows])
        for row, _ in zip(rows, sent, strict=True):
            self._written(row)
            with self._changed:
                self._waiting.popleft()

    def _failed(self, error: Exception) -> None:
        with self._changed:
            if not self._keeps:
                self._lost += len(self._waiting)
                self._waiting.clear()
        if self._said is None or time.monotonic() - self._said >= _QUIET_SECONDS:
            self._said = time.monotonic()
            what = f"{len(self._waiting)} rows wait" if self._keeps else f"{self._lost} are lost"
            log.error(
                "topic %s for %s cannot be written, %s: %s",
                *(self._topic, self._use, what, one_line(error)),
            )
        with self._changed:
            self._changed.wait_for(lambda: self._closing, _AGAIN_SECONDS)

    def _recovered(self) -> None:
        if self._said is not None or self._lost:
            log.warning(
                "topic %s for %s is written again; %d were lost", self._topic, self._use, self._lost
            )
            self._said, self._lost = None, 0
