"""Options of Kafka's Java client, as settings have them, for the client of the tasks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stackcast.jobs.adapters.app.settings import PREFIX, Settings
from stackcast.udfs.errors import KafkaError


@dataclass(frozen=True)
class FetchOptions:
    """Options of a fetching client.

    client: keyword arguments of kafka-python. wait_ms, least, most: of a fetch, as of Kafka's
    fetch.max.wait.ms, fetch.min.bytes and max.partition.fetch.bytes. committed: leaves out records
    of transactions that are not committed. patience: seconds without an answer until a task fails.
    header: of records, the one that names their publisher; empty where none does.
    """

    # Not to be printed: a password may be among them.
    client: tuple[tuple[str, Any], ...] = field(repr=False)
    wait_ms: int = 500
    least: int = 1
    most: int = 1 << 22
    committed: bool = False
    patience: float = 120.0
    header: str = ""


def _checked(value: str) -> bool:
    return value != ""


#: Java's name -> kafka-python's, and how its value is read.
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
#: What a task does without, or does otherwise.
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

    A reader must not create the topic that it reads, which is the default of Kafka's client: a
    topic that somebody deletes would exist again at once, with other partitions.

    Args:
        kafka: options of the Java client, by name.
    """
    return {f"kafka.{key}": value for key, value in kafka.items()} | {
        "kafka.allow.auto.create.topics": "false"
    }


def fetch_options(kafka: Mapping[str, str], header: str = "") -> FetchOptions:
    """Returns the options that a task fetches by.

    kafka: options of the Java client, by name. header: as of `FetchOptions`. Raises KafkaError
    CONNECTOR_USED, which names the option, if a task cannot apply it; Spark's connector can.
    """
    client: dict[str, Any] = {}
    fetch: dict[str, Any] = {}
    for key, value in kafka.items():
        table, found = (_CLIENT, client) if key in _CLIENT else (_FETCH, fetch)
        if key in table:
            name, read = table[key]
            try:
                found[name] = read(value)
            except ValueError:
                raise _not_fetched(key, f"is {value!r}, but must be a number") from None
        elif key not in _NEEDLESS:
            raise _not_fetched(key, "is not supported")
    for key in ("ssl.truststore", "ssl.keystore"):
        if f"{key}.location" in kafka and kafka.get(f"{key}.type", "JKS") != "PEM":
            raise _not_fetched(f"{key}.type", "must be PEM")
    if "ssl.keystore.location" in kafka:
        # One file of PEM has both.
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
    found = {part: form.search(kafka.get("sasl.jaas.config", "")) for part, form in _JAAS.items()}
    words = {part: re.sub(r"\\(.)", r"\1", match[1]) for part, match in found.items() if match}
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
