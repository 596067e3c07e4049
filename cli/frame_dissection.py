"""Frames as text and JSON: header stacks, addresses, sequence numbers and messages."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, BinaryIO

import typer

from stackcast import schemas
from stackcast.cli import captures
from stackcast.cli.attributes.event_lines import texts_of
from stackcast.cli.attributes.files import read_registry
from stackcast.cli.attributes.records import KEY
from stackcast.cli.deployment import read_deployment
from stackcast.cli.standard_streams import standard_input
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
from stackcast.udfs.stacks.link_layer import (
    ETHERNET,
    TAG_PROTOCOLS,
    LinkHeader,
    VlanTag,
    read_link_header,
)

Row = dict[str, Any]


def dissect_frames(
    source: str,
    properties_file: Path | None,
    attributes: Path | None,
    encoding: str | None,
    widths: str | None,
    as_json: bool,
) -> bool:
    """Print each frame of a source.

    Args:
        source: file of a capture, the hex of a frame, or ``-`` for standard input.
        properties_file: properties file of the deployment.
        attributes: file of attributes.
        encoding: encoding of events in messages; None for that of the properties file, if messages
            are events.
        widths: value of ``--widths``.
        as_json: print JSON.

    Returns:
        Whether all frames could be read.
    """
    if _is_folder(source):
        raise typer.BadParameter(f"SOURCE '{source}' is a folder: give a capture or hex")
    # Event frames need attributes, too, so --attributes alone does not turn messages into events.
    deployment = read_deployment(properties_file, encoding=encoding, widths=widths)
    registry = deployment.registry if attributes is None else None
    registry = registry or read_registry(attributes, deployment.widths)
    if encoding is None and deployment.has_events:
        encoding = deployment.settings.attributes_encoding
    specification = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
    reader = _Events(encoding, registry) if encoding else _Itch(specification)
    failed = False
    for number, record in enumerate(_records(source), start=1):
        row: Row = {"frame": number, "length": 0}
        if isinstance(record, StackcastError):
            row["errors"] = [_error(record)]
        else:
            row["length"] = len(record.frame)
            if record.time_ns is not None:
                row |= {"time": record.time_ns / 1e9, "time_ns": record.time_ns}
            row |= _frame_row(record, reader, registry, encoding)
        failed |= bool(row["errors"])
        typer.echo(json.dumps(row) if as_json else text_of(row))
    return not failed


@dataclass(frozen=True)
class _Frame:
    """A frame to dissect.

    Attributes:
        frame: bytes of the frame.
        link_type: link type of the capture.
        time_ns: time in nanoseconds since 1970; None if the frame is not from a capture.
    """

    frame: bytes
    link_type: int = ETHERNET
    time_ns: int | None = None


def _records(source: str) -> Iterator[_Frame | StackcastError]:
    """Yield each frame, or the error that ends the capture or replaces the frame."""
    if source == "-":
        content = standard_input().read()
        stream = captures.unpacked(io.BufferedReader(io.BytesIO(content)))
        if captures.is_capture(stream):
            yield from _from_capture(stream)
        else:
            for line in content.decode("ascii", "replace").splitlines():
                if line.strip():
                    yield _from_hex(line)
    elif _is_file(source):
        with Path(source).open("rb") as file:
            yield from _from_capture(captures.unpacked(file))
    else:
        yield _from_hex(source)


def _is_file(source: str) -> bool:
    try:
        return Path(source).is_file()
    except OSError:
        # The hex of a frame may be longer than a file name can be.
        return False


def _is_folder(source: str) -> bool:
    try:
        return Path(source).is_dir()
    except OSError:
        return False


def _from_capture(stream: BinaryIO) -> Iterator[_Frame | StackcastError]:
    try:
        for record in captures.read_capture(stream):
            yield _Frame(record.frame, record.link_type, record.time_ns)
    except StackError as error:
        yield error


def _from_hex(text: str) -> _Frame | StackcastError:
    digits = "".join(text.replace(":", " ").replace("0x", " ").split())
    try:
        return _Frame(bytes.fromhex(digits))
    except ValueError:
        shown = text if len(text) <= 40 else text[:37] + "..."
        return StackError("NOT_HEX", f"{shown!r} is neither a file nor hex", offset=0)


def _error(error: StackcastError, offset: int | None = None) -> Row:
    place = error.fields.get("offset") if offset is None else offset
    return {"code": error.code, "offset": place, "message": error.message}


class _Itch:
    """Reads ITCH messages into rows."""

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
    """Reads attribute/value events into rows."""

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


def _frame_row(
    frame: _Frame, reader: _Itch | _Events, registry: Registry, events: str | None
) -> Row:
    try:
        link = read_link_header(frame.frame, frame.link_type)
    except StackError as error:
        return {"errors": [_error(error)]}
    if is_event(link):
        return _event_row(frame, link, registry, events or "id_pairs")
    return _path_row(frame, reader)


def _event_row(frame: _Frame, link: LinkHeader, registry: Registry, unaddressed: str) -> Row:
    remarks = []
    if link.destination_mac is None:
        remarks.append(
            "the capture does not record the destination, which names the encoding: read as "
            f"{unaddressed}; --encoding names another encoding"
        )
    try:
        parts = dissect_event(frame.frame, registry.widths, frame.link_type, unaddressed)
    except StackError as error:
        return {"remarks": remarks, "errors": [_error(error)]}
    return {
        **_link_row(parts.link),
        "encoding": parts.encoding,
        "attributes": texts_of(parts.values, registry),
        **_payload(parts),
        "remarks": remarks,
        "errors": [],
    }


def _link_row(link: LinkHeader) -> Row:
    row: Row = {
        "destination_mac": _mac(link.destination_mac),
        "source_mac": _mac(link.source_mac),
        "ethertype": f"{link.ethertype:#06x}",
    }
    if link.link_type != ETHERNET:
        row["link"] = link.name
    if link.tags:
        row["vlan"] = [_tag_row(tag) for tag in link.tags]
    return row


def _tag_row(tag: VlanTag) -> Row:
    return {
        "protocol": TAG_PROTOCOLS[tag.protocol],
        "id": tag.vlan,
        "priority": tag.priority,
        "drop_eligible": tag.drop_eligible,
    }


def _payload(parts: EventFrame) -> Row:
    """Return the payload, and session and sequence number if it can be a key of our publisher."""
    if not parts.payload:
        return {}
    row: Row = {"payload": parts.payload.hex()}
    session = parts.payload[:10]
    if len(parts.payload) >= KEY and session.isascii() and session.decode("ascii").isprintable():
        row["session"] = session.decode("ascii")
        row["sequence"] = int.from_bytes(parts.payload[10:KEY])
    return row


def _path_row(frame: _Frame, reader: _Itch | _Events) -> Row:
    """Return the row of a frame, which may be in a tunnel between switches.

    Byte positions in errors are those of the inner frame.
    """
    try:
        tunnelled = out_of_tunnel(frame.frame, frame.link_type, strict=False)
    except StackError as error:
        return {"errors": [_error(error)]}
    if tunnelled is None:
        return _row(frame, reader)
    ipv4, inner = tunnelled
    ends = _endpoint(ipv4.source, TUNNEL_PORT), _endpoint(ipv4.destination, TUNNEL_PORT)
    return {"tunnel": " > ".join(ends), **_row(_Frame(inner), reader)}


def _row(frame: _Frame, reader: _Itch | _Events) -> Row:
    try:
        parts = dissect(frame.frame, frame.link_type, strict=False)
    except StackError as error:
        return {"errors": [_error(error)]}
    offset, index = split_sequence(parts.sequence)
    row: Row = {
        **_link_row(parts.link),
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
    remarks, faults = _checksums(parts)
    return row | {"messages": messages, "remarks": remarks, "errors": [*faults, *errors]}


def _checksums(parts: Dissection) -> tuple[list[str], list[Row]]:
    """Return remarks and errors on the checksums of a frame."""
    remarks = []
    for name, header in (("IPv4", parts.ipv4), ("UDP", parts.udp)):
        if header.checksum == "offloaded":
            place = f"the {name} checksum at byte {header.checksum_at}"
            remarks.append(f"{place} was left to the sender's network card")
    if parts.udp.checksum != "wrong":
        return remarks, []
    position = parts.udp.checksum_at
    error = StackError("UDP_CHECKSUM", f"the UDP checksum at byte {position} is wrong")
    return remarks, [_error(error, position)]


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


def text_of(row: Row) -> str:
    """Return the row of a frame as text."""
    lines = [f"frame {row['frame']}: {row['length']} byte{'s' * (row['length'] != 1)}"]
    if "tunnel" in row:
        lines.append(f"  tunnel     {row['tunnel']}")
    if "count" in row:
        stack = ", ".join(row["labels"]) or "none (as a host receives it)"
        lines += [
            *_link_text(row),
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
            *_link_text(row),
            f"  {row['encoding']:<10} "
            + " ".join(f"{k}={v}" for k, v in row["attributes"].items()),
        ]
        if "session" in row:
            lines.append(f"  key        session {row['session']}  sequence {row['sequence']}")
        elif "payload" in row:
            lines.append(f"  payload    {row['payload']}")
    lines += [f"  remark     {remark}" for remark in row.get("remarks", ())]
    lines += [
        f"  error {error['code']} at byte {error['offset']}: {error['message']}"
        for error in row["errors"]
    ]
    return "\n".join(map(printable, lines))


def _link_text(row: Row) -> list[str]:
    """Return the lines of the link layer: addresses that the capture records, and VLAN tags."""
    source, destination = row["source_mac"], row["destination_mac"]
    addresses = ""
    if destination is not None:
        addresses = f"{source} > {destination}  "
    elif source is not None:
        addresses = f"from {source}  "
    lines = [f"  {row.get('link', 'ethernet'):<10} {addresses}{row['ethertype']}"]
    if "vlan" in row:
        tags = (f"{tag['protocol']} {tag['id']} priority {tag['priority']}" for tag in row["vlan"])
        lines.append(f"  vlan       {', '.join(tags)}")
    return lines


def _summary(summary: Summary) -> Row:
    """Return the notifications that a summary announces from one offset up to another."""
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


def _mac(address: int | None) -> str | None:
    return None if address is None else address.to_bytes(6).hex(":")


def _endpoint(address: int, port: int) -> str:
    return f"{IPv4Address(address)}:{port}"
