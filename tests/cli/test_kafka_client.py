"""Commands that publish read brokers, TLS and login from the file of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackcast.cli.kafka_client import client_options
from stackcast.udfs.errors import KafkaError

pytestmark = pytest.mark.unit

LOGIN = """
# spark.stackcast.kafka.client.id no
spark.master                            local[*]
spark.stackcast.kafka.bootstrap.servers = k1:9093,k2:9093
spark.stackcast.kafka.security.protocol SASL_SSL
spark.stackcast.kafka.sasl.mechanism=SCRAM-SHA-512
spark.stackcast.kafka.sasl.jaas.config  a.ScramLoginModule required username="u" password="p=1 :";
spark.stackcast.kafka.ssl.truststore.type PEM
spark.stackcast.kafka.ssl.truststore.location\t/etc/ca.pem
spark.stackcast.topic itch.raw
"""


def test_the_file_of_a_job_says_brokers_and_login(tmp_path: Path) -> None:
    file = tmp_path / "mine.conf"
    file.write_text(LOGIN)
    client = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "u",
        "sasl_plain_password": "p=1 :",
        "ssl_cafile": "/etc/ca.pem",
    }
    assert client_options(file, None) == ("k1:9093,k2:9093", client)
    assert client_options(file, "k3:1") == ("k3:1", client)
    assert client_options(None, None) == ("127.0.0.1:9092", {})


def test_what_the_client_cannot_do_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.conf"
    file.write_text(LOGIN.replace("type PEM", "type JKS"))
    with pytest.raises(KafkaError, match=r"BAD_OPTION: .*mine\.conf: .*ssl\.truststore\.type"):
        client_options(file, None)
