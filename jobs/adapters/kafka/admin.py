"""Administration of Kafka: metadata of a topic, apart from its records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

#: Stands for an unknown leader epoch.
NO_EPOCH = -1
#: Stands for the offset of a record that does not exist.
NO_OFFSET = -1

#: Timestamps with which `KafkaAdmin.list_offsets` returns the first offset of a log, and its end.
EARLIEST = -2
LATEST = -1


class LogOffset(NamedTuple):
    """A position in the log of a partition.

    Attributes:
        offset: offset of a record, or `NO_OFFSET`.
        epoch: epoch of the leader that wrote the record, or `NO_EPOCH`.
    """

    offset: int
    epoch: int = NO_EPOCH


class TopicIdentity(NamedTuple):
    """Ids that a new topic of the same name does not share. Old brokers report empty ids.

    Attributes:
        cluster: id of the Kafka cluster.
        topic: id of the topic, as ``kafka-topics.sh --describe`` prints it.
    """

    cluster: str
    topic: str


class KafkaAdmin(Protocol):
    """A client for the administration of a Kafka cluster, which several threads may use.

    Each call waits for a few seconds at most. `TopicLog.ask` repeats a call until it succeeds.

    Raises:
        KafkaError: each method may raise TLS_REFUSED, LOGIN_REFUSED, NOT_ALLOWED, BAD_OPTION and
            BROKER_UNREACHABLE, and NO_TOPIC if the topic does not exist.
    """

    def list_offsets(
        self, topic: str, timestamp: int, *, committed: bool = False
    ) -> dict[int, LogOffset]:
        """Return an offset per partition.

        Args:
            topic: name of the topic.
            timestamp: milliseconds since 1970, for the first record of this time or later;
                `EARLIEST` for the first record, or `LATEST` for the end of the log with the epoch
                of its last leader.
            committed: whether an open transaction ends the log.
        """

    def truncated(self, topic: str, read: Mapping[int, LogOffset]) -> dict[int, int]:
        """Return the partitions that Kafka has truncated below an offset since it was read.

        A broker that becomes leader without all records (unclean leader election) truncates the
        log, and new records may have taken the offsets since. So the end of the log does not show
        a truncation, but the epochs of its leaders do (KIP-320).

        Args:
            topic: name of the topic.
            read: by partition, the offset after the last record that was read, and the epoch of the
                leader of that record or of a later one.

        Returns:
            By truncated partition, the first offset at which the log may differ from what was read.
        """

    def identity(self, topic: str) -> TopicIdentity:
        """Return the ids of the cluster and of a topic."""

    def topic_option(self, topic: str, name: str) -> str | None:
        """Return an option that is set for this topic, or None if the default of brokers holds."""

    def create_topic(self, topic: str) -> bool:
        """Create a topic with the defaults of the brokers, unless it exists.

        Returns:
            True if the topic is new.
        """

    def close(self) -> None:
        """Close the connections. The next call opens new ones."""
