"""Dead letters of a stream, read from their topic."""

from __future__ import annotations

import datetime as dt
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError as ClientError

from stackcast.cli.deployment import lab_properties, read_settings
from stackcast.cli.kafka_client import broker_errors, client_options
from stackcast.cli.signals import stop_on_signal
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.lab.traffic.publisher import connect
from stackcast.udfs.errors import KafkaError, SettingsError, printable
from stackcast.udfs.messages.attributes.registry import FORMAT as ATTRIBUTES
from stackcast.udfs.stop_request import StopRequest

Letter = dict[str, Any]

#: Longest wait for records in milliseconds, so that signals are noticed.
_WAIT_MS = 200
#: Number of polls without records after which the remaining records count as unreadable.
_MAX_EMPTY_POLLS = 150
#: Number of bytes of a binary sample that are printed.
_HEX_BYTES = 48
#: Largest number of records of a poll.
_MAX_RECORDS = 1_000


def print_letters(
    properties_file: Path | None,
    bootstrap: str | None,
    topic: str,
    limit: int,
    follow: bool,
    as_json: bool,
) -> None:
    """Print the newest dead letters.

    Args:
        properties_file: properties file of the stream; None for the running lab.
        bootstrap: brokers to use instead of those of the file.
        topic: topic of dead letters; empty for the topics of the deployment.
        limit: number of letters; 0 for all.
        follow: print new letters until Ctrl-C.
        as_json: print JSON.

    Raises:
        KafkaError: NO_TOPIC, BROKER_UNREACHABLE, BAD_OPTION.
    """
    file = properties_file or (None if bootstrap else lab_properties())
    names = [topic] if topic else topics_of(read_settings(file))
    brokers, client = client_options(file, bootstrap)
    with broker_errors():
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
                line = json_line(letter) if as_json else text_of(letter)
                sys.stdout.write(f"{line}\n")
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

    Properties need not name the format, because each job has its own: then there are two topics.
    """
    from stackcast.jobs.adapters.planning import formats  # noqa: PLC0415 - it imports Spark

    if "deadLetter.topic" in settings.given or settings.format == ATTRIBUTES:
        return [formats.of_settings(settings, settings.format).dead_letter_topic]
    if "format" in settings.given:
        return [settings.dead_letter_topic]
    topics = [settings.dead_letter_topic]
    # Settings that a stream of events rejects belong to a stream of the other format.
    with suppress(SettingsError):
        topics.append(formats.of_settings(settings, ATTRIBUTES).dead_letter_topic)
    return topics


def json_line(letter: Letter) -> str:
    """Return a dead letter as a JSON object on one line."""
    return json.dumps(_finite(letter))


def text_of(letter: Letter) -> str:
    """Return a dead letter on one line, with the parts of its place that it has."""
    place = str(letter.get("topic", "unknown topic"))
    for label, key in (("partition", "partition"), ("offset", "offset"), ("message", "index")):
        if letter.get(key) is not None:
            place += f" {label} {letter[key]}"
    reason = str(letter["reason"])
    if letter.get("field"):
        reason += f": {letter['field']}"
    if letter.get("publisher"):
        reason += f" (publisher {letter['publisher']})"
    return printable(f"{letter['time']}  {place}  {reason}  {_sample(letter)}".rstrip())


def _sample(letter: Letter) -> str:
    """Return the first bytes of a letter: text as text, other bytes as hex."""
    length, digits = letter.get("length") or 0, str(letter.get("sample") or "")
    size = len(digits) // 2
    text = letter.get("text")
    if text is None:
        text, size = digits[: 2 * _HEX_BYTES], min(size, _HEX_BYTES)
    return str(text) if size >= length else f"{text}... ({length:,} bytes)"


def _places(consumer: Any, topics: Sequence[str], brokers: str) -> list[TopicPartition]:
    """Return the partitions of topics.

    Raises:
        KafkaError: NO_TOPIC if none of the topics exists.
    """
    places = [
        TopicPartition(topic, partition)
        for topic in topics
        for partition in sorted(consumer.partitions_for_topic(topic) or ())
    ]
    if not places:
        raise KafkaError(
            "NO_TOPIC",
            f"the broker at {brokers} has no topic {' or '.join(topics)}: give --topic or the "
            "properties file of the stream, which creates the topic when it starts",
        )
    return places


def _letters(
    consumer: Any, places: list[TopicPartition], limit: int, follow: bool, stop: StopRequest
) -> Iterator[Letter]:
    """Yield the newest dead letters, the oldest of them first, then new letters."""
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
    """Yield the records before the ends of partitions. Their offsets may have gaps."""
    empty = 0
    while not stop.is_set() and any(consumer.position(p) < end for p, end in ends.items()):
        records = list(_poll(consumer))
        yield from (r for r in records if r.offset < ends[TopicPartition(r.topic, r.partition)])
        empty = 0 if records else empty + 1
        if empty > _MAX_EMPTY_POLLS:
            raise KafkaError("NO_TOPIC", "the topic of dead letters cannot be read to its end")


def _poll(consumer: Any) -> Iterable[Any]:
    batches = consumer.poll(_WAIT_MS, max_records=_MAX_RECORDS)
    return (record for records in batches.values() for record in records)


def letter_of(record: Any) -> Letter:
    """Return the dead letter in a record of the topic, with the time of the record."""
    value = record.value or b""
    try:
        letter = json.loads(value)
    except (ValueError, RecursionError):
        letter = None
    if not isinstance(letter, dict) or "reason" not in letter:
        # Other programs may write to the topic as well. The place is that of the record itself.
        letter = {"reason": "not a dead letter of a stream", "length": len(value)}
        letter |= {"topic": record.topic, "partition": record.partition, "offset": record.offset}
        letter["sample"] = value.hex()
    time = dt.datetime.fromtimestamp(record.timestamp / 1_000, dt.UTC)
    return {"time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"), **letter}


def _finite(value: Any) -> Any:
    """Return a value of JSON with null for the numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_finite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
