"""Frames into classic pcap files (Ethernet, microseconds), and back out of these and pcapng.

The path of a sink may contain ``{partition}`` and ``{attempt}``: number of the Spark partition,
and id of the task attempt, which is unique in an application (0 outside of Spark). A path that
does not end in ``.pcap`` is a folder, for files ``frames-{partition}-{attempt}.pcap``.

Each sink writes a file of its own, made with its first frame. If the name is taken, because a task
of an earlier batch had it, ``-1``, ``-2``, ... goes before the suffix; no file is ever written
twice. ``mergecap`` puts them together again.
"""

from __future__ import annotations

import contextlib
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.jobs.adapters.wire.options import SinkOptions
from stackcast.udfs.errors import SinkError, StackError
from stackcast.udfs.stacks.link_layer import ETHERNET, LINK_TYPES

_MAGIC = 0xA1B2C3D4
_MAGIC_NANOSECONDS = 0xA1B23C4D
_MAGIC_PCAPNG = 0x0A0D0D0A
#: Blocks of pcapng; the magic opens a section, and this number in it shows the byte order.
_INTERFACE, _OLD_PACKET, _SIMPLE_PACKET, _ENHANCED_PACKET = 1, 2, 3, 6
_BYTE_ORDER = 0x1A2B3C4D
_RESOLUTION, _TIME_OFFSET = 9, 14
_SECOND = 1_000_000_000
#: A longer record or block, in bytes, is damaged. Capture programs write at most 256 KiB.
_LONGEST = 16 << 20
_SNAPLEN = 262_144
_FILE_HEADER = struct.pack("<IHHiIII", _MAGIC, 2, 4, 0, 0, _SNAPLEN, ETHERNET)
_RECORD = np.dtype([("s", "<u4"), ("us", "<u4"), ("captured", "<u4"), ("length", "<u4")])


class PcapSink:
    """One pcap file; each send is one write of whole records, so a killed process leaves it valid;
    what finds no room on the disk is taken back.

    Raises SinkError ``BAD_PATH``, ``WRITE_FAILED``.
    """

    def __init__(self, options: SinkOptions, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        partition, attempt = _task()
        try:
            self._path = Path(options.path.format(partition=partition, attempt=attempt))
        except (KeyError, IndexError, ValueError) as error:
            raise SinkError(
                "BAD_PATH",
                (
                    f"path {options.path!r} contains an unknown placeholder: only {{partition}} "
                    "and {attempt} are supported"
                ),
            ) from error
        if not self._path.name:
            raise SinkError("BAD_PATH", "the pcap sink requires the path of a file or folder")
        if self._path.suffix != ".pcap":
            self._path /= f"frames-{partition}-{attempt}.pcap"
        self._file: BinaryIO | None = None
        self._whole = 0

    def send(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> int:
        frames = offsets.size - 1
        if frames <= 0:
            return 0
        records = _records(data, offsets, int(self._clock.wall_time() * 1e6))
        try:
            if self._file is None:
                self._file, self._path = _create(self._path)
                self._write(_FILE_HEADER)
            self._write(records.data)
            self._whole = self._file.tell()
        except OSError as error:
            self._cut()
            raise SinkError("WRITE_FAILED", f"{self._path}: {error.strerror}") from error
        return frames

    def _write(self, block: bytes | memoryview) -> None:
        assert self._file is not None
        left = memoryview(block)
        while left:
            # The file is unbuffered: a write may be a partial one.
            left = left[self._file.write(left) :]

    def _cut(self) -> None:
        """Take half records away, as a full disk leaves them: readers would stop there."""
        if self._file is None:
            return
        with contextlib.suppress(OSError):
            self._file.truncate(self._whole)
            if not self._whole:
                self._path.unlink()

    def flush(self) -> None:
        """Nothing to wait for: every send has gone to the operating system."""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _task() -> tuple[int, int]:
    """Partition and attempt of the Spark task that this runs in; (0, 0) outside of one."""
    # Only a Spark worker has loaded pyspark already; other processes should not have to.
    spark = sys.modules.get("pyspark")
    context = spark.TaskContext.get() if spark is not None else None
    return (context.partitionId(), context.taskAttemptId()) if context is not None else (0, 0)


def _create(path: Path) -> tuple[BinaryIO, Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    for number in count():
        fresh = path.with_name(f"{path.stem}-{number}{path.suffix}") if number else path
        try:
            return fresh.open("xb", buffering=0), fresh
        except FileExistsError:
            continue
    raise AssertionError("unreachable")


def _records(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], microseconds: int
) -> NDArray[np.uint8]:
    """uint8[]: a 16-byte record header and the bytes of each frame."""
    lengths = np.diff(offsets)
    frames = lengths.size
    headers = np.empty(frames, _RECORD)
    headers["s"], headers["us"] = divmod(microseconds, 1_000_000)
    headers["captured"] = headers["length"] = lengths
    begin = offsets[:-1] - offsets[0] + _RECORD.itemsize * np.arange(frames)
    places = begin[:, None] + np.arange(_RECORD.itemsize)
    out = np.empty(int(offsets[-1] - offsets[0]) + frames * _RECORD.itemsize, np.uint8)
    is_frame = np.ones(out.size, np.bool_)
    is_frame[places] = False
    out[places] = headers.view(np.uint8).reshape(frames, _RECORD.itemsize)
    out[is_frame] = data[offsets[0] : offsets[-1]]
    return out


@dataclass(frozen=True)
class Record:
    """One captured frame.

    time_ns: nanoseconds since 1970. offset: of its record header in the file. link_type: of the
    link on which it was captured, as :mod:`stackcast.udfs.stacks.link_layer` numbers them.
    """

    time_ns: int
    frame: bytes
    offset: int
    link_type: int = ETHERNET

    @property
    def time(self) -> float:
        """Seconds since 1970."""
        return self.time_ns / _SECOND


def is_pcap(head: bytes) -> bool:
    """Tells whether a file that begins with these bytes is a capture: classic pcap, or pcapng."""
    if len(head) < 4:
        return False
    known = (_MAGIC, _MAGIC_NANOSECONDS, _MAGIC_PCAPNG)
    return int.from_bytes(head[:4], "little") in known or int.from_bytes(head[:4]) in known


def read_pcap(stream: BinaryIO) -> Iterator[Record]:
    """Yields the frames of a classic pcap or a pcapng file, of either byte order and any unit.

    Interfaces of a pcapng file may have different link types, those that cannot be read among them.

    Raises:
        StackError: with ``offset`` in the file: NOT_PCAP, LINK_TYPE if no frame of a classic file
            can be read, or, after the frames before it, TRUNCATED_CAPTURE.
    """
    magic = stream.read(4)
    if not is_pcap(magic):
        raise StackError("NOT_PCAP", "the file does not begin like a pcap or pcapng file", offset=0)
    if int.from_bytes(magic) == _MAGIC_PCAPNG:
        yield from _read_pcapng(stream)
    else:
        yield from _read_classic(magic, stream)


def read_ethernet(stream: BinaryIO) -> Iterator[Record]:
    """Yields the frames of a capture as :func:`read_pcap` does, if all are of Ethernet.

    Raises:
        StackError: as :func:`read_pcap`; LINK_TYPE for a frame of another link type.
    """
    for record in read_pcap(stream):
        if record.link_type != ETHERNET:
            raise _unknown_link(record.link_type, record.offset, f"only Ethernet ({ETHERNET})")
        yield record


def _read_classic(magic: bytes, stream: BinaryIO) -> Iterator[Record]:
    """The frames after the first four bytes of a classic file."""
    little = int.from_bytes(magic, "little")
    order = "<" if little in (_MAGIC, _MAGIC_NANOSECONDS) else ">"
    head = magic + stream.read(len(_FILE_HEADER) - len(magic))
    if len(head) < len(_FILE_HEADER):
        raise _truncated("the file header", len(head))
    number, *_, link_type = struct.unpack(f"{order}IHHiIII", head)
    # The upper half has flags, and the length of a frame check sequence.
    link_type &= 0xFFFF
    if link_type not in LINK_TYPES:
        known = ", ".join(map(str, sorted(LINK_TYPES)))
        raise _unknown_link(link_type, 20, f"only {known}")
    unit = 1 if number == _MAGIC_NANOSECONDS else 1_000
    offset = len(head)
    while record := stream.read(16):
        captured = 0
        frame = b""
        if len(record) == 16:
            seconds, part, captured, _ = struct.unpack(f"{order}IIII", record)
            if captured > _LONGEST:
                raise _too_long("the record", offset, captured)
            frame = stream.read(captured)
        if len(record) < 16 or len(frame) < captured:
            raise _truncated("the record", offset)
        yield Record(seconds * _SECOND + part * unit, frame, offset, link_type)
        offset += 16 + captured


def _read_pcapng(stream: BinaryIO) -> Iterator[Record]:
    """The frames after the first four bytes of a pcapng file (draft-ietf-opsawg-pcapng).

    Blocks without frames are skipped. A simple packet block has no time; its frame gets time 0.
    """
    opens_section = _MAGIC_PCAPNG.to_bytes(4)
    order: Literal["little", "big"] = "little"
    interfaces: list[_Interface] = []
    offset = 0
    head = opens_section + stream.read(4)
    while head:
        if head[:4] == opens_section:
            head += stream.read(4)
            order = "little" if int.from_bytes(head[8:], "little") == _BYTE_ORDER else "big"
            interfaces = []
        length = int.from_bytes(head[4:8], order)
        if length > _LONGEST:
            raise _too_long("the block", offset, length)
        # A block begins with its kind and length, and ends with its length.
        body, tail = head[8:] + stream.read(max(length - len(head) - 4, 0)), stream.read(4)
        if len(head) < 8 or len(body) != length - 12 or len(tail) < 4:
            raise _truncated("the block", offset)
        if tail != head[4:8]:
            raise StackError(
                "TRUNCATED_CAPTURE",
                f"the block at byte {offset} begins with length {length} but ends with length "
                f"{int.from_bytes(tail, order)}",
                offset=offset,
            )
        kind = int.from_bytes(head[:4], order)
        if kind == _INTERFACE:
            interfaces.append(_interface(body, order))
        elif kind in (_ENHANCED_PACKET, _OLD_PACKET, _SIMPLE_PACKET):
            yield _packet(kind, body, order, interfaces, offset)
        offset += length
        head = stream.read(8)


@dataclass(frozen=True)
class _Interface:
    """The interface of captured frames.

    units: of time in a second. time_offset: seconds to add to times.
    """

    link_type: int
    snap_length: int
    units: int
    time_offset: int


def _interface(body: bytes, order: Literal["little", "big"]) -> _Interface:
    options = {}
    at = 8
    while at + 4 <= len(body):
        code, size = (int.from_bytes(body[i : i + 2], order) for i in (at, at + 2))
        options[code] = body[at + 4 : at + 4 + size]
        at += 4 + size + -size % 4
    resolution = int.from_bytes(options.get(_RESOLUTION, b"\6"))
    return _Interface(
        int.from_bytes(body[:2], order),
        int.from_bytes(body[4:8], order),
        (2 if resolution & 0x80 else 10) ** (resolution & 0x7F),
        int.from_bytes(options.get(_TIME_OFFSET, b"")[:8], order, signed=True),
    )


def _packet(
    kind: int,
    body: bytes,
    order: Literal["little", "big"],
    interfaces: list[_Interface],
    offset: int,
) -> Record:
    numbers = [int.from_bytes(body[at : at + 4], order) for at in range(0, 20, 4)]
    # The obsolete packet block differs from the enhanced one only in the size of this number.
    size = {_ENHANCED_PACKET: 4, _OLD_PACKET: 2, _SIMPLE_PACKET: 0}[kind]
    number = int.from_bytes(body[:size], order)
    if number >= len(interfaces):
        raise StackError(
            "TRUNCATED_CAPTURE",
            f"the block at byte {offset} belongs to no interface",
            offset=offset,
        )
    interface = interfaces[number]
    if kind != _SIMPLE_PACKET:
        units = numbers[1] << 32 | numbers[2]
        time_ns = units * _SECOND // interface.units + interface.time_offset * _SECOND
        start, captured = 20, numbers[3]
    else:
        time_ns, start = 0, 4
        captured = min(numbers[0], interface.snap_length or numbers[0])
    if start + captured > len(body):
        raise _truncated("the frame in the block", offset)
    return Record(time_ns, body[start : start + captured], offset, interface.link_type)


def _unknown_link(link_type: int, offset: int, known: str) -> StackError:
    return StackError(
        "LINK_TYPE", f"link type {link_type} is not supported: {known} can be read", offset=offset
    )


def _too_long(noun: str, offset: int, length: int) -> StackError:
    return StackError(
        "TRUNCATED_CAPTURE",
        f"{noun} at byte {offset} has a length of {length:,} bytes, but at most {_LONGEST:,} can "
        "be read",
        offset=offset,
    )


def _truncated(what: str, offset: int) -> StackError:
    return StackError("TRUNCATED_CAPTURE", f"{what} at byte {offset} ends early", offset=offset)
