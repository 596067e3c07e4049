"""A stream reads from a broker with TLS, logins and ACLs, and names what the broker refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result
from following import drain
from kafka import KafkaConsumer, TopicPartition
from pcap_deployment import Deployment, receipts, records
from secured_broker import SecuredBroker
from typer.testing import CliRunner

from stackcast.cli import main
from stackcast.jobs.adapters.kafka.client import Fetcher
from stackcast.jobs.adapters.kafka.java_admin import JavaAdmin
from stackcast.jobs.adapters.kafka.options import fetch_options
from stackcast.jobs.adapters.kafka.python_admin import PythonAdmin
from stackcast.jobs.adapters.kafka.ranges import Range
from stackcast.jobs.adapters.kafka.topic_log import TopicLog
from stackcast.jobs.check_delivery import Evidence
from stackcast.lab.up.broker import default_class_path
from stackcast.udfs.errors import KafkaError

pytestmark = pytest.mark.integration

#: Rights of a stream on its topic and on that for dead letters, as in
#: docs/how-to/secure-a-deployment.md.
RAW = ("DESCRIBE", "READ")
DEAD = ("DESCRIBE", "WRITE")
#: Records per window of the proof: a partition has twice as many. Each window is a query of Spark.
WINDOW = 80


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    secured_broker = SecuredBroker(default_class_path(), tmp_path_factory.mktemp("secured"))
    secured_broker.acls = True
    with secured_broker.start(600) as broker:
        broker.add_user("stream", "se cret")
        broker.add_user("nobody", "x")
        yield broker


@pytest.fixture
def deployment(spark, filled: Path, secured: SecuredBroker, tmp_path: Path) -> Deployment:
    shutil.copytree(filled, tmp_path / "tables")
    return Deployment(spark, secured.bootstrap_servers, tmp_path)


def dead_letters(deployment: Deployment) -> list[str]:
    """Return the reasons of all dead letters in the topic."""
    partition = TopicPartition(deployment.settings.dead_letter_topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=deployment.servers)
    consumer.assign([partition])
    consumer.seek_to_beginning()
    end = consumer.end_offsets([partition])[partition]
    reasons: list[str] = []
    while len(reasons) < end:
        for batch in consumer.poll(500).values():
            reasons += [json.loads(record.value)["reason"] for record in batch]
    consumer.close()
    return reasons


@pytest.mark.long
def test_a_stream_needs_no_more_rights_than_documented_by_login_and_by_certificate(
    deployment: Deployment, secured: SecuredBroker, itch, caplog
) -> None:
    raw, dead = deployment.settings.topic, deployment.settings.dead_letter_topic
    for principal in ("stream", "CN=client"):
        secured.allow(principal, raw, *RAW)
    secured.allow("stream", dead, *DEAD)
    deployment.publish([*records()[:150], b"noise"])
    deployment.set(kafka=secured.login("SCRAM-SHA-512", "stream", "se cret"))
    drain(deployment.spark, deployment.settings)
    assert dead_letters(deployment) == ["truncated_header"]

    # Without the right to write dead letters, the stream logs that and delivers the rest.
    deployment.set(kafka=secured.tls(secured.mutual, "client"))
    deployment.publish([*records()[150:], b"noise"])
    drain(deployment.spark, deployment.settings)
    assert "Spark's connector reads" not in caplog.text
    assert f"1 samples could not be written to topic {dead}" in caplog.text
    assert "TopicAuthorizationException" in caplog.text
    assert len(dead_letters(deployment)) == 1
    deployment.set(kafka={"bootstrap.servers": secured.bootstrap_servers})
    outcome = deployment.outcome(itch)
    assert outcome.exact and outcome.received > 100
    assert sum(row["dead_letters"] for row in deployment.ledger) == 2

    # The proof needs no further rights. It reads the records in several windows.
    deployment.set(kafka=secured.tls(secured.mutual, "client"))
    frames = deployment.frames()
    complete = receipts(frames)
    incomplete = {host: rows[:-1] for host, rows in complete.items()}
    evidence = Evidence(deployment.spark, deployment.settings)
    verdict = evidence.verdict(complete, window=WINDOW)
    assert verdict.proved and verdict.waiting == 0, list(verdict.lines())
    assert verdict.received > 50
    assert evidence.verdict(incomplete, since=1).faults["missing"]


def python_admin(kafka: dict[str, str]) -> PythonAdmin:
    return PythonAdmin(fetch_options(kafka).client)


REFUSED = {
    "wrong password": "LOGIN_REFUSED",
    "unknown user": "LOGIN_REFUSED",
    "unknown mechanism": "LOGIN_REFUSED",
    "another authority": "TLS_REFUSED",
    "a broker's expired certificate": "TLS_REFUSED",
    "our expired certificate": "TLS_REFUSED",
    "a certificate of a stranger": "TLS_REFUSED",
    "no certificate": "TLS_REFUSED",
    "no right to see the topic": "NOT_ALLOWED",
}


@pytest.mark.parametrize("client", ["python", "java"])
@pytest.mark.parametrize("fault", REFUSED)
def test_a_refusal_of_the_broker_has_a_code_and_ends_the_wait(
    deployment: Deployment, secured: SecuredBroker, fault: str, client: str
) -> None:
    plain = secured.login()
    kafka = {
        "wrong password": secured.login("SCRAM-SHA-512", "stream", "other"),
        "unknown user": secured.login("SCRAM-SHA-512", "stranger", "se cret"),
        "unknown mechanism": plain | {"sasl.mechanism": "SCRAM-SHA-256"},
        "another authority": secured.tls(secured.mutual, "client", authority="other"),
        "a broker's expired certificate": secured.tls(secured.expired),
        "our expired certificate": secured.tls(secured.mutual, "expired"),
        "a certificate of a stranger": secured.tls(secured.mutual, "stranger"),
        "no certificate": secured.tls(secured.mutual),
        "no right to see the topic": secured.login("SCRAM-SHA-512", "nobody", "x"),
    }[fault]
    if fault == "unknown mechanism":
        kafka["sasl.jaas.config"] = kafka["sasl.jaas.config"].replace("plain.Plain", "scram.Scram")
    deployment.set(kafka=kafka, wait_seconds=300)
    admin = JavaAdmin(deployment.spark, kafka) if client == "java" else python_admin(kafka)
    with closing(admin), pytest.raises(KafkaError) as refused:
        TopicLog(admin, deployment.settings).wait()
    assert refused.value.code == f"KAFKA.{REFUSED[fault]}"
    assert kafka["bootstrap.servers"] in refused.value.message
    assert "se cret" not in refused.value.message and "password=" not in refused.value.message


def test_a_task_without_the_right_to_read_fails_at_once(
    deployment: Deployment, secured: SecuredBroker
) -> None:
    topic = deployment.settings.topic
    secured.allow("nobody", topic, "DESCRIBE")
    deployment.publish(records()[:2])
    fetcher = Fetcher(fetch_options(secured.login("SCRAM-SHA-512", "nobody", "x")))
    with pytest.raises(KafkaError, match=r"KAFKA.FETCH_REFUSED: .*TopicAuthorization"):
        next(fetcher.batches(Range(topic, 0, 0, 1)))
    fetcher.close()


@pytest.mark.parametrize("command", ["itch", "attributes"])
def test_commands_publish_by_the_properties_of_a_job(
    secured: SecuredBroker, tmp_path: Path, command: str
) -> None:
    topic = f"published-{command}"
    number = ("--generate", 600) if command == "itch" else ("--sensors", 600)
    secured.allow("stream", topic, "CREATE", "DESCRIBE", "WRITE")

    def publish(password: str) -> Result:
        kafka = secured.login("SCRAM-SHA-512", "stream", password)
        lines = [f"spark.stackcast.kafka.{key}  {value}\n" for key, value in kafka.items()]
        file = tmp_path / "mine.conf"
        file.write_text("# a deployment\nspark.master local[2]\n" + "".join(lines))
        arguments = (command, "publish", *number, "--topic", topic, "--properties-file", file)
        return CliRunner().invoke(main.app, [str(each) for each in arguments])

    result = publish("se cret")
    assert result.exit_code == 0, result.output
    consumer = KafkaConsumer(bootstrap_servers=secured.bootstrap_servers)
    partitions = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic)]
    assert 50 <= sum(consumer.end_offsets(partitions).values()) <= 600
    consumer.close()
    refused = publish("other")
    assert isinstance(refused.exception, KafkaError)
    assert "other" not in str(refused.exception)
