"""Administration of Kafka with kafka-python: plaintext, certificates in PEM files, and SASL."""

from __future__ import annotations

import base64
import ssl
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import kafka.errors as kafka_errors
from kafka.protocol.admin import CreateTopicsRequest, DescribeConfigsRequest
from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest

from stackcast.jobs.adapters.kafka import admin_errors
from stackcast.jobs.adapters.kafka.admin import LogOffset, TopicIdentity
from stackcast.jobs.adapters.kafka.broker_client import (
    BrokerClient,
    TopicMetadata,
    may_pass,
    raise_error,
)
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.udfs.errors import KafkaError

#: Limits of a call with its repetitions, and of one request or connection.
_CALL_SECONDS = 5.0
_LIMITS = {"request_timeout_ms": 4000, "socket_connection_setup_timeout_ms": 4000}
_PAUSE_SECONDS = 0.1

_TOPIC = 2
"""A topic as resource of a DescribeConfigsRequest."""
_SET_FOR_TOPIC = 1
"""The source of an option that is set for a topic."""

#: Errors of files and options, not of brokers.
_BAD_FILES = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)

_LOGIN_ERRORS = (
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
)

Answer = TypeVar("Answer")
Call = Callable[[BrokerClient, TopicMetadata], Answer]


class PythonAdmin:
    """A `KafkaAdmin` that speaks Kafka's protocol with kafka-python.

    A call takes an idle client, or a new one. So it needs no thread, and no call waits for another.

    Args:
        options: options of kafka-python.
        clock: clock for deadlines and pauses.
    """

    def __init__(self, options: Iterable[tuple[str, Any]], clock: Clock = SYSTEM_CLOCK) -> None:
        self._options = {**dict(options), **_LIMITS}
        self._servers = str(self._options["bootstrap_servers"])
        self._clock = clock
        self._idle: list[BrokerClient] = []

    def list_offsets(
        self, topic: str, timestamp: int, *, committed: bool = False
    ) -> dict[int, LogOffset]:
        topic_type = ListOffsetsRequest.ListOffsetsTopic

        def ask(client: BrokerClient, metadata: TopicMetadata) -> dict[int, LogOffset]:
            offsets = {}
            for node, partitions in _by_leader(metadata).items():
                parts = [
                    topic_type.ListOffsetsPartition(
                        partition_index=p,
                        current_leader_epoch=metadata.leaders[p].epoch,
                        timestamp=timestamp,
                    )
                    for p in partitions
                ]
                request = ListOffsetsRequest(
                    replica_id=-1,
                    isolation_level=int(committed),
                    topics=[topic_type(name=topic, partitions=parts)],
                    min_version=2 if committed else 1,
                )
                for answer in client.send(node, request).topics[0].partitions:
                    raise_error(answer.error_code)
                    offsets[int(answer.partition_index)] = LogOffset(
                        int(answer.offset), int(answer.leader_epoch)
                    )
            return dict(sorted(offsets.items()))

        return self._call(topic, ask)

    def truncated(self, topic: str, read: Mapping[int, LogOffset]) -> dict[int, int]:
        topic_type = OffsetForLeaderEpochRequest.OffsetForLeaderTopic

        def ask(client: BrokerClient, metadata: TopicMetadata) -> dict[int, int]:
            truncations = {}
            for node, partitions in _by_leader(metadata, read).items():
                parts = [
                    topic_type.OffsetForLeaderPartition(
                        partition=p,
                        current_leader_epoch=metadata.leaders[p].epoch,
                        leader_epoch=read[p].epoch,
                    )
                    for p in partitions
                ]
                request = OffsetForLeaderEpochRequest(
                    replica_id=-1, topics=[topic_type(topic=topic, partitions=parts)]
                )
                for answer in client.send(node, request).topics[0].partitions:
                    raise_error(answer.error_code)
                    end, partition = int(answer.end_offset), int(answer.partition)
                    if end < 0 or answer.leader_epoch < 0:
                        # The log has no record of this epoch or of an earlier one.
                        truncations[partition] = 0
                    elif end < read[partition].offset:
                        truncations[partition] = end
            return truncations

        return self._call(topic, ask)

    def identity(self, topic: str) -> TopicIdentity:
        def ask(_: BrokerClient, metadata: TopicMetadata) -> TopicIdentity:
            return TopicIdentity(metadata.cluster, _id_text(metadata.topic_id))

        return self._call(topic, ask)

    def topic_option(self, topic: str, name: str) -> str | None:
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_TOPIC, resource_name=topic, configuration_keys=[name]
        )

        def ask(client: BrokerClient, metadata: TopicMetadata) -> str | None:
            request = DescribeConfigsRequest(resources=[resource])
            result = client.send(metadata.controller, request).results[0]
            raise_error(result.error_code)
            for option in result.configs:
                if option.name == name and option.config_source == _SET_FOR_TOPIC:
                    return str(option.value)
            return None

        return self._call(topic, ask)

    def create_topic(self, topic: str) -> bool:
        new = CreateTopicsRequest.CreatableTopic(
            name=topic, num_partitions=-1, replication_factor=-1, assignments=[], configs=[]
        )

        def ask(client: BrokerClient, metadata: TopicMetadata) -> bool:
            if not metadata.error:
                return False
            request = CreateTopicsRequest(topics=[new], timeout_ms=_LIMITS["request_timeout_ms"])
            raise_error(client.send(metadata.controller, request).topics[0].error_code)
            return True

        return self._call(topic, ask, exists=False)

    def close(self) -> None:
        while (client := self._take()) is not None:
            client.close()

    def _call(self, topic: str, ask: Call[Answer], exists: bool = True) -> Answer:
        """Return the answer to a question about a topic.

        Args:
            topic: name of the topic.
            ask: gets a client and the metadata of the topic.
            exists: whether the topic must exist.
        """
        deadline = self._clock.monotonic() + _CALL_SECONDS
        while True:
            client = self._take()
            try:
                client = client or BrokerClient(self._options.items())
            except (ValueError, kafka_errors.KafkaError) as error:
                raise admin_errors.bad_option(self._servers, str(error)) from error
            try:
                metadata = client.metadata(topic)
                if exists:
                    if metadata.error == kafka_errors.UnknownTopicOrPartitionError.errno:
                        raise admin_errors.no_topic(self._servers, topic)
                    raise_error(metadata.error)
                answer = ask(client, metadata)
            except (OSError, kafka_errors.KafkaError) as error:
                client.close()
                if not _passes(error) or self._clock.monotonic() >= deadline:
                    raise self._error(error, topic) from error
                self._clock.sleep(_PAUSE_SECONDS)
            except BaseException:
                client.close()
                raise
            else:
                self._idle.append(client)
                return answer

    def _take(self) -> BrokerClient | None:
        """Take an idle client, if there is one."""
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _error(self, error: Exception, topic: str) -> KafkaError:
        """Return the error for a failure of kafka-python."""
        reason = str(error) or type(error).__name__
        if _refuses_tls(error):
            return admin_errors.tls_refused(self._servers, reason)
        if isinstance(error, _LOGIN_ERRORS):
            return admin_errors.login_refused(self._servers, reason)
        if isinstance(error, kafka_errors.AuthorizationError):
            return admin_errors.not_allowed(self._servers, topic, reason)
        if isinstance(error, kafka_errors.UnknownTopicOrPartitionError):
            return admin_errors.no_topic(self._servers, topic)
        if _passes(error):
            return admin_errors.no_broker(self._servers)
        return admin_errors.bad_option(self._servers, reason)


def _by_leader(
    metadata: TopicMetadata, partitions: Iterable[int] | None = None
) -> dict[int, list[int]]:
    """Return some partitions, or all of them, by the node id of their leader."""
    by_leader: dict[int, list[int]] = {}
    for partition in metadata.leaders if partitions is None else partitions:
        if partition not in metadata.leaders:
            raise kafka_errors.UnknownTopicOrPartitionError(str(partition))
        node = metadata.leaders[partition].node
        if node < 0:
            raise kafka_errors.LeaderNotAvailableError(str(partition))
        by_leader.setdefault(node, []).append(partition)
    return by_leader


def _id_text(topic_id: uuid.UUID | None) -> str:
    """Return the id of a topic as Kafka's own tools print it; empty if there is none."""
    if topic_id is None or not topic_id.int:
        return ""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def _passes(error: Exception) -> bool:
    """Return whether another attempt may succeed."""
    if _refuses_tls(error) or isinstance(error, (*_BAD_FILES, ssl.SSLError)):
        return False
    return may_pass(error) and (isinstance(error, OSError) or getattr(error, "retriable", False))


def _refuses_tls(error: Exception) -> bool:
    """Return whether one side has rejected the TLS connection of the other."""
    return isinstance(error, kafka_errors.KafkaConnectionError) and "[SSL: " in str(error)
