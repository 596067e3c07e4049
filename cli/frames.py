"""``stackcast frames``: read frames as people do."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import typer

from stackcast import schemas
from stackcast.cli import send_frame
from stackcast.cli.attributes.files import (
    USUAL,
    AttributesOption,
    WidthsOption,
    read_registry,
    widths_of,
)
from stackcast.cli.attributes.records import KEY, texts_of
from stackcast.cli.standard_streams import standard_input
from stackcast.jobs.adapters.wire.pcap import is_pcap, read_pcap
from stackcast.udfs.errors import StackcastError, StackError, printable
from stackcast.udfs.messages.attributes.reference import read_event
from stackcast.udfs.messages.attributes.registry import Registry
from stackcast.udfs.messages.reference import read_message
from stackcast.udfs.messages.sequence import split_sequence
from stackcast.udfs.messages.specification import Specification, parse_specification
from stackcast.udfs.messages.summaries import Summary
from stackcast.udfs.network.tunnel import TUNNEL_PORT
from stackcast.udfs.stacks.dissect import (
    Dissection,
    EventFrame,
    dissect,
    dissect_event,
    is_event,
    out_of_tunnel,
)

app = typer.Typer(no_args_is_help=True, help="Look into frames: header stacks and what they carry.")

Row = dict[str, Any]


@app.callback()
def frames() -> None:
    """Look into frames: header stacks and what they carry."""


app.command("send")(send_frame.send)


@app.command("dissect")
def dissect_command(
    source: Annotated[
        str,
        typer.Argument(
            help="A capture (pcap, pcapng), the hex of one frame, or - for standard input."
        ),
    ] = "-",
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line for each frame.")
    ] = False,
    events: Annotated[
        Literal["id_pairs", "bitmask"] | None,
        typer.Option("--events", help="Messages are attribute/value events of this encoding."),
    ] = None,
    attributes: AttributesOption = None,
    widths: WidthsOption = USUAL,
) -> None:
    """Print each frame of a capture or of hex text: stack, addresses, sequence, messages.

    Standard input may be a capture or hex, one frame a line; colons, spaces and 0x are skipped.
    Frames of EtherType 0x9001 are attribute/value events, and their destination says in which
    encoding; messages of MoldUDP64 are ITCH's, or with --events such events.
    What cannot be read is told with a code and the byte of the frame; the exit code is 1 then.
    """
    registry = read_registry(attributes, widths_of(widths))
    specification = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
    reader = _Events(events, registry) if events else _Itch(specification)
    failed = False
    for number, (time, frame) in enumerate(_frames(source), start=1):
        row: Row = {"frame": number, "length": 0}
        if time is not None:
            row["time"] = time
        if isinstance(frame, StackcastError):
            row["errors"] = [_error(frame)]
        else:
            row["length"] = len(frame)
            row |= _event_row(frame, registry) if is_event(frame) else _way_row(frame, reader)
        failed |= bool(row["errors"])
        typer.echo(json.dumps(row) if as_json else _text(row))
    if failed:
        raise typer.Exit(1)


def _frames(source: str) -> Iterator[tuple[float | None, bytes | StackcastError]]:
    """Time, and a frame or the error that ends or replaces it."""
    if source == "-":
        content = standard_input().read()
        if is_pcap(content):
            yield from _from_pcap(io.BytesIO(content))
        else:
            for line in content.decode("ascii", "replace").splitlines():
                if line.strip():
                    yield None, _from_hex(line)
    elif _is_file(source):
        with Path(source).open("rb") as file:
            yield from _from_pcap(file)
    else:
        yield None, _from_hex(source)


def _is_file(source: str) -> bool:
    try:
        return Path(source).is_file()
    except OSError:
        # The hex of a frame may be longer than a file name can be.
        return False


def _from_pcap(stream: BinaryIO) -> Iterator[tuple[float | None, bytes | StackcastError]]:
    try:
        for record in read_pcap(stream):
            yield record.time, record.frame
    except StackError as error:
        yield None, error


def _from_hex(text: str) -> bytes | StackcastError:
    digits = "".join(text.replace(":", " ").replace("0x", " ").split())
    try:
        return bytes.fromhex(digits)
    except ValueError:
        shown = text if len(text) <= 40 else text[:37] + "..."
        return StackError("NOT_HEX", f"{shown!r} is neither a file nor hex", offset=0)


def _error(error: StackcastError, offset: int | None = None) -> Row:
    at = error.fields.get("offset") if offset is None else offset
    return {"code": error.code, "offset": at, "message": error.message}


class _Itch:
    """Messages of ITCH as people read them."""

    def __init__(self, specification: Specification) -> None:
        self._specification = specification

    def read(self, message: bytes) -> Row:
        values = read_message(self._specification, message)
        header = self._specification.header_of_type(message[0])
        fields = {
            name.rpartition(".")[2]: self._specification.field(name).render(raw)
            for name, raw in values.items()
        }
        fields.pop("message_type", None)
        return {**self.kind(message), "name": header.name if header else "", **fields}

    def kind(self, message: bytes) -> Row:
        return {"type": chr(message[0]) if message else ""}


class _Events:
    """Attribute/value events as people read them."""

    def __init__(self, encoding: str, registry: Registry) -> None:
        self._encoding, self._registry = encoding, registry

    def read(self, message: bytes) -> Row:
        widths = self._registry.widths
        values, payload = read_event(message, self._encoding, widths.ids, len(message), widths)
        row = {**self.kind(message), "name": self._encoding}
        row["attributes"] = texts_of(values, self._registry)
        return row | ({"payload": payload.hex()} if payload else {})

    def kind(self, _message: bytes) -> Row:
        return {"type": "event"}


def _event_row(frame: bytes, registry: Registry) -> Row:
    try:
        parts = dissect_event(frame, registry.widths)
    except StackError as error:
        return {"errors": [_error(error)]}
    return {
        "destination_mac": _mac(parts.destination_mac),
        "source_mac": _mac(parts.source_mac),
        "ethertype": "0x9001",
        "encoding": parts.encoding,
        "attributes": texts_of(parts.values, registry),
        **_payload(parts),
        "errors": [],
    }


def _payload(parts: EventFrame) -> Row:
    """The key that our publisher puts there, where it can be one, and all bytes."""
    if not parts.payload:
        return {}
    row: Row = {"payload": parts.payload.hex()}
    session = parts.payload[:10]
    if len(parts.payload) >= KEY and session.isascii() and session.decode("ascii").isprintable():
        row["session"] = session.decode("ascii")
        row["sequence"] = int.from_bytes(parts.payload[10:KEY])
    return row


def _way_row(frame: bytes, reader: _Itch | _Events) -> Row:
    """A frame, perhaps in a tunnel between switches; bytes of errors are of the frame within."""
    try:
        found = out_of_tunnel(frame)
    except StackError as error:
        return {"errors": [_error(error)]}
    if found is None:
        return _row(frame, reader)
    ipv4, within = found
    ends = _endpoint(ipv4.source, TUNNEL_PORT), _endpoint(ipv4.destination, TUNNEL_PORT)
    return {"tunnel": " > ".join(ends), **_row(within, reader)}


def _row(frame: bytes, reader: _Itch | _Events) -> Row:
    try:
        parts = dissect(frame)
    except StackError as error:
        return {"errors": [_error(error)]}
    offset, index = split_sequence(parts.sequence)
    row: Row = {
        "destination_mac": _mac(parts.destination_mac),
        "source_mac": _mac(parts.source_mac),
        "ethertype": f"{parts.ethertype:#06x}",
        "labels": [parts.label_format.describe(label) for label in parts.labels],
        "source": _endpoint(parts.ipv4.source, parts.udp.source_port),
        "destination": _endpoint(parts.ipv4.destination, parts.udp.destination_port),
        "session": parts.session.decode("latin-1"),
        "sequence": parts.sequence,
        "kafka_offset": int(offset),
        "message_index": int(index),
        "count": parts.count,
    }
    if parts.summary is not None:
        row["summary"] = _summary(parts.summary)
    if parts.tag is not None:
        row["summary"] |= {"key": parts.tag[0], "tag": parts.tag[1].hex()}
    messages, errors = _messages(parts, reader)
    return row | {"messages": messages, "errors": errors}


def _messages(parts: Dissection, reader: _Itch | _Events) -> tuple[list[Row], list[Row]]:
    messages: list[Row] = []
    errors: list[Row] = []
    for message, position in zip(parts.messages, parts.positions, strict=True):
        try:
            messages.append(reader.read(message))
        except StackcastError as error:
            errors.append(_error(error, position))
            messages.append({**reader.kind(message), "hex": message.hex()})
    return messages, errors


def _text(row: Row) -> str:
    lines = [f"frame {row['frame']}: {row['length']} bytes"]
    if "tunnel" in row:
        lines.append(f"  tunnel     {row['tunnel']}")
    if "count" in row:
        stack = ", ".join(row["labels"]) or "none (as a host receives it)"
        lines += [
            f"  ethernet   {row['source_mac']} > {row['destination_mac']}  {row['ethertype']}",
            f"  stack      {stack}",
            f"  ipv4 udp   {row['source']} > {row['destination']}",
            f"  moldudp64  session {row['session']}  sequence {row['sequence']} (offset "
            f"{row['kafka_offset']}, message {row['message_index']})  {_count(row['count'])}",
        ]
        if "summary" in row:
            lines.append("    " + " ".join(f"{k}={v}" for k, v in row["summary"].items()))
        lines += [f"    {_message_text(message)}" for message in row["messages"]]
    elif "encoding" in row:
        lines += [
            f"  ethernet   {row['source_mac']} > {row['destination_mac']}  {row['ethertype']}",
            f"  {row['encoding']:<10} "
            + " ".join(f"{k}={v}" for k, v in row["attributes"].items()),
        ]
        if "session" in row:
            lines.append(f"  key        session {row['session']}  sequence {row['sequence']}")
        elif "payload" in row:
            lines.append(f"  payload    {row['payload']}")
    lines += [
        f"  error {error['code']} at byte {error['offset']}: {error['message']}"
        for error in row["errors"]
    ]
    return "\n".join(map(printable, lines))


def _summary(summary: Summary) -> Row:
    """Returns what a host should have of offsets ``from_offset`` up to ``until_offset``."""
    return {
        "from_offset": split_sequence(summary.from_)[0],
        "until_offset": split_sequence(summary.until)[0],
        "notifications": "gone" if summary.gone else summary.notifications,
        "last": summary.last,
        "digest": f"{summary.digest:#018x}",
    }


def _count(count: int) -> str:
    special = {0: "heartbeat", 1: "1 message", 0xFFFF: "end of session"}
    return special.get(count, f"{count} messages")


def _message_text(message: Row) -> str:
    if "hex" in message:
        return f"{message['type']!r} unreadable: {message['hex']}"
    fields = {key: value for key, value in message.items() if key not in ("type", "name")}
    fields = fields.pop("attributes", {}) | fields
    return f"{message['type']} {message['name']}  " + " ".join(
        f"{key}={value}" for key, value in fields.items()
    )


def _mac(address: int) -> str:
    return address.to_bytes(6).hex(":")


def _endpoint(address: int, port: int) -> str:
    return f"{IPv4Address(address)}:{port}"
