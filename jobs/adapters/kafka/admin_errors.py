"""Errors of `KafkaAdmin`: the same codes and texts for all clients."""

from __future__ import annotations

from stackcast.udfs.errors import KafkaError

#: Codes of errors that repetition does not repair: a broker has answered and refuses.
REFUSALS = ("TLS_REFUSED", "LOGIN_REFUSED", "NOT_ALLOWED", "BAD_OPTION")


def no_broker(servers: str) -> KafkaError:
    return KafkaError(
        "BROKER_UNREACHABLE",
        f"no Kafka broker answers at {servers}: check spark.stackcast.kafka.bootstrap.servers and "
        "whether the broker is running",
    )


def no_topic(servers: str, topic: str) -> KafkaError:
    return KafkaError(
        "NO_TOPIC",
        f"the broker at {servers} has no topic {topic!r}: create it, or set spark.stackcast.topic",
    )


def tls_refused(servers: str, reason: str) -> KafkaError:
    return KafkaError(
        "TLS_REFUSED",
        f"the TLS connection to the broker at {servers} failed: {reason}; one side rejects the "
        "certificate of the other: check spark.stackcast.kafka.ssl.truststore.* and "
        "ssl.keystore.*, and whether a certificate has expired (openssl x509 -enddate)",
    )


def login_refused(servers: str, reason: str) -> KafkaError:
    return KafkaError(
        "LOGIN_REFUSED",
        f"the broker at {servers} rejected the login: {reason}; check the user, the password and "
        "spark.stackcast.kafka.sasl.mechanism",
    )


def not_allowed(servers: str, topic: str, reason: str) -> KafkaError:
    return KafkaError(
        "NOT_ALLOWED",
        f"the broker at {servers} denied an operation on topic {topic!r}: {reason}; grant its user "
        "the permissions that docs/explanation/security.md lists",
    )


def bad_option(servers: str, reason: str) -> KafkaError:
    return KafkaError(
        "BAD_OPTION",
        f"the Kafka client rejected its options for {servers}: {reason}; check the "
        "spark.stackcast.kafka.* settings",
    )


def no_servers() -> KafkaError:
    return KafkaError(
        "BAD_OPTION",
        "spark.stackcast.kafka.bootstrap.servers is not set: set it to the addresses of the "
        "brokers, such as broker1:9092,broker2:9092",
    )
