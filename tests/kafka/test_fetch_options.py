"""Options of Kafka's Java client, as they are set for Spark, hold for tasks that fetch."""

from __future__ import annotations

import pytest

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.options import fetch_of, fetch_options
from stackcast.udfs.errors import KafkaError

pytestmark = pytest.mark.unit

BROKER = {"bootstrap.servers": "k:9092"}
LOGIN = 'x.scram.ScramLoginModule required username="u" password="p\\"q";'


def test_servers_and_sizes_are_as_set():
    kafka = BROKER | {"max.partition.fetch.bytes": "1000", "fetch.max.wait.ms": "7"}
    found = fetch_options(kafka | {"isolation.level": "read_committed", "max.poll.records": "9"})
    assert dict(found.client) == {"bootstrap_servers": "k:9092"}
    assert (found.most, found.wait_ms, found.committed) == (1000, 7, True)


def test_a_login_by_name_and_password_is_taken_over():
    kafka = BROKER | {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": LOGIN,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/etc/ca.pem",
        "ssl.endpoint.identification.algorithm": "",
    }
    assert dict(fetch_options(kafka).client) == {
        "bootstrap_servers": "k:9092",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "u",
        "sasl_plain_password": 'p"q',
        "ssl_cafile": "/etc/ca.pem",
        "ssl_check_hostname": False,
    }


@pytest.mark.parametrize(
    ("kafka", "key"),
    [
        ({"interceptor.classes": "x.Y"}, "interceptor.classes"),
        ({"fetch.max.wait.ms": "soon"}, "fetch.max.wait.ms"),
        ({"ssl.truststore.location": "/etc/ca.jks"}, "ssl.truststore.type"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config"),
    ],
)
def test_what_tasks_cannot_do_is_named_and_sparks_connector_serves(kafka, key):
    with pytest.raises(KafkaError) as raised:
        fetch_options(BROKER | kafka)
    assert raised.value.code == "KAFKA.CONNECTOR_USED"
    assert f"spark.stackcast.kafka.{key} " in raised.value.message
    assert key in str(fetch_of(Settings(kafka=BROKER | kafka)))


def test_sparks_connector_serves_where_a_setting_says_so():
    assert fetch_of(Settings(kafka=BROKER)) == fetch_options(BROKER)
    told = fetch_of(Settings(kafka=BROKER, fetch="connector"))
    assert "spark.stackcast.fetch is connector" in str(told)
    for input in ("json", "bitmask"):
        found = fetch_of(Settings(kafka=BROKER, format="attributes", attributes_input=input))
        assert found == fetch_options(BROKER)


def test_tasks_read_the_header_that_names_publishers():
    several = Settings(kafka=BROKER, publisher="feed1,feed2", publisher_by="header:from")
    assert fetch_of(several) == fetch_options(BROKER, "from")
    assert fetch_options(BROKER).header == ""
