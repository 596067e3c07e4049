"""Records for a task, a sink that keeps what it sends, and the switches that forward it."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from stackcast import schemas
from stackcast.udfs.delivery.plan import Addressing, Compilation
from stackcast.udfs.filters import grouped
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages.reference import build_packet
from stackcast.udfs.messages.sequence import Topic, session_id, split_sequence
from stackcast.udfs.messages.specification import parse_specification
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.stacks.dissect import dissect
from stackcast.udfs.stacks.forwarding import ForwardingModel, network_tables
from stackcast.udfs.trees.broadcast import broadcast_trees

ITCH = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
NETWORK = fabric(pods=2, racks=2, hosts=2, planes=1, spines=1)
TREES = broadcast_trees(NETWORK)
HOSTS = sorted(NETWORK.subscribers())
MODEL = ForwardingModel(NETWORK, network_tables(NETWORK, TREES))
TOPIC = Topic("itch.raw")
ADDRESSING = Addressing("feed1", group=0xE9360C01, port=26400, mtu=1500, max_labels=64)
VERSIONS = {"subscriptions": 3, "hosts": 1}


#: Rows that a diagram may have; the rules that find no room in it are for the index.
rooms = st.sampled_from([None, 1, 12])


@contextmanager
def room_for(rows: int | None) -> Iterator[None]:
    """Rules are grouped as if a diagram might have so many rows."""
    with pytest.MonkeyPatch.context() as patched:
        if rows is not None:
            patched.setattr(grouped, "MAX_ENTRIES", rows)
            patched.setattr(grouped, "_WORTH_A_TRIAL", 1)
        yield


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
    if row["receiver_set"] is not None:
        # The union of several rules, which only the worker knows.
        assert row["delivery"] >= len(compilation.receiver_sets)
        assert set(row["receivers"]) <= set(row["receiver_set"])
        return tuple(row["receivers"])
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


GOOGL = message("A", stock=int.from_bytes(b"GOOGL   ", "big"), price=10_000)

FILTERS = [
    "stock == GOOGL",
    "stock == MSFT and price > 50.25",
    "price < 10 or shares >= 300",
    "not (stock == GOOGL) and price <= 50.25",
    "buy_sell == B",
    "not (buy_sell == B) and not (shares < 200)",
    "trade.price > 20",
    "trade.stock == GOOGL or stock == GOOGL",
    "order_delete.order_reference_number == 1",
    "stock == AAPL : fwd(h1, h2, h7)",
    f"price > 0 : fwd({', '.join(HOSTS)})",
]


def random_message(seed: random.Random) -> bytes:
    symbol = int.from_bytes(seed.choice([b"GOOGL", b"MSFT", b"AAPL", b"X"]).ljust(8), "big")
    price = seed.choice([0, 99_999, 100_000, 502_500, 502_501, 0xFFFF_FFFF])
    return message(
        seed.choice("AAAAFPPDSEU"),
        stock=symbol,
        price=price,
        shares=seed.choice([0, 100, 199, 200, 300]),
        buy_sell=ord(seed.choice("BS")),
        order_reference_number=seed.randrange(3),
    )


def random_record(seed: random.Random) -> bytes | None:
    """A packet; sometimes with an unreadable message, damaged, a heartbeat, noise or null."""
    messages = [random_message(seed) for _ in range(seed.randrange(13))]
    if seed.random() < 0.2:
        strange = [b"", b"?", messages[0][:-1] if messages else b"A", seed.randbytes(36)]
        messages.insert(seed.randrange(len(messages) + 1), seed.choice(strange))
    packet = build_packet(b"SOURCE    ", seed.randrange(1 << 40), messages)
    match seed.choices(["sound", "cut", "more", "count", "noise", "null"], [12, 1, 1, 1, 1, 1])[0]:
        case "cut":
            return packet[: seed.randrange(len(packet))]
        case "more":
            return packet + b"x"
        case "count":
            return packet[:18] + seed.choice([0, 1, 8192, 0xFFFF]).to_bytes(2) + packet[20:]
        case "noise":
            return seed.randbytes(seed.choice([1, 30, 400, 70_000]))
        case "null":
            return None
    return packet


@st.composite
def scenes(draw: st.DrawFn) -> tuple[list[Subscription], list[Row]]:
    chosen = draw(st.lists(st.tuples(st.sampled_from(HOSTS), st.sampled_from(FILTERS)), max_size=9))
    subscriptions = [Subscription(f"s{n}", host, text) for n, (host, text) in enumerate(chosen)]
    seed = random.Random(draw(st.integers(0, 1 << 30)))
    next_offset = [seed.randrange(1 << 30) for _ in range(3)]
    rows: list[Row] = []
    for _ in range(draw(st.integers(0, 25))):
        partition = seed.randrange(3)
        rows.append((partition, next_offset[partition], random_record(seed)))
        next_offset[partition] += seed.choice([1, 1, 1, 5])
    return subscriptions, rows
