"""The ranges of a host's summaries follow each other for any batches, so that a host that loses a
datagram can request its notifications.

The oracle is the list of notifications for each host, by brute force over the batches.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.jobs.adapters.stream.summary_turns import SummaryTurns
from stackcast.udfs.delivery.receiver_summaries import ENOUGH
from stackcast.udfs.delivery.told import Told
from stackcast.udfs.messages.recovery.receiver import Receiver, ReceiverOptions
from stackcast.udfs.messages.reference import build_packet
from stackcast.udfs.messages.sequence import OFFSET_SHIFT
from stackcast.udfs.messages.summaries import Summary, digest

pytestmark = pytest.mark.unit

HOSTS = ("h1", "h2", "h3")
LIMIT = 1 << 64
SESSION = b"SESSION000"


class Step(NamedTuple):
    """A batch; one without records sends summaries to all hosts.

    Attributes:
        records: number of records.
        mine: numbers of the records for each host.
        everyone: the batch sends summaries to all hosts.
        again: the batch is interrupted and runs again, from the records of the batches before.
        forgotten: summaries that were sent without records are not recorded.
    """

    records: int
    mine: dict[str, frozenset[int]]
    everyone: bool
    again: bool
    forgotten: bool


def steps() -> st.SearchStrategy[list[Step]]:
    records = st.integers(0, 4)

    def step(count: int) -> st.SearchStrategy[Step]:
        numbers = st.frozensets(st.integers(0, count - 1)) if count else st.just(frozenset())
        mine = st.fixed_dictionaries({}, optional=dict.fromkeys(HOSTS, numbers))
        return st.builds(Step, st.just(count), mine, st.booleans(), st.booleans(), st.booleans())

    return st.lists(records.flatmap(step), min_size=1, max_size=12)


def told_to(series: Sequence[Step]) -> dict[str, list[tuple[int, Summary]]]:
    """By host, the summaries that it is sent, each with the number of its step."""
    sent: dict[str, list[tuple[int, Summary]]] = {host: [] for host in HOSTS}
    places = {host: place for place, host in enumerate(HOSTS)}
    told = recorded = Told.all(0)
    for number, step in enumerate(series):
        until = told.until + step.records
        everyone = step.everyone or not step.records
        owed = {}
        for host, *before in zip(HOSTS, *told.owes(places), strict=True):
            keys = [told.until + n << OFFSET_SHIFT for n in step.mine.get(host, ())]
            new = summary(0, 0, keys)
            owed[host] = (
                int(before[0]) + new.notifications,
                max(int(before[1]), new.last),
                (int(before[2]) + new.digest) % LIMIT,
            )
        due = [host for host in HOSTS if owed[host][0] >= ENOUGH]
        for _ in range(1 + step.again):
            for host in HOSTS if everyone else due:
                begin = int(told.begins(places)[places[host]])
                if step.records or begin < until:
                    span = begin << OFFSET_SHIFT, until << OFFSET_SHIFT
                    sent[host].append((number, Summary(SESSION, *span, *owed[host])))
        waiting = {host: owed[host] for host in HOSTS if 0 < owed[host][0] < ENOUGH}
        told = Told.all(until) if everyone else told.after(until, due, waiting)
        if step.records or not step.forgotten:
            recorded = Told.unpacked(json.loads(json.dumps(told.packed())))
        told = recorded
    return sent


def summary(from_: int, until: int, keys: Sequence[int]) -> Summary:
    sums = digest(np.array(keys, np.uint64), np.ones(len(keys), np.int64))
    return Summary(SESSION, from_, until, len(keys), max(keys, default=0), sums)


def keys_of(series: Sequence[Step], host: str) -> list[tuple[int, int]]:
    """Number of the step and key of each notification of a host."""
    found, begin = [], 0
    for number, step in enumerate(series):
        found += [(number, begin + n << OFFSET_SHIFT) for n in sorted(step.mine.get(host, ()))]
        begin += step.records
    return found


@examples(200)
@given(steps())
def test_the_ranges_of_each_host_leave_no_hole_and_say_what_it_was_sent(series: list[Step]):
    sent = told_to(series)
    for host in HOSTS:
        mine, at = keys_of(series, host), 0
        for _, told in sent[host]:
            assert told.from_ <= at
            at = max(at, told.until)
            keys = [key for _, key in mine if told.from_ <= key < told.until]
            assert told == summary(told.from_, told.until, keys)
        # It waits for word of a few at most.
        assert sum(key >= at for _, key in mine) < ENOUGH
    last = series[-1]
    if not last.records or last.everyone:
        assert all(at == series_end(series) for at in (reached(sent[host]) for host in HOSTS))


@examples(200)
@given(steps(), st.randoms(use_true_random=False), st.floats(0, 1))
def test_a_host_that_loses_anything_but_its_last_summary_asks_for_what_it_lacks(
    series: list[Step], lots: random.Random, loss: float
):
    series = [*series, Step(0, {}, True, False, False), Step(1, {}, True, False, False)]
    for host in HOSTS:
        mine = keys_of(series, host)
        receiver = Receiver(ReceiverOptions(from_start=True), 0.0, [SESSION], seed=1)
        now, asked, delivered = 0.0, set(), set()
        sent = told_to(series)[host]

        def settle(datagrams: list[bytes], answer: bool = False) -> None:
            out = receiver.receive(datagrams, now, answer)  # noqa: B023 - of this turn
            late = receiver.time(now)  # noqa: B023
            delivered.update(n.sequence for n in (*out.deliveries, *late.deliveries))  # noqa: B023
            asked.update(r.sequence for r in (*out.requests, *late.requests))  # noqa: B023

        for number in range(len(series)):
            now += 0.25
            settle(
                [
                    build_packet(SESSION, key, [b"x"])
                    for step, key in mine
                    if step == number and lots.random() >= loss
                ]
            )
            last = number == len(series) - 1
            settle([s.pack() for n, s in sent if n == number and (last or lots.random() >= loss)])
        missing = {key for _, key in mine} - delivered
        covered = receiver.sessions()[SESSION][1]
        assert all(covered <= key for key in missing)
        if covered < series_end(series):
            # It asks, and has all once it is answered.
            now += 1.0
            settle([])
            assert covered in asked
            end = series_end(series)
            settle([build_packet(SESSION, key, [b"x"]) for _, key in mine if key >= covered], True)
            settle([summary(covered, end, [k for _, k in mine if k >= covered]).pack()], True)
        assert delivered == {key for _, key in mine}
        assert receiver.sessions()[SESSION][1] == series_end(series)
        assert not receiver.statistics.unexpected and not receiver.statistics.disputed


def reached(sent: Sequence[tuple[int, Summary]]) -> int:
    return max((told.until for _, told in sent), default=0)


def series_end(series: Sequence[Step]) -> int:
    return sum(step.records for step in series) << OFFSET_SHIFT


def test_the_next_summary_of_a_host_begins_where_its_last_one_ended():
    places = {"h1": 0, "h2": 1, "h3": 2}
    told = Told.all(3).after(5, ["h1", "h2"], {})
    assert told.begins(places).tolist() == [5, 5, 3]
    told = told.after(9, ["h2"], {}).after(12, ["gone"], {})
    assert told.begins(places).tolist() == [5, 9, 3]
    # A plan may have fewer hosts, and others.
    assert told.begins({"new": 0, "h3": 1, "h2": 2}).tolist() == [3, 3, 9]
    assert Told.all(12).begins(places).tolist() == [12] * 3


@examples(100)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.frozensets(st.sampled_from(HOSTS)))),
    st.integers(0, 5),
)
def test_it_is_read_as_it_was_written(batches: list[tuple[int, frozenset[str]]], begin: int):
    told = Told.all(begin)
    for number, (records, hosts) in enumerate(batches):
        owed = {host: (1, LIMIT - 1 - number, number) for host in HOSTS if host not in hosts}
        told = told.after(told.until + records, hosts, owed)
    held = json.loads(json.dumps(told.packed()))
    again = Told.unpacked(held)
    places = {host: place for place, host in enumerate(("unknown", *HOSTS))}
    assert again.begins(places).tolist() == told.begins(places).tolist()
    assert again.owed == told.owed and [*again.owes(places)[1]] == [*told.owes(places)[1]]
    assert (again.until, again.since, again.whole) == (told.until, told.since, told.whole)
    # No host is in it twice, however many batches there were.
    assert sum(map(len, again.later.values())) <= len(HOSTS)


def test_all_are_told_every_so_often_with_a_batch_or_without():
    now = 0.0
    turns = SummaryTurns(2.0, lambda: now)
    found = []
    for _ in range(9):
        found.append(turns.next())
        now += 0.5
    assert found == [True, *[False] * 4, True, *[False] * 3]
    # Where the next one is not before a second has gone, this one does it.
    now -= 0.5
    assert (turns.next(0.5), turns.next(0.6), turns.next(0.6)) == (False, True, False)
    # A turn without a summary passes to the next batch that has one.
    turns.none_told()
    assert turns.next() and not turns.next()
    always = SummaryTurns(0.0, lambda: now)
    assert always.next() and always.next()

    flowing, still = Told.all(0), Told.all(5)
    assert not turns.waited({0: flowing, 1: still})
    still = still.after(7, ["h1"], {})
    for _ in range(3):
        # Other partitions send summaries in the meantime.
        flowing = Told.all(flowing.until + 1)
        assert not turns.waited({0: flowing, 1: still})
        now += 0.9
    assert turns.waited({0: flowing, 1: still})
    assert not turns.waited({0: flowing, 1: still})
    now += 10
    assert not turns.waited({0: Told.all(9), 1: Told.all(7)})
    assert not turns.waited({0: Told.all(9), 1: Told.all(7).after(8, [], {})})
