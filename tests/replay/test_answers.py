"""An answer holds what was owed, in order, within its limits, and its summary says so."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lossy_network import splitmix64

from stackcast.udfs.messages.summaries import GONE, Request, Summary
from stackcast.udfs.replay.answers import (
    MOST_DATAGRAMS,
    Cookies,
    Gone,
    PieceCache,
    RateLimiter,
    RequestAnswer,
    network_prefix,
    turns,
)
from stackcast.udfs.replay.notifications import Notifications

pytestmark = pytest.mark.unit

SESSION = b"SESSION001"
HOSTS = ("a", "b", "c")


def piece(from_: int, until: int, rows: list[tuple[int, int, tuple[str, ...]]]) -> Notifications:
    """rows: sequence number, messages, receivers; the content tells them."""
    groups = sorted({receivers for *_, receivers in rows})
    rows = sorted(rows)
    return Notifications(
        from_,
        until,
        None,
        np.array([sequence for sequence, *_ in rows], np.uint64),
        np.array([messages for _, messages, _ in rows], np.int32),
        np.array([groups.index(receivers) for *_, receivers in rows], np.int32),
        groups,
        pa.chunked_array([[content(*row[:2]) for row in rows]], pa.binary()),
    )


def content(sequence: int, messages: int) -> bytes:
    return b"%d:%d" % (sequence, messages)


@st.composite
def pieces(draw: st.DrawFn) -> list[Notifications | Gone]:
    """Pieces of ten offsets each, one behind the other."""
    made: list[Notifications | Gone] = []
    for number in range(draw(st.integers(1, 4))):
        from_ = 10 * number
        if draw(st.integers(0, 5)) == 0:
            made.append(Gone(from_, from_ + 10, "for a reason"))
            continue
        sets = st.sets(st.sampled_from(HOSTS), min_size=1).map(lambda s: tuple(sorted(s)))
        rows = draw(
            st.lists(
                st.tuples(
                    st.integers(from_ << 26, ((from_ + 10) << 26) - 1), st.integers(1, 5), sets
                ),
                max_size=8,
                unique_by=lambda row: row[0],
            )
        )
        made.append(piece(from_, from_ + 10, rows))
    return made


def owed(found: list[Notifications | Gone], host: str, sequence: int) -> list[tuple[int, int]]:
    """What is for a host from a number on, up to what is gone; row by row."""
    rows = []
    for each in found:
        if isinstance(each, Gone):
            if each.until << 26 > sequence:
                break
            continue
        for at in range(len(each)):
            receivers = each.receivers[int(each.group[at])]
            if host in receivers and each.sequence[at] >= sequence:
                rows.append((int(each.sequence[at]), int(each.messages[at])))
    return rows


@given(pieces(), st.sampled_from(HOSTS), st.integers(0, 45 << 26), st.integers(0, 20))
def test_answers_are_what_the_host_is_owed(found, host, sequence, count):
    answer = RequestAnswer(host, 0, Request(SESSION, sequence, count))
    while not answer.done:
        mine = [p for p in found if p.from_ <= answer.offset < p.until]
        answer.take(mine[0]) if mine else answer.end()
    summary = answer.summary()
    expected = owed(found, host, sequence)
    assert summary.from_ == sequence
    gone = next((p for p in found if p.from_ <= sequence >> 26 < p.until), None)
    if isinstance(gone, Gone):
        assert not answer.datagrams and answer.outcome == "gone"
        assert summary == Summary(SESSION, sequence, gone.until << 26, GONE, 0, 0)
        return
    number = len(answer.datagrams)
    assert answer.datagrams == [content(*row) for row in expected[:number]]
    assert number == 1 or sum(m for _, m in expected[:number]) <= count
    digest = sum(splitmix64(s + m) for s, m in expected[:number]) % 2**64
    last = expected[number - 1][0] if number else 0
    assert (summary.notifications, summary.last, summary.digest) == (number, last, digest)
    if number < len(expected):
        assert summary.until == expected[number][0]
        assert sum(m for _, m in expected[: number + 1]) > count
    else:
        ends = [p for p in found if p.until << 26 > sequence]
        stop = next((p.from_ for p in ends if isinstance(p, Gone)), found[-1].until)
        assert summary.until == max(sequence, stop << 26)
    assert (answer.outcome == "ahead") == (summary.until == sequence)


def test_no_answer_is_longer_than_a_receiver_counts_on():
    rows = [(n, 1, ("a",)) for n in range(MOST_DATAGRAMS + 10)]
    answer = RequestAnswer("a", 0, Request(SESSION, 0, 65_535))
    answer.take(piece(0, 10, rows))
    assert answer.done and len(answer.datagrams) == MOST_DATAGRAMS
    assert answer.summary().until == MOST_DATAGRAMS


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20), st.integers(1, 30)), max_size=12))
def test_kept_pieces_do_not_overlap_and_take_no_more_than_they_may(puts):
    cache = PieceCache(60)
    last: dict[int, Gone] = {}
    for from_, length, size in puts:
        new = Gone(from_, from_ + length, "", size)
        cache.put(0, new)
        last = {
            offset: kept
            for offset, kept in last.items()
            if kept.until <= new.from_ or new.until <= kept.from_
        } | dict.fromkeys(range(new.from_, new.until), new)
    kept = {id(p): p for o in range(80) if (p := cache.find(0, o)) is not None}
    assert len(kept) == len(cache)
    assert sum(p.size for p in kept.values()) <= 60
    for offset in range(80):
        found = cache.find(0, offset)
        assert found is None or found is last[offset]
    if puts:
        assert cache.find(0, puts[-1][0]) is last[puts[-1][0]]
    assert cache.find(1, 0) is None


def test_a_host_that_asks_too_often_waits_and_others_do_not():
    limiter = RateLimiter(rate=10, burst=3)
    assert [limiter.allows("a", 0.0) for _ in range(5)] == [True, True, True, False, False]
    assert limiter.allows("b", 0.0)
    assert not limiter.allows("a", 0.05)
    assert limiter.allows("a", 0.2)
    assert [limiter.allows("a", 99.0) for _ in range(4)] == [True, True, True, False]


def test_a_host_that_was_sent_much_waits_until_its_share_has_come_back():
    limiter = RateLimiter(rate=100, burst=1000)
    limiter.spend("h1", 0.0, 1500)
    assert limiter.left("h1", 0.0) == -500 and limiter.left("h2", 0.0) == 1000
    assert limiter.left("h1", 6.0) == 100
    assert limiter.left("h1", 60.0) == 1000


def test_a_cookie_proves_the_address_that_it_was_sent_to_and_for_a_while():
    cookies = Cookies(b"k" * 32, seconds=100.0)
    here = ("10.0.0.1", 4000)
    cookie = cookies.make(here, 50.0)
    assert cookies.proves(cookie, here, 50.0) and cookies.proves(cookie, here, 199.0)
    assert not cookies.proves(cookie, here, 200.0)
    for other in (("10.0.0.2", 4000), ("10.0.0.1", 4001)):
        assert not cookies.proves(cookie, other, 50.0)
    for wrong in (b"", cookie[:-1], bytes(16)):
        assert not cookies.proves(wrong, here, 50.0)
    assert not Cookies(b"l" * 32, seconds=100.0).proves(cookie, here, 50.0)


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 8))),
    st.sets(st.sampled_from("abcd")),
)
def test_each_host_has_its_turn_however_much_another_waits_for(waiting, busy):
    order = turns(waiting, busy)
    hosts = [waiting[place][0] for place in order]
    assert sorted(hosts) == sorted({host for host, _ in waiting} - busy)
    had = [waiting[place][1] for place in order]
    assert had == sorted(had)
    for place in order:
        host, computed = waiting[place]
        assert computed == min(number for name, number in waiting if name == host)


def test_addresses_of_one_network_share_a_budget_of_challenges_and_others_have_their_own():
    limiter = RateLimiter(rate=0, burst=2)
    asking = ["10.0.3.7", "10.0.3.8", "10.0.3.9", "10.0.4.7", "10.0.33.7"]
    assert [limiter.allows(network_prefix(address), 0.0) for address in asking] == [
        *(True, True, False),
        *(True, True),
    ]
    assert network_prefix("10.0.3.7") == "10.0.3.0/24"
