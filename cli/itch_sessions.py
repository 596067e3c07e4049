"""Trading sessions of ITCH in files: generated, printed and published."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from stackcast.cli.attributes.event_lines import EventReader
from stackcast.cli.captures import CapturedPackets, is_capture
from stackcast.cli.deployment import Deployment
from stackcast.cli.itch_messages import message_row, message_text
from stackcast.cli.kafka_client import broker_errors, client_options
from stackcast.cli.signals import stop_on_signal
from stackcast.lab.traffic.packets import (
    check_records,
    open_records,
    open_unpacked,
    read_records,
)
from stackcast.lab.traffic.publisher import Published, publish
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.lab.traffic.trading_session import generate as generate_file
from stackcast.udfs.errors import MessageError, printable
from stackcast.udfs.messages.reference import read_packet
from stackcast.udfs.messages.summaries import is_summary

#: Largest number of faults that are printed.
_MAX_FAULTS = 10

Row = dict[str, Any]


def generate(out: Path, messages: int, seed: int, symbols: int, packets: bool) -> None:
    """Write a generated session to a file, and print its size.

    Args:
        out: the file, compressed if its name ends in .gz.
        messages: number of messages.
        seed: seed of the session.
        symbols: number of stocks.
        packets: write MoldUDP64 packets instead of messages.
    """

    def show(number: int) -> None:
        _progress(f"{number:,} of {messages:,} messages written")

    records = generate_file(out, messages, seed, symbols, packets, show)
    _clear_progress()
    kind = "packets" if packets else "messages"
    typer.echo(f"{out}: {records:,} {kind}, {out.stat().st_size:,} bytes")


def inspect(
    file: Path,
    deployment: Deployment,
    *,
    packets: bool,
    types: str,
    symbol: str,
    limit: int,
    as_json: bool,
) -> None:
    """Print messages of a file, and then the count of each type.

    Args:
        file: the file.
        deployment: deployment whose format, encoding and attributes the messages have.
        packets: whether records are MoldUDP64 packets.
        types: message types to print and count; empty for all.
        symbol: stock whose messages are printed and counted; empty for all.
        limit: largest number of messages to print.
        as_json: print JSON.

    Raises:
        typer.BadParameter: the options do not fit the format.
        typer.Exit: a message cannot be read, or the file is truncated.
        OSError: the file cannot be opened.
    """
    if deployment.has_events and (types or symbol):
        raise typer.BadParameter(
            "--type and --symbol select ITCH messages, but the messages are attribute/value events"
        )
    reader = deployment.events()
    if deployment.has_events and reader is None:
        raise typer.BadParameter(
            "the names of the attributes are unknown: give --attributes with a file that "
            "'stackcast attributes export' writes"
        )

    def read_row(message: bytes) -> dict[str, Any] | MessageError:
        return _event_row(reader, message, as_json) if reader else message_row(message)

    counts: Counter[str] = Counter()
    damaged = ends = 0
    with open_records(file, with_ends=True) as records:
        for place, message in _messages(records, packets):
            if message is None:
                ends += 1
                continue
            row = message if isinstance(message, MessageError) else read_row(message)
            if isinstance(row, MessageError):
                damaged += 1
                if damaged <= _MAX_FAULTS:
                    typer.echo(printable(f"{file}: {place}: {row}"), err=True)
                continue
            if (types and row["type"] not in types) or (symbol and row.get("stock") != symbol):
                continue
            counts[f"{row['type']} {row['name']}"] += 1
            if counts.total() <= limit:
                typer.echo(row["line"] if reader else _line(row, as_json))
    _summary(counts, damaged, ends, as_json)
    if damaged:
        if not counts:
            hints = [] if packets else ["if records are packets, add --packets"]
            if not reader:
                hints.append("if messages are attribute/value events, give --attributes")
            if hints:
                typer.echo(f"no message could be read: {'; '.join(hints)}", err=True)
        raise typer.Exit(1)


def _line(row: dict[str, Any], as_json: bool) -> str:
    return json.dumps(row) if as_json else message_text(row)


def _event_row(reader: EventReader, message: bytes, as_json: bool) -> dict[str, Any] | MessageError:
    """Return type, name and line of an event, or the error if the message is not an event."""
    try:
        event = reader.read(message)
    except MessageError as error:
        return error
    line = f"{{{event.members}}}" if as_json else str(event)
    return {"type": "event", "name": reader.encoding, "line": line}


def publish_session(
    file: Path | None,
    generated: int,
    topic: str,
    properties_file: Path | None,
    bootstrap: str | None,
    *,
    packets: bool,
    speed: str,
    seed: int,
    symbols: int,
    partitions: int,
) -> None:
    """Publish a session to a topic, and print how much was published.

    Args:
        file: BinaryFILE or capture; None to generate a session.
        generated: number of generated messages.
        topic: topic, which is created if it does not exist.
        properties_file: properties file that configures the Kafka client; None for the running lab.
        bootstrap: brokers to use instead of those of the file.
        packets: whether the records of the file are MoldUDP64 packets.
        speed: ``full``, ``recorded``, or messages per second.
        seed: seed of the generated session.
        symbols: number of stocks in the generated session.
        partitions: number of partitions if the topic is created.

    Raises:
        KafkaError: an error of `client_options` or `publish`.
        OSError: the file cannot be opened.
        LabError, MessageError, StackError: the file is damaged.
    """
    brokers, client = client_options(properties_file, bootstrap)
    options: dict[str, Any] = {
        **client,
        "speed": speed,
        "seed": seed,
        "partitions": partitions,
        "progress": _show_published,
    }
    with stop_on_signal() as stop, broker_errors():
        if file is not None:
            with open_unpacked(file) as stream:
                if is_capture(stream):
                    captured = CapturedPackets(stream, file)
                    records, packets = captured.packets(), True
                else:
                    captured, records = None, check_records(read_records(stream, file), packets)
                done = publish(brokers, topic, records, packets=packets, stop=stop, **options)
            if captured is not None and captured.left_out:
                _report_left_out(captured, file)
        else:
            session = TradingSession(generated, seed, symbols)
            done = publish(brokers, topic, session, stop=stop, **options)
    _clear_progress()
    typer.echo(
        f"{topic} at {brokers}: {done.messages:,} messages in {done.packets:,} packets, "
        f"{done.payload_bytes:,} bytes, {done.seconds:.1f} s"
    )


def _report_left_out(captured: CapturedPackets, file: Path) -> None:
    _clear_progress()
    text = (
        f"{file}: {captured.left_out:,} of {captured.frames:,} frames contain no MoldUDP64 packet "
        f"and were left out; {captured.first_left_out}"
    )
    typer.echo(printable(text), err=True)


def _messages(
    records: Iterator[bytes], packets: bool
) -> Iterator[tuple[str, bytes | MessageError | None]]:
    """Yield the place of each message, and the message, its error, or None at a session's end."""
    number = 0
    while True:
        number += 1
        try:
            record = next(records)
        except StopIteration:
            return
        except MessageError as error:
            # The content after a fault of the file itself cannot be trusted.
            yield f"record {number}", error
            return
        if not record:
            yield f"record {number}", None
            continue
        if not packets:
            yield f"record {number}", record
            continue
        try:
            # For a client of MoldUDP64, a summary is a heartbeat.
            group = [] if is_summary(record) else read_packet(record)[2]
        except MessageError as error:
            yield f"packet {number}", error
            continue
        for place, message in enumerate(group, 1):
            yield f"packet {number}, message {place}", message


def _summary(counts: Counter[str], damaged: int, ends: int, as_json: bool) -> None:
    """Print the count of each type, the number of session ends, and that of damaged messages."""
    if as_json:
        total = {
            "counts": dict(counts.most_common()),
            "total": counts.total(),
            "damaged": damaged,
            "ends of session": ends,
        }
        typer.echo(json.dumps(total))
        return
    width = max((len(name) for name in counts), default=5)
    for name, count in counts.most_common():
        typer.echo(f"{name:<{width}}  {count:>12,}")
    typer.echo(f"{'total':<{width}}  {counts.total():>12,}")
    for name, number in (("ends of session", ends), ("damaged", damaged)):
        if number:
            typer.echo(f"{name:<{width}}  {number:>12,}")


def _show_published(done: Published) -> None:
    rate = done.packets / done.seconds if done.seconds else 0.0
    _progress(f"{done.messages:,} messages, {done.packets:,} packets, {rate:,.0f} packets/s")


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def _clear_progress() -> None:
    _progress("")
