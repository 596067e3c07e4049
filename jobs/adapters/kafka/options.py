"""Translation of the options of Kafka's Java client, which settings contain, to kafka-python."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stackcast.jobs.adapters.app.settings import PREFIX, Settings
from stackcast.udfs.errors import KafkaError


@dataclass(frozen=True)
class FetchOptions:
    """Options of a client that fetches records.

    Attributes:
        client: keyword arguments of kafka-python.
        wait_ms, least, most: Kafka's fetch.max.wait.ms, fetch.min.bytes and
            max.partition.fetch.bytes.
        committed: whether to omit records of transactions that are not committed.
        patience: seconds without an answer until a task fails.
        header: header that names the publisher of a record; empty if there is none.
    """

    # Not printed, because it may contain a password.
    client: tuple[tuple[str, Any], ...] = field(repr=False)
    wait_ms: int = 500
    least: int = 1
    most: int = 1 << 22
    committed: bool = False
    patience: float = 120.0
    header: str = ""


def _checked(value: str) -> bool:
    return value != ""


#: Name in Java -> name in kafka-python, and the conversion of the value.
_CLIENT: dict[str, tuple[str, Callable[[str], Any]]] = {
    "bootstrap.servers": ("bootstrap_servers", str),
    "client.id": ("client_id", str),
    "client.dns.lookup": ("client_dns_lookup", str),
    "request.timeout.ms": ("request_timeout_ms", int),
    "security.protocol": ("security_protocol", str),
    "sasl.mechanism": ("sasl_mechanism", str),
    "ssl.endpoint.identification.algorithm": ("ssl_check_hostname", _checked),
    "ssl.truststore.location": ("ssl_cafile", str),
    "ssl.keystore.location": ("ssl_certfile", str),
    "ssl.key.password": ("ssl_password", str),
}
_FETCH: dict[str, tuple[str, Callable[[str], Any]]] = {
    "fetch.max.wait.ms": ("wait_ms", int),
    "fetch.min.bytes": ("least", int),
    "max.partition.fetch.bytes": ("most", int),
    "isolation.level": ("committed", "read_committed".__eq__),
}
#: Options that kafka-python does not need, or that are translated elsewhere.
_NEEDLESS = {
    "max.poll.records",
    "fetch.max.bytes",
    "ssl.truststore.type",
    "ssl.keystore.type",
    "sasl.jaas.config",
    "default.api.timeout.ms",
    "allow.auto.create.topics",
}
_MECHANISMS = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
_WORD = r'"((?:[^"\\]|\\.)*)"'
_JAAS = {part: re.compile(rf"\b{part}\s*=\s*{_WORD}") for part in ("username", "password")}


def reader_options(kafka: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of Spark's Kafka connector, for reading.

    A reader must not create its topic, as Kafka's client does by default: a deleted topic would
    exist again at once, with other partitions.

    Args:
        kafka: options of the Java client, by name.
    """
    return {f"kafka.{key}": value for key, value in kafka.items()} | {
        "kafka.allow.auto.create.topics": "false"
    }


def fetch_options(kafka: Mapping[str, str], header: str = "") -> FetchOptions:
    """Return the options with which tasks fetch records.

    Args:
        kafka: options of the Java client by name.
        header: see `FetchOptions`.

    Raises:
        KafkaError: CONNECTOR_USED with an option that only the Java client supports.
    """
    client: dict[str, Any] = {}
    fetch: dict[str, Any] = {}
    for key, value in kafka.items():
        table, options = (_CLIENT, client) if key in _CLIENT else (_FETCH, fetch)
        if key in table:
            name, convert = table[key]
            try:
                options[name] = convert(value)
            except ValueError:
                raise _not_fetched(key, f"is {value!r}, but must be a number") from None
        elif key not in _NEEDLESS:
            raise _not_fetched(key, "is not supported")
    for key in ("ssl.truststore", "ssl.keystore"):
        if f"{key}.location" in kafka and kafka.get(f"{key}.type", "JKS") != "PEM":
            raise _not_fetched(f"{key}.type", "must be PEM")
    if "ssl.keystore.location" in kafka:
        # A PEM file contains both.
        client["ssl_keyfile"] = client["ssl_certfile"]
    if kafka.get("security.protocol", "").startswith("SASL"):
        client |= _login(kafka)
    return FetchOptions(tuple(sorted(client.items())), header=header, **fetch)


def _login(kafka: Mapping[str, str]) -> dict[str, str]:
    mechanism = kafka.get("sasl.mechanism", "GSSAPI")
    if mechanism not in _MECHANISMS:
        raise _not_fetched(
            "sasl.mechanism",
            f"is {mechanism}, but only {', '.join(sorted(_MECHANISMS))} are supported",
        )
    jaas = kafka.get("sasl.jaas.config", "")
    matches = {part: form.search(jaas) for part, form in _JAAS.items()}
    words = {part: re.sub(r"\\(.)", r"\1", match[1]) for part, match in matches.items() if match}
    if len(words) < len(_JAAS):
        raise _not_fetched("sasl.jaas.config", "must contain a username and a password")
    return {f"sasl_plain_{part}": word for part, word in words.items()}


def _not_fetched(key: str, why: str) -> KafkaError:
    return KafkaError(
        "CONNECTOR_USED",
        f"tasks cannot fetch records themselves, because spark.stackcast.kafka.{key} {why}",
        key=key,
    )


def fetch_of(settings: Settings) -> FetchOptions | str:
    """Return the options with which tasks fetch records, or the reason for Spark's connector."""
    why = f"{PREFIX}fetch is connector"
    if settings.fetch == "tasks":
        try:
            return fetch_options(settings.kafka, settings.publisher_header)
        except KafkaError as error:
            why = error.message
    return f"records are read by Spark's Kafka connector: {why}"
