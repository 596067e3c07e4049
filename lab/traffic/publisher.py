"""Publishes to a Kafka topic: a trading session as MoldUDP64 packets, or records as they are."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Semaphore
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import KafkaConfigurationError, TopicAlreadyExistsError
from kafka.errors import KafkaError as ClientError

from stackcast.lab.traffic.itch_writer import STAMPED, timestamp
from stackcast.lab.traffic.packets import SESSION, Packet, new_packets, whole_packets
from stackcast.udfs.errors import KafkaError
from stackcast.udfs.stop_request import StopRequest

#: At recorded speed, silences of the record (before the opening, say) are kept up to this long.
LONGEST_SILENCE_S = 5.0

#: A packet leaves up to this long before it is due, in seconds. Many sleeps per millisecond would
#: take most of a core.
TICK_S = 0.002
#: How long a producer collects records for one request, in milliseconds: at full speed, and at a
#: pace, where this time is part of the latency that users see.
_LINGER_FULL_MS, _LINGER_PACED_MS = 20, 1

_PROGRESS_EVERY = 500  # packets
_IN_FLIGHT = 50_000  # packets
_PATIENCE_S = 60.0

Progress = Callable[["Published"], None]


@dataclass(frozen=True)
class Published:
    """A feed that was published: counts, payload bytes, and the seconds it took."""

    packets: int
    messages: int
    payload_bytes: int
    seconds: float


@dataclass(frozen=True)
class Speed:
    """``full`` (as fast as possible), ``recorded`` (by the timestamps of the messages), or messages
    per second."""

    kind: str
    messages_per_second: float = 0.0

    @staticmethod
    def parse(text: str) -> Speed:
        """Reads ``"full"``, ``"recorded"`` or a positive number. Raises ``KafkaError``
        ``BAD_SPEED``.
        """
        if text in ("full", "recorded"):
            return Speed(text)
        try:
            rate = float(text)
        except ValueError:
            rate = 0.0
        if not 0 < rate < float("inf"):
            raise KafkaError(
                "BAD_SPEED",
                f"speed '{text}': expected full, recorded or messages per second",
                speed=text,
            )
        return Speed("rate", rate)


def publish(
    bootstrap_servers: str,
    topic: str,
    messages: Iterable[bytes],
    *,
    packets: bool = False,
    speed: str = "full",
    seed: int = 1,
    session: bytes = SESSION,
    partitions: int = 2,
    stop: StopRequest | None = None,
    progress: Progress | None = None,
    **client: Any,
) -> Published:
    """Sends all messages in packets of 1 to 12, and returns when the brokers have every one.

    Packet ``i`` goes to partition ``i mod n``, so the same messages and seed give the same topic.

    Parameters
    ----------
    bootstrap_servers: ``host:port[,host:port...]``.
    topic: made with ``partitions`` partitions if it does not exist.
    messages: ITCH messages in time order.
    packets: ``messages`` are MoldUDP64 packets instead, to be sent as they are, damaged ones too.
    speed: see ``Speed.parse``.
    seed: of the sizes of packets. ``session``: ten bytes. Neither is asked for whole packets.
    stop: set it to end early; what was sent by then is counted.
    progress: called now and then with what has been sent.
    client: further options of kafka-python for a secured broker (``security_protocol=...``).

    Errors: ``KafkaError`` ``BROKER_UNREACHABLE``, ``NOT_PUBLISHED``, ``BAD_SPEED``.
    """
    source = whole_packets(messages) if packets else new_packets(messages, session, seed)
    pace = Speed.parse(speed)
    return _publish(bootstrap_servers, topic, source, pace, partitions, stop, progress, client)


def publish_records(
    bootstrap_servers: str,
    topic: str,
    records: Iterable[bytes],
    *,
    speed: str = "full",
    partitions: int = 2,
    stop: StopRequest | None = None,
    progress: Progress | None = None,
    **client: Any,
) -> Published:
    """Sends records as they are, each of one message, damaged ones too; else as :func:`publish`.

    ``speed`` may not be ``recorded``: nobody knows of what time a record is.
    """
    pace = Speed.parse(speed)
    if pace.kind == "recorded":
        raise KafkaError(
            "BAD_SPEED", f"speed '{speed}': expected full or records per second", speed=speed
        )
    source = ((record, [record]) for record in records)
    return _publish(bootstrap_servers, topic, source, pace, partitions, stop, progress, client)


def _publish(
    bootstrap_servers: str,
    topic: str,
    source: Iterable[Packet],
    pace: Speed,
    partitions: int,
    stop: StopRequest | None,
    progress: Progress | None,
    client: Mapping[str, Any],
) -> Published:
    stop = stop or StopRequest()
    ensure_topic(bootstrap_servers, topic, partitions, **client)
    linger = _LINGER_FULL_MS if pace.kind == "full" else _LINGER_PACED_MS
    producer = connect_producer(
        bootstrap_servers, linger_ms=linger, batch_size=256 * 1024, **client
    )
    failures: list[BaseException] = []
    # kafka-python holds all that is not acknowledged yet, without a limit of its own.
    capacity = Semaphore(_IN_FLIGHT)

    def failed(error: BaseException) -> None:
        failures.append(error)
        capacity.release()

    began = time.monotonic()
    sent_packets = count = size = 0

    def so_far() -> Published:
        return Published(sent_packets, count, size, time.monotonic() - began)

    try:
        width = len(producer.partitions_for(topic))
        for packet, group in paced(source, pace, stop):
            if not capacity.acquire(timeout=_PATIENCE_S):
                failures.append(TimeoutError(f"no record was acknowledged in {_PATIENCE_S:.0f} s"))
                break
            sent = producer.send(topic, packet, partition=sent_packets % width)
            sent.add_callback(lambda _: capacity.release()).add_errback(failed)
            sent_packets += 1
            count += len(group)
            size += len(packet)
            if failures:
                break
            if progress and (sent_packets % _PROGRESS_EVERY == 0 or pace.kind != "full"):
                progress(so_far())
        producer.flush(_PATIENCE_S)
    except ClientError as error:
        failures.append(error)
    finally:
        producer.close(timeout=10)
    if failures:
        raise KafkaError(
            "NOT_PUBLISHED",
            f"not all records could be written to topic {topic} at {bootstrap_servers} "
            f"({count} messages were sent before): {failures[0]}",
            topic=topic,
        )
    published = so_far()
    if progress:
        progress(published)
    return published


def ensure_topic(bootstrap_servers: str, topic: str, partitions: int = 2, **client: Any) -> None:
    """Creates the topic if it does not exist, and waits until it can be used."""
    # Another program may create it at the same time.
    with _admin(bootstrap_servers, topic, **client) as admin, suppress(TopicAlreadyExistsError):
        if topic not in admin.list_topics():
            admin.create_topics(
                {topic: {"num_partitions": partitions, "replication_factor": -1}},
                wait_for_metadata=True,
            )


def topic_id(bootstrap_servers: str, topic: str, **client: Any) -> str:
    """Returns the id that Kafka gave a topic, as ``kafka-topics.sh --describe`` prints it.

    Args:
        bootstrap_servers: addresses of brokers.
        topic: name of the topic, which exists.
        client: further options of kafka-python's admin client.

    Returns:
        22 characters, or nothing if the broker is older than Kafka 2.8.

    Raises:
        KafkaError: BROKER_UNREACHABLE, NO_TOPIC.
    """
    with _admin(bootstrap_servers, topic, **client) as admin:
        (described,) = admin.describe_topics([topic])
    given = described.get("topic_id")
    if not given:
        return ""
    number = given if isinstance(given, uuid.UUID) else uuid.UUID(str(given))
    return base64.urlsafe_b64encode(number.bytes).decode().rstrip("=") if number.int else ""


@contextmanager
def _admin(bootstrap_servers: str, topic: str, **client: Any) -> Iterator[Any]:
    """Yields an admin client; its errors become KafkaError NO_TOPIC."""
    admin = connect(KafkaAdminClient, bootstrap_servers, **client)
    try:
        yield admin
    except ClientError as error:
        raise KafkaError(
            "NO_TOPIC", f"topic {topic} at {bootstrap_servers}: {error}", topic=topic
        ) from error
    finally:
        admin.close()


def connect_producer(bootstrap_servers: str, **options: Any) -> Any:
    """Returns a producer of kafka-python, for topics that exist; see `connect`.

    It does not create a topic that somebody has deleted.
    """
    return connect(
        KafkaProducer, bootstrap_servers, acks="all", allow_auto_create_topics=False, **options
    )


def connect(kind: Callable[..., Any], bootstrap_servers: str, **options: Any) -> Any:
    """Returns a client of kafka-python. Raises KafkaError BAD_OPTION, BROKER_UNREACHABLE."""
    try:
        return kind(
            bootstrap_servers=bootstrap_servers.split(","), bootstrap_timeout_ms=5_000, **options
        )
    except KafkaConfigurationError as error:
        raise KafkaError("BAD_OPTION", f"kafka-python rejects an option: {error}") from error
    except (ClientError, OSError, ValueError) as error:
        raise KafkaError(
            "BROKER_UNREACHABLE",
            f"no Kafka broker answers at {bootstrap_servers} ({error}): check the address, and "
            "whether the broker is running",
            bootstrap_servers=bootstrap_servers,
        ) from error


def paced(packets: Iterable[Packet], pace: Speed, stop: StopRequest) -> Iterator[Packet]:
    """Yields each packet when it is due, or up to `TICK_S` before; ends when ``stop`` is set.

    A packet without messages, which is damaged, counts as one message.
    """
    due = time.monotonic()
    last_stamp: int | None = None
    for packet, group in packets:
        if pace.kind == "rate":
            due += max(1, len(group)) / pace.messages_per_second
        elif pace.kind == "recorded" and group and len(group[-1]) >= STAMPED:
            stamp = timestamp(group[-1])
            silence = (stamp - last_stamp) / 1e9 if last_stamp is not None else 0.0
            due += min(max(silence, 0.0), LONGEST_SILENCE_S)
            last_stamp = stamp
        wait = due - time.monotonic() if pace.kind != "full" else 0.0
        if stop.wait(wait) if wait > TICK_S else stop.is_set():
            return
        yield packet, group
