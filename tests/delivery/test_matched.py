"""Reading only what is sent gives what reading everything gives, without what is for nobody."""

from __future__ import annotations

import numpy as np
import pytest
from delivery_cases import ADDRESSING, FILTERS, HOSTS, ITCH, NETWORK, TREES, VERSIONS
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.udfs.delivery.plan import Planner
from stackcast.udfs.errors import MessageError
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages.buffers import Batch, read_only
from stackcast.udfs.messages.readers import Packets
from stackcast.udfs.messages.reference import build_packet

pytestmark = pytest.mark.unit

MESSAGES = list(TradingSession(messages=3_000, seed=5, symbols=20))


def plan(filters: list[str]):  # type: ignore[no-untyped-def]
    rules = [Subscription(f"s{n}", HOSTS[n % len(HOSTS)], text) for n, text in enumerate(filters)]
    return Planner(Packets(ITCH), ADDRESSING).plan(rules, NETWORK, TREES, VERSIONS).plan


def batch_of(records: list[bytes]) -> Batch:
    borders = np.cumsum([0, *map(len, records)])
    content = np.frombuffer(b"".join(records), np.uint8)
    count = len(records)
    return Batch(np.zeros(count, np.int32), np.arange(count), read_only(borders, np.int64), content)


@given(
    st.lists(st.sampled_from(FILTERS), max_size=8, unique=True),
    # Blocks of 512 messages begin and end anywhere.
    st.lists(st.tuples(st.integers(0, 2_900), st.integers(0, 90)), max_size=40),
    st.lists(st.tuples(st.integers(0, 39), st.integers(0, 200), st.integers(0, 255)), max_size=10),
    st.lists(st.integers(0, 39), max_size=3),
)
@examples(40)
def test_what_is_sent_or_cannot_be_read_is_the_same(filters, spans, damage, cut):
    records = [
        bytearray(build_packet(b"SOURCE    ", 1, MESSAGES[begin : begin + count]))
        for begin, count in spans
    ]
    for number, place, byte in damage:
        if number < len(records) and place < len(records[number]):
            records[number][place] = byte
    for number in cut:
        if number < len(records):
            del records[number][-3:]
    made, batch = plan(filters), batch_of([bytes(each) for each in records])
    everything, _ = made.reader.read(batch)
    deliveries = made.deliveries(everything, None)
    wanted = np.flatnonzero((deliveries != 0) | (everything.message_reason != 0))

    found, of = made.matched(batch)
    for name in ("packet", "index", "start", "length", "message_type", "message_reason"):
        assert (getattr(found, name) == getattr(everything, name)[wanted]).all(), name
    assert (of == deliveries[wanted]).all()
    assert (found.packet_reason == everything.packet_reason).all()
    assert (found.count == everything.count).all()
    assert everything.count.tolist() == [
        int((everything.packet == record).sum()) for record in range(len(records))
    ]


def test_offsets_that_leave_the_data_are_refused():
    made = plan(FILTERS[:1])
    batch = batch_of([build_packet(b"SOURCE    ", 1, MESSAGES[:3])])
    wrong = Batch(
        batch.partition, batch.offset, read_only(batch.borders + 1, np.int64), batch.content
    )
    with pytest.raises(MessageError, match="BAD_OFFSETS"):
        made.matched(wrong)
