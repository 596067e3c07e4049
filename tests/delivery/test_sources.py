"""Rules with state in the stream: any cutting gives what one event after the other gives.

Oracle: the interpreter of docs/reference/rule-language.md, "State", over each partition by itself.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from delivery_cases import (
    ADDRESSING,
    HOSTS,
    ITCH,
    NETWORK,
    TOPIC,
    TREES,
    VERSIONS,
    ListSink,
    Row,
    batches_of,
    complete,
    message,
    reached,
    received,
    room_for,
    rooms,
)
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.delivery.deliver import deliver
from stackcast.udfs.delivery.partition_states import needs_arrival
from stackcast.udfs.delivery.plan import Compilation, Planner
from stackcast.udfs.errors import MessageError, StreamError
from stackcast.udfs.filters.matching.carried import (
    pack,
    pack_sources,
    retain,
    unpack,
    unpack_sources,
)
from stackcast.udfs.filters.matching.cells import CELL, Carried
from stackcast.udfs.filters.meaning.interpreter import Interpreter
from stackcast.udfs.filters.nodes import Forward, Rule
from stackcast.udfs.filters.subscriptions import CheckedRule, Subscription, check
from stackcast.udfs.messages.readers import Packets
from stackcast.udfs.messages.reference import build_packet, read_message, read_packet
from stackcast.udfs.messages.sequence import session_id
from stackcast.udfs.messages.specification import Specification, parse_specification
from stackcast.udfs.stacks.dissect import dissect

pytestmark = pytest.mark.unit

SECOND = 1_000_000_000
KEEPING = [
    "stock == GOOGL and avg(price) > 50",
    "count() > 4",
    "stock == GOOGL and count(2) > 1 : fwd(h1, h2)",
    "recent > 2",
    "not recent > 2 and price > 10",
    "price > 10 : recent <- count()",
    "shares > 100 : { fwd(h5); recent <- count() }",
    "max(trade.price, 3) > 50",
    "trade.price > 10 and sum(trade.price, 10000000) < 300",
    "not (stock == MSFT and min(price, 3) < 60)",
    "order_delete.order_reference_number == 1 and count(1) >= 1",
    "changed(stock) : fwd(h5)",
    "stock == MSFT and not moved(price, 20.5) and shares == 100",
    "moved(trade.price, 30) or changed(order_delete.order_reference_number)",
]
PLAIN = ["price > 60", "stock == GOOGL : fwd(h3)"]


def event(seed: random.Random, time: int) -> bytes:
    symbol = int.from_bytes(seed.choice([b"GOOGL", b"MSFT"]).ljust(8), "big")
    return message(
        seed.choice("AAAAPPD"),
        stock=symbol,
        price=seed.choice([100_000, 400_000, 600_000, 700_000]),
        shares=seed.choice([100, 200]),
        order_reference_number=seed.randrange(2),
        timestamp=time % (1 << 48),
    )


def records(seed: random.Random, offsets: dict[int, int], times: dict[int, int]) -> Iterator[Row]:
    """Some records of some partitions: packets, damaged ones, and messages that nobody can read."""
    for _ in range(seed.randrange(8)):
        partition = seed.randrange(3)
        messages = []
        for _ in range(seed.randrange(7)):
            step = seed.choice([0, 1, 999, 1000, 2000, 1500, -700, -3000, SECOND // 2, SECOND])
            times[partition] = max(0, times[partition] + step)
            if seed.random() < 0.02:
                times[partition] = seed.randrange(5000)
            messages.append(event(seed, times[partition]))
        if messages and seed.random() < 0.2:
            strange = seed.choice([b"?", b"", messages[0][:-1]])
            messages.insert(seed.randrange(len(messages)), strange)
        packet = build_packet(b"SOURCE    ", 1, messages)
        if seed.random() < 0.1:
            packet = packet[:-1]
        yield partition, offsets[partition], packet
        offsets[partition] += seed.choice([1, 1, 4])


def handles(compilation: Compilation) -> tuple[SimpleNamespace, SimpleNamespace]:
    return SimpleNamespace(value=compilation.plan), SimpleNamespace(value=compilation.header_stacks)


def work(
    compilation: Compilation,
    rows: Sequence[Row],
    carried: Mapping[int, bytes],
    cuts: Sequence[int] = (),
) -> tuple[list[bytes], dict[int, bytes]]:
    """One task: its frames, and the state it reports by partition."""
    sink = ListSink()
    task = deliver(*handles(compilation), TOPIC, lambda: sink, 10, carried)
    report = [r for b in task(batches_of(rows, cuts, False)) for r in b.to_pylist()]
    states = [(r["partition"], r["cells"]) for r in report if r["kind"] == "state"]
    assert len(dict(states)) == len(states)
    return sink.frames, dict(states)


class Reference:
    """One partition, event by event."""

    def __init__(self, specification: Specification = ITCH) -> None:
        self.specification = specification
        self.interpreter: Interpreter | None = None

    def adopt(self, rules: Sequence[CheckedRule]) -> None:
        made = [Rule(r.condition, (Forward(r.receivers), *r.updates)) for r in rules]
        adopted = Interpreter(made, self.specification, None)
        if self.interpreter is not None:
            adopted.carry(self.interpreter)
        self.interpreter = adopted

    def owed(self, payload: bytes, time: int = 0) -> Iterator[tuple[bytes, tuple[str, ...]]]:
        assert self.interpreter is not None
        try:
            messages = read_packet(payload)[2]
        except MessageError:
            return
        for content in messages:
            try:
                found = read_message(self.specification, content)
            except MessageError:
                continue
            yield content, self.interpreter.step(found, time).receivers


@examples(60)
@given(st.integers(0, 1 << 30), st.booleans())
def test_any_cutting_into_tasks_and_batches_is_the_interpreter_on_each_partition(number, one_task):
    seed = random.Random(number)
    planner = Planner(Packets(ITCH), ADDRESSING)
    offsets = {p: seed.randrange(1 << 20) for p in range(3)}
    times = {p: seed.randrange(10 * SECOND) for p in range(3)}
    references = {p: Reference() for p in range(3)}
    carried: dict[int, bytes] = {}
    version, rows_of_table = 0, []
    for _ in range(seed.randrange(1, 6)):
        if not version or seed.random() < 0.3:
            version += 1
            texts = seed.sample(KEEPING, seed.randrange(1, 6)) + seed.sample(PLAIN, 1)
            rows_of_table = [Subscription(text, seed.choice(HOSTS), text) for text in sorted(texts)]
        if seed.random() < 0.3:
            # A start anew, which may group the rules in another way.
            planner = Planner(Packets(ITCH), ADDRESSING)
        with room_for(seed.choice([None, 1, 12])):
            compilation = planner.plan(
                rows_of_table, NETWORK, TREES, VERSIONS | {"subscriptions": version}
            )
        assert not compilation.rejections and compilation.plan.state is not None
        for reference in references.values():
            reference.adopt(compilation.rules)
        batch = list(records(seed, offsets, times))
        tasks = [batch] if one_task else [[r for r in batch if r[0] == p] for p in range(3)]
        frames, after = [], {}
        for rows in tasks:
            cuts = [seed.randrange(9) for _ in range(seed.randrange(3))]
            sent, states = work(compilation, rows, carried, cuts)
            assert work(compilation, rows, carried) == (sent, states)
            frames += sent
            after |= states
        live = set(compilation.plan.state.identities)
        carried = {p: retain(packed, live) for p, packed in carried.items()} | after
        hosts: dict[str, Counter[tuple[int, int, bytes]]] = {host: Counter() for host in HOSTS}
        for partition, offset, payload in batch:
            for content, receivers in references[partition].owed(payload or b""):
                for host in receivers:
                    hosts[host][partition, offset, content] += 1
        assert received(frames) == hosts


def test_rules_without_state_carry_nothing():
    compilation = Planner(Packets(ITCH), ADDRESSING).plan(
        [Subscription("s", "h3", "price > 1")], NETWORK, TREES, VERSIONS
    )
    assert compilation.plan.state is None
    sent, states = work(compilation, [(0, 0, build_packet(b"S         ", 1, []))], {})
    assert (sent, states) == ([], {})


SILENT = [
    "stock == GOOGL and avg(price) > 100000",
    "stock == MSFT and price > 50 and count() > 1000000 : fwd(h1, h2)",
    "shares > 100 and max(price, 3) > 100000 : fwd(h3)",
    "trade.price > 10 and sum(trade.price, 10000000) > 100000000",
    "recent > 1000000",
]
SENDING = [
    "price >= 0",
    "price > 60 : fwd(h1, h2)",
    "stock == GOOGL",
    "shares > 100 : fwd(h5, h6)",
    "trade.price > 10",
    "order_delete.order_reference_number == 1",
]


@examples(40)
@given(
    st.lists(st.tuples(st.sampled_from(SENDING), st.sampled_from(HOSTS)), unique=True, max_size=5),
    st.sets(st.sampled_from(SILENT), min_size=1),
    st.integers(0, 1 << 30),
    rooms,
)
def test_rules_that_send_nothing_change_no_frame_of_the_others(sending, silent, number, room):
    """Not even how messages share frames: what is kept about them is no business of receivers."""
    plain = [Subscription(f"p{n}", host, text) for n, (text, host) in enumerate(sending)]
    plain.append(Subscription("u", "h7", "price > 10"))
    keeping = [Subscription(f"s{n}", "h4", text) for n, text in enumerate(sorted(silent))]
    keeping += [*plain[:-1], Subscription("u", "h7", "price > 10 : recent <- count()")]
    seed = random.Random(number)
    offsets, times = dict.fromkeys(range(3), 9), dict.fromkeys(range(3), 0)
    rows = [row for _ in range(4) for row in records(seed, offsets, times)]
    plans = []
    for subscriptions, rows_of_diagram in ((plain, None), (keeping, room)):
        planner = Planner(Packets(ITCH), ADDRESSING)
        with room_for(rows_of_diagram):
            plans.append(planner.plan(subscriptions, NETWORK, TREES, VERSIONS))
    alone, both = plans
    assert not both.rejections
    assert alone.plan.delivery is None, "without state a leaf is a receiver set"
    assert reported(both, rows) == reported(alone, rows)


def reported(
    compilation: Compilation, rows: Sequence[Row]
) -> tuple[list[bytes], list[tuple[Any, ...]], Counter[tuple[Any, ...]]]:
    """Frames; what is counted by partition; and by header, with the hosts it reaches."""
    sink = ListSink()
    task = deliver(*handles(compilation), TOPIC, lambda: sink, 10)
    report = [r for b in task(batches_of(rows, (), False)) for r in b.to_pylist()]
    sums = ("partition", "messages", "matched", "frames", "bytes", "first_sequence")
    partitions = [tuple(r[n] for n in sums) for r in report if r["kind"] == "partition"]
    templates = Counter(
        (reached(compilation, r), r["frames"], r["messages"], r["bytes"])
        for r in report
        if r["kind"] == "template"
    )
    return sink.frames, partitions, templates


def test_a_receiver_set_has_one_header_however_much_is_kept_about_its_messages():
    plain = Subscription("all", "h3", "price >= 0")
    stateful = [
        Subscription(f"s{n}", "h3", f"stock == S{n} and avg(price) > 50") for n in range(20)
    ]
    planner = Planner(Packets(ITCH), ADDRESSING)
    compilation = complete(planner.plan([plain, *stateful], NETWORK, TREES, VERSIONS))
    assert len(compilation.receivers) > 20
    (row,) = compilation.stack_rows("feed1")
    assert (row["receivers"], row["part"]) == (["h3"], 0)
    messages = [
        message("A", stock=int.from_bytes(b"S%-7d" % n, "big"), price=700_000) for n in range(20)
    ]
    (frame,), _ = work(compilation, [(0, 7, build_packet(b"S         ", 1, messages))], {})
    assert dissect(frame).messages == tuple(messages)
    # The rows of the filter still tell these leaves apart.
    _, leaves = compilation.filter_rows()
    assert sorted(row["leaf"] for row in leaves) == list(range(len(compilation.receivers)))
    for row in leaves:
        assert compilation.receivers[row["leaf"]] == tuple(row["receivers"])


def test_the_papers_rule_from_packets_to_frames():
    subscription = Subscription("s", "h3", "stock == GOOGL and avg(price) > 50")
    compilation = Planner(Packets(ITCH), ADDRESSING).plan([subscription], NETWORK, TREES, VERSIONS)
    googl = int.from_bytes(b"GOOGL   ", "big")
    # Milliseconds and dollars; the window is a second, and starts anew with the clock.
    steps = [(0, 60), (500, 20), (600, 90), (900, 70), (1000, 80), (1001, 1), (0, 99), (1, 99)]
    messages = [
        message("A", stock=googl, price=dollars * 10_000, timestamp=milliseconds * 1_000_000)
        for milliseconds, dollars in steps
    ]
    frames, _ = work(compilation, [(0, 7, build_packet(b"S         ", 1, messages))], {})
    found = [content for frame in frames for content in dissect(frame).messages]
    assert found == [messages[at] for at in (1, 3, 5, 7)]


UNTIMED = parse_specification(
    """
    header_type order_t { fields { @string message_type: 8; @clock(2) time: 16; price: 8; } }
    @message_type("A") header order_t order;
    header_type trade_t { fields { @string message_type: 8; price: 8; } }
    @message_type("P") header trade_t trade;
    header_type late_t { fields { @string message_type: 8; @clock(6) time: 24; price: 8; } }
    @message_type("L") header late_t late;
    @query_counter(recent, 10)
    """,
    "untimed",
)


@examples(40)
@given(
    st.lists(
        st.tuples(st.sampled_from("APL"), st.integers(0, 40), st.integers(0, 200)), max_size=30
    )
)
def test_clocks_of_different_units_and_the_time_of_a_record_are_one_time(steps):
    """Microseconds, in each message's own units; a trade has the time of its record."""
    assert needs_arrival(UNTIMED) and not needs_arrival(ITCH)
    texts = ["count() > 1", "order.price > 20 and count() > 0", "sum(trade.price) > 30"]
    subscriptions = [Subscription(text, "h1", text) for text in texts]
    compilation = Planner(Packets(UNTIMED), ADDRESSING).plan(
        subscriptions, NETWORK, TREES, VERSIONS
    )
    reference = Reference(UNTIMED)
    reference.adopt(check(subscriptions, UNTIMED, set(HOSTS), "feed1")[0])
    rows, owed = [], []
    for offset, (kind, price, time) in enumerate(steps):
        clock = {"A": (time * 2).to_bytes(2), "P": b"", "L": (time * 6).to_bytes(3)}[kind]
        payload = build_packet(b"S         ", 1, [kind.encode() + clock + bytes([price])])
        rows.append((0, offset, payload))
        owed += [content for content, to in reference.owed(payload, time) if to]
    whole = next(batches_of(rows, (), False))
    arrival = pa.array([time for _, _, time in steps], pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_arrays(
        [*whole.columns, arrival], ["partition", "offset", "value", "timestamp"]
    )
    sink = ListSink()
    list(deliver(*handles(compilation), TOPIC, lambda: sink, 10)(iter([batch])))
    assert [c for frame in sink.frames for c in dissect(frame).messages] == owed
    assert all(dissect(frame).session == session_id(TOPIC, 0) for frame in sink.frames)


names = st.lists(st.text(max_size=30), unique=True, max_size=6)


@st.composite
def states(draw: Any) -> Carried:
    held = draw(names)
    word = st.integers(0, (1 << 64) - 1)
    cells = [
        (draw(st.integers(-(1 << 63), (1 << 63) - 1)), draw(st.just(0) | word), draw(word))
        for _ in held
    ]
    return Carried(tuple(held), np.array(cells, CELL))


@given(st.dictionaries(st.integers(0, 1 << 30), states(), max_size=4), names)
def test_state_becomes_bytes_and_comes_back_without_what_is_empty(sources, live):
    packed = {partition: pack(carried) for partition, carried in sources.items()}
    assert unpack_sources(pack_sources(packed)) == packed
    for partition, carried in sources.items():
        held = dict(zip(carried.names, carried.cells.tolist(), strict=True))
        held = {name: cell for name, cell in held.items() if cell[1]}
        for content, known in (
            (packed[partition], set(held)),
            (retain(packed[partition], live), set(held) & set(live)),
        ):
            back = unpack(content)
            found = dict(zip(back.names, back.cells.tolist(), strict=True))
            assert found == {name: cell for name, cell in held.items() if name in known}


@given(states(), st.data())
def test_damaged_state_is_refused(carried, data):
    packed = pack(carried)
    whole = pack_sources({3: packed, 4: packed})
    cut = data.draw(st.integers(0, len(packed) - 1))
    for content, read in ((packed, unpack), (whole, unpack_sources)):
        with pytest.raises(StreamError, match="STATE_UNREADABLE"):
            read(content[:cut])
        with pytest.raises(StreamError, match="STATE_UNREADABLE"):
            read(b"XXXX" + content[4:])
    with pytest.raises(StreamError, match="STATE_UNREADABLE"):
        unpack_sources(whole + b"x")
