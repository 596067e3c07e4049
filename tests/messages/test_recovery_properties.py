"""In any network, each notification is finally delivered once, and nothing else."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lossy_network import Faults, Stream, World, notification

from stackcast.udfs.messages.recovery.receiver import Receiver, ReceiverOptions, State

pytestmark = pytest.mark.unit

SESSIONS = [b"8ZY63T0000", b"8ZY63T0001", b"OTHERT0000"]
SHARES = st.sampled_from([0.0, 0.1, 0.3, 0.6])
DELAYS = st.sampled_from([0.0, 0.01, 0.3])
#: Several of the longest times between two questions of a host that hears nothing, 100 s.
ENOUGH = 1200.0


def batch(stream: Stream, dice: random.Random) -> int:
    """A batch of a few offsets, whose records gave this host none, one or more notifications."""
    begin = stream.ends[-1] >> 26
    offsets = dice.randint(1, 6)
    found = {}
    for offset in range(begin, begin + offsets):
        for index in dice.sample(range(50), dice.choice([0, 1, 1, 1, 3])):
            found[(offset << 26) | (index << 13)] = dice.choice([1, 1, 2, 7])
    return stream.append(found, (begin + offsets) << 26)


def live(world: World, dice: random.Random, batches: int) -> None:
    """Send batches; some are cut off by a crash and then sent again from their beginning."""
    for _ in range(batches):
        stream = dice.choice(list(world.streams.values()))
        datagrams = stream.datagrams(batch(stream, dice))
        if dice.random() < 0.2:
            for datagram in datagrams[: dice.randrange(len(datagrams) + 1)]:
                world.send(datagram)
            world.run(world.now + dice.random())
        for datagram in datagrams:
            world.send(datagram)
        if dice.random() < 0.7:
            stream.ledger = stream.ends[-1]
        world.run(world.now + dice.random())


def settle(world: World, loss: float = 0.0) -> None:
    """The ledgers are written, the network mends, time passes."""
    for stream in world.streams.values():
        stream.ledger = stream.ends[-1]
    world.faults.loss = loss
    world.run(world.now + ENOUGH)


def keys(world: World) -> Counter[tuple[bytes, int]]:
    return Counter((d.session, d.sequence) for d in world.deliveries)


def check_bytes_and_order(world: World, order: str) -> None:
    """Datagrams are as they were sent; in order of sequence they rise."""
    for d in world.deliveries:
        sent = world.streams[d.session].sent
        assert d.datagram == notification(d.session, d.sequence, sent[d.sequence])
    if order == "sequence":
        for session in world.streams:
            mine = [d.sequence for d in world.deliveries if d.session == session]
            assert all(a < b for a, b in pairwise(mine))


@given(
    seed=st.integers(0, 1 << 32),
    loss=SHARES,
    copies=SHARES,
    delay=DELAYS,
    order=st.sampled_from(["arrival", "sequence"]),
    sessions=st.integers(1, 3),
    most=st.sampled_from([1, 3, 4096]),
    limit=st.sampled_from([2, 5, 1 << 17]),
    named=st.booleans(),
)
def test_from_the_start_each_notification_is_delivered_exactly_once(
    seed, loss, copies, delay, order, sessions, most, limit, named
):
    dice = random.Random(seed)
    streams = [Stream(session, most_datagrams=most) for session in SESSIONS[:sessions]]
    options = ReceiverOptions(order=order, from_start=True, limit=limit)
    receiver = Receiver(options, 0.0, SESSIONS[:sessions] if named else (), seed)
    world = World(receiver, streams, Faults(loss, copies, delay), dice)
    live(world, dice, 8)
    settle(world)
    heard = set(receiver.sessions())
    expected = {(s.session, n) for s in streams if s.session in heard for n in s.sent}
    assert heard == set(SESSIONS[:sessions]) or not named
    assert keys(world) == dict.fromkeys(expected, 1)
    check_bytes_and_order(world, order)
    assert not world.losses
    for stream in streams:
        if stream.session in heard:
            assert receiver.sessions()[stream.session][1:] == (stream.ends[-1],) * 2
    # The receiver reports once that a session has everything, and it is true then.
    assert sorted(name for name, _, _ in world.caught_up) == sorted(heard)
    for name, complete, had in world.caught_up:
        assert {n for n in world.streams[name].sent if n < complete} <= had
    assert not receiver.catching_up()


@given(
    seed=st.integers(0, 1 << 32),
    loss=SHARES,
    copies=SHARES,
    delay=DELAYS,
    order=st.sampled_from(["arrival", "sequence"]),
    limit=st.sampled_from([2, 5, 1 << 17]),
)
def test_from_the_middle_nothing_lacks_after_the_first_that_was_complete(
    seed, loss, copies, delay, order, limit
):
    dice = random.Random(seed)
    stream = Stream(SESSIONS[0])
    for _ in range(3):  # before anybody listens
        batch(stream, dice)
    heard_from = stream.ends[-1]
    receiver = Receiver(ReceiverOptions(order=order, limit=limit), 0.0, seed=seed)
    world = World(receiver, [stream], Faults(loss, copies, delay), dice)
    live(world, dice, 8)
    settle(world)
    delivered = keys(world)
    assert set(delivered.values()) <= {1}
    assert all(n >= heard_from for _, n in delivered)
    if begin := world.begins.get(stream.session):
        assert receiver.sessions()[stream.session][1:] == (stream.ends[-1],) * 2
        assert {n for n in stream.sent if n >= begin} <= {n for _, n in delivered}
    else:  # nothing at all came in
        assert not delivered
    check_bytes_and_order(world, order)
    assert not world.losses


@given(seed=st.integers(0, 1 << 32), loss=SHARES, order=st.sampled_from(["arrival", "sequence"]))
def test_what_is_gone_is_told_once_and_all_else_comes(seed, loss, order):
    dice = random.Random(seed)
    stream = Stream(SESSIONS[0])
    receiver = Receiver(ReceiverOptions(order=order, from_start=True), 0.0, SESSIONS[:1], seed)
    world = World(receiver, [stream], Faults(loss, 0.1, 0.3), dice)
    live(world, dice, 4)
    stream.gone = dice.choice(stream.ends)  # retention has passed
    live(world, dice, 4)
    settle(world)
    lacking = set(stream.sent) - {n for _, n in keys(world)}
    ranges = [(lost.from_, lost.until) for lost in world.losses]
    assert set(keys(world).values()) <= {1}
    assert all(sum(a <= n < b for a, b in ranges) == 1 for n in lacking)
    assert all(a < b <= stream.gone for a, b in ranges)
    assert all(b <= c for (_, b), (c, _) in pairwise(ranges))
    told = [lost.missing for lost in world.losses]
    if None not in told:
        # Notifications may still arrive after they were reported as lost.
        assert sum(told) == len(lacking) + receiver.statistics.belated
    assert {lost.reason for lost in world.losses} <= {"gone"}
    check_bytes_and_order(world, order)


@given(seed=st.integers(0, 1 << 32), copies=SHARES, order=st.sampled_from(["arrival", "sequence"]))
def test_ten_percent_loss_in_every_direction_for_ever_costs_nothing(seed, copies, order):
    dice = random.Random(seed)
    stream = Stream(SESSIONS[0])
    receiver = Receiver(ReceiverOptions(order=order, from_start=True), 0.0, SESSIONS[:1], seed)
    world = World(receiver, [stream], Faults(0.1, copies, 0.01), dice)
    live(world, dice, 30)
    settle(world, loss=0.1)
    assert keys(world) == dict.fromkeys(((SESSIONS[0], n) for n in stream.sent), 1)
    check_bytes_and_order(world, order)


@given(seed=st.integers(0, 1 << 32), loss=SHARES, delay=DELAYS)
def test_without_a_service_a_loss_is_told_and_nothing_comes_twice(seed, loss, delay):
    dice = random.Random(seed)
    stream = Stream(SESSIONS[0])
    receiver = Receiver(ReceiverOptions(asks=False), 0.0, SESSIONS[:1], seed)
    world = World(receiver, [stream], Faults(loss, 0.3, delay), dice)
    live(world, dice, 12)
    world.faults.loss = 0.0
    for _ in range(2):  # the second one confirms the first
        for datagram in stream.datagrams(batch(stream, dice)):
            world.send(datagram)
    world.run(world.now + ENOUGH)
    assert world.requests == 0
    assert set(keys(world).values()) <= {1}
    assert receiver.sessions()[stream.session][:2] == (State.EVEN, stream.ends[-1])
    ranges = [(lost.from_, lost.until) for lost in world.losses]
    assert all(b <= c for (_, b), (c, _) in pairwise(ranges))
    assert {lost.reason for lost in world.losses} <= {"unanswered"}
    # After the first batch that arrived in part, missing notifications are in a reported range.
    delivered = {n for _, n in keys(world)}
    first = min([*delivered, *(a for a, _ in ranges)], default=0)
    lacking = {n for n in stream.sent if n > first} - delivered
    assert all(sum(a <= n < b for a, b in ranges) <= 1 for n in lacking)
