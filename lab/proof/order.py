"""Order and number of copies at each host, window after window.

What goes from one window to the next is small: how many notifications a host has of a session, the
batch that the border is in, and the first and last of each visit.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stackcast.lab.proof.recorded import Recorded, Window
from stackcast.lab.proof.verdict import DeliveryVerdict, Fault
from stackcast.udfs.messages.sequence import Topic, session_id, split_sequence

#: Visits that are held at a time.
_BLOCK = 1 << 14


class Owned(NamedTuple):
    """A notification that its host has a right to: by numbers the host, the visit and the place of
    its batch on the ledger."""

    host: int
    visit: int
    sequence: int
    batch: int


class Order:
    """Adds the faults ``order`` and ``copies`` to a verdict: `window` after window, then `end`.

    visits: `stackcast.lab.proof.arrivals.VISIT`, filled in here.
    """

    def __init__(
        self,
        verdict: DeliveryVerdict,
        visits: NDArray[np.void],
        recorded: Sequence[Recorded],
        hosts: Sequence[str],
        topic: Topic,
    ) -> None:
        self._verdict = verdict
        self._visits = visits
        self._recorded = recorded
        self._hosts = hosts
        self._topic = topic
        #: By host and partition, how many notifications windows before had of it.
        self._places: dict[tuple[int, int], int] = defaultdict(int)
        #: By host, partition and batch that a border is in, the last place there so far.
        self._split: dict[tuple[int, int, int], int] = {}
        #: By partition, the batch that the last border is in, and of it the fewest copies so far.
        self._fewest: dict[int, tuple[int, tuple[int, int, int]]] = {}

    def window(self, window: Window, owned: Iterable[Owned]) -> None:
        """Looks at what hosts had of a window, host by host in the order of its arrival."""
        session = session_id(self._topic, window.partition)
        by_host: dict[int, list[Owned]] = defaultdict(list)
        for one in owned:
            by_host[one.host].append(one)
        copies: dict[int, dict[int, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
        for host, arrived in by_host.items():
            self._in_order(window, session, host, arrived)
            for one in arrived:
                counts = copies[one.batch][host]
                counts[one.sequence] = counts.get(one.sequence, 0) + 1
        for batch, hosts in sorted(copies.items()):
            self._copies(window, session, batch, hosts)

    def _in_order(
        self, window: Window, session: bytes, host: int, arrived: Sequence[Owned]
    ) -> None:
        line = sorted({(one.sequence, one.batch) for one in arrived})
        key = host, window.partition
        base = self._places[key]
        self._places[key] += len(line)
        place = {sequence: base + n for n, (sequence, _) in enumerate(line)}
        first = {batch: base + n for n, (_, batch) in reversed([*enumerate(line)])}
        last = {batch: base + n for n, (_, batch) in enumerate(line)}
        begun = (*key, window.first)
        if begun in self._split:
            # It has begun in a window before.
            first.pop(window.first, None)
        for batch in {window.first, window.last} & last.keys():
            self._split[*key, batch] = last[batch]
        for visit, group in itertools.groupby(arrived, key=lambda one: one.visit):
            came = [*group]
            for before, one in itertools.pairwise(came):
                at = place[one.sequence]
                again = one.batch == before.batch and first.get(one.batch) == at
                if at != place[before.sequence] + 1 and not again:
                    self._fault(
                        "order", host, session, one, f"received after sequence {before.sequence}"
                    )
            begin, end = came[0], came[-1]
            self._visits[visit] = _Visit(
                *(*key, True),
                opens=first.get(begin.batch) == place[begin.sequence],
                closes=last[end.batch] == place[end.sequence],
                first=begin.sequence,
                first_place=place[begin.sequence],
                first_batch=begin.batch,
                last=end.sequence,
                last_place=place[end.sequence],
                last_batch=end.batch,
            )

    def _copies(
        self, window: Window, session: bytes, batch: int, hosts: dict[int, dict[int, int]]
    ) -> None:
        by_packet: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for host, counts in hosts.items():
            for sequence, count in counts.items():
                by_packet[split_sequence(sequence)[0]].append((count, sequence, host))
        split, least = self._fewest.get(window.partition, (-1, (0, 0, 0)))
        fewest = least if split == batch else None
        for _, counted in sorted(by_packet.items()):
            if fewest is not None:
                for count, sequence, host in counted:
                    if count > fewest[0]:
                        other = self._hosts[fewest[2]]
                        what = f"{count} copies, but {other} has {fewest[0]} of {fewest[1]}"
                        one = Owned(host, 0, sequence, batch)
                        self._fault("copies", host, session, one, what)
            fewest = min([*counted, *([fewest] if fewest is not None else [])])
        if batch == window.last and fewest is not None:
            self._fewest[window.partition] = batch, fewest

    def end(self) -> None:
        """Looks at how the visits follow each other."""
        ends: dict[tuple[int, int], Any] = {}
        for begin in range(0, len(self._visits), _BLOCK):
            for visit in self._visits[begin : begin + _BLOCK].tolist():
                row = _Visit(*visit)
                if not row.owned:
                    continue
                key = row.host, row.partition
                before = ends.get(key)
                at = -1 if before is None else before.last_place
                again = before is not None and row.opens and row.first_batch == before.last_batch
                if row.first_place != at + 1 and not again:
                    what = (
                        "received first"
                        if before is None
                        else f"received after sequence {before.last}"
                    )
                    self._visit_fault(row, row.first, row.first_batch, what)
                ends[key] = row
        for (host, partition), row in ends.items():
            split = self._split.get((host, partition, row.last_batch), -1)
            if not row.closes or split > row.last_place:
                what = "the last attempt of the batch ends here, but an earlier one sent more"
                self._visit_fault(row, row.last, row.last_batch, what)

    def _visit_fault(self, row: _Visit, sequence: int, batch: int, what: str) -> None:
        session = session_id(self._topic, row.partition)
        self._fault("order", row.host, session, Owned(row.host, 0, sequence, batch), what)

    def _fault(self, kind: str, host: int, session: bytes, one: Owned, what: str) -> None:
        batch = self._recorded[one.batch].batch.batch_id
        self._verdict.add(Fault(kind, self._hosts[host], session, one.sequence, batch, what))


class _Visit(NamedTuple):
    """A row of `VISIT`."""

    host: int
    partition: int
    owned: bool
    opens: bool
    closes: bool
    first: int
    first_place: int
    first_batch: int
    last: int
    last_place: int
    last_batch: int
