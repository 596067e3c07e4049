"""Notifications computed again: the datagrams of an offset range, and the hosts they are for.

`recompute` runs on the executors and is the stream's own work (`stackcast.udfs.delivery.task`)
without a sink; what it yields becomes `Notifications` on the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stackcast.udfs.delivery.frame_headers import FrameHeaders, StacksHandle
from stackcast.udfs.delivery.plan import PlanHandle
from stackcast.udfs.delivery.task import Task
from stackcast.udfs.messages.sequence import OFFSET_SHIFT, Topic
from stackcast.udfs.stacks.frame import Frames
from stackcast.udfs.trees.header_stacks import Receivers

#: Columns that `recompute` yields, in SQL words. ``kind`` says what a row is: ``frame`` (its
#: template, first sequence number, messages, and content), ``template`` (whom it reaches: all of
#: its delivery's receivers, or ``hosts``) and ``records`` (how many, the first offset and the
#: last).
SCHEMA = (
    "kind string, template int, delivery int, hosts array<string>, sequence bigint, messages int, "
    "content binary, records bigint, first_offset bigint, last_offset bigint"
)
ARROW = pa.schema(
    [
        ("kind", pa.string()),
        ("template", pa.int32()),
        ("delivery", pa.int32()),
        ("hosts", pa.list_(pa.string())),
        ("sequence", pa.int64()),
        ("messages", pa.int32()),
        ("content", pa.binary()),
        ("records", pa.int64()),
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),
    ]
)


def recompute(
    plan: PlanHandle,
    header_stacks: StacksHandle,
    topic: Topic,
    carried: Mapping[int, bytes],
    hosts: frozenset[str] | None,
    offsets: tuple[int, int],
    whole: bool = False,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for ``mapInArrow`` over the records of one partition, as `Task` takes
    them.

    It yields rows of `SCHEMA`: the frames of these offsets, from and until, that reach one of
    ``hosts`` (None: any host). content: what follows UDP, or with ``whole`` the frame.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        loaded = plan.value
        # Of a batch on record the plan has the one ingress that its records had.
        ingresses = () if loaded.publishers is None else loaded.publishers.ingresses
        task = Task(loaded, header_stacks, topic, 0, carried, ingress="".join(ingresses))
        wanted = _Wanted(loaded.headers, hosts)
        seen = _Seen()
        for batch in batches:
            frames = task.add(batch)
            seen.add(batch.column("offset").to_numpy())
            chosen = wanted.frames(frames, *offsets)
            if chosen.size:
                yield _content(frames, chosen, loaded.headers, whole)
        rows = [*wanted.rows(), {"kind": "records", **seen.row()}]
        yield pa.RecordBatch.from_pylist(rows, schema=ARROW)

    return run


class _Wanted:
    """Knows the templates that reach the hosts that ask."""

    def __init__(self, headers: FrameHeaders, hosts: frozenset[str] | None) -> None:
        self._headers = headers
        self._hosts = hosts
        # By template: whether it is wanted, and whether that is known.
        self._wanted = np.zeros(0, np.bool_)
        self._known = np.zeros(0, np.bool_)

    def frames(self, frames: Frames, from_: int, until: int) -> NDArray[np.int64]:
        """Returns the numbers of the frames that are wanted, int64[]."""
        more = self._headers.templates.templates - self._known.size
        self._wanted = np.pad(self._wanted, (0, more))
        self._known = np.pad(self._known, (0, more))
        used = np.unique(frames.template)
        for template in used[~self._known[used]].tolist():
            receivers = self._headers.receivers(template)
            mine = self._hosts is None or not self._hosts.isdisjoint(receivers)
            self._wanted[template], self._known[template] = mine, True
        offset = (frames.sequence >> np.uint64(OFFSET_SHIFT)).astype(np.int64)
        chosen = self._wanted[frames.template] & (from_ <= offset) & (offset < until)
        return np.flatnonzero(chosen)

    def rows(self) -> Iterator[dict[str, Any]]:
        templates = self._headers.templates
        for template in np.flatnonzero(self._wanted).tolist():
            part = self._headers.part(template) or self._headers.met(template)
            yield {
                "kind": "template",
                "template": template,
                "delivery": int(templates.leaf[template]),
                "hosts": None if part is None else list(part),
            }


class _Seen:
    def __init__(self) -> None:
        self._records, self._first, self._last = 0, 1 << 62, -1

    def add(self, offset: NDArray[np.int64]) -> None:
        if offset.size:
            self._records += offset.size
            self._first = min(self._first, int(offset.min()))
            self._last = max(self._last, int(offset.max()))

    def row(self) -> dict[str, int]:
        return {
            "records": self._records,
            "first_offset": self._first,
            "last_offset": self._last,
        }


def _content(
    frames: Frames, chosen: NDArray[np.int64], headers: FrameHeaders, whole: bool
) -> pa.RecordBatch:
    """Makes rows of kind ``frame``."""
    header = np.zeros(len(frames), np.int64)
    if not whole:
        header = np.diff(headers.templates.start)[frames.template]
    # Header and payload of each frame by turns: every second value is a payload.
    borders = np.empty(2 * len(frames) + 1, np.int64)
    borders[0::2] = frames.offsets
    borders[1::2] = frames.offsets[:-1] + header
    parts = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(),
        2 * len(frames),
        [None, pa.py_buffer(borders), pa.py_buffer(np.ascontiguousarray(frames.data))],
    )
    count = chosen.size
    columns: dict[str, Any] = {
        "kind": pa.repeat(pa.scalar("frame"), count),
        "template": pa.array(frames.template[chosen]),
        "sequence": pa.array(frames.sequence[chosen].astype(np.int64)),
        "messages": pa.array(frames.messages[chosen]),
        "content": parts.take(pa.array(2 * chosen + 1)).cast(pa.binary()),
    }
    arrays = [columns[f.name] if f.name in columns else pa.nulls(count, f.type) for f in ARROW]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW)


class Records(NamedTuple):
    """Counts records that were read; first, last: offsets of these, where there are any."""

    number: int
    first: int
    last: int


@dataclass(frozen=True)
class Notifications:
    """Holds all notifications of offsets [from_, until) of a partition for ``hosts``, None: for
    all.

    sequence: uint64[n], ascending. messages: int32[n]. group: int32[n], an index of ``receivers``.
    content: n binaries, as `recompute` gave them.
    """

    from_: int
    until: int
    hosts: frozenset[str] | None
    sequence: NDArray[np.uint64]
    messages: NDArray[np.int32]
    group: NDArray[np.int32]
    receivers: Sequence[Receivers]
    content: pa.ChunkedArray

    @classmethod
    def none(cls, from_: int, until: int) -> Notifications:
        """Returns an offset range of which nothing was sent."""
        no = np.zeros(0, np.int32)
        content = pa.chunked_array([], pa.binary())
        return cls(from_, until, None, no.astype(np.uint64), no, no, (), content)

    def __len__(self) -> int:
        return self.sequence.size

    @property
    def size(self) -> int:
        """The bytes that they take, about."""
        return int(self.content.nbytes) + 200 * len(self) + 80 * sum(map(len, self.receivers))

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each content, int64[n]."""
        return np.asarray(pc.binary_length(self.content), np.int64)

    def serves(self, host: str) -> bool:
        """Returns True if those for this host are all among them."""
        return self.hosts is None or host in self.hosts

    def places(self, host: str) -> NDArray[np.int64]:
        """Returns the places of the notifications for a host, int64[], by sequence number."""
        groups = self._groups.get(host)
        if groups is None:
            return np.zeros(0, np.int64)
        mine = np.zeros(len(self.receivers), np.bool_)
        mine[groups] = True
        return np.flatnonzero(mine[self.group])

    def datagrams(self, places: NDArray[np.int64]) -> list[bytes]:
        """Returns the contents at these places."""
        found: list[bytes] = self.content.take(pa.array(places)).to_pylist()
        return found

    @cached_property
    def _groups(self) -> dict[str, list[int]]:
        groups: dict[str, list[int]] = {}
        for number, receivers in enumerate(self.receivers):
            for host in receivers:
                groups.setdefault(host, []).append(number)
        return groups


def collect(
    rows: pa.Table,
    receiver_sets: Sequence[Receivers],
    offsets: tuple[int, int],
    hosts: frozenset[str] | None,
) -> tuple[Notifications, Records]:
    """Collects what the tasks of `recompute` yielded; receiver_sets: of the plan, by delivery."""
    kinds = rows["kind"].to_numpy()
    frames = rows.filter(pa.array(kinds == "frame"))
    receivers: list[Receivers] = []
    group: dict[int, int] = {}
    for row in rows.filter(pa.array(kinds == "template")).to_pylist():
        group[row["template"]] = len(receivers)
        named = receiver_sets[row["delivery"]] if row["hosts"] is None else row["hosts"]
        receivers.append(tuple(named))
    number, first, last = 0, 1 << 62, -1
    for row in rows.filter(pa.array(kinds == "records")).to_pylist():
        number += row["records"]
        first, last = min(first, row["first_offset"]), max(last, row["last_offset"])
    sequence = frames["sequence"].to_numpy().astype(np.uint64)
    order = np.argsort(sequence, kind="stable")
    numbers = np.zeros(max(group, default=0) + 1, np.int32)
    numbers[list(group)] = list(group.values())
    made = Notifications(
        *offsets,
        hosts,
        sequence[order],
        frames["messages"].to_numpy().astype(np.int32)[order],
        numbers[frames["template"].to_numpy().astype(np.int64)[order]],
        receivers,
        frames["content"].take(pa.array(order)),
    )
    return made, Records(number, first, last)
