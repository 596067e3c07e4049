"""``stackcast dead-letters``: the dead letters of a stream, from their topic."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError as ClientError

from stackcast.cli.deployment import LabOrDeploymentFile, lab_properties, read_settings
from stackcast.cli.kafka_client import client_options
from stackcast.cli.signals import stop_on_signal
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.lab.traffic.publisher import connect
from stackcast.udfs.errors import KafkaError, SettingsError, printable
from stackcast.udfs.messages.attributes.registry import FORMAT as ATTRIBUTES
from stackcast.udfs.stop_request import StopRequest

Letter = dict[str, Any]

#: Longest wait for records, in milliseconds, so that signals are noticed.
_WAIT_MS = 200
#: Polls without records after which the rest of a topic counts as unreadable.
_MOST_EMPTY = 150
#: Bytes of a binary sample that are shown.
_HEX_BYTES = 48
#: Most records of one poll.
_MOST = 1_000


def dead_letters(
    properties_file: LabOrDeploymentFile = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-servers",
            "--bootstrap",
            help="Kafka brokers, host:port; by default those of the properties file.",
        ),
    ] = None,
    topic: Annotated[
        str,
        typer.Option(
            "--topic",
            help="Topic of dead letters; by default that of the properties file, or itch.dead and "
            "attributes.dead, as far as they exist.",
        ),
    ] = "",
    limit: Annotated[
        int, typer.Option("--limit", min=0, help="Newest dead letters to print; 0: all.")
    ] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", help="Print new ones as they come, until Ctrl-C.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each dead letter.")
    ] = False,
) -> None:
    """Print the newest dead letters of a stream: time, source, reason, field and first bytes.

    The stream sends samples of what it cannot deliver to this topic, and counts the others.
    """
    file = properties_file or (None if bootstrap else lab_properties())
    names = [topic] if topic else topics_of(read_settings(file))
    brokers, client = client_options(file, bootstrap)
    consumer = connect(
        KafkaConsumer,
        brokers,
        enable_auto_commit=False,
        allow_auto_create_topics=False,
        **client,
    )
    with stop_on_signal() as stop:
        try:
            places = _places(consumer, names, brokers)
            count = 0
            for letter in _letters(consumer, places, limit, follow, stop):
                count += 1
                sys.stdout.write((json.dumps(letter) if as_json else text_of(letter)) + "\n")
                sys.stdout.flush()
        except ClientError as error:
            raise KafkaError("NO_TOPIC", f"topic {', '.join(names)}: {error}") from error
        finally:
            consumer.close()
    if not count:
        topics = ", ".join(sorted({place.topic for place in places}))
        typer.echo(f"no dead letters in topic {topics} at {brokers}", err=True)


def topics_of(settings: Settings) -> list[str]:
    """Return the topics that may have the dead letters of a deployment.

    A job knows its format by its name, so properties alone may leave two.
    """
    # It imports Spark, which other commands should not wait for.
    from stackcast.jobs.adapters.planning import formats  # noqa: PLC0415

    if "deadLetter.topic" in settings.given or settings.format == ATTRIBUTES:
        return [formats.of_settings(settings, settings.format).dead_letter_topic]
    if "format" in settings.given:
        return [settings.dead_letter_topic]
    topics = [settings.dead_letter_topic]
    # Settings that a stream of events refuses are those of another stream.
    with suppress(SettingsError):
        topics.append(formats.of_settings(settings, ATTRIBUTES).dead_letter_topic)
    return topics


def text_of(letter: Letter) -> str:
    """Return a dead letter on one line."""
    place = f"{letter.get('topic')} partition {letter.get('partition')}"
    place += f" offset {letter.get('offset')}"
    if letter.get("index") is not None:
        place += f" message {letter['index']}"
    reason = str(letter.get("reason"))
    if letter.get("field"):
        reason += f": {letter['field']}"
    if letter.get("publisher"):
        reason += f" (publisher {letter['publisher']})"
    return printable(f"{letter['time']}  {place}  {reason}  {_sample(letter)}".rstrip())


def _sample(letter: Letter) -> str:
    """Returns the first bytes: text as text, others as hex."""
    length, digits = letter.get("length") or 0, str(letter.get("sample") or "")
    size = len(digits) // 2
    text = letter.get("text")
    if text is None:
        text, size = digits[: 2 * _HEX_BYTES], min(size, _HEX_BYTES)
    return str(text) if size >= length else f"{text}... ({length:,} bytes)"


def _places(consumer: Any, topics: Sequence[str], brokers: str) -> list[TopicPartition]:
    """Returns the partitions of topics; raises KafkaError NO_TOPIC if none exists."""
    places = [
        TopicPartition(topic, partition)
        for topic in topics
        for partition in sorted(consumer.partitions_for_topic(topic) or ())
    ]
    if not places:
        raise KafkaError(
            "NO_TOPIC",
            f"the broker at {brokers} has no topic {' or '.join(topics)}: give --topic, or the "
            "properties file of the stream, which makes its topic at its start",
        )
    return places


def _letters(
    consumer: Any, places: list[TopicPartition], limit: int, follow: bool, stop: StopRequest
) -> Iterator[Letter]:
    """Yields the newest dead letters, the oldest of them first, then new ones."""
    consumer.assign(places)
    begins, ends = consumer.beginning_offsets(places), consumer.end_offsets(places)
    for place in places:
        start = max(begins[place], ends[place] - limit) if limit else begins[place]
        consumer.seek(place, start)
    old = _until(consumer, ends, stop)
    if limit:
        newest = sorted(old, key=lambda record: (record.timestamp, record.partition, record.offset))
        old = iter(newest[-limit:])
    yield from map(letter_of, old)
    while follow and not stop.is_set():
        yield from map(letter_of, _poll(consumer))


def _until(consumer: Any, ends: dict[TopicPartition, int], stop: StopRequest) -> Iterator[Any]:
    """Yields the records before the ends of partitions. Offsets may have gaps there."""
    empty = 0
    while not stop.is_set() and any(consumer.position(p) < end for p, end in ends.items()):
        records = list(_poll(consumer))
        yield from (r for r in records if r.offset < ends[TopicPartition(r.topic, r.partition)])
        empty = 0 if records else empty + 1
        if empty > _MOST_EMPTY:
            raise KafkaError("NO_TOPIC", "the topic of dead letters cannot be read to its end")


def _poll(consumer: Any) -> Iterable[Any]:
    batches = consumer.poll(_WAIT_MS, max_records=_MOST)
    return (record for records in batches.values() for record in records)


def letter_of(record: Any) -> Letter:
    """Returns a record of the topic as what the stream wrote, with its time."""
    value = record.value or b""
    try:
        letter = json.loads(value)
    except (ValueError, RecursionError):
        letter = None
    if not isinstance(letter, dict):
        letter = {"reason": "no dead letter of a stream", "length": len(value)}
        letter["sample"] = value.hex()
    time = dt.datetime.fromtimestamp(record.timestamp / 1_000, dt.UTC)
    return {"time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"), **letter}
