"""Frames into classic pcap files (Ethernet, microseconds), and back out of them.

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
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from jobs.adapters.wire.options import SinkOptions
from udfs.errors import SinkError, StackError

_MAGIC = 0xA1B2C3D4
_MAGIC_NANOSECONDS = 0xA1B23C4D
_MAGIC_PCAPNG = 0x0A0D0D0A
_ETHERNET = 1
_SNAPLEN = 262_144
_FILE_HEADER = struct.pack("<IHHiIII", _MAGIC, 2, 4, 0, 0, _SNAPLEN, _ETHERNET)
_RECORD = np.dtype([("s", "<u4"), ("us", "<u4"), ("captured", "<u4"), ("length", "<u4")])


class PcapSink:
    """One pcap file; each send is one write of whole records, so a killed process leaves it valid;
    what finds no room on the disk is taken back.

    Raises SinkError ``BAD_PATH``, ``WRITE_FAILED``.
    """

    def __init__(self, options: SinkOptions) -> None:
        partition, attempt = _task()
        try:
            self._path = Path(options.path.format(partition=partition, attempt=attempt))
        except (KeyError, IndexError, ValueError) as error:
            raise SinkError(
                "BAD_PATH", f"{options.path!r}: only {{partition}} and {{attempt}} are filled in"
            ) from error
        if not self._path.name:
            raise SinkError("BAD_PATH", "the pcap sink needs the path of a file or folder")
        if self._path.suffix != ".pcap":
            self._path /= f"frames-{partition}-{attempt}.pcap"
        self._file: BinaryIO | None = None
        self._whole = 0

    def send(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> int:
        frames = offsets.size - 1
        if frames <= 0:
            return 0
        records = _records(data, offsets, time.time_ns() // 1_000)
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
    # Only a Spark worker has loaded pyspark already; nobody else should have to.
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
    """One captured frame. time: seconds since 1970; offset: of its record header in the file."""

    time: float
    frame: bytes
    offset: int


def is_pcap(head: bytes) -> bool:
    """Tells whether a file that begins with these bytes is a capture: classic pcap, or pcapng."""
    if len(head) < 4:
        return False
    known = (_MAGIC, _MAGIC_NANOSECONDS, _MAGIC_PCAPNG)
    return int.from_bytes(head[:4], "little") in known or int.from_bytes(head[:4]) in known


def read_pcap(stream: BinaryIO) -> Iterator[Record]:
    """Frames of a classic pcap file, of either byte order, micro- or nanoseconds.

    Raises StackError ``NOT_PCAP``, ``PCAPNG``, ``LINK_TYPE``, or, after the frames before it,
    ``TRUNCATED_CAPTURE``; with ``offset`` in the file.
    """
    head = stream.read(len(_FILE_HEADER))
    if not is_pcap(head):
        raise StackError("NOT_PCAP", "the file does not begin as a pcap file does", offset=0)
    little = int.from_bytes(head[:4], "little")
    if little == _MAGIC_PCAPNG:
        raise StackError(
            "PCAPNG", "this is pcapng: convert it by tshark -F pcap -r IN -w OUT", offset=0
        )
    order = "<" if little in (_MAGIC, _MAGIC_NANOSECONDS) else ">"
    if len(head) < len(_FILE_HEADER):
        raise StackError("TRUNCATED_CAPTURE", "the file header ends early", offset=len(head))
    magic, *_, link_type = struct.unpack(f"{order}IHHiIII", head)
    if link_type & 0xFFFF != _ETHERNET:
        raise StackError(
            "LINK_TYPE", f"link type {link_type}: only Ethernet (1) is read", offset=20
        )
    fraction = 1e-9 if magic == _MAGIC_NANOSECONDS else 1e-6
    offset = len(head)
    while record := stream.read(16):
        captured = 0
        frame = b""
        if len(record) == 16:
            seconds, part, captured, _ = struct.unpack(f"{order}IIII", record)
            frame = stream.read(captured)
        if len(record) < 16 or len(frame) < captured:
            raise StackError(
                "TRUNCATED_CAPTURE", f"the record at byte {offset} ends early", offset=offset
            )
        yield Record(seconds + part * fraction, frame, offset)
        offset += 16 + captured
