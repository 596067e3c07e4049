"""Commands that publish read brokers, TLS and login from the file of a job."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stackcast.cli.kafka_client import broker_errors, client_options
from stackcast.lab.traffic.publisher import publish
from stackcast.lab.up.folder import FolderLock, state_file
from stackcast.udfs.errors import KafkaError, LabError

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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which commands look for a lab."""
    monkeypatch.setenv("STACKCAST_VAR", str(tmp_path))
    return tmp_path / "lab"


@pytest.fixture
def lab(folder: Path) -> Iterator[Path]:
    """The folder, with the lock and the file of a lab that is up."""
    lock = FolderLock(folder)
    lock.take()
    write_state(folder, ready=True, bootstrap_servers="127.0.0.1:1")
    yield folder
    lock.free()


def write_state(folder: Path, **state: object) -> None:
    state_file(folder).write_text(json.dumps({"pid": os.getpid(), **state}))
    key = "spark.stackcast.kafka.bootstrap.servers"
    (folder / "lab.conf").write_text(f"{key} {state.get('bootstrap_servers')}\n")


def test_without_options_the_broker_is_that_of_the_lab_that_is_up(lab: Path) -> None:
    assert client_options(None, None) == ("127.0.0.1:1", {})
    # Options are stronger.
    assert client_options(None, "k3:1") == ("k3:1", {})
    file = lab / "mine.conf"
    file.write_text("spark.stackcast.kafka.bootstrap.servers k1:1")
    assert client_options(file, None) == ("k1:1", {})


def test_a_lab_that_is_down_or_was_killed_is_not_used(folder: Path) -> None:
    assert client_options(None, None) == ("127.0.0.1:9092", {})
    folder.mkdir()
    write_state(folder, ready=True, bootstrap_servers="127.0.0.1:1")
    assert client_options(None, None) == ("127.0.0.1:9092", {})


def test_a_lab_that_is_coming_up_is_an_error_of_its_own(lab: Path) -> None:
    write_state(lab, ready=False)
    with pytest.raises(LabError, match="is still starting") as caught:
        client_options(None, None)
    assert caught.value.code == "LAB.NO_ANSWER" and str(lab) in caught.value.message


def unreachable(brokers: str) -> str:
    with pytest.raises(KafkaError) as caught, broker_errors():
        publish(brokers, "any", [])
    assert caught.value.code == "KAFKA.BROKER_UNREACHABLE"
    assert f"no Kafka broker answers at {brokers}" in caught.value.message
    return caught.value.message


@pytest.mark.integration
def test_the_error_of_an_unreachable_broker_says_whether_a_lab_is_up(folder: Path) -> None:
    message = unreachable("127.0.0.1:1")
    assert f"no lab is up in {folder}: start one with 'stackcast lab up'" in message


@pytest.mark.integration
def test_the_error_of_an_unreachable_broker_names_the_broker_of_the_lab(lab: Path) -> None:
    assert f"the broker of the lab in {lab}" in unreachable("127.0.0.1:1")
    assert "its broker is at 127.0.0.1:1: leave out --bootstrap-servers" in unreachable(
        "127.0.0.1:2"
    )


def test_what_the_client_cannot_do_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.conf"
    file.write_text(LOGIN.replace("type PEM", "type JKS"))
    with pytest.raises(KafkaError, match=r"BAD_OPTION: .*mine\.conf: .*ssl\.truststore\.type"):
        client_options(file, None)
