"""``stackcast attributes``: attribute/value events to both encodings, back, and onto their way."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO, cast

import typer

from stackcast.cli.attributes.files import (
    MOST,
    USUAL,
    AttributesOption,
    RecordBatch,
    WidthsOption,
    line_batches,
    open_file,
    read_registry,
    record_source,
    widths_of,
)
from stackcast.cli.attributes.publishing import Progress, paced, send, to_topic
from stackcast.cli.attributes.records import Faults, RecordEncoder, as_they_are, json_lines
from stackcast.cli.deployment import (
    LabOrDeploymentFile,
    lab_properties,
    local_rows,
    read_settings,
)
from stackcast.cli.kafka_client import (
    Bootstrap,
    PropertiesFile,
    broker_errors,
    client_options,
)
from stackcast.cli.signals import stop_on_signal
from stackcast.cli.spark_properties import start_with
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.wire import SinkOptions, open_sink
from stackcast.lab.traffic.packets import SESSION, write_records
from stackcast.lab.traffic.sensors import events as sensor_events
from stackcast.udfs.messages.attributes.events import Widths
from stackcast.udfs.messages.attributes.registry import FORMAT, Attribute, Registry

app = typer.Typer(no_args_is_help=True, help="Encode, decode and publish attribute/value events.")

Name = Literal["id_pairs", "bitmask"]

FileArgument = Annotated[str, typer.Argument(help="A file, .gz or not, or - for standard input.")]
SourceOption = Annotated[str, typer.Option("--source", help="MAC address that frames come from.")]
EncodingOption = Annotated[Name, typer.Option("--encoding", help="Of the headers.")]
#: All ids that a table may have, whatever the widths of its deployment.
_WIDEST = Widths(16, 64)
DEFAULT_SOURCE = "02:00:00:00:00:01"


@app.command()
def encode(
    file: FileArgument = "-",
    *,
    encoding: EncodingOption = "id_pairs",
    attributes: AttributesOption = None,
    widths: WidthsOption = USUAL,
    frames: Annotated[
        bool, typer.Option("--frames", help="Whole Ethernet frames, EtherType 0x9001.")
    ] = False,
    source: SourceOption = DEFAULT_SOURCE,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="File: records with their length (u16) before, or frames."),
    ] = None,
    as_hex: Annotated[
        bool, typer.Option("--hex", help="Hex, one record a line, into --out too.")
    ] = False,
) -> None:
    """Write each line of JSON, {"temp": 25.5, "hum": 30}, as a header.

    Without --out hex is printed, one record a line. --out takes a Nasdaq BinaryFILE (length and
    record, again and again), or with --frames a pcap file, whose name ends in .pcap. A line that
    is no event is reported with its number, its reason and the attribute at fault; the others are
    written, and the exit code is 1 then. Values between two steps of their attribute are rounded,
    and a line counts them.

    'stackcast attributes export' writes the attributes of a deployment.
    """
    if frames and out is not None and not as_hex and out.suffix != ".pcap":
        raise typer.BadParameter("--frames --out is a pcap file: its name ends in .pcap")
    faults = Faults("line")
    registry = read_registry(attributes, widths_of(widths))
    encoder = RecordEncoder(encoding, registry, source if frames else "")
    with open_file(file) as stream:
        made = (encoder.encode(batch, faults) for batch in line_batches(stream))
        if out is None or as_hex:
            with _text(out) as target:
                for one in made:
                    target.write("".join(f"{record.hex()}\n" for record in one.records()))
                    target.flush()
        elif frames:
            out.unlink(missing_ok=True)  # the sink never writes to a file that is there
            with closing(open_sink(SinkOptions("pcap", path=_literal(out)))) as sink:
                for one in made:
                    sink.send(one.data, one.offsets)
        else:
            write_records(out, (record for one in made for record in one.records()))
    faults.end(f"{encoder.count:,} events encoded", encoder.rounded)


@app.command()
def decode(
    file: FileArgument = "-",
    *,
    encoding: Annotated[
        Name | None, typer.Option("--encoding", help="Of what has no frames; id_pairs without it.")
    ] = None,
    attributes: AttributesOption = None,
    widths: WidthsOption = USUAL,
) -> None:
    """Print each record as a line of JSON, with names, and values in their units.

    Records are hex, one a line, a Nasdaq BinaryFILE, or frames of a pcap file; the file itself
    says which. The frames' destination says their encoding, as to switches, and --encoding that of
    the others. A record that is no event is reported with its number, its reason and the attribute
    at fault, and the exit code is 1 then.
    """
    registry = read_registry(attributes, widths_of(widths))
    with open_file(file) as stream:
        found = record_source(stream)
        framed = found.what == "frame"
        if framed and encoding is not None:
            raise typer.BadParameter("frames say their encoding: leave --encoding out")
        faults = Faults(found.what)
        count = 0
        for batch in found.batches:
            text = json_lines(batch, None if framed else encoding or "id_pairs", registry, faults)
            sys.stdout.write("".join(f"{line}\n" for line in text))
            sys.stdout.flush()
            count += len(text)
    faults.end(f"{count:,} events decoded")


@app.command()
def publish(
    file: Annotated[str, typer.Argument(help="File of JSON lines, or - for standard input.")] = "",
    *,
    sensors: Annotated[
        int, typer.Option("--sensors", min=0, help="Publish so many events of made-up sensors.")
    ] = 0,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same events.")] = 1,
    faults: Annotated[
        float, typer.Option("--faults", min=0, max=1, help="Share of events that are broken.")
    ] = 0.0,
    topic: Annotated[
        str,
        typer.Option(
            "--topic",
            help="Topic, which is created if it does not exist; by default that of the properties "
            "file.",
        ),
    ] = "",
    bootstrap: Bootstrap = None,
    properties_file: PropertiesFile = None,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="Of a topic that is made.")
    ] = 2,
    interface: Annotated[
        str, typer.Option("--interface", help="Interface for frames in place of a topic.")
    ] = "",
    tunnel: Annotated[
        str, typer.Option("--tunnel", help="Far end of a UDP tunnel for frames, host:port.")
    ] = "",
    encoding: Annotated[
        Literal["json", "id_pairs", "bitmask"] | None,
        typer.Option("--encoding", help="json for a topic, id_pairs on a wire, without it."),
    ] = None,
    attributes: AttributesOption = None,
    widths: WidthsOption = USUAL,
    rate: Annotated[
        float,
        typer.Option("--rate", min=0, max=1e9, help="Events a second; 0: as fast as it goes."),
    ] = 0.0,
    source: SourceOption = DEFAULT_SOURCE,
    session: Annotated[
        str, typer.Option("--session", help="Ten characters that the key of a frame begins with.")
    ] = SESSION.decode(),
) -> None:
    """Publish events to Kafka, or straight onto a wire. Ctrl-C ends it and says what was sent.

    To Kafka, JSON goes as it is, good or bad; with --attributes, lines that are no events are
    reported, too. In an encoding, such lines are reported and left out. The exit code is 1 then.
    On a wire, an event is a frame of EtherType 0x9001 whose payload is its key, as MoldUDP64 writes
    one: session, and a number from 1.
    """
    if (not file) == (not sensors):
        raise typer.BadParameter("give a file, or --sensors N, and not both")
    if properties_file is not None and not (topic or interface or tunnel):
        topic, source_encoding = _input_of(properties_file)
        encoding = encoding or source_encoding
    if sum(map(bool, (topic, interface, tunnel))) != 1:
        raise typer.BadParameter("give one of --topic, --interface and --tunnel")
    if not topic and encoding == "json":
        raise typer.BadParameter("frames carry id_pairs or bitmask: JSON is for a topic")
    brokers, client = client_options(properties_file, bootstrap) if topic else ("", {})
    key = session.encode("ascii", "replace")
    if len(key) != len(SESSION):
        raise typer.BadParameter(f"--session: {session!r} has not ten characters")
    kind = encoding or ("json" if topic else "id_pairs")
    registry = read_registry(attributes, widths_of(widths))
    encoder = RecordEncoder(kind, registry, "" if topic else source, b"" if topic else key)
    told = Faults("event" if sensors else "line")
    progress = Progress("events")
    with stop_on_signal() as stop, nullcontext() if sensors else open_file(file) as stream:
        found = line_batches(stream, stop) if stream else _sensed(sensors, seed, faults)
        batches = paced(found, rate, stop)
        made = (
            as_they_are(encoder.check(batch, told) if attributes else batch)
            if kind == "json"
            else encoder.encode(batch, told)
            for batch in batches
        )
        if topic:
            with broker_errors():
                to_topic(made, topic, brokers, client, partitions, stop, progress)
        else:
            options = SinkOptions(
                "udp" if tunnel else "af_packet", endpoint=tunnel, interface=interface
            )
            with closing(open_sink(options)) as sink:
                send(made, sink, progress)
    target = f"{topic} at {brokers}" if topic else interface or tunnel
    done = f"{target}: {progress}{', stopped' if stop.is_set() else ''}"
    told.end(done, encoder.rounded)


@app.command()
def export(
    out: Annotated[
        str, typer.Argument(help="File to write; - for standard output.", metavar="FILE")
    ] = "-",
    *,
    properties_file: LabOrDeploymentFile = None,
    tables: Annotated[
        str,
        typer.Option("--tables", help="Where the tables are, in place of a properties file."),
    ] = "",
) -> None:
    """Write the attributes of a deployment as JSON lines, which --attributes of commands reads."""
    chosen = properties_file or (None if tables else lab_properties())
    settings = read_settings(chosen)
    if tables:
        settings = replace(settings, tables=tables)
    elif "tables" not in settings.given:
        raise typer.BadParameter("give --properties-file or --tables: no lab is up in var/lab")
    rows = local_rows(settings, FORMAT)
    if rows is None:
        rows = _rows_by_spark(chosen, settings)
    registry = Registry.from_rows(rows, _WIDEST)
    text = "".join(f"{_attribute_line(attribute)}\n" for attribute in registry.attributes)
    if out == "-":
        sys.stdout.write(text)
    else:
        Path(out).write_text(text)
    if not registry.attributes:
        typer.echo("table attributes has no rows", err=True)


def _rows_by_spark(properties_file: Path | None, settings: Settings) -> list[dict[str, Any]]:
    """Returns the rows of table `attributes` where only Spark reads it."""
    # A JVM takes seconds to start, and no other part of this module needs one.
    from stackcast.jobs.adapters.app import session  # noqa: PLC0415
    from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS, quiet, table_error  # noqa: PLC0415
    from stackcast.jobs.adapters.tables.tables import Tables  # noqa: PLC0415

    start_with(properties_file)
    spark = session.start("stackcast attributes export")
    quiet(spark)
    try:
        return Tables(spark, settings.tables).rows(FORMAT)
    except SQL_ERRORS as error:
        raise table_error(error) from None
    finally:
        spark.stop()


def _attribute_line(attribute: Attribute) -> str:
    """Returns an attribute as JSON, its numbers with all their digits."""
    return (
        f'{{"id": {attribute.id}, "name": "{attribute.name}", "type": "{attribute.type}", '
        f'"scale": {attribute.scale:f}, "offset": {attribute.offset:f}}}'
    )


def _input_of(properties_file: Path) -> tuple[str, Name | Literal["json"]]:
    """Returns the topic that a stream of events reads, and the encoding of its records."""
    # It imports Spark, which other commands should not wait for.
    from stackcast.jobs.adapters.planning import formats  # noqa: PLC0415

    settings = formats.of_settings(read_settings(properties_file), FORMAT)
    return settings.topic, cast(Any, settings.attributes_input)


def _sensed(count: int, seed: int, faults: float) -> Iterator[RecordBatch]:
    """Batches of the lab's sensors."""
    records = sensor_events(count, seed, faults)
    begin = 0
    while some := list(islice(records, MOST)):
        yield RecordBatch(list(range(begin + 1, begin + len(some) + 1)), some)
        begin += len(some)


@contextmanager
def _text(out: Path | None) -> Iterator[TextIO]:
    """Standard output, or the file."""
    if out is None:
        yield sys.stdout
    else:
        with out.open("w") as file:
            yield file


def _literal(path: Path) -> str:
    """A path whose braces the sink takes as they are."""
    return str(path).replace("{", "{{").replace("}", "}}")
