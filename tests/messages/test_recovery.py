"""A receiver step by step: each state with each input, the times of requests, and reports."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lossy_network import notification, summary_bytes

from stackcast.udfs.messages.recovery.receiver import Loss, Output, Receiver, ReceiverOptions, State
from stackcast.udfs.messages.recovery.session import TRANSITIONS, Trigger
from stackcast.udfs.messages.reference import build_packet
from stackcast.udfs.messages.summaries import Request

pytestmark = pytest.mark.unit

S = b"8ZY63T0000"
OTHER = b"8ZY63T0001"


def at(offset: int, index: int = 0) -> int:
    return offset << 26 | index << 13


#: One notification of every offset, with as many messages as its last digit.
SENT = {at(offset): offset % 10 for offset in range(101, 200) if offset % 10}


def sent(*offsets: int) -> list[bytes]:
    return [notification(S, at(offset), SENT[at(offset)]) for offset in offsets]


def summary(begin: int, until: int, gone: bool = False) -> bytes:
    return summary_bytes(S, at(begin), at(until), SENT, gone)


def receiver(state: State, **options) -> Receiver:
    """In that state at time 100: complete up to offset 101, and announced up to 105."""
    it = Receiver(ReceiverOptions(**options), 0.0, [S], seed=1)
    if state is not State.UNHEARD:
        it.receive([summary(101, 101)], 99.0)
    if state in (State.BEHIND, State.ASKING):
        it.receive([summary(101, 105)], 99.99)
    if state is State.ASKING:
        assert it.time(100.0 + 0.05).requests == [Request(S, at(101), 65535)]
    assert it.sessions()[S][0] is state
    return it


Step = Callable[[Receiver], Output]


def stream(*datagrams: bytes, now: float = 100.06) -> Step:
    def step(it: Receiver) -> Output:
        out = it.receive(datagrams, now)
        out.requests += it.time(now).requests
        return out

    return step


def ended(*datagrams: bytes) -> Step:
    def step(it: Receiver) -> Output:
        out = it.receive(datagrams, 100.0)
        assert not it.end(100.0).requests
        return out

    return step


def service(*datagrams: bytes, now: float = 100.06) -> Step:
    return lambda it: it.receive(datagrams, now, answer=True)


#: Input, the number of deliveries that follow, and the state after it by the state before.
U, E, B, A = State.UNHEARD, State.EVEN, State.BEHIND, State.ASKING
INPUTS: dict[str, tuple[Step, int, dict[State, State]]] = {
    "a notification": (stream(*sent(103)), 1, {U: U, E: E, B: A, A: A}),
    "its copy": (stream(*sent(103), *sent(103)), 1, {U: U, E: E, B: A, A: A}),
    "one that is cut": (stream(sent(103)[0][:-1]), 0, {U: U, E: E, B: A, A: A}),
    "one with a tail": (stream(sent(103)[0] + b"x"), 0, {U: U, E: E, B: A, A: A}),
    "a few bytes": (stream(b"x" * 19), 0, {U: U, E: E, B: A, A: A}),
    "a heartbeat": (stream(build_packet(S, at(300), [])), 0, {U: U, E: E, B: A, A: A}),
    "the end": (stream(S + bytes(8) + b"\xff\xff"), 0, {U: U, E: E, B: A, A: A}),
    "another session": (stream(build_packet(OTHER, 1, [b"m"])), 0, {U: U, E: E, B: A, A: A}),
    "all of the range": (stream(*sent(101, 102, 103, 104)), 4, {U: U, E: E, B: E, A: A}),
    "all, then its summary": (
        stream(*sent(101, 102, 103, 104), summary(101, 105)),
        4,
        {U: E, E: E, B: E, A: E},
    ),
    "its summary, then all": (
        stream(summary(101, 105), *sent(101, 102, 103, 104)),
        4,
        {U: B, E: B, B: E, A: A},
    ),
    "its summary, then all, and no more": (
        ended(summary(101, 105), *sent(101, 102, 103, 104)),
        4,
        {U: E, E: E, B: E, A: E},
    ),
    "no more": (ended(), 0, {U: U, E: E, B: B, A: A}),
    "a summary of nothing": (stream(summary(101, 101)), 0, {U: E, E: E, B: A, A: A}),
    "a summary of missing notifications": (stream(summary(101, 103)), 0, {U: B, E: B, B: A, A: A}),
    "a summary beyond a gap": (stream(summary(105, 107)), 0, {U: B, E: B, B: A, A: A}),
    "a summary from before": (stream(summary(100, 101)), 0, {U: E, E: E, B: A, A: A}),
    "a summary across": (stream(summary(100, 106)), 0, {U: B, E: B, B: A, A: A}),
    "an answer": (
        service(*sent(101, 102, 103, 104), summary(101, 105)),
        4,
        {U: U, E: E, B: E, A: E},
    ),
    "an answer in part": (service(*sent(101, 102), summary(101, 103)), 2, {U: U, E: E, B: A, A: A}),
    "an answer of nothing": (service(summary(101, 101)), 0, {U: U, E: E, B: A, A: B}),
    "an answer that is lost but for its end": (
        service(summary(101, 105)),
        0,
        {U: U, E: E, B: A, A: B},
    ),
    "an answer that all is gone": (service(summary(101, 105, True)), 0, {U: U, E: E, B: A, A: B}),
    "time": (lambda it: it.time(1000.0), 0, {U: U, E: A, B: A, A: A}),
    "no time": (lambda it: it.time(99.99), 0, {U: U, E: E, B: B, A: A}),
}


@pytest.mark.parametrize("state", State, ids=lambda s: s.value)
@pytest.mark.parametrize("name", INPUTS)
def test_every_state_with_every_input(state: State, name: str):
    step, deliveries, after = INPUTS[name]
    it = receiver(state)
    out = step(it)
    found, covered, known = it.sessions()[S]
    assert found is after[state]
    assert len(out.deliveries) == deliveries
    assert covered <= known
    # A request is sent exactly where the state becomes ASKING, or stays so because time was up.
    asked = found is State.ASKING and (state is not State.ASKING or bool(out.requests))
    assert len(out.requests) == asked
    assert all(request.sequence == covered for request in out.requests)
    assert (it.due() > 100.06) or name in ("no time", "no more")


def test_the_table_knows_every_state_and_all_that_can_happen():
    assert set(TRANSITIONS) == {(state, what) for state in State for what in Trigger}
    for (state, what), then in TRANSITIONS.items():
        # A session is even only if it is level, and sends no request before it is time.
        assert (then is State.EVEN) == (what is Trigger.LEVEL)
        assert (then is State.UNHEARD) == (what is Trigger.WITHDRAWN)
        assert then is not State.ASKING or what is Trigger.DUE or state is State.ASKING


def test_who_hears_a_gap_waits_a_little_for_what_is_on_its_way():
    it = receiver(State.EVEN, patience=0.02)
    it.receive([*sent(101, 103, 104), summary(101, 105)], 100.0)
    assert 100.02 <= it.due() <= 100.04
    assert not it.receive(sent(102), 100.01).requests
    assert not it.time(100.04).requests
    assert it.sessions()[S] == (State.EVEN, at(105), at(105))
    assert it.statistics.requests == it.statistics.repaired == 0


def test_a_request_without_an_answer_is_sent_again_after_twice_the_time_up_to_the_longest():
    it = receiver(State.ASKING, timeout=0.25, longest=2.0)
    now, waits = it.due(), []
    for _ in range(6):
        [request] = it.time(now).requests
        assert request.sequence == at(101)
        waits.append(it.due() - now)
        now = it.due()
    for wait, expected in zip(waits, [0.5, 1, 2, 2, 2, 2], strict=True):
        assert expected <= wait <= 1.25 * expected


def test_who_hears_half_of_an_answer_asks_for_less_at_a_time_and_then_for_more():
    it = receiver(State.ASKING)
    counts, now = [], 100.1
    for _ in range(14):
        out = it.receive([summary(101, 105)], now, answer=True)
        now = it.due()
        counts += [r.count for r in out.requests + it.time(now).requests]
    assert counts[:3] == [32767, 16383, 8191] and counts[-1] == 64
    it.receive([summary(109, 119)], now)
    out = it.receive([*sent(101, 102), summary(101, 103)], now, answer=True)
    assert [(r.sequence, r.count) for r in out.requests] == [(at(103), 128)]


def test_an_answer_that_is_still_coming_in_is_not_late():
    it = receiver(State.ASKING, timeout=0.25)
    late = it.due() - 0.01
    it.receive(sent(101), late, answer=True)
    assert it.due() == late + 0.25


def test_not_yet_in_the_ledger_is_asked_again_later_and_a_summary_of_the_stream_counts_meanwhile():
    it = receiver(State.ASKING, timeout=0.25)
    assert not it.receive([summary(101, 101)], 100.1, answer=True).requests
    assert it.due() >= 100.35
    it.receive([*sent(101, 102, 103, 104), summary(101, 105)], 100.2)
    assert it.sessions()[S][0] is State.EVEN


def test_silence_is_asked_about_less_and_less_often():
    it = receiver(State.EVEN, silence=5.0, quietest=20.0)
    now, waits = 99.0, []
    for _ in range(5):
        waits.append(it.due() - now)
        now = it.due()
        assert [r.sequence for r in it.time(now).requests] == [at(101)]
        assert not it.receive([summary(101, 101)], now, answer=True).requests
    for wait, expected in zip(waits, [5, 10, 20, 20, 20], strict=True):
        assert expected <= wait <= 1.25 * expected


def test_what_the_last_summary_would_have_said_is_asked_for_after_silence():
    it = receiver(State.EVEN)
    it.receive(sent(102), 100.0)
    [request] = it.time(it.due()).requests
    assert request.sequence == at(101)
    answer = [*sent(101, 102), summary(101, 103)]
    out = it.receive(answer, 110.0, answer=True)
    assert [d.sequence for d in out.deliveries] == [at(101)]
    # An answer may be shortened: only an empty one says that nothing follows.
    assert [r.sequence for r in out.requests] == [at(103)]
    assert not it.receive([summary(103, 103)], 110.1, answer=True).requests
    assert it.sessions()[S] == (State.EVEN, at(103), at(103))


def test_notifications_without_any_summary_begin_where_they_are():
    it = receiver(State.UNHEARD, silence=5.0)
    assert [d.sequence for d in it.receive(sent(103, 102), 100.0).deliveries] == [at(103), at(102)]
    assert [r.sequence for r in it.time(200.0).requests] == [at(102)]


def test_in_order_of_sequence_nothing_is_delivered_before_all_before_it_is():
    it = receiver(State.EVEN, order="sequence")
    assert not it.receive([*sent(104, 103, 101), summary(101, 105)], 100.0).deliveries
    out = it.time(it.due())
    assert not out.deliveries and len(out.requests) == 1
    out = it.receive([*sent(102, 101), summary(101, 105)], 100.2, answer=True)
    assert [d.sequence for d in out.deliveries] == [at(n) for n in (101, 102, 103, 104)]
    assert it.statistics.repaired == 1 and it.statistics.duplicates == 1


def test_what_is_gone_is_reported_once_with_what_lacks():
    it = receiver(State.EVEN, order="sequence")
    it.receive([*sent(102), summary(101, 105), summary(105, 107)], 100.0)
    it.time(it.due())
    assert not it.receive([summary(101, 105, True)], 100.2, answer=True).losses
    it.time(it.due())
    out = it.receive([summary(101, 105, True)], 101.0, answer=True)
    assert out.losses == [Loss(S, at(101), at(105), 3, "gone")]
    assert [d.sequence for d in out.deliveries] == [at(102)]
    assert [r.sequence for r in out.requests] == [at(105)]
    assert not it.receive([summary(101, 105, True)], 101.1, answer=True).losses
    assert (it.statistics.losses, it.statistics.missing) == (1, 3)


def test_of_a_gone_range_that_nobody_has_counted_the_number_is_unknown():
    it = receiver(State.EVEN)
    it.receive([summary(103, 105)], 100.0)
    for _ in range(2):
        it.time(it.due())
        out = it.receive([summary(101, 104, True)], it.due() - 0.01, answer=True)
    assert out.losses == [Loss(S, at(101), at(104), None, "gone")]


@pytest.mark.parametrize("order", ["arrival", "sequence"])
def test_what_the_service_did_not_send_is_not_this_hosts(order: str):
    it = receiver(State.EVEN, order=order)
    alien = notification(S, at(102, 7), 1)
    first = it.receive([alien, *sent(101, 103, 104), summary(101, 105)], 100.0)
    it.time(it.due())
    answer = [*sent(101, 102, 103, 104), summary(101, 105)]
    out = it.receive(answer, 100.2, answer=True)
    assert it.statistics.unexpected == 1
    assert it.sessions()[S] == (State.EVEN, at(105), at(105))
    found = [d.sequence for d in first.deliveries + out.deliveries]
    if order == "sequence":
        assert found == [at(n) for n in (101, 102, 103, 104)]
    else:
        assert sorted(found) == sorted([at(102, 7), *(at(n) for n in (101, 102, 103, 104))])


def test_what_finds_no_room_is_left_to_the_service():
    it = receiver(State.EVEN, limit=3)
    out = it.receive(sent(101, 102, 103, 104, 105), 100.0)
    assert [d.sequence for d in out.deliveries] == [at(101), at(102), at(103)]
    assert it.statistics.overflowed == 2
    [request] = it.time(it.due()).requests
    assert request.sequence == at(101)
    out = it.receive([*sent(*range(101, 106)), summary(101, 106)], 100.2, answer=True)
    assert [d.sequence for d in out.deliveries] == [at(104), at(105)]
    assert it.sessions()[S] == (State.EVEN, at(106), at(106))


@pytest.mark.integration
def test_however_much_comes_in_no_more_than_the_limit_is_kept():
    for asks in (True, False):
        it = receiver(State.EVEN, limit=10, asks=asks)
        session = it._sessions[S]
        for n in range(4200):
            it.receive([notification(S, at(200 + n), 1), summary(1000 + n, 1001 + n)], 100.0)
            assert len(session.kept) <= 10
        assert len(session._summaries) <= 4096


@pytest.mark.parametrize("confirmation", [sent(105), [summary(105, 106)]], ids=["data", "summary"])
def test_without_a_service_a_confirmed_gap_is_reported_after_a_little_patience(confirmation):
    it = receiver(State.EVEN, asks=False)
    it.receive([*sent(101, 103), summary(101, 105)], 100.0)
    assert not it.time(104.0).losses
    assert not it.receive(confirmation, 104.0).losses
    assert 104.02 <= it.due() <= 104.04
    out = it.time(it.due())
    assert out.losses == [Loss(S, at(101), at(105), 2, "unanswered")] and not out.requests


def test_of_a_gap_without_a_summary_the_number_that_is_missing_is_unknown():
    it = receiver(State.EVEN, asks=False)
    it.receive([*sent(106), summary(106, 107)], 200.0)
    assert it.due() <= 200.04
    assert it.time(it.due()).losses == [Loss(S, at(101), at(106), None, "unanswered")]
    assert it.sessions()[S] == (State.EVEN, at(107), at(107))
    assert it.due() == float("inf")


def test_when_a_stream_ends_with_a_gap_what_has_arrived_is_delivered_after_silence():
    it = receiver(State.EVEN, asks=False, order="sequence", silence=5.0)
    it.receive([*sent(101, 103, 104), summary(101, 105)], 100.0)
    assert not it.time(104.9).deliveries
    out = it.time(105.0)
    assert out.losses == [Loss(S, at(101), at(104) + 1, 1, "unanswered")]
    assert [d.sequence for d in out.deliveries] == [at(101), at(103), at(104)]
    assert it.sessions()[S] == (State.BEHIND, at(104) + 1, at(105))


def test_patience_begins_when_a_gap_is_confirmed_so_what_is_on_its_way_still_counts():
    it = receiver(State.EVEN, asks=False, order="sequence", patience=0.02)
    it.receive([summary(105, 107)], 100.0)
    it.time(100.05)
    it.receive(sent(105), 103.0)
    out = it.receive([*sent(101, 102, 103, 104), summary(101, 105), *sent(106)], 103.01)
    out.deliveries += it.time(104.0).deliveries
    assert [d.sequence for d in out.deliveries] == [at(n) for n in range(101, 107)]
    assert it.statistics.losses == 0


def test_who_gives_up_says_what_is_lost_and_goes_on():
    it = receiver(State.EVEN, give_up=3.0)
    it.receive([*sent(101, 103), summary(101, 105), summary(105, 105)], 100.0)
    losses, now = [], 100.0
    while not losses:
        now = it.due()
        losses = it.time(now).losses
    assert 103.0 <= now < 106.0
    assert losses == [Loss(S, at(101), at(105), 2, "unanswered")]
    assert it.sessions()[S] == (State.EVEN, at(105), at(105))


def test_sessions_that_are_named_are_asked_for_from_the_start_even_if_nothing_is_heard():
    it = Receiver(ReceiverOptions(from_start=True), 0.0, [S, OTHER], seed=1)
    out = it.time(0.0)
    assert sorted(r.session for r in out.requests) == [S, OTHER]
    assert {r.sequence for r in out.requests} == {0}


def test_where_none_are_named_a_flood_of_sessions_is_bounded():
    it = Receiver(ReceiverOptions(), 0.0, seed=1)
    for n in range(5000):
        it.receive([build_packet(b"%010d" % n, 1, [b"m"])], 0.0)
    assert len(it.sessions()) == 4096
    assert it.statistics.foreign == 904


def test_a_summary_with_another_last_number_is_not_agreed_with():
    it = receiver(State.EVEN)
    wrong = bytearray(summary(101, 105))
    wrong[36:44] = at(103).to_bytes(8)
    it.receive([*sent(101, 102, 103, 104), bytes(wrong)], 100.0)
    assert it.sessions()[S] == (State.BEHIND, at(101), at(105))


def test_what_is_not_this_hosts_is_known_again_after_a_first_repair():
    it = receiver(State.EVEN)
    for begin, now in ((101, 100.0), (105, 200.0)):
        until = begin + 4
        mine = sent(*range(begin, until))
        it.receive([notification(S, at(begin, 7), 1), summary(begin, until)], now)
        it.time(it.due())
        it.receive([*mine, summary(begin, until)], now + 1, answer=True)
        assert it.sessions()[S] == (State.EVEN, at(until), at(until))
    assert it.statistics.unexpected == 2


def test_a_stream_that_speaks_again_is_asked_about_as_soon_as_at_first():
    it = receiver(State.EVEN, silence=5.0)
    for _ in range(3):
        now = it.due()
        it.time(now)
        it.receive([summary(101, 101)], now, answer=True)
    it.receive([*sent(101, 102), summary(101, 103)], now + 1)
    assert it.due() <= now + 1 + 6.25


def test_who_gives_up_counts_from_the_gap_and_not_from_the_last_summary():
    it = receiver(State.EVEN, give_up=3.0, silence=1e6, quietest=1e6)
    it.receive([summary(101, 105)], 5000.0)
    out = it.time(it.due())
    assert not out.losses and len(out.requests) == 1


def test_an_answer_that_brought_some_is_followed_up_at_once_and_one_that_brought_none_is_not():
    for answer, soon in ((sent(101), True), ([], False)):
        it = receiver(State.ASKING, patience=0.02, timeout=0.25)
        it.receive([*answer, summary(101, 105)], 100.1, answer=True)
        assert it.sessions()[S][0] is State.BEHIND
        assert (it.due() <= 100.14) == soon
        assert it.due() >= (100.12 if soon else 100.35)


def test_a_stream_that_repeats_a_batch_is_not_silent():
    it = receiver(State.EVEN, silence=5.0)
    it.receive([summary(99, 101)], 103.0)
    assert it.due() >= 108.0


@pytest.mark.parametrize("order", ["arrival", "sequence"])
def test_a_range_that_begins_before_the_last_one_ended_is_taken(order):
    """A stream in real time that crashed sends ranges that overlap earlier ones."""
    it = receiver(State.EVEN, order=order)
    it.receive([*sent(101, 102, 103), summary(101, 104)], 100.0)
    out = it.receive([*sent(102, 103, 104, 105), summary(102, 106)], 100.1)
    assert it.sessions()[S] == (State.EVEN, at(106), at(106))
    assert [d.sequence for d in out.deliveries] == [at(104), at(105)]
    assert not out.requests and not out.losses


def test_what_lacks_of_an_overlapping_range_is_asked_for_from_where_all_is_here():
    it = receiver(State.EVEN)
    it.receive([*sent(101, 102, 103), summary(101, 104)], 100.0)
    out = it.receive([*sent(105), summary(102, 106)], 100.1)
    assert it.sessions()[S][:2] == (State.BEHIND, at(104))
    out.requests += it.time(100.3).requests
    assert out.requests == [Request(S, at(104), 65535)]
    it.receive(sent(104), 100.4)
    it.time(101.0)
    assert it.sessions()[S][:2] == (State.EVEN, at(106))


def test_a_range_over_what_was_lost_says_nothing():
    it = receiver(State.EVEN, asks=False)
    out = it.receive([*sent(102, 103), summary(101, 104), *sent(104)], 100.0)
    out.losses += it.time(101.0).losses
    assert [loss.missing for loss in out.losses] == [1]
    out = it.receive([*sent(105), summary(101, 106), *sent(106)], 102.0)
    out.losses += it.time(103.0).losses
    # It does not show whether the rest is complete, and nothing is held back for it.
    assert it.sessions()[S][1] == at(106)
    assert [(loss.from_, loss.until, loss.missing) for loss in out.losses] == [
        (at(104), at(106), None)
    ]
