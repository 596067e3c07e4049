"""No password or key is told: not by repr, errors, pins, ledger, or Spark's own pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from paths import ROOT

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.checkpoint.identity import shaping
from stackcast.jobs.adapters.fetch.options import fetch_options
from stackcast.udfs.errors import KafkaError, SettingsError

pytestmark = pytest.mark.unit

SECRET = "p4ss-w0rd"
KAFKA = {
    "bootstrap.servers": "kafka1:9093",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": f'x.ScramLoginModule required username="u" password="{SECRET}";',
    "ssl.key.password": SECRET,
}
PEM = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----"


def test_settings_and_options_do_not_print_what_is_secret() -> None:
    settings = Settings.read((f"spark.stackcast.kafka.{key}", v) for key, v in KAFKA.items())
    assert settings.kafka == KAFKA
    assert SECRET not in repr(settings) and SECRET not in str(settings)
    assert SECRET not in repr(fetch_options(settings.kafka))
    # What pins and ledger keep of settings.
    assert SECRET not in repr(shaping(settings))


@pytest.mark.parametrize(
    "wrong",
    [
        {"sasl.mechanism": "GSSAPI"},
        {"sasl.jaas.config": f'x required user="u" password="{SECRET}";'},
        {"request.timeout.ms": "soon"},
        {"ssl.keystore.location": "/x", "ssl.keystore.password": SECRET},
    ],
)
def test_errors_of_options_name_keys_and_no_secret(wrong: dict[str, str]) -> None:
    with pytest.raises(KafkaError) as refused:
        fetch_options(KAFKA | wrong)
    assert SECRET not in str(refused.value) and "spark.stackcast.kafka." in str(refused.value)
    assert SECRET not in repr(refused.value)


def test_a_forgotten_broker_is_told_by_keys_alone() -> None:
    others = {key: value for key, value in KAFKA.items() if key != "bootstrap.servers"}
    settings = Settings(kafka=others)
    with pytest.raises(SettingsError) as refused:
        _ = settings.embedded
    assert SECRET not in str(refused.value) and "sasl.jaas.config" in str(refused.value)


@pytest.mark.parametrize("path", sorted((ROOT / "conf").glob("*.conf")), ids=lambda p: p.name)
def test_spark_shows_no_secret_of_ours(path: Path) -> None:
    lines = dict(re.findall(r"^(spark\.\S+)\s+(.+)$", path.read_text(), re.MULTILINE))
    # As Spark does: a pair is hidden whose key or value has a match.
    hidden = re.compile(lines["spark.redaction.regex"])
    secret = {
        "sasl.jaas.config": KAFKA["sasl.jaas.config"],
        "ssl.key.password": SECRET,
        "ssl.keystore.password": SECRET,
        "ssl.truststore.password": SECRET,
        "ssl.keystore.key": "MIGHAgEAMBMGByqGSM49",
        "ssl.keystore.certificate.chain": PEM,
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
    }
    for key, value in secret.items():
        name = f"spark.stackcast.kafka.{key}"
        assert hidden.search(name) or hidden.search(value), key
    shown = {key: value for key, value in lines.items() if not hidden.search(key)}
    assert "spark.stackcast.topic" in shown or "spark.master" in shown
