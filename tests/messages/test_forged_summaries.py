"""Forged summaries cost no notification, and hide no loss."""

from __future__ import annotations

import pytest
from lossy_network import notification, summary_bytes

from stackcast.udfs.messages.recovery.receiver import Receiver, ReceiverOptions, State

pytestmark = pytest.mark.unit

SESSION = b"8ZY63T0000"
M = (1 << 64) - 1


def at(offset: int) -> int:
    return offset << 26


def sent(*offsets: int) -> list[bytes]:
    return [notification(SESSION, at(offset), 1) for offset in offsets]


def summary(begin: int, until: int, gone: bool = False) -> bytes:
    """The summary of a stream that sends one message for each offset from 9 on."""
    all_ = {at(offset): 1 for offset in range(9, 100)}
    return summary_bytes(SESSION, at(begin), at(until), all_, gone)


def forged(begin: int, until: int = M) -> bytes:
    """A summary that announces an empty range."""
    return summary_bytes(SESSION, begin, until, {})


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("until", [M, at(12), at(11)])
def test_a_forged_summary_keeps_nothing_from_coming(asks: bool, until: int):
    it = Receiver(ReceiverOptions(asks=asks), 0.0)
    got = it.receive([*sent(9), summary(0, 10)], 1.0).deliveries
    got += it.receive([forged(at(10), until)], 1.1).deliveries
    for number, offset in enumerate((10, 11, 12, 13)):
        now = 2.0 + number
        step = it.receive([*sent(offset), summary(offset, offset + 1)], now)
        assert not step.losses and not it.time(now + 0.01).losses
        got += step.deliveries
    assert [n.sequence for n in got] == [at(n) for n in (9, 10, 11, 12, 13)]
    assert it.sessions()[SESSION][0] is State.EVEN
    assert it.statistics.late == 0
    assert it.statistics.suspicious == (until == M)
    assert it.statistics.disputed == (until < M)


def test_what_a_forged_summary_hides_is_asked_for_once_the_streams_own_speaks():
    it = Receiver(ReceiverOptions(), 0.0)
    it.receive([*sent(9), summary(0, 10), forged(at(10), at(12))], 1.0)
    # Of 10 and 11 one is lost, and the other comes after the forged summary said: none.
    it.receive([sent(11)[0], summary_bytes(SESSION, at(10), at(12), {at(10): 1, at(11): 1})], 1.1)
    assert it.sessions()[SESSION][0] is State.BEHIND
    (asked,) = it.time(2.0).requests
    assert asked.sequence == at(10)
    answer = [*sent(10, 11), summary_bytes(SESSION, at(10), at(12), {at(10): 1, at(11): 1})]
    assert [n.sequence for n in it.receive(answer, 2.1, answer=True).deliveries] == [at(10)]
    assert it.sessions()[SESSION][:2] == (State.EVEN, at(12))


def test_a_lost_notification_that_a_forged_summary_hides_is_told_where_nobody_can_be_asked():
    it = Receiver(ReceiverOptions(asks=False, silence=5.0), 0.0)
    it.receive([*sent(9), summary(0, 10), forged(at(10), at(12))], 1.0)
    it.receive([summary_bytes(SESSION, at(10), at(12), {at(10): 1, at(11): 1})], 1.1)
    (loss,) = it.time(10.0).losses
    assert (loss.from_, loss.until, loss.missing) == (at(10), at(12), 2)


def test_only_the_service_says_that_something_is_gone():
    it = Receiver(ReceiverOptions(), 0.0)
    it.receive([*sent(9), summary(0, 10)], 1.0)
    assert not it.receive([summary(10, 20, gone=True)], 1.1).losses
    assert it.statistics.suspicious == 1
    assert it.sessions()[SESSION][:2] == (State.EVEN, at(10))


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("order", ["arrival", "sequence"])
def test_a_beginning_that_was_forged_is_withdrawn_when_the_stream_continues_below_it(asks, order):
    it = Receiver(ReceiverOptions(asks=asks, order=order), 0.0)
    it.receive([forged(at(1000), at(1001))], 1.0)
    delivered = []
    for offset in range(10, 40):
        now = 1.0 + offset
        for datagram in [*sent(offset), summary(offset, offset + 1)]:
            delivered += it.receive([datagram], now).deliveries
            assert not it.time(now + 0.01).losses
    assert [n.sequence for n in delivered] == [at(n) for n in range(10, 40)]
    assert it.sessions()[SESSION][1] == at(40)


def test_what_the_service_confirmed_nobody_disputes():
    it = Receiver(ReceiverOptions(from_start=True), 0.0, [SESSION])
    it.time(0.0)
    it.receive(sent(6), 0.05)
    it.receive([*sent(1, 2), summary_bytes(SESSION, 0, at(5), {at(1): 1, at(2): 1})], 0.1, True)
    it.receive([forged(0, at(5)), *sent(3)], 0.2)
    assert it.sessions()[SESSION][1] == at(5)
    assert (it.statistics.disputed, it.statistics.late) == (0, 1)


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("begin", [1 << 37, 12])
def test_a_summary_far_ahead_is_forgotten_when_three_later_ones_end_below_it(asks, begin):
    it = Receiver(ReceiverOptions(asks=asks, order="sequence"), 0.0)
    delivered = it.receive([*sent(9), summary(0, 10)], 1.0).deliveries
    invented = summary_bytes(SESSION, at(begin), at(begin + 90), {at(begin + 1): 3})
    assert not it.receive([invented], 2.0).losses
    for number, offset in enumerate(range(10, 20)):
        # Nothing confirms it, so nothing is lost, however long that takes.
        now = 8.0 + 4 * number
        for datagram in [*sent(offset), summary(offset, offset + 1)]:
            assert not it.time(now).losses
            delivered += it.receive([datagram], now).deliveries
            assert it.sessions()[SESSION][2] == at(begin + 90) or number >= 2
    assert not it.time(now + 1).losses
    assert [n.sequence for n in delivered] == [at(n) for n in range(9, 20)]
    assert it.sessions()[SESSION] == (State.EVEN, at(20), at(20))
    assert it.statistics.suspicious == 1


def test_a_range_that_is_gone_is_reported_when_the_answer_to_a_second_request_says_so_too():
    it = Receiver(ReceiverOptions(from_start=True), 0.0, [SESSION])
    assert len(it.time(0.0).requests) == 1
    gone = summary_bytes(SESSION, 0, at(20), {}, gone=True)
    out = it.receive([gone, gone], 0.1, answer=True)
    assert not out.losses
    now = it.due()
    assert [asked.sequence for asked in it.time(now).requests] == [0]
    (loss,) = it.receive([gone], now + 0.1, answer=True).losses
    assert (loss.from_, loss.until, loss.reason) == (0, at(20), "gone")


def test_an_answer_alone_discards_no_notification_that_waits():
    it = Receiver(ReceiverOptions(order="sequence"), 0.0)
    it.receive([*sent(9), summary(0, 10), *sent(10, 11)], 1.0)
    nothing = summary_bytes(SESSION, at(10), at(13), {})
    it.time(it.due())
    out = it.receive([nothing], it.due() - 0.1, answer=True)
    assert not out.deliveries and it.statistics.unexpected == 0
    out = it.receive([*sent(12), summary(10, 13)], it.due() - 0.1)
    assert [n.sequence for n in out.deliveries] == [at(10), at(11), at(12)]


def test_a_single_answer_overrules_no_summary_of_the_stream():
    it = Receiver(ReceiverOptions(), 0.0)
    it.receive([*sent(9), summary(0, 10), *sent(11), summary(10, 12), *sent(15)], 1.0)
    assert len(it.time(it.due()).requests) == 1
    without_10 = summary_bytes(SESSION, at(10), at(12), {at(11): 1})
    it.receive([without_10], it.due() - 0.1, answer=True)
    assert len(it.time(it.due()).requests) == 1
    answer = [*sent(10, 11), summary(10, 12)]
    (delivered,) = it.receive(answer, it.due() - 0.1, answer=True).deliveries
    assert delivered.sequence == at(10)
    assert it.sessions()[SESSION] == (State.EVEN, at(12), at(12))


def test_the_service_overrules_a_forged_summary_by_saying_so_twice():
    it = Receiver(ReceiverOptions(), 0.0)
    invented = summary_bytes(SESSION, at(10), at(12), {at(10): 1, at(11): 1})
    it.receive([*sent(9), summary(0, 10), *sent(11), invented], 1.0)
    for _ in range(2):
        assert it.sessions()[SESSION][0] is State.BEHIND
        it.time(it.due())
        without_10 = summary_bytes(SESSION, at(10), at(12), {at(11): 1})
        it.receive([*sent(11), without_10], it.due() - 0.1, answer=True)
    assert it.sessions()[SESSION] == (State.EVEN, at(12), at(12))


def test_answers_that_nobody_asked_for_begin_no_session():
    it = Receiver(ReceiverOptions(), 0.0, [SESSION])
    it.receive([forged(at(1000), at(1001))], 1.0, answer=True)
    out = it.receive([*sent(10), summary(10, 11)], 2.0)
    assert [n.sequence for n in out.deliveries] == [at(10)]
    assert it.sessions()[SESSION] == (State.EVEN, at(11), at(11))


def test_one_forged_notification_far_ahead_announces_nothing():
    it = Receiver(ReceiverOptions(asks=False, order="sequence"), 0.0)
    it.receive([*sent(9), summary(0, 10), *sent(1 << 37)], 1.0)
    out = it.receive([forged(at(10), at(11))], 1.1)
    out.deliveries += it.receive([*sent(10), summary(10, 11)], 1.2).deliveries
    assert [n.sequence for n in out.deliveries] == [at(10)]
    assert it.sessions()[SESSION] == (State.EVEN, at(11), at(11))
    assert not it.time(100.0).losses
