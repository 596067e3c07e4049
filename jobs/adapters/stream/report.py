"""Adds up what the tasks of one micro-batch reported.

By columns: a batch over ten thousand hosts has as many rows, and a Python step for each receiver of
each header stack would take longer than sending.
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

#: More parts than a receiver set can have, as each reaches a host, and more deliveries.
_PARTS = 1 << 32


class Reach:
    """Receivers that the header stacks of a plan reach, as numbers, remembered from batch to batch.

    ``stacks``: by delivery, the receivers that each header stack reaches, of those that the plan
    came with; None for others, whose rows say it. ``publishers``: of each sender, where there are
    several, and ``links``, by whose they send: hosts, and ``link`` their numbers; a row that says
    nothing then means all of its delivery, by ``receiver_sets``. ``hosts`` and ``sets``: what
    numbers mean.
    """

    def __init__(
        self,
        stacks: Sequence[Sequence[Sequence[str]] | None],
        publishers: Publishers | None = None,
        receiver_sets: Sequence[Sequence[str]] = (),
    ) -> None:
        self._stacks = stacks
        self._whole = list(receiver_sets) if publishers else []
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
        self._of_parts: dict[tuple[int, ...], int] = {}
        self._met: dict[tuple[str, ...], int] = {}
        self._new: dict[tuple[int, int], tuple[int, tuple[str, ...]]] = {}
        self._told: set[tuple[int, int]] = set()

    def new_routes(self) -> list[tuple[int, tuple[str, ...]]]:
        """Pairs of link and receiver set that were not in use before; each is told once."""
        new = [route for pair, route in self._new.items() if pair not in self._told]
        self._told.update(self._new)
        self._new = {}
        return new

    def delivery_of(self, receiver_set: Sequence[str]) -> int:
        """A number for a set that the plan does not have; workers have each their own."""
        number = len(self._whole) if self.publishers else len(self._stacks) + len(self._met)
        found = self._met.setdefault(tuple(receiver_set), number)
        if found == number and self.publishers:
            self._whole.append(receiver_set)
        return found

    def reached(
        self, publisher: int, delivery: int, part: int, told: Sequence[str] | None
    ) -> NDArray[np.int32]:
        """Hosts that a part of a publisher's delivery reaches; ``told``: by its row, if the plan
        does not."""
        found = self._reached.get((publisher, delivery, part))
        if found is None:
            known = self._stacks[delivery] if delivery < len(self._stacks) else None
            if self.publishers:
                names = told or self._whole[delivery]
                whole = tuple(self._whole[delivery])
                self._new.setdefault((publisher, delivery), (self._link[publisher], whole))
            else:
                names = known[part] if known is not None else told or ()
            for name in names:
                if name not in self._host:
                    self._host[name] = len(self.hosts)
                    self.hosts.append(name)
            found = np.array([self._host[name] for name in names], np.int32)
            self._reached[publisher, delivery, part] = found
        return found

    def set_of(self, publisher: int, delivery: int, parts: Sequence[int]) -> int:
        """The set of all that these parts of a publisher's delivery reach, which `reached` was
        asked for."""
        key = (publisher, delivery, *parts)
        found = self._of_parts.get(key)
        if found is None:
            route = publisher, delivery
            numbers = {n for part in parts for n in self._reached[*route, part].tolist()}
            receivers = tuple(sorted(self.hosts[number] for number in numbers))
            if receivers not in self._set:
                self._set[receivers] = len(self.sets)
                self.sets.append(receivers)
            found = self._of_parts[key] = self._set[receivers]
        return found


class _Summed(NamedTuple):
    """Publisher, delivery and part, ascending, and the counts of each, over all tasks."""

    publisher: NDArray[np.int64]
    delivery: NDArray[np.int64]
    part: NDArray[np.int64]
    counts: dict[str, NDArray[np.int64]]


class BatchReport:
    """The rows of all tasks (`stackcast.udfs.delivery.deliver.REPORT`); ``reach``: of the plan."""

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
        others = rows.filter(pc.not_equal(kind, "template")).to_pylist()
        self._counts = [row for row in others if row["kind"] == "partition"]
        self.states = [row for row in others if row["kind"] == "state"]
        #: By partition, the progress after the summaries that the tasks have sent.
        self.summaries = {
            row["partition"]: SummaryProgress.unpacked(json.loads(row["progress"]))
            for row in others
            if row["kind"] == "summaries"
        }
        #: By partition, the host by whose link all of it entered, where its place has one.
        self.ingresses = {row["partition"]: row["sender"] for row in self._counts if row["sender"]}
        self.partitions = _merge_partitions(self._counts)
        self.reasons: Counter[str] = Counter()
        for row in others:
            if row["kind"] == "reason":
                self.reasons[row["reason"]] += row["count"]
        dead = [row for row in others if row["kind"] == "dead"]
        #: Records of which nothing can be delivered, and of these, for each task, how many begin
        #: with the byte that most of its own begin with.
        self.dead_records = sum(row["count"] for row in dead)
        self.first_bytes: Counter[int] = Counter()
        for row in dead:
            self.first_bytes[row["sample"][0]] += row["length"]
        self.letters = [_letter(row) for row in others if row["kind"] == "sample"]

    @property
    def dead_letters(self) -> int:
        return sum(self.reasons.values())

    def total(self, column: str) -> int:
        return sum(row[column] for row in self._counts)

    def publications(self) -> list[dict[str, Any]]:
        """Receivers, notifications, messages and bytes of datagrams, one row a publisher and
        receiver set; the publisher too, where there are several.

        A notification that leaves in several frames, one a stack, went to the receivers of all.
        """
        columns = self.publication_columns
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def new_routes(self) -> list[tuple[int, tuple[str, ...]]]:
        """As `Reach.new_routes`, where there are several publishers."""
        assert self.subscriber_columns is not None  # asks for all that is reached
        return self._reach.new_routes()

    @cached_property
    def subscriber_columns(self) -> dict[str, list[Any]]:
        """Notifications, messages and bytes by publisher, where there are several, and
        subscriber; apart what entered by different links."""
        names = ("subscriber", "notifications", "messages", "bytes")
        found = self._columns(names, self._by_subscriber, self._reach.publishers)
        return {name: found[name] for name in found if name != "publisher" or self._several}

    @cached_property
    def publication_columns(self) -> dict[str, list[Any]]:
        """The rows of `publications` as columns, by publisher and receivers: the one by whose link
        they entered, from which their trees begin."""
        assert self.subscriber_columns is not None  # asks for all that is reached
        names = ("receivers", "notifications", "messages", "datagram_bytes")
        found = self._columns(names, self._by_receivers, self._reach.links)
        return {name: found[name] for name in found if name != "publisher" or self._several}

    @property
    def _several(self) -> bool:
        return bool(self._reach.publishers)

    def _columns(
        self,
        names: Sequence[str],
        of_publisher: Callable[[int, slice], Mapping[str, list[Any]]],
        called: Sequence[str],
    ) -> dict[str, list[Any]]:
        """Returns columns of these names, of all senders one after the other, as they are
        ``called``."""
        columns: dict[str, list[Any]] = {name: [] for name in ("publisher", *names)}
        publisher = self._summed.publisher
        first = np.flatnonzero(np.diff(publisher, prepend=-1)).tolist()
        for begin, end in pairwise([*first, publisher.size]):
            number = int(publisher[begin])
            found = of_publisher(number, slice(begin, end))
            for name in names:
                columns[name] += found[name]
            if self._several:
                columns["publisher"] += [called[number]] * len(found[names[0]])
        return columns

    def _by_subscriber(self, publisher: int, rows: slice) -> dict[str, list[Any]]:
        delivery, part = self._summed.delivery[rows], self._summed.part[rows]
        reached = [
            self._reach.reached(publisher, d, p, told)
            for d, p, told in zip(delivery.tolist(), part.tolist(), self._told[rows], strict=True)
        ]
        hosts = self._reach.hosts
        sums = {name: np.zeros(len(hosts), np.int64) for name in ("frames", "messages", "bytes")}
        used = np.zeros(len(hosts), np.bool_)
        host = np.concatenate(reached)
        sizes = np.array([each.size for each in reached])
        used[host] = True
        for name, values in sums.items():
            np.add.at(values, host, np.repeat(self._summed.counts[name][rows], sizes))
        order = np.array(sorted(np.flatnonzero(used).tolist(), key=hosts.__getitem__), np.int64)
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
        # All stacks of a delivery bring the same datagrams: those of the first are counted.
        counted = part[first] == 0
        used, place = np.unique(numbers, return_inverse=True)
        sums = {}
        for name in ("frames", "messages", "datagram_bytes"):
            sums[name] = np.zeros(used.size, np.int64)
            counts = self._summed.counts[name][rows][first]
            np.add.at(sums[name], place, np.where(counted, counts, 0))
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
    def _keys(self) -> tuple[NDArray[np.int64], ...]:
        """Publishers and deliveries as one number each, ascending; with parts, too; of these their
        first rows, and each row's."""
        delivery = self._templates.column("delivery").to_numpy().astype(np.int64)
        met = self._templates.column("receiver_set")
        rows = np.flatnonzero(met.is_valid().to_numpy())
        for at, told in zip(rows.tolist(), met.drop_null().to_pylist(), strict=True):
            delivery[at] = self._reach.delivery_of(told)
        part = self._templates.column("part").to_numpy().astype(np.int64)
        publisher = self._templates.column("publisher").fill_null(0).to_numpy().astype(np.int64)
        pairs, pair = np.unique(publisher * _PARTS + delivery, return_inverse=True)
        keys, first, place = np.unique(pair * _PARTS + part, return_index=True, return_inverse=True)
        return pairs, keys, first, place

    @cached_property
    def _summed(self) -> _Summed:
        pairs, keys, _, place = self._keys
        counts = {}
        for name in ("frames", "messages", "bytes", "datagram_bytes"):
            counts[name] = np.zeros(keys.size, np.int64)
            np.add.at(counts[name], place, self._templates.column(name).to_numpy())
        pair = pairs[keys // _PARTS]
        return _Summed(pair // _PARTS, pair % _PARTS, keys % _PARTS, counts)

    @cached_property
    def _told(self) -> list[Sequence[str] | None]:
        """Receivers as the rows say it, for each of `_summed`."""
        receivers = self._templates.column("receivers")
        _, keys, first, _ = self._keys
        if receivers.null_count == len(receivers):
            return [None] * keys.size
        found: list[Sequence[str] | None] = receivers.take(pa.array(first)).to_pylist()
        return found


def _letter(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a dead letter as its topic has it, from a row of kind ``sample``."""
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
    """Return the text of a sample; None if it is no text.

    Args:
        sample: the first bytes of a record or message.
        length: bytes of all of it. If there are more, the sample may end inside a character.
    """
    try:
        text, _ = codecs.utf_8_decode(sample, "strict", len(sample) == length)
    except UnicodeDecodeError:
        return None
    blanks = text.replace("\n", " ").replace("\r", " ").replace("\t", " ")
    return text if text and blanks.isprintable() else None


def _merge_partitions(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a Kafka partition, though several tasks may have shared it."""
    merged: dict[int, dict[str, Any]] = {}
    for row in rows:
        new = {
            k: row[k]
            for k in ("partition", "from_offset", "until_offset", "first_sequence", "last_sequence")
        }
        new["records"] = 0
        old = merged.setdefault(row["partition"], new)
        old["records"] += row["packets"]
        for key, choose in (
            ("from_offset", min),
            ("until_offset", max),
            ("first_sequence", min),
            ("last_sequence", max),
        ):
            known = [r[key] for r in (old, new) if r[key] is not None]
            old[key] = choose(known) if known else None
    return [merged[p] for p in sorted(merged)]
