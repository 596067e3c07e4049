"""``stackcast frames``: read frames as people do."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

import schemas
from jobs.adapters.wire.pcap import is_pcap, read_pcap
from udfs.errors import StackcastError, StackError
from udfs.messages.reference import read_message
from udfs.messages.sequence import split_sequence
from udfs.messages.specification import Specification, parse_specification
from udfs.stacks.dissect import Dissection, dissect
from udfs.stacks.labels import describe

app = typer.Typer(no_args_is_help=True, help="Look into frames: header stacks and what they carry.")

Row = dict[str, Any]


@app.callback()
def frames() -> None:
    """Look into frames: header stacks and what they carry."""


@app.command("dissect")
def dissect_command(
    source: Annotated[
        str,
        typer.Argument(help="A pcap file, the hex of one frame, or - for standard input."),
    ] = "-",
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line for each frame.")
    ] = False,
) -> None:
    """Print each frame of a pcap file or of hex text: stack, addresses, sequence, messages.

    Standard input may be a pcap file or hex, one frame a line; colons, spaces and 0x are skipped.
    What cannot be read is told with a code and the byte of the frame; the exit code is 1 then.
    """
    specification = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
    failed = False
    for number, (time, frame) in enumerate(_frames(source), start=1):
        row: Row = {"frame": number, "length": 0}
        if time is not None:
            row["time"] = time
        if isinstance(frame, StackcastError):
            row["errors"] = [_error(frame)]
        else:
            row["length"] = len(frame)
            row |= _row(frame, specification)
        failed |= bool(row["errors"])
        typer.echo(json.dumps(row) if as_json else _text(row))
    if failed:
        raise typer.Exit(1)


def _frames(source: str) -> Iterator[tuple[float | None, bytes | StackcastError]]:
    """Time, and a frame or the error that ends or replaces it."""
    if source == "-":
        stream: BinaryIO = sys.stdin.buffer
        content = stream.read()
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


def _row(frame: bytes, specification: Specification) -> Row:
    try:
        parts = dissect(frame)
    except StackError as error:
        return {"errors": [_error(error)]}
    offset, index = split_sequence(parts.sequence)
    row: Row = {
        "destination_mac": _mac(parts.destination_mac),
        "source_mac": _mac(parts.source_mac),
        "ethertype": f"{parts.ethertype:#06x}",
        "labels": [describe(label, labels=parts.label_format) for label in parts.labels],
        "source": _endpoint(parts.ipv4.source, parts.udp.source_port),
        "destination": _endpoint(parts.ipv4.destination, parts.udp.destination_port),
        "session": parts.session.decode("latin-1"),
        "sequence": parts.sequence,
        "kafka_offset": int(offset),
        "message_index": int(index),
        "count": parts.count,
    }
    messages, errors = _messages(parts, specification)
    return row | {"messages": messages, "errors": errors}


def _messages(parts: Dissection, specification: Specification) -> tuple[list[Row], list[Row]]:
    messages: list[Row] = []
    errors: list[Row] = []
    for message, position in zip(parts.messages, parts.positions, strict=True):
        kind = chr(message[0]) if message else ""
        try:
            values = read_message(specification, message)
        except StackcastError as error:
            errors.append(_error(error, position))
            messages.append({"type": kind, "hex": message.hex()})
            continue
        header = specification.header_of_type(message[0])
        fields = {
            name.rpartition(".")[2]: specification.field(name).render(raw)
            for name, raw in values.items()
        }
        fields.pop("message_type", None)
        messages.append({"type": kind, "name": header.name if header else "", **fields})
    return messages, errors


def _text(row: Row) -> str:
    lines = [f"frame {row['frame']}: {row['length']} bytes"]
    if "count" in row:
        stack = ", ".join(row["labels"]) or "none (as a host receives it)"
        lines += [
            f"  ethernet   {row['source_mac']} > {row['destination_mac']}  {row['ethertype']}",
            f"  stack      {stack}",
            f"  ipv4 udp   {row['source']} > {row['destination']}",
            f"  moldudp64  session {row['session']}  sequence {row['sequence']} (offset "
            f"{row['kafka_offset']}, message {row['message_index']})  {_count(row['count'])}",
        ]
        lines += [f"    {_message_text(message)}" for message in row["messages"]]
    lines += [
        f"  error {error['code']} at byte {error['offset']}: {error['message']}"
        for error in row["errors"]
    ]
    return "\n".join(lines)


def _count(count: int) -> str:
    special = {0: "heartbeat", 1: "1 message", 0xFFFF: "end of session"}
    return special.get(count, f"{count} messages")


def _message_text(message: Row) -> str:
    if "hex" in message:
        return f"{message['type']!r} unreadable: {message['hex']}"
    fields = {key: value for key, value in message.items() if key not in ("type", "name")}
    return f"{message['type']} {message['name']}  " + " ".join(
        f"{key}={value}" for key, value in fields.items()
    )


def _mac(address: int) -> str:
    return address.to_bytes(6).hex(":")


def _endpoint(address: int, port: int) -> str:
    return f"{IPv4Address(address)}:{port}"
