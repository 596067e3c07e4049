"""``stackcast itch``: make a trading session, look into one, publish one."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from stackcast.cli.attributes.event_lines import EventReader
from stackcast.cli.captures import CapturedPackets, is_capture
from stackcast.cli.deployment import (
    DeploymentFile,
    EventAttributes,
    EventEncoding,
    EventWidths,
    read_deployment,
)
from stackcast.cli.kafka_client import (
    Bootstrap,
    PropertiesFile,
    broker_errors,
    client_options,
)
from stackcast.cli.signals import stop_on_signal
from stackcast.lab.traffic.itch_writer import itch_specification
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
from stackcast.udfs.messages.reference import read_message, read_packet
from stackcast.udfs.messages.specification import Field
from stackcast.udfs.messages.summaries import is_summary

app = typer.Typer(no_args_is_help=True, help="Make, read and publish ITCH 5.0 trading sessions.")

_SHOWN_DAMAGE = 10

Messages = Annotated[int, typer.Option("--messages", min=1, help="How many messages, exactly.")]
Seed = Annotated[int, typer.Option("--seed", help="The same seed gives the same bytes.")]
Symbols = Annotated[int, typer.Option("--symbols", help="How many stocks are traded.")]
PacketsOption = Annotated[
    bool, typer.Option("--packets", help="Records are MoldUDP64 packets, not messages.")
]


@app.command()
def generate(
    out: Annotated[Path, typer.Option("--out", help="File to write; packed if it ends in .gz.")],
    messages: Messages = 100_000,
    seed: Seed = 1,
    symbols: Symbols = 200,
    packets: PacketsOption = False,
) -> None:
    """Write a trading session as a Nasdaq BinaryFILE: length and message, again and again."""

    def show(number: int) -> None:
        _progress(f"{number:,} of {messages:,} messages written")

    records = generate_file(out, messages, seed, symbols, packets, show)
    _clear_progress()
    what = "packets" if packets else "messages"
    typer.echo(f"{out}: {records:,} {what}, {out.stat().st_size:,} bytes")


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(help="BinaryFILE, .gz or not.")],
    *,
    packets: PacketsOption = False,
    kinds: Annotated[
        str, typer.Option("--type", help="Only these message types, for example AF.")
    ] = "",
    symbol: Annotated[str, typer.Option("--symbol", help="Only messages that name it.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=0, help="Most messages to print.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    properties_file: DeploymentFile = None,
    attributes: EventAttributes = None,
    encoding: EventEncoding = None,
    widths: EventWidths = None,
) -> None:
    """Print messages, then the count of each type.

    With --attributes, or a properties file of a deployment for them, messages are attribute/value
    events, which are printed as JSON.

    The file is read to its last byte, and may contain several sessions: a record of length 0 ends
    one, and is counted. Counts include all messages that --type and --symbol select, printed or
    not. Exit code 0 means that every byte was read. It is 1 if a message cannot be read or the file
    is cut off; the first faults are printed with their places. It is 2 if the file cannot be
    opened.
    """
    deployment = read_deployment(properties_file, attributes, encoding, widths)
    if deployment.has_events and (kinds or symbol):
        raise typer.BadParameter("--type and --symbol select ITCH messages, and these are events")
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
        for where, message in _messages(records, packets):
            if message is None:
                ends += 1
                continue
            row = message if isinstance(message, MessageError) else read_row(message)
            if isinstance(row, MessageError):
                damaged += 1
                if damaged <= _SHOWN_DAMAGE:
                    typer.echo(printable(f"{file}: {where}: {row}"), err=True)
                continue
            if (kinds and row["type"] not in kinds) or (symbol and row.get("stock") != symbol):
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
    """Returns type and name of an event, and its line; or the error of what is no event."""
    try:
        event = reader.read(message)
    except MessageError as error:
        return error
    line = f"{{{event.members}}}" if as_json else str(event)
    return {"type": "event", "name": reader.encoding, "line": line}


@app.command("publish")
def publish_command(
    file: Annotated[
        Path | None,
        typer.Argument(help="BinaryFILE or capture (pcap, pcapng) to publish, .gz or not."),
    ] = None,
    *,
    packets: PacketsOption = False,
    generated: Annotated[
        int,
        typer.Option(
            "--generate", min=0, help="Publish a generated session with this number of messages."
        ),
    ] = 0,
    bootstrap: Bootstrap = None,
    properties_file: PropertiesFile = None,
    topic: Annotated[
        str, typer.Option("--topic", help="Topic, which is created if it does not exist.")
    ] = "itch.raw",
    speed: Annotated[
        str,
        typer.Option(
            "--speed",
            help="full (as fast as possible), recorded (by timestamps), or messages per second.",
        ),
    ] = "full",
    seed: Seed = 1,
    symbols: Symbols = 200,
    partitions: Annotated[
        int,
        typer.Option("--partitions", min=1, help="Number of partitions if the topic is created."),
    ] = 2,
) -> None:
    """Publish a session to Kafka as MoldUDP64 packets. Ctrl-C ends it cleanly.

    A file is published to its last byte, session after session. With --packets its records are
    whole packets, which are sent unchanged. A capture's MoldUDP64 packets are sent unchanged, too,
    heartbeats included; other frames are left out, and standard error says how many.

    The exit code is 2 if the file cannot be opened, is cut off or is damaged; messages before the
    fault may have been published.
    """
    if packets and generated:
        raise typer.BadParameter(
            "--packets applies to files, because generated sessions consist of messages"
        )
    if (file is None) == (generated == 0):
        raise typer.BadParameter("give a file or --generate N, and not both")
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


Where = str


def _messages(
    records: Iterator[bytes], packets: bool
) -> Iterator[tuple[Where, bytes | MessageError | None]]:
    """Yields each message, the error in its place, or None where a session ends, and its place."""
    number = 0
    while True:
        number += 1
        try:
            record = next(records)
        except StopIteration:
            return
        except MessageError as error:  # nothing after a fault of the file itself can be trusted
            yield f"record {number}", error
            return
        if not record:
            yield f"record {number}", None
            continue
        if not packets:
            yield f"record {number}", record
            continue
        try:
            # To a client of MoldUDP64 a summary is a heartbeat.
            group = [] if is_summary(record) else read_packet(record)[2]
        except MessageError as error:
            yield f"packet {number}", error
            continue
        for place, message in enumerate(group, 1):
            yield f"packet {number}, message {place}", message


def message_row(message: bytes) -> dict[str, Any] | MessageError:
    """Returns a message for people: type, name, and its fields as text; numbers as numbers."""
    specification = itch_specification()
    try:
        values = read_message(specification, message)
    except MessageError as error:
        return error
    header = specification.header_of_type(message[0])
    assert header is not None  # read_message has found it
    row: dict[str, Any] = {"type": chr(message[0]), "name": header.name}
    for field in header.fields[1:]:
        row[field.name] = _value(field, values[field.qualified])
    return row


def _value(field: Field, raw: int) -> str | int:
    return raw if field.kind == "integer" else field.render(raw)


def message_text(row: dict[str, Any]) -> str:
    """Returns a row on one line: time, type, name, and what says what happened."""
    hidden = ("type", "name", "timestamp", "stock_locate", "tracking_number")
    fields = " ".join(f"{name}={value}" for name, value in row.items() if name not in hidden)
    return printable(f"{_time(int(row['timestamp']))}  {row['type']} {row['name']}  {fields}")


def _time(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:09}"


def _summary(counts: Counter[str], damaged: int, ends: int, as_json: bool) -> None:
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
