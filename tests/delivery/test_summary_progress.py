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
from virtual_time import VirtualTime

from stackcast.jobs.adapters.stream.summary_schedule import SummarySchedule
from stackcast.udfs.delivery.receiver_summaries import ENOUGH
from stackcast.udfs.delivery.summary_progress import SummaryProgress
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


def sent_to(series: Sequence[Step]) -> dict[str, list[tuple[int, Summary]]]:
    """By host, the summaries that it is sent, each with the number of its step."""
    sent: dict[str, list[tuple[int, Summary]]] = {host: [] for host in HOSTS}
    numbers = {host: number for number, host in enumerate(HOSTS)}
    progress = recorded = SummaryProgress.complete(0)
    for number, step in enumerate(series):
        until = progress.until + step.records
        everyone = step.everyone or not step.records
        tallies = {}
        for host, *before in zip(HOSTS, *progress.tallies(numbers), strict=True):
            keys = [progress.until + n << OFFSET_SHIFT for n in step.mine.get(host, ())]
            new = summary(0, 0, keys)
            tallies[host] = (
                int(before[0]) + new.notifications,
                max(int(before[1]), new.last),
                (int(before[2]) + new.digest) % LIMIT,
            )
        due = [host for host in HOSTS if tallies[host][0] >= ENOUGH]
        for _ in range(1 + step.again):
            for host in HOSTS if everyone else due:
                begin = int(progress.starts(numbers)[numbers[host]])
                if step.records or begin < until:
                    span = begin << OFFSET_SHIFT, until << OFFSET_SHIFT
                    sent[host].append((number, Summary(SESSION, *span, *tallies[host])))
        pending = {host: tallies[host] for host in HOSTS if 0 < tallies[host][0] < ENOUGH}
        if everyone:
            progress = SummaryProgress.complete(until)
        else:
            progress = progress.advanced(until, due, pending)
        if step.records or not step.forgotten:
            recorded = SummaryProgress.unpacked(json.loads(json.dumps(progress.packed())))
        progress = recorded
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
def test_the_ranges_of_each_host_leave_no_gap_and_contain_what_it_was_sent(series: list[Step]):
    sent = sent_to(series)
    for host in HOSTS:
        mine, covered = keys_of(series, host), 0
        for _, announced in sent[host]:
            assert announced.from_ <= covered
            covered = max(covered, announced.until)
            keys = [key for _, key in mine if announced.from_ <= key < announced.until]
            assert announced == summary(announced.from_, announced.until, keys)
        # Only a few notifications of a host are pending.
        assert sum(key >= covered for _, key in mine) < ENOUGH
    last = series[-1]
    if not last.records or last.everyone:
        end = series_end(series)
        assert all(reached(sent[host]) == end for host in HOSTS)


@examples(200)
@given(steps(), st.randoms(use_true_random=False), st.floats(0, 1))
def test_a_host_that_loses_anything_but_its_last_summary_requests_what_it_lacks(
    series: list[Step], lots: random.Random, loss: float
):
    series = [*series, Step(0, {}, True, False, False), Step(1, {}, True, False, False)]
    for host in HOSTS:
        mine = keys_of(series, host)
        receiver = Receiver(ReceiverOptions(from_start=True), 0.0, [SESSION], seed=1)
        now, asked, delivered = 0.0, set(), set()
        sent = sent_to(series)[host]

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
    return max((announced.until for _, announced in sent), default=0)


def series_end(series: Sequence[Step]) -> int:
    return sum(step.records for step in series) << OFFSET_SHIFT


def test_the_next_summary_of_a_host_begins_where_its_last_one_ended():
    numbers = {"h1": 0, "h2": 1, "h3": 2}
    progress = SummaryProgress.complete(3).advanced(5, ["h1", "h2"], {})
    assert progress.starts(numbers).tolist() == [5, 5, 3]
    progress = progress.advanced(9, ["h2"], {}).advanced(12, ["gone"], {})
    assert progress.starts(numbers).tolist() == [5, 9, 3]
    # A plan may have fewer hosts, and others.
    assert progress.starts({"new": 0, "h3": 1, "h2": 2}).tolist() == [3, 3, 9]
    assert SummaryProgress.complete(12).starts(numbers).tolist() == [12] * 3


@examples(100)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.frozensets(st.sampled_from(HOSTS)))),
    st.integers(0, 5),
)
def test_progress_is_read_as_it_was_written(batches: list[tuple[int, frozenset[str]]], begin: int):
    progress = SummaryProgress.complete(begin)
    for number, (records, hosts) in enumerate(batches):
        pending = {host: (1, LIMIT - 1 - number, number) for host in HOSTS if host not in hosts}
        progress = progress.advanced(progress.until + records, hosts, pending)
    again = SummaryProgress.unpacked(json.loads(json.dumps(progress.packed())))
    numbers = {host: number for number, host in enumerate(("unknown", *HOSTS))}
    assert again.starts(numbers).tolist() == progress.starts(numbers).tolist()
    assert again.pending == progress.pending
    assert [*again.tallies(numbers)[1]] == [*progress.tallies(numbers)[1]]
    assert (again.until, again.start) == (progress.until, progress.start)
    assert again.is_complete == progress.is_complete
    # It contains no host twice, however many batches there were.
    assert sum(map(len, again.later_starts.values())) <= len(HOSTS)


def test_all_hosts_get_summaries_once_per_interval_with_a_batch_or_without():
    clock = VirtualTime()
    schedule = SummarySchedule(2.0, clock)
    turns = []
    for _ in range(9):
        turns.append(schedule.take_turn())
        clock.sleep(0.5)
    assert turns == [True, *[False] * 4, True, *[False] * 3]
    # If the next batch is more than half a second away, this one sends them.
    assert [schedule.take_turn(0.0), schedule.take_turn(0.1), schedule.take_turn(0.1)] == [
        *(False, True, False)
    ]
    # A batch without summaries passes its turn to the next batch that has some.
    schedule.pass_turn()
    assert schedule.take_turn() and not schedule.take_turn()
    always = SummarySchedule(0.0, clock)
    assert always.take_turn() and always.take_turn()


def test_summaries_are_overdue_if_a_partition_stays_incomplete_for_an_interval():
    clock = VirtualTime()
    schedule = SummarySchedule(2.0, clock)
    flowing, idle = SummaryProgress.complete(0), SummaryProgress.complete(5)
    assert not schedule.is_overdue({0: flowing, 1: idle})
    idle = idle.advanced(7, ["h1"], {})
    for _ in range(3):
        # Other partitions send summaries in the meantime.
        flowing = SummaryProgress.complete(flowing.until + 1)
        assert not schedule.is_overdue({0: flowing, 1: idle})
        clock.sleep(0.9)
    assert schedule.is_overdue({0: flowing, 1: idle})
    assert not schedule.is_overdue({0: flowing, 1: idle})
    clock.sleep(10)
    both = {0: SummaryProgress.complete(9), 1: SummaryProgress.complete(7)}
    assert not schedule.is_overdue(both)
    assert not schedule.is_overdue(both | {1: both[1].advanced(8, [], {})})
