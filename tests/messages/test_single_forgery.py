"""One forged summary, wherever it is inserted, never costs a real message.

The oracle is the list of what the stream sent. Datagrams come from `lossy_network`, which shares no
code with the receiver but the building of a packet.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from itertools import pairwise

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from lossy_network import GONE, Faults, Stream, World, notification, summary_bytes

from stackcast.udfs.messages.recovery.receiver import Receiver, ReceiverOptions, State

pytestmark = pytest.mark.unit

SESSION = b"8ZY63T0000"
OFFSET = 1 << 26
#: Several of the longest times between two requests.
ENOUGH = 1200.0

ORDERS = st.sampled_from(["arrival", "sequence"])
SEEDS = st.integers(0, 1 << 32)
#: Batches before and after the forgery. Three summaries refute an announcement.
BEFORE = st.integers(0, 4)
AFTER = st.integers(4, 8)


def batch(stream: Stream, dice: random.Random) -> int:
    """Append a batch of a few offsets, some of them with notifications for this host."""
    begin = stream.ends[-1] // OFFSET
    offsets = dice.randint(1, 4)
    found = {}
    for offset in range(begin, begin + offsets):
        for index in sorted(dice.sample(range(50), dice.choice([0, 1, 1, 2]))):
            found[offset * OFFSET + (index << 13)] = dice.choice([1, 1, 3])
    return stream.append(found, (begin + offsets) * OFFSET)


@st.composite
def forgeries(draw: st.DrawFn, stream: Stream, may_be_gone: bool = False) -> bytes:
    """Draw a true summary of any range, one that says it is empty, or an invented one."""
    here = stream.ends[-1] // OFFSET
    near = st.integers(max(here - 6, 0), here + 12)
    begin = OFFSET * draw(near | st.sampled_from([1 << 31, (1 << 37) - 2, (1 << 37) + 5]))
    until = begin + OFFSET * draw(st.integers(0, 12) | st.sampled_from([1 << 20, 1 << 31]))
    kinds = ["true", "nothing", "invented", *(["gone"] if may_be_gone else [])]
    match draw(st.sampled_from(kinds)):
        case "true":
            return summary_bytes(SESSION, begin, until, stream.sent)
        case "nothing":
            return summary_bytes(SESSION, begin, until, {})
        case "gone":
            return summary_bytes(SESSION, begin, until, {}, gone=True)
    number = draw(st.integers(1, 9) | st.just(GONE - 1))
    last = draw(st.integers(begin, max(begin, until - 1)))
    return struct.pack(">10sQHQQQQ", SESSION, until, 0, begin, number, last, 1)


def play(data: st.DataObject, world: World, seed: int, before: int, after: int, kind: str) -> int:
    """Send batches with one forgery between two datagrams.

    Returns:
        How many batches the stream had sent before the receiver listened.
    """
    dice = random.Random(seed)
    (stream,) = world.streams.values()
    unheard = dice.choice([0, 3])
    for _ in range(unheard):
        batch(stream, dice)
    place = None
    for number in range(before + after):
        datagrams = stream.datagrams(batch(stream, dice))
        if number == before:
            place = data.draw(st.integers(0, len(datagrams)), "place")
            forgery = data.draw(forgeries(stream, kind == "answer"), "forgery")
        for position, datagram in enumerate(datagrams):
            if number == before and position == place:
                world.send(forgery, kind)
            world.run(world.now + dice.choice([0.0, 0.001, 0.1]))
            world.send(datagram)
        if number == before and place == len(datagrams):
            world.send(forgery, kind)
        stream.ledger = stream.ends[-1]
        world.run(world.now + dice.choice([0.01, 1.0, 3.0]))
    return unheard


def check_complete(world: World, unheard: int, order: str) -> None:
    (stream,) = world.streams.values()
    heard = {s: c for number in stream.batches[unheard:] for s, c in number.items()}
    delivered = Counter(d.sequence for d in world.deliveries)
    assert set(delivered.values()) <= {1}
    assert set(heard) <= set(delivered) <= set(stream.sent)
    for d in world.deliveries:
        assert d.datagram == notification(SESSION, d.sequence, stream.sent[d.sequence])
    if order == "sequence":
        assert all(a.sequence < b.sequence for a, b in pairwise(world.deliveries))


@pytest.mark.integration
@examples(2000)
@given(data=st.data(), seed=SEEDS, before=BEFORE, after=AFTER, order=ORDERS, asks=st.booleans())
def test_one_forged_summary_anywhere_costs_no_message(data, seed, before, after, order, asks):
    receiver = Receiver(ReceiverOptions(order=order, asks=asks), 0.0, seed=seed)
    world = World(receiver, [Stream(SESSION)], Faults(), random.Random(seed))
    unheard = play(data, world, seed, before, after, "stream")
    world.run(world.now + 0.5)
    check_complete(world, unheard, order)


@examples(1000)
@given(data=st.data(), seed=SEEDS, before=BEFORE, after=AFTER, order=ORDERS, named=st.booleans())
def test_one_forged_answer_anywhere_costs_no_message(data, seed, before, after, order, named):
    options = ReceiverOptions(order=order, from_start=named)
    receiver = Receiver(options, 0.0, [SESSION] if named else (), seed)
    world = World(receiver, [Stream(SESSION)], Faults(), random.Random(seed))
    unheard = play(data, world, seed, before, after, "answer")
    world.run(world.now + ENOUGH)
    # Only the service knows earlier notifications, and nothing verifies its answers about them.
    check_complete(world, unheard, order)
    assert not world.losses


@examples(600)
@given(data=st.data(), seed=SEEDS, loss=st.sampled_from([0.1, 0.4]), order=ORDERS)
def test_real_losses_are_reported_in_spite_of_one_forged_announcement(data, seed, loss, order):
    dice = random.Random(seed)
    stream = Stream(SESSION)
    receiver = Receiver(ReceiverOptions(order=order, asks=False), 0.0, seed=seed)
    faults = Faults()
    world = World(receiver, [stream], faults, dice)
    forged_in = data.draw(st.integers(1, 6), "batch before which the forgery arrives")
    for number in range(12):
        # The first and the last summaries arrive, and three that refute the forgery.
        faults.loss = loss if 0 < number < 7 else 0.0
        if number == forged_in:
            begin = stream.ends[-1] + OFFSET * data.draw(st.integers(1, 1 << 36), "distance")
            until = begin + OFFSET * data.draw(st.integers(1, 1 << 31), "length")
            forgery = struct.pack(">10sQHQQQQ", SESSION, until, 0, begin, 3, begin, 1)
            world.receiver.receive([forgery], world.now)
        for datagram in stream.datagrams(batch(stream, dice)):
            world.send(datagram)
        world.run(world.now + 4.0)
    delivered = Counter(d.sequence for d in world.deliveries)
    assert set(delivered.values()) <= {1}
    ranges = [(lost.from_, lost.until) for lost in world.losses]
    lacking = set(stream.sent) - set(delivered)
    assert all(sum(begin <= n < until for begin, until in ranges) == 1 for n in lacking)
    assert all(until <= stream.ends[-1] for _, until in ranges)
    assert receiver.sessions()[SESSION] == (State.EVEN, stream.ends[-1], stream.ends[-1])
