"""All implementations of `KafkaAdmin` answer alike: kafka-python, Java's client and memory."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Protocol

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from memory_kafka import MemoryKafka
from ports import free_port
from quick_broker import QuickBroker
from waiting import until

from stackcast.jobs.adapters.kafka import admin_errors
from stackcast.jobs.adapters.kafka.admin import EARLIEST, LATEST, NO_OFFSET, KafkaAdmin, LogOffset
from stackcast.jobs.adapters.kafka.java_admin import JavaAdmin
from stackcast.jobs.adapters.kafka.python_admin import PythonAdmin
from stackcast.udfs.errors import KafkaError

HOUR = 3_600_000
"""Milliseconds between two records."""

CLIENTS = [
    pytest.param("memory", marks=pytest.mark.unit),
    pytest.param("python", marks=pytest.mark.integration),
    pytest.param("java", marks=pytest.mark.integration),
]


class Cluster(Protocol):
    """A cluster with topics of two partitions."""

    def admin(self, reachable: bool = True) -> KafkaAdmin:
        """Return a client; of brokers that do not answer if not ``reachable``."""

    def create(self, topic: str, **options: str) -> None: ...
    def publish(self, topic: str, hours: list[int]) -> None: ...
    def open_transaction(self, topic: str) -> None: ...
    def lose(self, topic: str, later: list[int]) -> None:
        """Append records to a topic, and elect a leader that does not have them."""


class MemoryCluster(MemoryKafka):
    def admin(self, reachable: bool = True) -> KafkaAdmin:
        self.failure = None if reachable else admin_errors.no_broker(self.servers)
        return self

    def create(self, topic: str, partitions: int = 2, **options: str) -> None:
        super().create(topic, partitions, **options)

    def publish(self, topic: str, hours: list[int]) -> None:
        for hour in hours:
            super().publish(topic, 0, b"x", 1000 * HOUR * hour)

    def open_transaction(self, topic: str) -> None:
        super().open_transaction(topic, 0)
        self.publish(topic, [9])

    def lose(self, topic: str, later: list[int]) -> None:
        end = self.log(topic, 0).end
        self.publish(topic, later)
        for partition, its_end in enumerate((end, None)):
            self.elect(topic, partition, its_end)


class BrokerCluster:
    def __init__(self, broker: QuickBroker, client: Callable[[str], KafkaAdmin]) -> None:
        self._broker = broker
        self._client = client

    def admin(self, reachable: bool = True) -> KafkaAdmin:
        servers = self._broker.bootstrap_servers
        return self._client(servers if reachable else f"127.0.0.1:{free_port()}")

    def create(self, topic: str, **options: str) -> None:
        configs = {key.replace("_", "."): value for key, value in options.items()}
        with closing(KafkaAdminClient(bootstrap_servers=self._broker.bootstrap_servers)) as admin:
            new = {"num_partitions": 2, "replication_factor": 1, "configs": configs}
            admin.create_topics({topic: new}, wait_for_metadata=True)

    def publish(self, topic: str, hours: list[int]) -> None:
        with closing(KafkaProducer(bootstrap_servers=self._broker.bootstrap_servers)) as producer:
            for hour in hours:
                producer.send(topic, b"x", partition=0, timestamp_ms=HOUR * hour).get()

    def open_transaction(self, topic: str) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self._broker.bootstrap_servers, transactional_id=topic
        )
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"x", partition=0).get()
        self.transaction = producer

    def lose(self, topic: str, later: list[int]) -> None:
        self._broker.save(topic)
        self.publish(topic, later)
        self._broker.truncate(topic)


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Cluster:
    if request.param == "memory":
        return MemoryCluster()
    broker = request.getfixturevalue("broker")
    if request.param == "python":
        return BrokerCluster(broker, lambda servers: PythonAdmin([("bootstrap_servers", servers)]))
    spark = request.getfixturevalue("spark")
    return BrokerCluster(broker, lambda servers: JavaAdmin(spark, {"bootstrap.servers": servers}))


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[KafkaAdmin]:
    with closing(cluster.admin()) as client:
        yield client


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"admin-{uuid.uuid4().hex}"
    cluster.create(name)
    return name


pytestmark = pytest.mark.parametrize("cluster", CLIENTS, indirect=True)


def test_offsets_are_those_of_the_first_record_and_of_the_end(cluster, admin, topic):
    assert admin.list_offsets(topic, EARLIEST).keys() == {0, 1}
    cluster.publish(topic, [1, 2, 3])
    first, end = (admin.list_offsets(topic, place) for place in (EARLIEST, LATEST))
    assert [first[p].offset for p in (0, 1)] == [0, 0]
    assert [end[p].offset for p in (0, 1)] == [3, 0]
    assert end[0].epoch >= 0


def test_an_offset_by_time_is_that_of_the_first_record_of_this_time_or_later(cluster, admin, topic):
    cluster.publish(topic, [1, 2, 4])
    for hour, offset in ((0, 0), (2, 1), (3, 2), (5, NO_OFFSET)):
        positions = admin.list_offsets(topic, HOUR * hour)
        assert (positions[0].offset, positions[1].offset) == (offset, NO_OFFSET)


def test_an_open_transaction_ends_the_committed_log(cluster, admin, topic):
    cluster.publish(topic, [1, 2])
    assert admin.list_offsets(topic, LATEST, committed=True)[0].offset == 2
    cluster.open_transaction(topic)
    assert admin.list_offsets(topic, LATEST, committed=True)[0].offset == 2
    assert admin.list_offsets(topic, LATEST)[0].offset == 3


def test_a_truncated_log_is_found_after_new_records_have_taken_its_offsets(cluster, admin, topic):
    cluster.publish(topic, [1, 2, 3])
    epoch = admin.list_offsets(topic, LATEST)[0].epoch
    cluster.lose(topic, [4, 5])
    cluster.publish(topic, [6, 7, 8, 9])
    assert admin.list_offsets(topic, LATEST)[0].offset == 7
    assert admin.list_offsets(topic, LATEST)[0].epoch > epoch
    read = {0: LogOffset(5, epoch), 1: LogOffset(0, epoch)}
    assert admin.truncated(topic, read) == {0: 3}
    assert admin.truncated(topic, {0: LogOffset(3, epoch)}) == {}
    assert admin.truncated(topic, {}) == {}


def test_topics_have_the_id_of_their_cluster_and_ids_of_their_own(cluster, admin, topic):
    other = f"{topic}-2"
    cluster.create(other)
    identities = [admin.identity(name) for name in (topic, other, topic)]
    assert identities[0] == identities[2]
    assert identities[0].cluster == identities[1].cluster != ""
    assert identities[0].topic != identities[1].topic
    assert {len(identity.topic) for identity in identities} == {22}


def test_only_options_of_the_topic_itself_are_returned(cluster, admin, topic):
    other = f"{topic}-2"
    cluster.create(other, max_message_bytes="9000000")
    assert admin.topic_option(topic, "max.message.bytes") is None
    assert admin.topic_option(other, "max.message.bytes") == "9000000"


def test_a_topic_is_created_once(admin, topic):
    assert not admin.create_topic(topic)
    new = f"{topic}-2"
    assert admin.create_topic(new)
    until(lambda: not admin.create_topic(new))


def test_a_missing_topic_has_a_code(admin, topic):
    for call in (
        lambda: admin.list_offsets("missing", LATEST),
        lambda: admin.identity("missing"),
        lambda: admin.topic_option("missing", "max.message.bytes"),
    ):
        with pytest.raises(KafkaError, match=r"KAFKA\.NO_TOPIC: .* has no topic 'missing'"):
            call()


def test_brokers_that_do_not_answer_have_a_code(cluster):
    error = pytest.raises(KafkaError, match=r"KAFKA\.BROKER_UNREACHABLE: no Kafka broker answers")
    with closing(cluster.admin(reachable=False)) as client, error:
        client.list_offsets("any", LATEST)


def test_a_closed_client_opens_new_connections(admin, topic):
    identity = admin.identity(topic)
    admin.close()
    assert admin.identity(topic) == identity
