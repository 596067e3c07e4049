"""Administration of Kafka with the Java client, for options that kafka-python does not support.

These are key stores in the formats JKS and PKCS12, Kerberos, OAuth, and options that only the Java
client has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.kafka import admin_errors
from stackcast.jobs.adapters.kafka.admin import (
    EARLIEST,
    LATEST,
    NO_EPOCH,
    LogOffset,
    TopicIdentity,
)
from stackcast.udfs.errors import KafkaError

#: Limits of a call and of one of its requests.
_CALL_MS = 5000
_REQUEST_MS = 4000
#: Limit for the answer of a leader about its epochs.
_POSITION_MS = 10_000

_CONSUMER = {
    "key.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
    "value.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
    "auto.offset.reset": "none",
    "enable.auto.commit": "false",
    "allow.auto.create.topics": "false",
}


class JavaAdmin:
    """A `KafkaAdmin` that calls Kafka's AdminClient in the JVM of Spark.

    Args:
        spark: session whose JVM has the client.
        kafka: options of the client by name.
    """

    def __init__(self, spark: SparkSession, kafka: Mapping[str, str]) -> None:
        self._jvm: Any = spark._jvm
        self._kafka = kafka
        self._servers = kafka["bootstrap.servers"]
        self._client: Any = None

    def list_offsets(
        self, topic: str, timestamp: int, *, committed: bool = False
    ) -> dict[int, LogOffset]:
        kafka = self._jvm.org.apache.kafka
        specs = kafka.clients.admin.OffsetSpec
        level = kafka.common.IsolationLevel
        options = kafka.clients.admin.ListOffsetsOptions(
            level.READ_COMMITTED if committed else level.READ_UNCOMMITTED
        )
        with self._admin(topic) as admin:
            if timestamp in (EARLIEST, LATEST):
                spec = specs.earliest() if timestamp == EARLIEST else specs.latest()
            else:
                spec = specs.forTimestamp(timestamp)
            specs_by_partition = self._jvm.java.util.HashMap()
            for partition in _items(_describe(self._jvm, admin, topic).partitions()):
                place = kafka.common.TopicPartition(topic, partition.partition())
                specs_by_partition.put(place, spec)
            offsets = admin.listOffsets(specs_by_partition, options).all().get()
            positions = {int(place.partition()): offsets.get(place) for place in _keys(offsets)}
            return {
                partition: LogOffset(
                    int(position.offset()), int(position.leaderEpoch().orElse(NO_EPOCH))
                )
                for partition, position in positions.items()
            }

    def truncated(self, topic: str, read: Mapping[int, LogOffset]) -> dict[int, int]:
        # AdminClient does not ask for the epochs of a log, but the consumer does.
        kafka, java = self._jvm.org.apache.kafka, self._jvm.java
        places = {p: kafka.common.TopicPartition(topic, p) for p in read}
        truncations: dict[int, int] = {}
        with self._errors(topic):
            consumer = kafka.clients.consumer.KafkaConsumer(self._properties(_CONSUMER))
            try:
                wait = java.time.Duration.ofMillis(_POSITION_MS)
                assigned = java.util.ArrayList(places.values())
                consumer.assign(assigned)
                # A consumer compares epochs only if it knows the leaders when it seeks.
                consumer.endOffsets(assigned, wait)
                for partition, (offset, epoch) in read.items():
                    known = java.util.Optional.of(epoch)
                    seen = kafka.clients.consumer.OffsetAndMetadata(offset, known, "")
                    consumer.seek(places[partition], seen)
                pending = dict(places)
                while pending:
                    partition, place = next(iter(pending.items()))
                    divergence = _divergence(consumer, place, wait)
                    truncations |= divergence
                    # A truncated partition fails every call, also for other partitions.
                    for checked in {partition, *divergence}:
                        pending.pop(checked, None)
                    consumer.assign(java.util.ArrayList(pending.values()))
            finally:
                consumer.close()
        return truncations

    def identity(self, topic: str) -> TopicIdentity:
        with self._admin(topic) as admin:
            cluster = admin.describeCluster().clusterId().get()
            topic_id = _describe(self._jvm, admin, topic).topicId()
            zero = self._jvm.org.apache.kafka.common.Uuid.ZERO_UUID
            return TopicIdentity(
                str(cluster or ""), "" if topic_id.equals(zero) else str(topic_id.toString())
            )

    def topic_option(self, topic: str, name: str) -> str | None:
        config = self._jvm.org.apache.kafka.common.config
        kind = getattr(config, "ConfigResource$Type").TOPIC
        resource = config.ConfigResource(kind, topic)
        with self._admin(topic) as admin:
            described = admin.describeConfigs(_list(self._jvm, resource)).all().get()
            option = described.get(resource).get(name)
            own = option is not None and option.source().name() == "DYNAMIC_TOPIC_CONFIG"
            return str(option.value()) if own else None

    def create_topic(self, topic: str) -> bool:
        default = self._jvm.java.util.Optional.empty()
        with self._admin(topic) as admin:
            if admin.listTopics().names().get().contains(topic):
                return False
            new = self._jvm.org.apache.kafka.clients.admin.NewTopic(topic, default, default)
            admin.createTopics(_list(self._jvm, new)).all().get()
            return True

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(Py4JError, OSError):  # a JVM that has ended
                client.close()

    @contextmanager
    def _admin(self, topic: str) -> Iterator[Any]:
        """Lend the client for a call about a topic. A client that fails is closed."""
        with self._errors(topic):
            if self._client is None:
                create = self._jvm.org.apache.kafka.clients.admin.AdminClient.create
                self._client = create(self._properties({}))
            try:
                yield self._client
            except Py4JError:
                # Its certificate may have expired.
                self.close()
                raise

    @contextmanager
    def _errors(self, topic: str) -> Iterator[None]:
        try:
            yield
        except Py4JError as error:
            raise self._error(_reason(error), topic) from error

    def _error(self, reason: str, topic: str) -> KafkaError:
        """Return the error for a failure of the Java client."""
        name = reason.split(":", 1)[0]
        if name.startswith("Ssl"):
            return admin_errors.tls_refused(self._servers, reason)
        if "Sasl" in name or name == "AuthenticationException":
            return admin_errors.login_refused(self._servers, reason)
        if name.endswith("AuthorizationException"):
            return admin_errors.not_allowed(self._servers, topic, reason)
        if "UnknownTopicOrPartition" in reason:
            return admin_errors.no_topic(self._servers, topic)
        if any(word in reason for word in ("Timeout", "Disconnect", "resolvable")):
            return admin_errors.no_broker(self._servers)
        return admin_errors.bad_option(self._servers, reason)

    def _properties(self, more: Mapping[str, str]) -> Any:
        properties = self._jvm.java.util.Properties()
        limits = {
            "default.api.timeout.ms": str(_CALL_MS),
            "request.timeout.ms": str(_REQUEST_MS),
        }
        for key, value in {**self._kafka, **limits, **more}.items():
            properties.setProperty(key, value)
        return properties


def _describe(jvm: Any, admin: Any, topic: str) -> Any:
    return admin.describeTopics(_list(jvm, topic)).allTopicNames().get().get(topic)


def _divergence(consumer: Any, place: Any, wait: Any) -> dict[int, int]:
    """Return by partition where logs differ from what was read, for some that differ.

    If the broker does not know the place, the log counts as different from its beginning.
    """
    try:
        consumer.position(place, wait)
        return {}
    except Py4JError as error:
        java = getattr(error, "java_exception", None)
        if java is None or java.getClass().getSimpleName() != "LogTruncationException":
            raise
    ends = java.divergentOffsets()
    return {
        int(place.partition()): int(ends.get(place).offset()) if ends.containsKey(place) else 0
        for place in _keys(java.offsetOutOfRangePartitions())
    }


def _list(jvm: Any, item: Any) -> Any:
    return jvm.java.util.Collections.singletonList(item)


def _keys(mapping: Any) -> list[Any]:
    return _items(mapping.keySet())


def _items(collection: Any) -> list[Any]:
    """Return the items of a Java collection.

    The end of a Java iterator is an exception, for which PySpark searches all jars.
    """
    return list(collection.toArray())


def _reason(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    if java is None:
        return str(error)
    cause = java.getCause() or java
    return f"{cause.getClass().getSimpleName()}: {cause.getMessage()}"
