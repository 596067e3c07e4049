"""Messages to MoldUDP64 packets, and files of either back to bytes."""

from __future__ import annotations

import gzip
import zlib
from bisect import bisect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate, chain
from pathlib import Path
from random import Random
from typing import BinaryIO, cast

from stackcast.lab.traffic.itch_writer import itch_specification
from stackcast.udfs.errors import LabError, MessageError
from stackcast.udfs.messages.reference import (
    build_packet,
    read_binary_file,
    read_message,
    read_packet,
)

SESSION = b"STACKCAST1"
"""Session of the only or the first publisher."""

#: Bytes of a packet, and its messages.
Packet = tuple[bytes, list[bytes]]

#: CAMUS 4: 1 to 12 messages a packet, by Zipf's law.
MOST_MESSAGES = 12
_SIZES = list(accumulate(1 / size for size in range(1, MOST_MESSAGES + 1)))


def session_of(number: int) -> bytes:
    """Returns the session of a publisher by its number, from 0 on."""
    return f"STACKCAST{number + 1}"[-10:].encode()


def groups(messages: Iterable[bytes], seed: int = 1) -> Iterator[list[bytes]]:
    """Groups of 1 to 12 messages, ``k`` of them with weight ``1 / k``; the last may be short."""
    random = Random(seed)

    def size() -> int:
        return 1 + bisect(_SIZES, random.random() * _SIZES[-1])

    group: list[bytes] = []
    wanted = size()
    for message in messages:
        group.append(message)
        if len(group) == wanted:
            yield group
            group, wanted = [], size()
    if group:
        yield group


def packetize(
    messages: Iterable[bytes], session: bytes = SESSION, seed: int = 1, sequence: int = 1
) -> Iterator[bytes]:
    """MoldUDP64 packets of all messages, in order.

    ``session`` is ten bytes; the first message has number ``sequence``, every other the next.
    """
    for packet, _ in new_packets(messages, session, seed, sequence):
        yield packet


def new_packets(
    messages: Iterable[bytes], session: bytes = SESSION, seed: int = 1, sequence: int = 1
) -> Iterator[Packet]:
    """As ``packetize``, each packet with its messages."""
    for group in groups(messages, seed):
        yield build_packet(session, sequence, group), group
        sequence += len(group)


def whole_packets(records: Iterable[bytes]) -> Iterator[Packet]:
    """Yields each record, which is a packet, with its messages: none if it is damaged."""
    for record in records:
        try:
            yield record, read_packet(record)[2]
        except MessageError:
            yield record, []


def check_records(records: Iterator[bytes], packets: bool) -> Iterator[bytes]:
    """Returns the same records, unless the first one is plainly of the other kind.

    Args:
        records: the records of a file.
        packets: whether they are expected to be packets or messages.

    Raises:
        LabError: WRONG_RECORDS.
    """
    for first in records:
        if packets and _is_message(first):
            raise LabError("WRONG_RECORDS", "the first record is an ITCH message: omit --packets")
        if not packets and _is_packet(first) and not _is_message(first):
            raise LabError("WRONG_RECORDS", "the first record is a MoldUDP64 packet: add --packets")
        return chain([first], records)
    return records


def _is_message(record: bytes) -> bool:
    try:
        read_message(itch_specification(), record)
    except MessageError:
        return False
    return True


def _is_packet(record: bytes) -> bool:
    try:
        read_packet(record)
    except MessageError:
        return False
    return True


@contextmanager
def open_records(path: str | Path, *, with_ends: bool = False) -> Iterator[Iterator[bytes]]:
    """Opens a Nasdaq BinaryFILE, packed by gzip or not.

    Args:
        path: the file.
        with_ends: whether records of length 0, which end a session, are among the records.

    Returns:
        A context manager whose value iterates over all records of the file, as `read_records`.

    Raises:
        LabError: NO_SUCH_FILE.
    """
    with open_unpacked(path) as stream:
        yield read_records(stream, path, with_ends=with_ends)


@contextmanager
def open_unpacked(path: str | Path) -> Iterator[BinaryIO]:
    """Opens a file, which is unpacked if its content is gzip's or its name ends in ``.gz``.

    Returns:
        A context manager whose value has a method ``peek``.

    Raises:
        LabError: NO_SUCH_FILE.
    """
    path = Path(path)
    try:
        plain = path.open("rb")
    except OSError as error:
        raise LabError(
            "NO_SUCH_FILE", f"cannot read {path}: {error.strerror}", path=str(path)
        ) from None
    with plain:
        packed = path.suffix == ".gz" or is_gzip(plain.peek(3))
        yield cast(BinaryIO, gzip.GzipFile(fileobj=plain)) if packed else plain


def read_records(stream: BinaryIO, path: str | Path, *, with_ends: bool = False) -> Iterator[bytes]:
    """Yields the records of an open BinaryFILE.

    Raises:
        MessageError: TRUNCATED_FILE or DAMAGED_FILE.
    """
    return _whole(read_binary_file(stream, with_ends=with_ends), Path(path))


def is_gzip(head: bytes) -> bool:
    """Returns True if a file that begins with these bytes is packed by gzip.

    No BinaryFILE begins so: its first record would have 8,075 bytes.
    """
    return head.startswith(b"\x1f\x8b\x08")


def _whole(records: Iterator[bytes], path: Path) -> Iterator[bytes]:
    """Yields the records, and reports damage inside a packed file as a MessageError."""
    try:
        yield from records
    except (OSError, EOFError, zlib.error) as error:
        raise MessageError(
            "DAMAGED_FILE", f"{path} cannot be decompressed: {error}", path=str(path)
        ) from error


def write_records(path: str | Path, records: Iterable[bytes]) -> int:
    """Writes a Nasdaq BinaryFILE, packed if its name ends in ``.gz``; returns how many records.

    If ``records`` fails on the way, no half-written file stays behind.
    """
    path = Path(path)
    try:
        with path.open("wb") as plain:
            if path.suffix != ".gz":
                return _write(plain, records)
            # Without a time and a name in it, the same session gives the same file.
            with gzip.GzipFile("", "wb", 6, plain, mtime=0) as packed:
                return _write(cast(BinaryIO, packed), records)
    except BaseException:
        if path.is_file():
            path.unlink()
        raise


def _write(stream: BinaryIO, records: Iterable[bytes]) -> int:
    count = 0
    for record in records:
        stream.write(len(record).to_bytes(2, "big") + record)
        count += 1
    return count
