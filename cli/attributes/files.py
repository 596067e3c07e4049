"""Files of attribute/value events and of attributes, as commands are given them."""

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
from typing import Annotated, Any, BinaryIO, cast

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

AttributesOption = Annotated[
    Path | None,
    typer.Option(
        "--attributes",
        help="File of JSON lines with the columns of table attributes; "
        "without it those of the lab's sensors.",
    ),
]

WidthsOption = Annotated[
    str,
    typer.Option("--widths", help="Bits of an id (8, 16) and of a bitmask (8, 16, 32, 64)."),
]
USUAL = "8/32"

LONGEST = 1 << 20
"""Bytes of one event."""
MOST = 16_384
"""Records that are worked on at once."""
_CHUNK = 1 << 20
_MOMENT = 0.2
_TEXT = frozenset([*b"\t\r\n", *range(0x20, 0x7F)])


@dataclass(frozen=True)
class RecordBatch:
    """Records and where each stands: its line, record or frame, from 1.

    ``faults``: places and reasons of those that are no records at all.
    """

    places: list[int]
    records: list[bytes]
    faults: list[tuple[int, str]] = field(default_factory=list)

    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Offsets int64[n + 1] and bytes uint8[], as codecs take them."""
        borders = np.zeros(len(self.records) + 1, np.int64)
        np.cumsum([len(record) for record in self.records], out=borders[1:])
        return borders, np.frombuffer(b"".join(self.records), np.uint8)


@dataclass(frozen=True)
class RecordFile:
    """The records of a file: each ``what`` is a ``line`` of hex, a ``record``, or a ``frame``."""

    what: str
    batches: Iterator[RecordBatch]


def widths_of(text: str) -> Widths:
    """Returns the widths that ``--widths`` says. Raises typer.BadParameter."""
    parts = re.fullmatch(r"(8|16)/(8|16|32|64)", text)
    if parts is None:
        raise typer.BadParameter(
            f"--widths: {text!r} is not 8 or 16 for ids, and 8, 16, 32 or 64 for bitmasks, as 8/32"
        )
    return Widths(int(parts[1]), int(parts[2]))


def read_registry(path: Path | None, widths: Widths) -> Registry:
    """Returns the attributes of a file of JSON lines with the columns of table ``attributes``.

    Without a file those of the lab's sensors. Raises EventError ``NOT_JSON``, OSError, and what
    `Registry.from_rows` does.
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
                f"{path}, line {number}: an attribute is a line as "
                '{"id": 1, "name": "temp", "type": "decimal", "scale": 0.01, "offset": -100}',
            )
        rows.append(row)
    return Registry.from_rows(rows, widths)


class _Packed(gzip.GzipFile):
    """A packed file whose end may be missing; the command line takes EOFError for Ctrl-C."""

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
    """Returns a file to read, unpacked if it ends in .gz, or standard input for "-"."""
    if file == "-":
        return nullcontext(standard_input())
    if file.endswith(".gz"):
        return cast(BinaryIO, _Packed(file))
    return Path(file).open("rb")


def line_batches(stream: BinaryIO, stop: StopRequest | None = None) -> Iterator[RecordBatch]:
    """Yields lines as they come, so that slow ones are seen soon; blank ones left out.

    Of a line longer than `LONGEST` only so many bytes are kept, and one more. Standard input, which
    may be silent for long, ends when ``stop`` is set.
    """
    rest, number = b"", 0
    while chunk := _next(stream, stop):
        *lines, last = chunk.split(b"\n")
        if lines:
            lines[0] = rest + lines[0]
            rest = last
        else:
            rest += last
        rest = rest[: LONGEST + 1]
        yield from _numbered(lines, number)
        number += len(lines)
    yield from _numbered([rest], number)


def _next(stream: BinaryIO, stop: StopRequest | None) -> bytes:
    if stop is not None and sys.__stdin__ is not None and stream is sys.__stdin__.buffer:
        # A signal does not end a read that waits: so wait for what can be read.
        while not stop.is_set():
            if select.select([stream], [], [], _MOMENT)[0]:
                return os.read(stream.fileno(), _CHUNK)
        return b""
    return cast(bytes, cast(Any, stream).read1(_CHUNK))


def _numbered(lines: list[bytes], before: int) -> Iterator[RecordBatch]:
    kept = [
        (number, line[: LONGEST + 1])
        for number, line in enumerate(lines, start=before + 1)
        if line.strip()
    ]
    for begin in range(0, len(kept), MOST):
        part = kept[begin : begin + MOST]
        yield RecordBatch([number for number, _ in part], [line for _, line in part])


def record_source(stream: BinaryIO) -> RecordFile:
    """Hex lines, a BinaryFILE or a pcap file, told apart by how they begin.

    Iterating raises MessageError for a damaged BinaryFILE and StackError for a damaged pcap file,
    after the batches before the damage.
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
    """The same records out of hex; those that are none are faults."""
    made = RecordBatch([], [], list(batch.faults))
    for place, line in zip(batch.places, batch.records, strict=True):
        digits = line.decode("ascii", "replace").replace(":", " ").replace("0x", " ")
        try:
            made.records.append(bytes.fromhex(digits))
            made.places.append(place)
        except ValueError:
            made.faults.append((place, "not_hex"))
    return made


def _grouped(records: Iterator[bytes]) -> Iterator[RecordBatch]:
    """Batches; an error of the file comes after what stands before it."""
    number = 0
    while True:
        batch: list[bytes] = []
        failed: Exception | None = None
        try:
            for record in records:
                batch.append(record)
                if len(batch) == MOST:
                    break
        except Exception as error:  # whatever it is, it is raised below
            failed = error
        if batch:
            yield RecordBatch(list(range(number + 1, number + len(batch) + 1)), batch)
        number += len(batch)
        if failed is not None:
            raise failed
        if len(batch) < MOST:
            return
