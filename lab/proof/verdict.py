"""The verdict on what hosts wrote down: how many faults of each kind, and the first of them."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stackcast.udfs.messages.sequence import split_sequence

KINDS = {
    "missing": "expected at the host, but never received",
    "foreign": "received, but not expected at the host",
    "changed": "not a notification of the topic: other bytes, sequence number or session",
    "unlike": "other messages than elsewhere under the same sequence number",
    "unrecorded": "for a record that is not in any batch of the ledger",
    "order": "neither the next one of its session nor the start of another attempt of its batch",
    "copies": "more copies than of an earlier notification",
    "ledger": "the ledger is incomplete or inconsistent",
}
SHOWN = 10


class Fault(NamedTuple):
    """One fault; what does not apply is None, or empty."""

    kind: str
    host: str
    session: bytes
    sequence: int | None
    batch: int | None
    what: str

    def text(self, versions: Mapping[str, int]) -> str:
        """Returns one line; ``versions`` are those of the batch."""
        parts = [self.host, self.session.decode("latin-1")]
        if self.sequence is not None:
            offset, index = split_sequence(self.sequence)
            parts.append(f"sequence {self.sequence} (offset {offset}, message {index})")
        if self.batch is not None:
            parts.append(f"batch {self.batch}")
        if versions:
            parts.append(" ".join(f"{name}@{v}" for name, v in sorted(versions.items())))
        return ", ".join(part for part in parts if part) + f": {self.what}"


def _place(fault: Fault) -> tuple[bytes, int, int, str, str]:
    """Of two faults the one that shows first: neither found first nor of the first host."""
    sequence = -1 if fault.sequence is None else fault.sequence
    batch = -1 if fault.batch is None else fault.batch
    return fault.session, sequence, batch, fault.host, fault.what


class Faults:
    """Faults of one kind: how many (`len`), and, by session and sequence, the first `SHOWN`,
    whatever the order in which they were found."""

    def __init__(self) -> None:
        self._count = 0
        self._first: list[Fault] = []

    def add(self, fault: Fault) -> None:
        self._count += 1
        if len(self._first) < SHOWN or _place(fault) < _place(self._first[-1]):
            bisect.insort(self._first, fault, key=_place)
            del self._first[SHOWN:]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._first)


@dataclass
class DeliveryVerdict:
    """The faults by kind, and what was looked at.

    owed, received: notifications; repeats: how many of the received were further copies.
    waiting: records of the topic that no batch has taken yet.
    """

    faults: dict[str, Faults] = field(default_factory=lambda: defaultdict(Faults))
    versions: dict[int, Mapping[str, int]] = field(default_factory=dict)
    hosts: int = 0
    batches: int = 0
    owed: int = 0
    received: int = 0
    repeats: int = 0
    waiting: int = 0

    @property
    def proved(self) -> bool:
        return not any(self.faults.values())

    def add(self, fault: Fault) -> None:
        self.faults[fault.kind].add(fault)

    def lines(self) -> Iterator[str]:
        """Yields the report: what was looked at, then the first faults of each kind."""
        yield (
            f"{self.batches} batches, {self.hosts} hosts: {self.owed} notifications expected, "
            f"{self.received} received, {self.repeats} of them repeated; "
            f"{self.waiting} records are not in a batch yet"
        )
        for kind, meaning in KINDS.items():
            found = self.faults.get(kind, Faults())
            if not found:
                continue
            yield f"{kind}: {len(found)} ({meaning})"
            for fault in found:
                versions = self.versions.get(-1 if fault.batch is None else fault.batch, {})
                yield f"    {fault.text(versions)}"
            if len(found) > SHOWN:
                yield f"    and {len(found) - SHOWN} more"
        yield "proved: nothing is lost, changed or misdelivered" if self.proved else "NOT PROVED"
