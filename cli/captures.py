"""Captures in pcap or pcapng format, compressed by gzip or not, with any file name."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO, cast

from stackcast.jobs.adapters.wire.pcap import Record, is_pcap, read_pcap
from stackcast.lab.traffic.packets import is_gzip
from stackcast.udfs.errors import LabError, StackError
from stackcast.udfs.messages.summaries import is_summary
from stackcast.udfs.stacks.dissect import dissect, out_of_tunnel
from stackcast.udfs.stacks.link_layer import ETHERNET


def unpacked(stream: io.BufferedReader) -> BinaryIO:
    """Return a stream of the decompressed content that supports ``peek``."""
    packed = is_gzip(stream.peek(3))
    return cast(BinaryIO, gzip.GzipFile(fileobj=stream) if packed else stream)


def is_capture(stream: BinaryIO) -> bool:
    """Return whether a decompressed stream begins like a pcap or pcapng file; it is not read."""
    try:
        return is_pcap(cast(io.BufferedReader, stream).peek(4)[:4])
    except (OSError, EOFError, zlib.error):
        return False


def read_capture(stream: BinaryIO) -> Iterator[Record]:
    """Yield the frames of a capture, which may be compressed.

    Raises:
        StackError: TRUNCATED_CAPTURE or an error of `read_pcap`, after the frames before the fault.
    """
    offset = 0
    try:
        for record in read_pcap(stream):
            offset = record.offset
            yield record
    except (OSError, EOFError, zlib.error) as error:
        raise StackError(
            "TRUNCATED_CAPTURE",
            f"the capture cannot be decompressed after byte {offset}: {error}",
            offset=offset,
        ) from error


class CapturedPackets:
    """The MoldUDP64 packets in the UDP datagrams of a capture.

    Frames that contain no MoldUDP64 packet, and summaries of Stackcast, are left out and counted.
    Checksums that a network card completes after the capture are not required.

    Attributes:
        frames: number of frames that were read.
        left_out: number of frames that were left out.
        first_left_out: number of the first frame that was left out, from 1, and the reason.
    """

    def __init__(self, stream: BinaryIO, path: Path) -> None:
        self._stream, self._path = stream, path
        self.frames = self.left_out = 0
        self.first_left_out = ""

    def packets(self) -> Iterator[bytes]:
        """Return an iterator over all packets, after reading up to the first one.

        Raises:
            LabError: WRONG_RECORDS if the capture contains no packet.
            StackError: an error of `read_capture`.
        """
        packets = self._packets()
        first = next(packets, None)
        if first is None:
            raise LabError(
                "WRONG_RECORDS",
                f"{self._path}: none of the {self.frames:,} frames of the capture contains a "
                f"MoldUDP64 packet{f'; {self.first_left_out}' if self.frames else ''}",
            )
        return chain([first], packets)

    def _packets(self) -> Iterator[bytes]:
        for record in read_capture(self._stream):
            self.frames += 1
            try:
                packet = _packet(record)
            except StackError as error:
                self._leave_out(f"{error.code}: {error.message}")
                continue
            if is_summary(packet):
                self._leave_out("a summary of Stackcast")
            else:
                yield packet

    def _leave_out(self, reason: str) -> None:
        self.left_out += 1
        self.first_left_out = self.first_left_out or f"frame {self.frames}: {reason}"


def _packet(record: Record) -> bytes:
    """Return the MoldUDP64 packet of a frame. Raises StackError."""
    frame, link_type = record.frame, record.link_type
    tunnelled = out_of_tunnel(frame, link_type, strict=False)
    if tunnelled is not None:
        frame, link_type = tunnelled[1], ETHERNET
    return dissect(frame, link_type, strict=False).payload
