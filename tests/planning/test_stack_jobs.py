"""Stacks worked out beside the stream: in small jobs, for the newest plan, each set once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from delivery_cases import ADDRESSING, HOSTS, ITCH, NETWORK, TREES, VERSIONS
from waiting import until

from stackcast.jobs.adapters.planning import header_stacks
from stackcast.jobs.adapters.planning.header_stacks import StackJobs
from stackcast.jobs.adapters.runtime.threads import SystemThreads
from stackcast.udfs.delivery.plan import Compilation, Planner
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages.readers import Packets
from stackcast.udfs.trees.header_stacks import Stack, Stacks

pytestmark = pytest.mark.unit


class Jobs(StackJobs):
    """Without Spark: a job is a list of receiver sets, and may be held up."""

    def __init__(self, slots: int = 3, kept: Sequence[dict[str, Any]] = ()) -> None:
        self.jobs: list[tuple[list[tuple[str, ...]], int]] = []
        self.written: list[list[dict[str, Any]]] = []
        self.sent: list[object] = []
        self.gone: list[object] = []
        self.go, self.began = threading.Semaphore(1_000), threading.Event()
        self.broken = False
        #: What a set takes of a core.
        self.seconds = 0.0
        engine: Any = SystemThreads()
        engine.broadcast = self.broadcast
        tables = SimpleNamespace(
            overwrite=lambda _, rows: self.written.append(rows), rows=lambda _: list(kept)
        )
        super().__init__(engine, slots + 1, tables, "feed1")

    def broadcast(self, value: object) -> SimpleNamespace:
        self.sent.append(value)
        return SimpleNamespace(value=value, destroy=lambda: self.gone.append(value))

    def _run(self, receiver_sets: Any, tasks: int, handle: Any) -> Any:
        self.began.set()
        self.go.acquire()
        if self.broken:
            raise ValueError("an executor is gone")
        self.jobs.append((receiver_sets, tasks))
        made = {}
        for receivers in receiver_sets:
            left = tuple(host for host in receivers if host != "h1")
            made[receivers] = Stacks(
                (Stack((0x4001,), left),) if left else (),
                (("h1", "unplugged"),) if "h1" in receivers else (),
            )
        return made, self.seconds * len(made)


def plans(*prices: int, trees: Any = TREES, planner: Planner | None = None) -> list[Compilation]:
    """Plans of one planner; in each, ``price`` different receiver sets of a few hosts."""
    planner = planner or Planner(Packets(ITCH), ADDRESSING)
    return [
        planner.plan(
            [
                Subscription(
                    f"s{n}",
                    "h1",
                    f"shares == {n} : "
                    f"fwd({', '.join(h for bit, h in enumerate(HOSTS) if n + 1 >> bit & 1)})",
                )
                for n in range(number)
            ],
            NETWORK,
            trees,
            VERSIONS | {"subscriptions": version},
        )
        for version, number in enumerate(prices)
    ]


def test_all_sets_are_worked_out_once_in_jobs_that_leave_a_slot_to_the_stream(caplog):
    jobs = Jobs(slots=3)
    (plan,) = plans(200)
    waiting = plan.unknown()
    with caplog.at_level(logging.ERROR):
        jobs.submit(plan).result()
    assert [r for some, _ in jobs.jobs for r in some] == waiting and not plan.unknown()
    assert len(jobs.jobs) > 1 and {tasks for _, tasks in jobs.jobs} == {3}
    assert len(jobs.written) == 1 and len(jobs.written[0]) == 199  # no row of h1 alone
    (told,) = [record.getMessage() for record in caplog.records]
    assert told == "host h1 is excluded from delivery: unplugged; subscriptions@0, hosts@1"
    # An edit that brings no set costs no job, and writes nothing.
    jobs.jobs.clear()
    jobs.submit(plan).result()
    assert not jobs.jobs and len(jobs.written) == 1 and len(jobs.sent) == 1
    jobs.close()


@pytest.mark.parametrize(("seconds", "sizes"), [(0.0, [64, 191]), (0.01, [64, 100, 91])])
def test_jobs_grow_to_half_a_second_of_work_however_long_they_wait(seconds, sizes):
    jobs = Jobs(slots=2)
    jobs.seconds = seconds
    (plan,) = plans(255)
    jobs.submit(plan).result()
    assert [len(some) for some, _ in jobs.jobs] == sizes
    assert not plan.unknown()
    jobs.close()


def test_an_edit_costs_its_own_sets_and_a_change_of_trees_all():
    jobs, planner = Jobs(), Planner(Packets(ITCH), ADDRESSING)
    before, after = plans(20, 20, planner=planner)
    jobs.submit(before).result()
    assert not after.unknown() and after.header_stacks is before.header_stacks
    (more,) = plans(22, planner=planner)
    jobs.jobs.clear()
    jobs.submit(more).result()
    assert sum(len(some) for some, _ in jobs.jobs) == 2 and len(jobs.sent) == 1
    (other,) = plans(22, trees=[], planner=planner)
    assert len(other.unknown()) == 22
    jobs.submit(other).result()
    assert not other.unknown() and len(jobs.sent) == 2
    # Tasks that run may use those of the network and trees before; nobody uses those before them.
    assert not jobs.gone
    (third,) = plans(22, planner=planner)
    jobs.submit(third).result()
    assert len(jobs.sent) == 3 and jobs.gone == jobs.sent[:1]
    jobs.close()
    assert jobs.gone == jobs.sent[:2]


def test_a_start_waits_for_all_stacks_and_gives_them_all_slots():
    jobs = Jobs(slots=3)
    jobs.go = threading.Semaphore(0)
    (plan,) = plans(255)
    jobs.submit(plan)
    assert jobs.began.wait(600)
    jobs.await_known(0.0)
    assert plan.unknown(), "the time of the wait is limited"
    jobs.await_known(600.0, given_up=lambda: True)
    assert plan.unknown(), "the wait ends when the stream is asked to stop"
    waiting = threading.Thread(target=jobs.await_known, args=(600.0,))
    waiting.start()
    until(lambda: jobs._reserved_slots == 0)
    jobs.go.release(100)
    waiting.join()
    assert not plan.unknown()
    assert [tasks for _, tasks in jobs.jobs][-1] == 4
    (more,) = plans(100)
    jobs.jobs.clear()
    jobs.submit(more).result()
    assert {tasks for _, tasks in jobs.jobs} == {3}, "one slot is the stream's"
    jobs.close()


def test_a_start_does_not_wait_for_stacks_that_cannot_be_worked_out():
    jobs = Jobs()
    jobs.broken = True
    (plan,) = plans(5)
    jobs.submit(plan)
    jobs.await_known(600.0)
    assert plan.unknown()
    jobs.close()


def test_a_newer_plan_has_its_turn_after_the_job_that_runs():
    jobs = Jobs(slots=1)
    jobs.go = threading.Semaphore(0)
    old, new = plans(150, 3, planner=Planner(Packets(ITCH), ADDRESSING))
    first = jobs.submit(old)
    assert jobs.began.wait(600)
    second = jobs.submit(new)
    jobs.go.release(100)
    first.result()
    second.result()
    assert old.unknown() and not new.unknown(), "what is left of the old one is nobody's any more"
    assert [len(rows) for rows in jobs.written] == [len(new.stack_rows("feed1"))]
    jobs.close()


def test_a_job_that_fails_costs_no_batch_and_the_next_plan_tries_again(caplog):
    jobs = Jobs()
    jobs.broken = True
    (plan,) = plans(5)
    jobs.submit(plan).result()
    assert "could not be computed in advance" in caplog.text and len(plan.unknown()) == 5
    jobs.broken = False
    jobs.submit(plan).result()
    assert not plan.unknown() and jobs.written
    jobs.close()


def test_the_end_of_a_stream_does_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr(header_stacks, "_LAST_SECONDS", 0)
    jobs = Jobs(slots=1)
    jobs.go = threading.Semaphore(0)
    (plan,) = plans(150)
    jobs.submit(plan)
    assert jobs.began.wait(600)
    threading.Timer(0.2, jobs.go.release).start()
    jobs.close()
    assert len(jobs.jobs) == 1 and plan.unknown() and not jobs.written


def test_a_start_takes_from_the_table_what_it_would_make_itself_and_works_out_the_rest():
    before, (plan,) = Jobs(), plans(200)
    before.submit(plan).result()
    (kept,) = before.written
    before.close()
    made = dict(zip(plan.receiver_sets, plan.with_known().stacks, strict=True))
    (again,) = plans(230)
    jobs = Jobs(kept=kept)
    jobs.submit(again).result()
    asked = [receivers for some, _ in jobs.jobs for receivers in some]
    # New sets, those of whom somebody is cut off, and a few to see that they come out the same.
    new = [r for r in again.receiver_sets if r and (r not in made or "h1" in r)]
    assert set(new) < set(asked) and len(asked) < len(new) + 20
    stacks = dict(zip(again.receiver_sets, again.with_known().stacks, strict=True))
    assert None not in stacks.values() and stacks | made == stacks
    # Nothing is written where the table has it all.
    (same,) = plans(200)
    jobs = Jobs(kept=kept)
    jobs.submit(same).result()
    assert not jobs.written and not same.unknown()
    jobs.close()


def test_stacks_that_were_made_from_something_else_are_not_taken():
    before, (plan,) = Jobs(), plans(200)
    before.submit(plan).result()
    (kept,) = before.written
    before.close()
    other = {
        "labels": [row | {"labels": [*row["labels"], 0x4001]} for row in kept],
        "versions": [row | {"versions": row["versions"] | {"links": 77}} for row in kept],
        "publisher": [row | {"publisher": "feed2"} for row in kept],
    }
    for rows in other.values():
        (again,) = plans(200)
        jobs = Jobs(kept=rows)
        jobs.submit(again).result()
        assert set(again.receiver_sets[1:]) <= {r for some, _ in jobs.jobs for r in some}
        assert jobs.written == [kept]
        jobs.close()
