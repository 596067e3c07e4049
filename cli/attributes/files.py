"""Files of attribute/value events and of attributes."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import select
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import typer
from numpy.typing import NDArray

from stackcast.cli.standard_streams import standard_input
from stackcast.jobs.adapters.wire.pcap import is_pcap, read_ethernet
from stackcast.lab.traffic.sensors import attribute_rows
from stackcast.udfs.errors import EventError
from stackcast.udfs.messages.attributes.events import Widths
from stackcast.udfs.messages.attributes.registry import Registry
from stackcast.udfs.messages.reference import read_binary_file
from stackcast.udfs.stop_request import StopRequest

#: Largest size of an event in bytes.
MAX_EVENT_BYTES = 1 << 20
#: Largest number of records in a batch.
BATCH_RECORDS = 16_384
#: Largest number of bytes that are read at once.
_CHUNK_BYTES = 1 << 20
#: Longest wait for standard input in seconds, so that signals are noticed.
_SIGNAL_SECONDS = 0.2
#: Bytes that may be in a text of hex.
_TEXT = frozenset([*b"\t\r\n", *range(0x20, 0x7F)])


@dataclass(frozen=True)
class RecordBatch:
    """Records of a file.

    Attributes:
        places: number of the line, record or frame of each, from 1.
        records: the records.
        faults: places and reasons of parts of the file that are not records.
    """

    places: list[int]
    records: list[bytes]
    faults: list[tuple[int, str]] = field(default_factory=list)

    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return offsets, int64[n + 1], and bytes, uint8[], of the records, as codecs need them."""
        offsets = np.zeros(len(self.records) + 1, np.int64)
        np.cumsum([len(record) for record in self.records], out=offsets[1:])
        return offsets, np.frombuffer(b"".join(self.records), np.uint8)


@dataclass(frozen=True)
class RecordFile:
    """The records of a file.

    Attributes:
        kind: ``line`` (of hex), ``record`` (of a BinaryFILE) or ``frame``.
        batches: batches of the records.
    """

    kind: str
    batches: Iterator[RecordBatch]


def widths_of(text: str) -> Widths:
    """Return the widths in a value of ``--widths``. Raises typer.BadParameter."""
    parts = re.fullmatch(r"(8|16)/(8|16|32|64)", text)
    if parts is None:
        raise typer.BadParameter(
            f"--widths {text!r} must be the bits of an id (8 or 16) and of a bitmask (8, 16, 32 or "
            "64), such as 8/32"
        )
    return Widths(int(parts[1]), int(parts[2]))


def read_registry(path: Path | None, widths: Widths) -> Registry:
    """Return the attributes in a file of JSON lines with the columns of table ``attributes``.

    Args:
        path: the file; None for the attributes of the lab's sensors.
        widths: widths of ids and bitmasks.

    Raises:
        EventError: NOT_JSON.
        OSError: the file cannot be read.
        AttributeTableError: an error of `Registry.from_rows`.
    """
    if path is None:
        return Registry.from_rows(attribute_rows(), widths)
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, parse_float=Decimal)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise EventError(
                "NOT_JSON",
                f"{path}, line {number}: expected an attribute such as "
                '{"id": 1, "name": "temp", "type": "decimal", "scale": 0.01, "offset": -100}',
            )
        rows.append(row)
    return Registry.from_rows(rows, widths)


class _Packed(gzip.GzipFile):
    """A compressed file that raises OSError, not EOFError, if its end is missing.

    Typer treats EOFError like Ctrl-C.
    """

    def read1(self, size: int | None = -1) -> bytes:
        try:
            return super().read1(-1 if size is None else size)
        except EOFError as error:
            raise OSError(f"{self.name}: {error}") from None

    def read(self, size: int | None = -1) -> bytes:
        try:
            return super().read(size)
        except EOFError as error:
            raise OSError(f"{self.name}: {error}") from None

    def peek(self, n: int) -> bytes:
        try:
            return super().peek(n)
        except EOFError as error:
            raise OSError(f"{self.name}: {error}") from None


def open_file(file: str) -> AbstractContextManager[BinaryIO]:
    """Open a file, decompressed if its name ends in .gz, or return standard input for "-"."""
    if file == "-":
        return nullcontext(standard_input())
    if file.endswith(".gz"):
        return cast(BinaryIO, _Packed(file))
    return Path(file).open("rb")


def line_batches(stream: BinaryIO, stop: StopRequest | None = None) -> Iterator[RecordBatch]:
    """Yield the lines that are not blank, as soon as they have arrived.

    Args:
        stream: the file. A line longer than `MAX_EVENT_BYTES` is cut to one byte more than that.
        stop: request to stop, which also interrupts a read from standard input.
    """
    pending, number = b"", 0
    while chunk := _next(stream, stop):
        *lines, last = chunk.split(b"\n")
        if lines:
            lines[0] = pending + lines[0]
            pending = last
        else:
            pending += last
        pending = pending[: MAX_EVENT_BYTES + 1]
        yield from _numbered(lines, number)
        number += len(lines)
    yield from _numbered([pending], number)


def _next(stream: BinaryIO, stop: StopRequest | None) -> bytes:
    if stop is not None and sys.__stdin__ is not None and stream is sys.__stdin__.buffer:
        # A signal does not interrupt a blocking read, so wait until there is something to read.
        while not stop.is_set():
            if select.select([stream], [], [], _SIGNAL_SECONDS)[0]:
                return os.read(stream.fileno(), _CHUNK_BYTES)
        return b""
    return cast(bytes, cast(Any, stream).read1(_CHUNK_BYTES))


def _numbered(lines: list[bytes], before: int) -> Iterator[RecordBatch]:
    numbered = [
        (number, line[: MAX_EVENT_BYTES + 1])
        for number, line in enumerate(lines, start=before + 1)
        if line.strip()
    ]
    for start in range(0, len(numbered), BATCH_RECORDS):
        part = numbered[start : start + BATCH_RECORDS]
        yield RecordBatch([number for number, _ in part], [line for _, line in part])


def record_source(stream: BinaryIO) -> RecordFile:
    """Return the records of hex lines, a BinaryFILE or a pcap file, by the first bytes of the file.

    Iterating over the batches raises MessageError for a damaged BinaryFILE and StackError for a
    damaged pcap file, after the batches before the damage.
    """
    if not hasattr(stream, "peek"):
        stream = cast(BinaryIO, io.BufferedReader(cast(Any, stream)))
    head = cast(Any, stream).peek(64)[:64]
    if is_pcap(head):
        return RecordFile("frame", _grouped(record.frame for record in read_ethernet(stream)))
    if _TEXT.issuperset(head):
        return RecordFile("line", map(_unhexed, line_batches(stream)))
    return RecordFile("record", _grouped(read_binary_file(stream)))


def _unhexed(batch: RecordBatch) -> RecordBatch:
    """Return a batch of lines decoded from hex; lines that are not hex become faults."""
    decoded = RecordBatch([], [], list(batch.faults))
    for place, line in zip(batch.places, batch.records, strict=True):
        digits = line.decode("ascii", "replace").replace(":", " ").replace("0x", " ")
        try:
            decoded.records.append(bytes.fromhex(digits))
            decoded.places.append(place)
        except ValueError:
            decoded.faults.append((place, "not_hex"))
    return decoded


def _grouped(records: Iterator[bytes]) -> Iterator[RecordBatch]:
    """Yield batches of records. An error of the file is raised after the records before it."""
    number = 0
    while True:
        batch: list[bytes] = []
        failed: Exception | None = None
        try:
            for record in records:
                batch.append(record)
                if len(batch) == BATCH_RECORDS:
                    break
        except Exception as error:  # it is raised below
            failed = error
        if batch:
            yield RecordBatch(list(range(number + 1, number + len(batch) + 1)), batch)
        number += len(batch)
        if failed is not None:
            raise failed
        if len(batch) < BATCH_RECORDS:
            return
