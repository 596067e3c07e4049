"""Attribute/value events from JSON lines to headers, frames and topics, and back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import typer

from stackcast.cli.attributes.files import (
    BATCH_RECORDS,
    RecordBatch,
    line_batches,
    open_file,
    read_registry,
    record_source,
    widths_of,
)
from stackcast.cli.attributes.publishing import Progress, paced, send, to_topic
from stackcast.cli.attributes.records import Faults, RecordEncoder, json_lines, unchanged
from stackcast.cli.deployment import lab_properties, local_rows, read_settings
from stackcast.cli.kafka_client import broker_errors, client_options
from stackcast.cli.signals import stop_on_signal
from stackcast.cli.spark_properties import start_with
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.wire import SinkOptions, open_sink
from stackcast.lab.traffic.packets import SESSION, write_records
from stackcast.lab.traffic.sensors import events as sensor_events
from stackcast.udfs.messages.attributes.events import Widths
from stackcast.udfs.messages.attributes.registry import FORMAT, Attribute, Registry

#: Widths that allow all ids of a table, whatever the widths of its deployment.
_WIDEST = Widths(16, 64)


def encode(
    file: str,
    *,
    encoding: str,
    attributes: Path | None,
    widths: str,
    frames: bool,
    source: str,
    out: Path | None,
    as_hex: bool,
) -> None:
    """Encode the events in a file, and report the lines that are not events.

    Args:
        file: file of JSON lines; ``-`` for standard input.
        encoding: encoding of the headers.
        attributes: file of attributes.
        widths: value of ``--widths``.
        frames: write Ethernet frames.
        source: MAC address that frames are sent from.
        out: file to write; None to print hex.
        as_hex: write hex into the file.

    Raises:
        typer.BadParameter: the name of the file does not fit.
        typer.Exit: some lines are not events.
    """
    if frames and out is not None and not as_hex and out.suffix != ".pcap":
        raise typer.BadParameter("--out with --frames writes a pcap file, whose name ends in .pcap")
    faults = Faults("line")
    registry = read_registry(attributes, widths_of(widths))
    encoder = RecordEncoder(encoding, registry, source if frames else "")
    with open_file(file) as stream:
        batches = (encoder.encode(batch, faults) for batch in line_batches(stream))
        if out is None or as_hex:
            with _text_output(out) as target:
                for batch in batches:
                    target.write("".join(f"{record.hex()}\n" for record in batch.records()))
                    target.flush()
        elif frames:
            out.unlink(missing_ok=True)  # the sink never overwrites a file
            with closing(open_sink(SinkOptions("pcap", path=_literal(out)))) as sink:
                for batch in batches:
                    sink.send(batch.data, batch.offsets)
        else:
            write_records(out, (record for batch in batches for record in batch.records()))
    faults.end(f"{encoder.count:,} events encoded", encoder.rounded)


def decode(file: str, encoding: str | None, attributes: Path | None, widths: str) -> None:
    """Print the events in a file as JSON lines, and report the records that are not events.

    Args:
        file: file of hex lines, BinaryFILE or pcap file; ``-`` for standard input.
        encoding: encoding of events that are not in frames; None for id_pairs.
        attributes: file of attributes.
        widths: value of ``--widths``.

    Raises:
        typer.BadParameter: an encoding is given for frames.
        typer.Exit: some records are not events.
    """
    registry = read_registry(attributes, widths_of(widths))
    with open_file(file) as stream:
        records = record_source(stream)
        framed = records.kind == "frame"
        if framed and encoding is not None:
            raise typer.BadParameter("frames name their encoding: leave --encoding out")
        faults = Faults(records.kind)
        count = 0
        for batch in records.batches:
            lines = json_lines(batch, None if framed else encoding or "id_pairs", registry, faults)
            sys.stdout.write("".join(f"{line}\n" for line in lines))
            sys.stdout.flush()
            count += len(lines)
    faults.end(f"{count:,} events decoded")


def publish(
    file: str,
    *,
    sensors: int,
    seed: int,
    fault_share: float,
    rate: float,
    topic: str,
    interface: str,
    tunnel: str,
    source: str,
    session: str,
    partitions: int,
    encoding: str | None,
    attributes: Path | None,
    widths: str,
    bootstrap: str | None,
    properties_file: Path | None,
) -> None:
    """Publish events to a topic, or send them as frames, and report the lines that are not events.

    Args:
        file: file of JSON lines; ``-`` for standard input, empty for generated events.
        sensors: number of generated events.
        seed: seed of the generated events.
        fault_share: share of generated events that are invalid.
        rate: events per second; 0 for no limit.
        topic: topic; empty for that of the properties file.
        interface: network interface for frames.
        tunnel: far end of a UDP tunnel for frames.
        source: MAC address that frames are sent from.
        session: session in the keys of frames.
        partitions: number of partitions if the topic is created.
        encoding: encoding; None for that of the properties file, json or id_pairs.
        attributes: file of attributes.
        widths: value of ``--widths``.
        bootstrap: brokers to use instead of those of the properties file.
        properties_file: properties file of the stream.

    Raises:
        typer.BadParameter: the options contradict each other.
        typer.Exit: some lines are not events.
    """
    if (not file) == (not sensors):
        raise typer.BadParameter("give either a file or --sensors N")
    if properties_file is not None and not (topic or interface or tunnel):
        topic, topic_encoding = _input_of(properties_file)
        encoding = encoding or topic_encoding
    if sum(map(bool, (topic, interface, tunnel))) != 1:
        raise typer.BadParameter("give one of --topic, --interface and --tunnel")
    if not topic and encoding == "json":
        raise typer.BadParameter("frames contain id_pairs or bitmask; only a topic may have JSON")
    brokers, client = client_options(properties_file, bootstrap) if topic else ("", {})
    key = session.encode("ascii", "replace")
    if len(key) != len(SESSION):
        raise typer.BadParameter(f"--session {session!r} does not have ten characters")
    encoding = encoding or ("json" if topic else "id_pairs")
    registry = read_registry(attributes, widths_of(widths))
    encoder = RecordEncoder(encoding, registry, "" if topic else source, b"" if topic else key)
    faults = Faults("event" if sensors else "line")
    progress = Progress("events")
    with stop_on_signal() as stop, nullcontext() if sensors else open_file(file) as stream:
        lines = (
            line_batches(stream, stop) if stream else _sensor_batches(sensors, seed, fault_share)
        )
        encoded = (
            unchanged(encoder.check(batch, faults) if attributes else batch)
            if encoding == "json"
            else encoder.encode(batch, faults)
            for batch in paced(lines, rate, stop)
        )
        if topic:
            with broker_errors():
                to_topic(encoded, topic, brokers, client, partitions, stop, progress)
        else:
            options = SinkOptions(
                "udp" if tunnel else "af_packet", endpoint=tunnel, interface=interface
            )
            with closing(open_sink(options)) as sink:
                send(encoded, sink, progress)
    target = f"{topic} at {brokers}" if topic else interface or tunnel
    faults.end(f"{target}: {progress}{', stopped' if stop.is_set() else ''}", encoder.rounded)


def export(out: Path | None, properties_file: Path | None, tables: str | None) -> None:
    """Write the attributes of a deployment as JSON lines.

    Args:
        out: file to write; None for standard output.
        properties_file: properties file of the deployment; None for the running lab.
        tables: place of the tables; None for that of the properties.

    Raises:
        typer.BadParameter: nothing names a deployment.
        TableError: the table cannot be read.
    """
    file = properties_file or (None if tables else lab_properties())
    settings = read_settings(file)
    if tables:
        settings = replace(settings, tables=tables)
    elif "tables" not in settings.given:
        raise typer.BadParameter("give --properties-file or --tables: no lab is up in var/lab")
    rows = local_rows(settings, FORMAT)
    if rows is None:
        rows = _rows_by_spark(file, settings)
    registry = Registry.from_rows(rows, _WIDEST)
    text = "".join(f"{_attribute_line(attribute)}\n" for attribute in registry.attributes)
    if out is None:
        sys.stdout.write(text)
    else:
        out.write_text(text)
    if not registry.attributes:
        typer.echo("table attributes has no rows", err=True)


def _rows_by_spark(properties_file: Path | None, settings: Settings) -> list[dict[str, Any]]:
    """Return the rows of table `attributes` from a place that only Spark reads."""
    # A JVM takes seconds to start, and no other part of this module needs one.
    from stackcast.jobs.adapters.app import session  # noqa: PLC0415
    from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS, quiet, table_error  # noqa: PLC0415
    from stackcast.jobs.adapters.tables.open_tables import open_tables  # noqa: PLC0415

    start_with(properties_file)
    spark = session.start("stackcast attributes export")
    quiet(spark)
    try:
        return open_tables(spark, settings.tables).rows(FORMAT)
    except SQL_ERRORS as error:
        raise table_error(error) from None
    finally:
        spark.stop()


def _attribute_line(attribute: Attribute) -> str:
    """Return an attribute as JSON with all digits of its numbers."""
    return (
        f'{{"id": {attribute.id}, "name": "{attribute.name}", "type": "{attribute.type}", '
        f'"scale": {attribute.scale:f}, "offset": {attribute.offset:f}}}'
    )


def _input_of(properties_file: Path) -> tuple[str, str]:
    """Return the topic that a stream of events reads, and the encoding of its records."""
    from stackcast.jobs.adapters.planning import formats  # noqa: PLC0415 - it imports Spark

    settings = formats.of_settings(read_settings(properties_file), FORMAT)
    return settings.topic, settings.attributes_input


def _sensor_batches(count: int, seed: int, fault_share: float) -> Iterator[RecordBatch]:
    """Yield batches of events of the lab's sensors."""
    records = sensor_events(count, seed, fault_share)
    start = 0
    while batch := list(islice(records, BATCH_RECORDS)):
        yield RecordBatch(list(range(start + 1, start + len(batch) + 1)), batch)
        start += len(batch)


@contextmanager
def _text_output(out: Path | None) -> Iterator[TextIO]:
    """Yield standard output, or the file."""
    if out is None:
        yield sys.stdout
    else:
        with out.open("w") as file:
            yield file


def _literal(path: Path) -> str:
    """Return a path in which braces are no placeholders of the sink."""
    return str(path).replace("{", "{{").replace("}", "}}")
