"""The log of the topic that a stream reads, as brokers describe it."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.admin import (
    EARLIEST,
    LATEST,
    NO_EPOCH,
    KafkaAdmin,
    LogOffset,
    TopicIdentity,
)
from stackcast.jobs.adapters.kafka.admin_errors import REFUSALS
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.udfs.errors import KafkaError

log = logging.getLogger(__name__)

RETRY_SECONDS = 5
#: Maximum size of a UDP packet in bytes.
PACKET = 1 << 16
#: Milliseconds since 1970 that do not fit 64 bits as microseconds.
_UNREADABLE_MS = (1 << 63) // 1000 + 1

Answer = TypeVar("Answer")


def _never() -> bool:
    return False


class TopicLog:
    """The log of the topic of a stream.

    Args:
        admin: client of the brokers.
        settings: settings of the stream.
        clock: clock for the waits between two attempts.

    Raises:
        KafkaError: all methods raise the errors of `KafkaAdmin`.
    """

    def __init__(self, admin: KafkaAdmin, settings: Settings, clock: Clock = SYSTEM_CLOCK) -> None:
        self.admin = admin
        self._settings = settings
        self._topic = settings.topic
        self._clock = clock

    def wait(self, given_up: Callable[[], bool] = _never) -> None:
        """Return when the broker answers and the topic exists. See `ask`."""
        self.ask(self.end_offsets, given_up)

    def ask(self, question: Callable[[], Answer], given_up: Callable[[], bool] = _never) -> Answer:
        """Repeat a call until it succeeds, and return its result. Each failure is logged.

        Args:
            question: a method of this object.
            given_up: returns whether to wait no longer.

        Raises:
            KafkaError: BROKER_UNREACHABLE or NO_TOPIC after ``waitSeconds``; at once TLS_REFUSED,
                LOGIN_REFUSED, NOT_ALLOWED or BAD_OPTION, which do not pass by themselves.
        """
        deadline = self._clock.monotonic() + self._settings.wait_seconds
        while True:
            try:
                return question()
            except KafkaError as error:
                remaining = deadline - self._clock.monotonic()
                if error.what in REFUSALS or remaining <= 0 or given_up():
                    raise
                log.warning("%s; retrying for %.0f s", error, remaining)
                self._clock.sleep(RETRY_SECONDS)

    def end_offsets(self) -> dict[int, int]:
        """Return by partition the offset after the last record."""
        return _offsets(self.admin.list_offsets(self._topic, LATEST))

    def spans(self) -> dict[int, tuple[int, int]]:
        """Return by partition the offset of the first record, and the offset after the last one."""
        first = _offsets(self.admin.list_offsets(self._topic, EARLIEST))
        return {p: (first[p], end) for p, end in self.end_offsets().items() if p in first}

    def held_back(self) -> dict[int, tuple[int, int]]:
        """Return the partitions that an open transaction holds back.

        Returns:
            By partition, the offset of the first record of the transaction, and the offset after
            the last record. Empty if the stream also reads records that are not committed.
        """
        level = self._settings.kafka.get("isolation.level", "read_uncommitted")
        if level != "read_committed":
            return {}
        ends = self.end_offsets()
        stable = _offsets(self.admin.list_offsets(self._topic, LATEST, committed=True))
        return {p: (stable[p], end) for p, end in ends.items() if stable.get(p, end) < end}

    def leader_epochs(self) -> dict[int, int]:
        """Return by partition the newest leader epoch of the log, or `NO_EPOCH`.

        No record in the log has a later epoch.
        """
        ends = self.admin.list_offsets(self._topic, LATEST)
        return {partition: end.epoch for partition, end in ends.items()}

    def truncated(self, read: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """Return the partitions that Kafka has truncated, see `KafkaAdmin.truncated`.

        Args:
            read: by partition, the offset after the last record that was read, and the epoch of the
                leader of that record or of a later one. Partitions with `NO_EPOCH` are ignored.
        """
        known = {p: LogOffset(*place) for p, place in read.items() if place[1] != NO_EPOCH}
        return self.admin.truncated(self._topic, known) if known else {}

    def unreadable_times(self) -> dict[int, int]:
        """Return by partition the offset of the first record whose time Spark cannot read.

        Spark's connector fails on a time that does not fit 64 bits as microseconds.
        """
        records = _offsets(self.admin.list_offsets(self._topic, _UNREADABLE_MS))
        return {p: offset for p, offset in records.items() if offset >= 0}

    def offsets_at(self, time: dt.datetime) -> dict[int, int]:
        """Return by partition the offset of the first record of this time or later, or the end."""
        milliseconds = round(time.timestamp() * 1000)
        records = _offsets(self.admin.list_offsets(self._topic, milliseconds))
        ends = self.end_offsets()
        return {p: offset if offset >= 0 else ends[p] for p, offset in records.items()}

    def identity(self) -> TopicIdentity:
        """Return the ids of the cluster and of the topic."""
        return self.admin.identity(self._topic)

    def usual_record(self) -> int:
        """Return the bytes to expect for a record before the first one has been read.

        That is the maximum size of records if it is set for the topic, otherwise the maximum size
        of a packet.
        """
        try:
            size = self.admin.topic_option(self._topic, "max.message.bytes")
        except KafkaError as error:
            log.info("the broker did not report the maximum size of records: %s", error)
            return PACKET
        return PACKET if size is None else int(size)

    def ensure_dead_letters(self) -> None:
        """Create the topic for dead letters unless it exists. A refusal is logged."""
        self.ensure(self._settings.dead_letter_topic, "dead letters")

    def ensure(self, topic: str, use: str) -> None:
        """Create a topic unless it exists. A refusal is logged."""
        try:
            if self.admin.create_topic(topic):
                log.info("created topic %s for %s", topic, use)
        except KafkaError as error:
            log.warning("cannot create topic %s for %s: %s", topic, use, error)

    def close(self) -> None:
        """Close the connections of the client."""
        self.admin.close()


def _offsets(positions: Mapping[int, LogOffset]) -> dict[int, int]:
    return {partition: position.offset for partition, position in positions.items()}
