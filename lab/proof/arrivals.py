"""Receipts of all hosts, sorted into windows on disk, and the order in which they came.

A *visit* is what came to a host in one go of one window: where everything is in order, a window is
one visit, or one for each try of its last batch.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stackcast.lab.proof.receipts import Receipt, packet_receipt, receipt_bytes

#: Bytes that wait to be written, over all windows.
_WAITING = 32 << 20
_HEAD = struct.Struct("<IQH")

#: One row a visit. Batches are places on the ledger; places count what the host is known to have of
#: the session, each notification once, in order of sequence. opens: the first is its batch's first
#: there. closes: the last is its batch's last there, as far as the window goes.
VISIT = np.dtype(
    [
        *(("host", "u4"), ("partition", "u4"), ("owned", "?"), ("opens", "?"), ("closes", "?")),
        *(("first", "u8"), ("first_place", "i8"), ("first_batch", "i8")),
        *(("last", "u8"), ("last_place", "i8"), ("last_batch", "i8")),
    ]
)


class Arrival(NamedTuple):
    """A receipt, and by their numbers its host and the visit that it was part of."""

    host: int
    visit: int
    receipt: Receipt


class Arrivals:
    """Arrivals by window, in files of a folder; a context manager that removes them.

    First `put` all, then `close_input`, then read `window` after window, each once.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: dict[int, bytearray] = defaultdict(bytearray)
        self._bytes = 0
        self._window: dict[tuple[int, int], int] = {}
        self._visit: dict[tuple[int, int], int] = {}
        self._visits = (folder / "visits").open("wb", buffering=1 << 20)
        self._count = 0

    def __enter__(self) -> Arrivals:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._visits.close()

    def put(self, window: int, host: int, partition: int, receipt: Receipt) -> None:
        """Adds the next receipt of a host; its windows are of that partition."""
        key = host, partition
        if self._window.get(key) != window:
            self._window[key] = window
            self._visit[key] = self._count
            row = np.zeros(1, VISIT)
            row["host"], row["partition"] = key
            self._visits.write(row.tobytes())
            self._count += 1
        record = receipt_bytes(receipt)
        self._waiting[window] += _HEAD.pack(host, self._visit[key], len(record)) + record
        self._bytes += _HEAD.size + len(record)
        if self._bytes >= _WAITING:
            self._write()

    def _write(self) -> None:
        for window, content in self._waiting.items():
            with self._path(window).open("ab") as file:
                file.write(content)
        self._waiting.clear()
        self._bytes = 0

    def _path(self, window: int) -> Path:
        return self._folder / f"window-{window}"

    def close_input(self) -> NDArray[np.void]:
        """Returns the visits, `VISIT`, in the order in which they began: a table on disk, to be
        filled in."""
        self._write()
        self._visits.close()
        if not self._count:
            return np.zeros(0, VISIT)
        return np.memmap(self._folder / "visits", VISIT, "r+")

    def window(self, number: int) -> Iterator[Arrival]:
        """Yields what came of a window, host by host, in the order of its arrival."""
        path = self._path(number)
        if not path.exists():
            return
        with path.open("rb") as file:
            while head := file.read(_HEAD.size):
                host, visit, length = _HEAD.unpack(head)
                yield Arrival(host, visit, packet_receipt(file.read(length)[2:]))
        path.unlink()
