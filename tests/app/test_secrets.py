"""No password or key is told: not by repr, errors, pins, ledger, or Spark's own pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from paths import ROOT

from stackcast.jobs.adapters.app import session
from stackcast.jobs.adapters.app.settings import SECRET, Settings
from stackcast.jobs.adapters.checkpoint.identity import shaping
from stackcast.jobs.adapters.kafka.options import fetch_options
from stackcast.udfs.errors import KafkaError, SettingsError

pytestmark = pytest.mark.unit

PASSWORD = "p4ss-w0rd"
KAFKA = {
    "bootstrap.servers": "kafka1:9093",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": f'x.ScramLoginModule required username="u" password="{PASSWORD}";',
    "ssl.key.password": PASSWORD,
}
PEM = f"-----BEGIN PRIVATE KEY-----\n{PASSWORD}\n-----END PRIVATE KEY-----"


def test_settings_and_options_do_not_print_what_is_secret() -> None:
    settings = Settings.read((f"spark.stackcast.kafka.{key}", v) for key, v in KAFKA.items())
    assert settings.kafka == KAFKA
    assert PASSWORD not in repr(settings) and PASSWORD not in str(settings)
    assert PASSWORD not in repr(fetch_options(settings.kafka))
    # What pins and ledger keep of settings.
    assert PASSWORD not in repr(shaping(settings))


@pytest.mark.parametrize(
    "wrong",
    [
        {"sasl.mechanism": "GSSAPI"},
        {"sasl.jaas.config": f'x required user="u" password="{PASSWORD}";'},
        {"request.timeout.ms": "soon"},
        {"ssl.keystore.location": "/x", "ssl.keystore.password": PASSWORD},
    ],
)
def test_errors_of_options_name_keys_and_no_secret(wrong: dict[str, str]) -> None:
    with pytest.raises(KafkaError) as refused:
        fetch_options(KAFKA | wrong)
    assert PASSWORD not in str(refused.value) and "spark.stackcast.kafka." in str(refused.value)
    assert PASSWORD not in repr(refused.value)


def test_a_forgotten_broker_is_told_by_keys_alone() -> None:
    others = {key: value for key, value in KAFKA.items() if key != "bootstrap.servers"}
    settings = Settings(kafka=others)
    with pytest.raises(SettingsError) as refused:
        _ = settings.embedded
    assert PASSWORD not in str(refused.value) and "sasl.jaas.config" in str(refused.value)


@pytest.mark.parametrize("path", sorted((ROOT / "conf").glob("*.conf")), ids=lambda p: p.name)
def test_spark_shows_no_secret_of_ours(path: Path) -> None:
    lines = dict(re.findall(r"^(spark\.\S+)\s+(.+)$", path.read_text(), re.MULTILINE))
    # As Spark does: a pair is hidden whose key or value has a match.
    assert lines["spark.redaction.regex"] == SECRET
    hidden = re.compile(SECRET)
    secret = {
        "sasl.jaas.config": KAFKA["sasl.jaas.config"],
        "ssl.key.password": PASSWORD,
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.password": PASSWORD,
        "ssl.keystore.key": "MIGHAgEAMBMGByqGSM49",
        "ssl.keystore.certificate.chain": PEM,
        "sasl.oauthbearer.client.credentials.client.secret": PASSWORD,
    }
    for key, value in secret.items():
        name = f"spark.stackcast.kafka.{key}"
        assert hidden.search(name) or hidden.search(value), key
    shown = {key: value for key, value in lines.items() if not hidden.search(key)}
    assert "spark.stackcast.topic" in shown or "spark.master" in shown


@pytest.mark.parametrize(
    "secret",
    [
        {"spark.stackcast.summary.keys": "/etc/stackcast/summary.keys"},
        *({f"spark.stackcast.kafka.{key}": value} for key, value in list(KAFKA.items())[3:]),
        {"spark.stackcast.kafka.ssl.keystore.certificate.chain": PEM},
        {"spark.hadoop.fs.s3a.secret.key": PASSWORD},
        {"spark.hadoop.fs.s3a.access.key": PASSWORD},
    ],
)
def test_temporary_files_of_spark_are_encrypted_where_tasks_may_get_a_secret(
    secret: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    master = {"spark.master": "yarn"}
    encrypted = {session.ENCRYPTION: "true"}
    assert session._encryption(master | secret) == encrypted
    # Another choice gets a warning, which shows no secret.
    assert session._encryption(master | secret | encrypted) == {} and not caplog.text
    assert session._encryption(master | secret | {session.ENCRYPTION: "false"}) == {}
    assert next(iter(secret)) in caplog.text and PASSWORD not in caplog.text


def test_temporary_files_of_spark_are_not_encrypted_without_a_secret() -> None:
    text = (ROOT / "conf" / "spark-defaults.conf").read_text()
    lines = dict(re.findall(r"^(spark\.\S+)\s+(.+)$", text, re.MULTILINE))
    assert session._encryption(lines | {"spark.stackcast.summary.keys": ""}) == {}
    # Among the jars of --packages is one whose name contains a word of secrets.
    jars = {"spark.jars": "/jars/a.jar,/jars/org.spark-token-provider-kafka-0-10_2.13-4.2.0.jar"}
    assert session._encryption(lines | jars) == {}
    assert session._encryption({"spark.master": "yarn", "spark.x": "token=1"} | jars) != {}
