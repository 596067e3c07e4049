"""Connections of kafka-python to the brokers of a cluster."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple

import kafka.errors as kafka_errors
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import MetadataRequest
from kafka.structs import TopicPartition

from stackcast.jobs.adapters.kafka.admin import NO_EPOCH

#: Errors that another attempt or another broker does not avoid.
FINAL_ERRORS = (
    ssl.SSLCertVerificationError,
    kafka_errors.AuthorizationError,
    kafka_errors.SaslAuthenticationFailedError,
)


class Leader(NamedTuple):
    """The leader of a partition.

    Attributes:
        node: id of the broker, or -1 if the partition has no leader.
        epoch: leader epoch, or `NO_EPOCH`.
    """

    node: int
    epoch: int


class TopicMetadata(NamedTuple):
    """Metadata of a topic.

    Attributes:
        cluster: id of the cluster; empty if the broker is too old for it.
        controller: node id of the controller.
        error: error code of the topic, or 0.
        topic_id: id of the topic, or None if the broker is too old for it.
        leaders: leader of each partition.
    """

    cluster: str
    controller: int
    error: int
    topic_id: uuid.UUID | None
    leaders: dict[int, Leader]


class BrokerClient:
    """Connections to the brokers of a cluster, for one thread at a time.

    All methods may raise OSError and the errors of kafka-python; after that, close the client.

    Args:
        options: options of kafka-python.
    """

    def __init__(self, options: Iterable[tuple[str, Any]]) -> None:
        configuration = dict(options)
        self._net = NetworkSelector(**configuration)
        self._manager = KafkaConnectionManager(self._net, **configuration)
        self._bootstrap = ""

    def close(self) -> None:
        """Close all connections except those that `connect` has returned."""
        self._manager.close()
        self._net.close()

    def metadata(self, topic: str) -> TopicMetadata:
        """Return the metadata of a topic, without creating it."""
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic)],
            allow_auto_topic_creation=False,
        )
        response = self._net.run(self._ask_any_broker, request)
        (described,) = response.topics
        cluster = self._manager.cluster
        cluster.update_metadata(response)
        leaders = {}
        for partition in cluster.partitions_for_topic(topic) or ():
            place = TopicPartition(topic, partition)
            node = cluster.leader_for_partition(place)
            epoch = cluster.leader_epoch_for_partition(place)
            leaders[partition] = Leader(
                -1 if node is None else int(node), NO_EPOCH if epoch is None else int(epoch)
            )
        return TopicMetadata(
            cluster=str(response.cluster_id or ""),
            controller=int(response.controller_id),
            error=int(described.error_code),
            topic_id=described.topic_id or None,
            leaders=leaders,
        )

    def send(self, node: int, request: Any) -> Any:
        """Send a request to a broker whose node id `metadata` has returned."""
        return self._net.run(self._send, node, request)

    def connect(self, node: int) -> Any:
        """Return a connection to a broker, to be used without this client.

        Args:
            node: node id of the broker, which `metadata` has returned.

        Returns:
            A `kafka.net.connection.KafkaConnection`.
        """
        return self._net.run(self._connection, node)

    async def _ask_any_broker(self, request: Any) -> Any:
        """Send a request to the broker that answered last, or to the first one that answers."""
        if self._bootstrap:
            return await self._send(self._bootstrap, request)
        error: Exception = kafka_errors.NodeNotReadyError()
        for server in self._manager.cluster.bootstrap_brokers():
            try:
                response = await self._send(server.node_id, request)
            except (OSError, kafka_errors.KafkaError) as failure:
                if not may_pass(failure):
                    raise
                error = failure
            else:
                self._bootstrap = server.node_id
                return response
        raise error

    async def _send(self, node: int | str, request: Any) -> Any:
        connection = await self._connection(node)
        return await connection.send_request(request)

    async def _connection(self, node: int | str) -> Any:
        return await self._manager.get_connection(node, refresh_metadata_on_err=False)


def raise_error(code: int) -> None:
    """Raise the error of kafka-python for an error code of a response, if it is not 0."""
    if code:
        raise kafka_errors.for_code(code)()


def may_pass(error: Exception) -> bool:
    """Return False if neither another attempt nor another broker avoids an error."""
    # kafka-python reports an error of the handshake as its own or as that of the library ssl.
    return not (isinstance(error, FINAL_ERRORS) or "CERTIFICATE_VERIFY_FAILED" in str(error))
