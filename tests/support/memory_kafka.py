"""A Kafka cluster in memory, as a stream sees it: topics, their logs, and unclean elections."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import count

from memory_log import Log, Record

from stackcast.jobs.adapters.kafka import admin_errors
from stackcast.jobs.adapters.kafka.admin import (
    EARLIEST,
    LATEST,
    NO_EPOCH,
    NO_OFFSET,
    LogOffset,
    TopicIdentity,
)
from stackcast.udfs.errors import KafkaError


class MemoryKafka:
    """A cluster, and its `KafkaAdmin`.

    Attributes:
        failure: error of every call, while it is not None.
    """

    servers = "memory"

    def __init__(self) -> None:
        self.failure: KafkaError | None = None
        self._numbers = count()
        self._cluster = f"{next(self._numbers):022d}"
        self._ids: dict[str, str] = {}
        self._logs: dict[str, list[Log]] = {}
        self._options: dict[str, dict[str, str]] = defaultdict(dict)

    # The cluster

    def create(self, topic: str, partitions: int = 1, **options: str) -> None:
        """Create a topic."""
        self._ids[topic] = f"{next(self._numbers):022d}"
        self._logs[topic] = [Log() for _ in range(partitions)]
        self._options[topic] = {key.replace("_", "."): value for key, value in options.items()}

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        del self._logs[topic]

    def publish(
        self, topic: str, partition: int, value: bytes, time: int, publisher: str | None = None
    ) -> int:
        """Append a record, and return its offset."""
        log = self._logs[topic][partition]
        log.records.append(Record(log.end, value, time, log.epoch, publisher))
        log.end += 1
        return log.end - 1

    def open_transaction(self, topic: str, partition: int) -> None:
        """Let the next records belong to a transaction that stays open."""
        log = self._logs[topic][partition]
        log.open = log.end

    def elect(self, topic: str, partition: int, end: int | None = None) -> None:
        """Make another broker the leader, which has only the records before an offset."""
        log = self._logs[topic][partition]
        log.epoch += 1
        log.end = log.end if end is None else end
        log.records = [record for record in log.records if record.offset < log.end]

    def delete_records(self, topic: str, partition: int, until: int) -> None:
        """Delete the records before an offset, as retention does."""
        log = self._logs[topic][partition]
        log.start = until
        log.records = [record for record in log.records if record.offset >= until]

    def log(self, topic: str, partition: int) -> Log:
        """Return the log of a partition."""
        return self._described(topic)[partition]

    # Its administration

    def list_offsets(
        self, topic: str, timestamp: int, *, committed: bool = False
    ) -> dict[int, LogOffset]:
        def position(log: Log) -> LogOffset:
            if timestamp == EARLIEST:
                return LogOffset(log.start, log.epoch)
            if timestamp == LATEST:
                end = log.end if not committed or log.open is None else log.open
                return LogOffset(end, log.epoch)
            later = (r for r in log.records if r.time >= 1000 * timestamp)
            first = min(later, default=None)
            return LogOffset(NO_OFFSET, NO_EPOCH) if first is None else LogOffset(*first[::3])

        return {p: position(log) for p, log in enumerate(self._described(topic))}

    def truncated(self, topic: str, read: Mapping[int, LogOffset]) -> dict[int, int]:
        logs = self._described(topic)
        ends = {p: logs[p].divergence(place) for p, place in read.items()}
        return {p: end for p, end in ends.items() if end is not None}

    def identity(self, topic: str) -> TopicIdentity:
        self._described(topic)
        return TopicIdentity(self._cluster, self._ids[topic])

    def topic_option(self, topic: str, name: str) -> str | None:
        self._described(topic)
        return self._options[topic].get(name)

    def create_topic(self, topic: str) -> bool:
        if self.failure is not None:
            raise self.failure
        if topic in self._logs:
            return False
        self.create(topic)
        return True

    def close(self) -> None:
        pass

    def _described(self, topic: str) -> list[Log]:
        if self.failure is not None:
            raise self.failure
        if topic not in self._logs:
            raise admin_errors.no_topic(self.servers, topic)
        return self._logs[topic]
