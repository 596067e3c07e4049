"""Sums over the reports of the tasks of a batch.

The sums are computed by column: a batch for ten thousand hosts has as many rows, and a Python
statement for each receiver of each header stack would take longer than sending the frames.
"""

from __future__ import annotations

import codecs
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stackcast.udfs.delivery.deliver import REPORT
from stackcast.udfs.delivery.publishers import Publishers
from stackcast.udfs.delivery.summary_progress import SummaryProgress

#: More than the parts of a receiver set, each of which reaches a host, and than the deliveries.
_PARTS = 1 << 32


class Reach:
    """Receivers that the header stacks of a plan reach, as numbers that all its batches share.

    Args:
        stacks: by delivery, the receivers that each header stack reaches; None for deliveries whose
            stacks were not known when the plan was made. Rows of these contain their receivers.
        publishers: the publishers, if there are several. A row without receivers then reaches all
            receivers of its delivery.
        receiver_sets: by delivery, all receivers.

    Attributes:
        publishers: by sender, the name of the publisher; empty if there is only one.
        links: by sender, the host by whose link its frames enter.
        hosts: by number, the name of a host.
        sets: by number, a set of receivers.
    """

    def __init__(
        self,
        stacks: Sequence[Sequence[Sequence[str]] | None],
        publishers: Publishers | None = None,
        receiver_sets: Sequence[Sequence[str]] = (),
    ) -> None:
        self._stacks = stacks
        self._receiver_sets = list(receiver_sets) if publishers else []
        self._link: list[int] = []
        self.publishers: Sequence[str] = ()
        self.links: Sequence[str] = ()
        if publishers is not None:
            links, self._link = publishers.links, publishers.link.tolist()
            self.publishers = publishers.by_sender
            self.links = [links[number] for number in self._link]
        self.hosts: list[str] = []
        self.sets: list[tuple[str, ...]] = []
        self._host: dict[str, int] = {}
        self._reached: dict[tuple[int, int, int], NDArray[np.int32]] = {}
        self._set: dict[tuple[str, ...], int] = {}
        self._set_of_parts: dict[tuple[int, ...], int] = {}
        self._unplanned: dict[tuple[str, ...], int] = {}
        self._routes: dict[tuple[int, int], tuple[int, tuple[str, ...]]] = {}
        self._returned: set[tuple[int, int]] = set()

    def new_routes(self) -> list[tuple[int, tuple[str, ...]]]:
        """Return pairs of link and receiver set that no earlier call has returned."""
        routes = [route for pair, route in self._routes.items() if pair not in self._returned]
        self._returned.update(self._routes)
        self._routes = {}
        return routes

    def delivery_of(self, receiver_set: Sequence[str]) -> int:
        """Return a number for a receiver set that the plan does not contain.

        The numbers that workers give to such sets differ from worker to worker.
        """
        number = len(self._stacks) + len(self._unplanned)
        if self.publishers:
            number = len(self._receiver_sets)
        delivery = self._unplanned.setdefault(tuple(receiver_set), number)
        if delivery == number and self.publishers:
            self._receiver_sets.append(receiver_set)
        return delivery

    def reached(
        self, publisher: int, delivery: int, part: int, receivers: Sequence[str] | None
    ) -> NDArray[np.int32]:
        """Return the numbers of the hosts that a part of a publisher's delivery reaches.

        Args:
            publisher: number of the sender.
            delivery: number of the delivery.
            part: number of the header stack within the delivery.
            receivers: receivers from the row of a task, which count if the plan has none.
        """
        numbers = self._reached.get((publisher, delivery, part))
        if numbers is None:
            names = self._names(publisher, delivery, part, receivers or ())
            for name in names:
                if name not in self._host:
                    self._host[name] = len(self.hosts)
                    self.hosts.append(name)
            numbers = np.array([self._host[name] for name in names], np.int32)
            self._reached[publisher, delivery, part] = numbers
        return numbers

    def _names(
        self, publisher: int, delivery: int, part: int, receivers: Sequence[str]
    ) -> Sequence[str]:
        if self.publishers:
            receiver_set = self._receiver_sets[delivery]
            route = self._link[publisher], tuple(receiver_set)
            self._routes.setdefault((publisher, delivery), route)
            return receivers or receiver_set
        stacks = self._stacks[delivery] if delivery < len(self._stacks) else None
        return receivers if stacks is None else stacks[part]

    def set_of(self, publisher: int, delivery: int, parts: Sequence[int]) -> int:
        """Return the number of the set of all hosts that these parts of a delivery reach.

        `reached` must have been called for each part.
        """
        key = (publisher, delivery, *parts)
        number = self._set_of_parts.get(key)
        if number is None:
            route = publisher, delivery
            hosts = {n for part in parts for n in self._reached[*route, part].tolist()}
            receivers = tuple(sorted(self.hosts[host] for host in hosts))
            if receivers not in self._set:
                self._set[receivers] = len(self.sets)
                self.sets.append(receivers)
            number = self._set_of_parts[key] = self._set[receivers]
        return number


class _TemplateSums(NamedTuple):
    """Publisher, delivery and part, ascending, and the counts of each over all tasks."""

    publisher: NDArray[np.int64]
    delivery: NDArray[np.int64]
    part: NDArray[np.int64]
    counts: dict[str, NDArray[np.int64]]


class BatchReport:
    """Sums over the rows that the tasks of a batch reported.

    Args:
        rows: rows with the columns of ``REPORT``.
        reach: receivers that the header stacks of the plan reach.

    Attributes:
        states: rows with the state of rules.
        summaries: by partition, the progress of its summaries, if any were sent.
        partitions: one row per partition, with its offsets, sequence numbers and records.
        reasons: number of dead letters by reason.
        dead_records: number of records of which nothing can be delivered.
        first_bytes: how many of these records start with the most frequent first byte of their
            task.
        letters: samples of dead letters.
    """

    def __init__(
        self,
        rows: pa.Table | Iterable[Mapping[str, Any]],
        reach: Reach | Sequence[Sequence[Sequence[str]] | None],
    ) -> None:
        if not isinstance(rows, pa.Table):
            rows = pa.Table.from_pylist(list(rows), schema=REPORT)
        self._reach = reach if isinstance(reach, Reach) else Reach(reach)
        kind = rows.column("kind")
        self._templates = rows.filter(pc.equal(kind, "template"))
        small_rows = rows.filter(pc.not_equal(kind, "template")).to_pylist()
        self._counts = [row for row in small_rows if row["kind"] == "partition"]
        self.states = [row for row in small_rows if row["kind"] == "state"]
        self.summaries = {
            row["partition"]: SummaryProgress.unpacked(json.loads(row["progress"]))
            for row in small_rows
            if row["kind"] == "summaries"
        }
        self.partitions = _merge_partitions(self._counts)
        self.reasons: Counter[str] = Counter()
        for row in small_rows:
            if row["kind"] == "reason":
                self.reasons[row["reason"]] += row["count"]
        dead = [row for row in small_rows if row["kind"] == "dead"]
        self.dead_records = sum(row["count"] for row in dead)
        self.first_bytes: Counter[int] = Counter()
        for row in dead:
            self.first_bytes[row["sample"][0]] += row["length"]
        self.letters = [_letter(row) for row in small_rows if row["kind"] == "sample"]

    @property
    def dead_letters(self) -> int:
        """Number of dead letters."""
        return sum(self.reasons.values())

    def total(self, column: str) -> int:
        """Return the sum of a column over all partitions."""
        return sum(row[column] for row in self._counts)

    def publications(self) -> list[dict[str, Any]]:
        """Return one row per receiver set, and per publisher if there are several.

        A row has the receivers, notifications, messages and bytes of datagrams. The receivers of a
        notification that is sent in several frames are those of all these frames.
        """
        columns = self.publication_columns
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def new_routes(self) -> list[tuple[int, tuple[str, ...]]]:
        """Return the routes of `Reach.new_routes`; empty if there is only one publisher."""
        assert self.subscriber_columns is not None  # calls `Reach.reached` for all rows
        return self._reach.new_routes()

    @cached_property
    def subscriber_columns(self) -> dict[str, list[Any]]:
        """Notifications, messages and bytes by subscriber, and by publisher if there are several.

        Frames that entered by different links have rows of their own.
        """
        names = ("subscriber", "notifications", "messages", "bytes")
        return self._columns(names, self._by_subscriber, self._reach.publishers)

    @cached_property
    def publication_columns(self) -> dict[str, list[Any]]:
        """The rows of `publications` as columns.

        The publisher is the host by whose link the frames entered, at which their trees start.
        """
        assert self.subscriber_columns is not None  # calls `Reach.reached` for all rows
        names = ("receivers", "notifications", "messages", "datagram_bytes")
        return self._columns(names, self._by_receivers, self._reach.links)

    @property
    def _several(self) -> bool:
        return bool(self._reach.publishers)

    def _columns(
        self,
        names: Sequence[str],
        sum_publisher: Callable[[int, slice], Mapping[str, list[Any]]],
        publishers: Sequence[str],
    ) -> dict[str, list[Any]]:
        """Return the columns of all senders, and the publisher if there are several.

        Args:
            names: names of the columns.
            sum_publisher: returns the columns of a sender from its rows.
            publishers: by sender, the name of its publisher.
        """
        columns: dict[str, list[Any]] = {name: [] for name in ("publisher", *names)}
        publisher = self._summed.publisher
        first = np.flatnonzero(np.diff(publisher, prepend=-1)).tolist()
        for begin, end in pairwise([*first, publisher.size]):
            number = int(publisher[begin])
            sums = sum_publisher(number, slice(begin, end))
            for name in names:
                columns[name] += sums[name]
            if self._several:
                columns["publisher"] += [publishers[number]] * len(sums[names[0]])
        if not self._several:
            del columns["publisher"]
        return columns

    def _by_subscriber(self, publisher: int, rows: slice) -> dict[str, list[Any]]:
        delivery, part = self._summed.delivery[rows], self._summed.part[rows]
        reached = [
            self._reach.reached(publisher, *template)
            for template in zip(
                delivery.tolist(), part.tolist(), self._row_receivers[rows], strict=True
            )
        ]
        hosts = self._reach.hosts
        sums = {name: np.zeros(len(hosts), np.int64) for name in ("frames", "messages", "bytes")}
        has_frames = np.zeros(len(hosts), np.bool_)
        host = np.concatenate(reached)
        sizes = np.array([part_hosts.size for part_hosts in reached])
        has_frames[host] = True
        for name, values in sums.items():
            np.add.at(values, host, np.repeat(self._summed.counts[name][rows], sizes))
        order = np.array(
            sorted(np.flatnonzero(has_frames).tolist(), key=hosts.__getitem__), np.int64
        )
        return {
            "subscriber": [hosts[n] for n in order.tolist()],
            "notifications": sums["frames"][order].tolist(),
            "messages": sums["messages"][order].tolist(),
            "bytes": sums["bytes"][order].tolist(),
        }

    def _by_receivers(self, publisher: int, rows: slice) -> dict[str, list[Any]]:
        delivery, part = self._summed.delivery[rows], self._summed.part[rows]
        first = np.flatnonzero(np.diff(delivery, prepend=-1))
        parts = np.split(part, first[1:])
        numbers = np.array(
            [
                self._reach.set_of(publisher, d, p.tolist())
                for d, p in zip(delivery[first].tolist(), parts, strict=True)
            ]
        )
        # All stacks of a delivery carry the same datagrams, so only those of the first count.
        counted = part[first] == 0
        set_numbers, place = np.unique(numbers, return_inverse=True)
        sums = {}
        for name in ("frames", "messages", "datagram_bytes"):
            sums[name] = np.zeros(set_numbers.size, np.int64)
            counts = self._summed.counts[name][rows][first]
            np.add.at(sums[name], place, np.where(counted, counts, 0))
        sets = self._reach.sets
        order = sorted(np.unique(place[counted]).tolist(), key=lambda n: sets[set_numbers[n]])
        return {
            "receivers": [list(sets[set_numbers[n]]) for n in order],
            "notifications": sums["frames"][order].tolist(),
            "messages": sums["messages"][order].tolist(),
            "datagram_bytes": sums["datagram_bytes"][order].tolist(),
        }

    @cached_property
    def _keys(self) -> tuple[NDArray[np.int64], ...]:
        """Keys of the rows of templates.

        Returns:
            Pairs of publisher and delivery as numbers, ascending; keys of pair and part, ascending;
            by key, its first row; by row, the index of its key.
        """
        delivery = self._templates.column("delivery").to_numpy().astype(np.int64)
        sets = self._templates.column("receiver_set")
        rows = np.flatnonzero(sets.is_valid().to_numpy())
        for row, receiver_set in zip(rows.tolist(), sets.drop_null().to_pylist(), strict=True):
            delivery[row] = self._reach.delivery_of(receiver_set)
        part = self._templates.column("part").to_numpy().astype(np.int64)
        publisher = self._templates.column("publisher").fill_null(0).to_numpy().astype(np.int64)
        pairs, pair = np.unique(publisher * _PARTS + delivery, return_inverse=True)
        keys, first, place = np.unique(pair * _PARTS + part, return_index=True, return_inverse=True)
        return pairs, keys, first, place

    @cached_property
    def _summed(self) -> _TemplateSums:
        pairs, keys, _, place = self._keys
        counts = {}
        for name in ("frames", "messages", "bytes", "datagram_bytes"):
            counts[name] = np.zeros(keys.size, np.int64)
            np.add.at(counts[name], place, self._templates.column(name).to_numpy())
        pair = pairs[keys // _PARTS]
        return _TemplateSums(pair // _PARTS, pair % _PARTS, keys % _PARTS, counts)

    @cached_property
    def _row_receivers(self) -> list[Sequence[str] | None]:
        """By element of `_summed`, the receivers from the rows of the tasks."""
        receivers = self._templates.column("receivers")
        _, keys, first, _ = self._keys
        if receivers.null_count == len(receivers):
            return [None] * keys.size
        values: list[Sequence[str] | None] = receivers.take(pa.array(first)).to_pylist()
        return values


def _letter(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dead letter for the topic from a row of kind ``sample``."""
    text = readable(row["sample"], row["length"])
    return {
        "partition": row["partition"],
        "offset": row["from_offset"],
        "index": row["message_index"],
        "reason": row["reason"],
        **({} if row["field"] is None else {"field": row["field"]}),
        **({} if row["sender"] is None else {"publisher": row["sender"]}),
        "length": row["length"],
        **({} if text is None else {"text": text}),
        "sample": row["sample"].hex(),
    }


def readable(sample: bytes, length: int) -> str | None:
    """Return the text of a sample; None if it is not text.

    Args:
        sample: the first bytes of a record or message.
        length: length of the record or message in bytes. If the sample is shorter, it may end
            inside a character.
    """
    try:
        text, _ = codecs.utf_8_decode(sample, "strict", len(sample) == length)
    except UnicodeDecodeError:
        return None
    blanks = text.replace("\n", " ").replace("\r", " ").replace("\t", " ")
    return text if text and blanks.isprintable() else None


def _merge_partitions(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per Kafka partition, even if several tasks have shared it."""
    merged: dict[int, dict[str, Any]] = {}
    for row in rows:
        new = {
            k: row[k]
            for k in ("partition", "from_offset", "until_offset", "first_sequence", "last_sequence")
        }
        new |= {"records": 0, "ingress": row["sender"]}
        old = merged.setdefault(row["partition"], new)
        old["records"] += row["packets"]
        for key, choose in (
            ("from_offset", min),
            ("until_offset", max),
            ("first_sequence", min),
            ("last_sequence", max),
        ):
            values = [r[key] for r in (old, new) if r[key] is not None]
            old[key] = choose(values) if values else None
    return [merged[p] for p in sorted(merged)]
