"""Adds up what the tasks of one micro-batch reported.

By columns: a batch over ten thousand hosts has as many rows, and a Python step for each receiver of
each header stack would take longer than sending.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from udfs.columns import REPORT_ARROW

#: More parts than a receiver set can have: each reaches a host.
_PARTS = 1 << 32


class Reach:
    """Receivers that the header stacks of a plan reach, as numbers, remembered from batch to batch.

    ``stacks``: by delivery, the receivers that each header stack reaches, of those that the plan
    came with; None for others, whose rows say it. ``hosts`` and ``sets``: what numbers mean.
    """

    def __init__(self, stacks: Sequence[Sequence[Sequence[str]] | None]) -> None:
        self._stacks = stacks
        self.hosts: list[str] = []
        self.sets: list[tuple[str, ...]] = []
        self._host: dict[str, int] = {}
        self._reached: dict[tuple[int, int], NDArray[np.int32]] = {}
        self._set: dict[tuple[str, ...], int] = {}
        self._of_parts: dict[tuple[int, ...], int] = {}
        self._met: dict[tuple[str, ...], int] = {}

    def delivery_of(self, receiver_set: Sequence[str]) -> int:
        """A number for a set that the plan does not have; workers have each their own."""
        return self._met.setdefault(tuple(receiver_set), len(self._stacks) + len(self._met))

    def reached(self, delivery: int, part: int, told: Sequence[str] | None) -> NDArray[np.int32]:
        """Hosts that a part of a delivery reaches; ``told``: by its row, if the plan does not."""
        found = self._reached.get((delivery, part))
        if found is None:
            known = self._stacks[delivery] if delivery < len(self._stacks) else None
            names = known[part] if known is not None else told or ()
            for name in names:
                if name not in self._host:
                    self._host[name] = len(self.hosts)
                    self.hosts.append(name)
            found = np.array([self._host[name] for name in names], np.int32)
            self._reached[delivery, part] = found
        return found

    def set_of(self, delivery: int, parts: Sequence[int]) -> int:
        """The set of all that these parts of a delivery reach, which `reached` was asked for."""
        key = (delivery, *parts)
        found = self._of_parts.get(key)
        if found is None:
            numbers = {n for part in parts for n in self._reached[delivery, part].tolist()}
            receivers = tuple(sorted(self.hosts[number] for number in numbers))
            if receivers not in self._set:
                self._set[receivers] = len(self.sets)
                self.sets.append(receivers)
            found = self._of_parts[key] = self._set[receivers]
        return found


class BatchReport:
    """The rows of all tasks, as `udfs.columns.REPORT` has them; ``reach``: of the plan."""

    def __init__(
        self,
        rows: pa.Table | Iterable[Mapping[str, Any]],
        reach: Reach | Sequence[Sequence[Sequence[str]] | None],
    ) -> None:
        if not isinstance(rows, pa.Table):
            rows = pa.Table.from_pylist(list(rows), schema=REPORT_ARROW)
        self._reach = reach if isinstance(reach, Reach) else Reach(reach)
        kind = rows.column("kind")
        self._templates = rows.filter(pc.equal(kind, "template"))
        others = rows.filter(pc.not_equal(kind, "template")).to_pylist()
        self._counts = [row for row in others if row["kind"] == "partition"]
        self.states = [row for row in others if row["kind"] == "state"]
        self.partitions = _merge_partitions(self._counts)
        self.reasons: Counter[str] = Counter()
        for row in others:
            if row["kind"] == "reason":
                self.reasons[row["reason"]] += row["count"]
        self.letters = [
            {
                "partition": row["partition"],
                "offset": row["from_offset"],
                "index": row["message_index"],
                "reason": row["reason"],
                "length": row["length"],
                "sample": row["sample"].hex(),
            }
            for row in others
            if row["kind"] == "sample"
        ]

    @property
    def dead_letters(self) -> int:
        return sum(self.reasons.values())

    def total(self, column: str) -> int:
        return sum(row[column] for row in self._counts)

    def by_subscriber(self) -> dict[str, dict[str, int]]:
        """Notifications, messages and bytes for each subscriber."""
        columns = self.subscriber_columns
        names = columns["subscriber"]
        counts = {name: columns[name] for name in ("notifications", "messages", "bytes")}
        return {
            host: {name: values[i] for name, values in counts.items()}
            for i, host in enumerate(names)
        }

    def publications(self) -> list[dict[str, Any]]:
        """Receivers, notifications, messages and bytes of datagrams, one row a receiver set.

        A notification that leaves in several frames, one a stack, went to the receivers of all.
        """
        columns = self.publication_columns
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    @cached_property
    def subscriber_columns(self) -> dict[str, list[Any]]:
        """The rows of `by_subscriber` as columns, by subscriber."""
        delivery, part, counts = self._summed
        reached = [
            self._reach.reached(d, p, told)
            for d, p, told in zip(delivery.tolist(), part.tolist(), self._told, strict=True)
        ]
        hosts = self._reach.hosts
        sums = {name: np.zeros(len(hosts), np.int64) for name in ("frames", "messages", "bytes")}
        used = np.zeros(len(hosts), np.bool_)
        if reached:
            host = np.concatenate(reached)
            sizes = np.array([each.size for each in reached])
            used[host] = True
            for name, values in sums.items():
                np.add.at(values, host, np.repeat(counts[name], sizes))
        order = np.array(sorted(np.flatnonzero(used).tolist(), key=hosts.__getitem__), np.int64)
        return {
            "subscriber": [hosts[n] for n in order.tolist()],
            "notifications": sums["frames"][order].tolist(),
            "messages": sums["messages"][order].tolist(),
            "bytes": sums["bytes"][order].tolist(),
        }

    @cached_property
    def publication_columns(self) -> dict[str, list[Any]]:
        """The rows of `publications` as columns, by receivers."""
        delivery, part, counts = self._summed
        if not delivery.size:
            return {"receivers": [], "notifications": [], "messages": [], "datagram_bytes": []}
        assert self.subscriber_columns is not None  # asks for all that is reached
        first = np.flatnonzero(np.diff(delivery, prepend=-1))
        parts = np.split(part, first[1:])
        numbers = np.array(
            [
                self._reach.set_of(d, p.tolist())
                for d, p in zip(delivery[first].tolist(), parts, strict=True)
            ]
        )
        # All stacks of a delivery bring the same datagrams: those of the first are counted.
        counted = part[first] == 0
        used, place = np.unique(numbers, return_inverse=True)
        sums = {}
        for name in ("frames", "messages", "datagram_bytes"):
            sums[name] = np.zeros(used.size, np.int64)
            np.add.at(sums[name], place, np.where(counted, counts[name][first], 0))
        sets = self._reach.sets
        kept = np.unique(place[counted])
        order = sorted(kept.tolist(), key=lambda n: sets[used[n]])
        return {
            "receivers": [list(sets[used[n]]) for n in order],
            "notifications": sums["frames"][order].tolist(),
            "messages": sums["messages"][order].tolist(),
            "datagram_bytes": sums["datagram_bytes"][order].tolist(),
        }

    @cached_property
    def _keys(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Deliveries and parts as one number each, ascending; their first rows; and each row's."""
        delivery = self._templates.column("delivery").to_numpy().astype(np.int64)
        met = self._templates.column("receiver_set")
        rows = np.flatnonzero(met.is_valid().to_numpy())
        for at, told in zip(rows.tolist(), met.drop_null().to_pylist(), strict=True):
            delivery[at] = self._reach.delivery_of(told)
        part = self._templates.column("part").to_numpy().astype(np.int64)
        keys, first, place = np.unique(
            delivery * _PARTS + part, return_index=True, return_inverse=True
        )
        return keys, first, place

    @cached_property
    def _summed(self) -> tuple[NDArray[np.int64], NDArray[np.int64], dict[str, NDArray[np.int64]]]:
        """Delivery and part, ascending, and the counts of each, over all tasks."""
        keys, _, place = self._keys
        counts = {}
        for name in ("frames", "messages", "bytes", "datagram_bytes"):
            counts[name] = np.zeros(keys.size, np.int64)
            np.add.at(counts[name], place, self._templates.column(name).to_numpy())
        return keys // _PARTS, keys % _PARTS, counts

    @cached_property
    def _told(self) -> list[Sequence[str] | None]:
        """Receivers as the rows say it, for each of `_summed`."""
        receivers = self._templates.column("receivers")
        if receivers.null_count == len(receivers):
            return [None] * self._keys[0].size
        found: list[Sequence[str] | None] = receivers.take(pa.array(self._keys[1])).to_pylist()
        return found


def _merge_partitions(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a Kafka partition, though several tasks may have shared it."""
    merged: dict[int, dict[str, Any]] = {}
    for row in rows:
        new = {
            k: row[k]
            for k in ("partition", "from_offset", "until_offset", "first_sequence", "last_sequence")
        }
        old = merged.setdefault(row["partition"], new)
        for key, choose in (
            ("from_offset", min),
            ("until_offset", max),
            ("first_sequence", min),
            ("last_sequence", max),
        ):
            known = [r[key] for r in (old, new) if r[key] is not None]
            old[key] = choose(known) if known else None
    return [merged[p] for p in sorted(merged)]
