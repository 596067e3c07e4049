"""A feed's packets on record in a topic, before they go into a network that matches under the
numbers of their places there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kafka.errors import KafkaError as ClientError

from stackcast.lab.traffic.publisher import connect_producer, ensure_topic, topic_id
from stackcast.udfs.errors import KafkaError
from stackcast.udfs.messages.reference import HEADER
from stackcast.udfs.messages.sequence import Topic, sequence_number, session_id

_PATIENCE_S = 60.0


class Place(NamedTuple):
    """Where the brokers have a packet."""

    partition: int
    offset: int


class TopicLog:
    """Writes packets to a topic, and returns the position of each one. A context manager.

    Args:
        bootstrap_servers: addresses of brokers.
        topic: name of the topic, which is created if it does not exist.
        partitions: number of partitions of a topic that is created.
        client: further options of kafka-python's clients.

    Attributes:
        topic: topic with its id, as it belongs to the sessions of the packets.

    Raises:
        KafkaError: BROKER_UNREACHABLE, NOT_PUBLISHED.
    """

    def __init__(
        self, bootstrap_servers: str, topic: str, *, partitions: int = 1, **client: Any
    ) -> None:
        ensure_topic(bootstrap_servers, topic, partitions, **client)
        self.topic = Topic(topic, topic_id(bootstrap_servers, topic, **client))
        self._producer = connect_producer(bootstrap_servers, **client)
        self._partitions = len(self._producer.partitions_for(topic))
        self._sent = 0

    def __enter__(self) -> TopicLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close(timeout=10)

    def append(self, packets: Sequence[bytes], partition: int | None = None) -> list[Place]:
        """Returns the place of each packet when the brokers have all.

        partition: of all, as that of one of several publishers; without it partitions take turns.
        """
        sent = []
        try:
            for packet in packets:
                place = self._sent % self._partitions if partition is None else partition
                sent.append(self._producer.send(self.topic.name, packet, partition=place))
                self._sent += 1
            self._producer.flush(_PATIENCE_S)
            told = [future.get(_PATIENCE_S) for future in sent]
        except ClientError as error:
            raise KafkaError(
                "NOT_PUBLISHED",
                f"not all packets could be written to topic {self.topic.name}: {error}",
                topic=self.topic.name,
            ) from error
        return [Place(each.partition, each.offset) for each in told]

    def numbered(self, packet: bytes, place: Place) -> bytes:
        """Returns a MoldUDP64 packet under session and number of its place."""
        _, _, count = HEADER.unpack_from(packet)
        number = sequence_number(place.offset, 0)
        header = HEADER.pack(session_id(self.topic, place.partition), number, count)
        return header + packet[HEADER.size :]
