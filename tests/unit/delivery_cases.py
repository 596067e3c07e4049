"""Records for a task, a sink that keeps what it sends, and the switches that forward it."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

import schemas
from udfs.messages.sequence import session_id, split_sequence
from udfs.messages.specification import parse_specification
from udfs.plan import Addressing, Compilation
from udfs.stacks.dissect import dissect
from udfs.stacks.entries import network_tables
from udfs.stacks.forwarding import ForwardingModel
from udfs.trees.broadcast import broadcast_trees
from udfs.trees.topology import fabric

ITCH = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
NETWORK = fabric(pods=2, racks=2, hosts=2, planes=1, spines=1)
TREES = broadcast_trees(NETWORK)
HOSTS = sorted(NETWORK.subscribers())
MODEL = ForwardingModel(NETWORK, network_tables(NETWORK, TREES))
TOPIC = "itch.raw"
ADDRESSING = Addressing("feed1", group=0xE9360C01, port=26400, mtu=1500, max_labels=64)
VERSIONS = {"subscriptions": 3, "hosts": 1}


@dataclass
class ListSink:
    """Keeps frames, and what was done to it in which order."""

    frames: list[bytes] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    broken: bool = False

    def send(self, data: np.ndarray, offsets: np.ndarray) -> int:
        if self.broken:
            raise OSError("unplugged")
        self.calls.append("send")
        whole = data.tobytes()
        self.frames += [whole[a:b] for a, b in pairwise(offsets.tolist())]
        return len(offsets) - 1

    def flush(self) -> None:
        self.calls.append("flush")

    def close(self) -> None:
        self.calls.append("close")


def message(kind: str, **values: int) -> bytes:
    """A message with these raw values, 0 elsewhere."""
    header = ITCH.header_of_type(ord(kind))
    assert header is not None
    parts = [values.get(f.name, 0).to_bytes(f.bits // 8) for f in header.fields[1:]]
    return kind.encode() + b"".join(parts)


Row = tuple[int, int, bytes | None]
"""Partition, offset, payload."""


def batches_of(rows: Sequence[Row], cuts: Sequence[int], large: bool) -> Iterator[pa.RecordBatch]:
    """The rows as Arrow batches that are slices of one."""
    value = pa.large_binary() if large else pa.binary()
    schema = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("value", value)])
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    whole = pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )
    borders = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    for begin, end in pairwise(borders):
        yield whole.slice(begin, end - begin)


def handle(value: object) -> SimpleNamespace:
    """A broadcast value, as it is after its way to a worker."""
    return SimpleNamespace(value=pickle.loads(pickle.dumps(value)))


def complete(compilation: Compilation) -> Compilation:
    """A plan whose stacks a worker has worked out, all of them."""
    stacks = handle(compilation.header_stacks).value
    compilation.header_stacks.learn({r: stacks.of(r) for r in compilation.unknown()})
    assert not compilation.unknown()
    return compilation.with_known()


def reached(compilation: Compilation, row: Mapping[str, Any]) -> tuple[str, ...]:
    """Receivers of the frames that a row of kind ``template`` counts."""
    known = compilation.reached[row["delivery"]]
    assert (row["receivers"] is None) is (known is not None)
    return tuple(row["receivers"]) if known is None else known[row["part"]]


def received(frames: Sequence[bytes]) -> dict[str, Counter[tuple[int, int, bytes]]]:
    """What reaches the hosts when the switches forward these frames."""
    partitions = {session_id(TOPIC, p): p for p in range(4)}
    hosts: dict[str, Counter[tuple[int, int, bytes]]] = {host: Counter() for host in HOSTS}
    numbers: set[tuple[str, bytes, int]] = set()
    for frame in frames:
        parts = dissect(frame)
        assert len(frame) - 14 <= ADDRESSING.mtu
        delivery = MODEL.deliver("feed1", parts.labels)
        assert not delivery.loop and set(delivery.hosts.values()) == {1}
        offset, _ = split_sequence(parts.sequence)
        for place, content in enumerate(parts.messages):
            for host in delivery.hosts:
                hosts[host][partitions[parts.session], offset, content] += 1
                number = (host, parts.session, parts.sequence + place)
                assert number not in numbers, "a sequence number was used twice"
                numbers.add(number)
    return hosts
