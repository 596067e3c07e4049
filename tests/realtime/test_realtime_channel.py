"""The line between driver and workers: plans down, reports up, and nobody else on it."""

from __future__ import annotations

import importlib
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest
from delivery_cases import ADDRESSING, ITCH, NETWORK, TREES, VERSIONS

from jobs.adapters.realtime import channel, worker_channel
from jobs.adapters.realtime.channel import Address, ChannelServer, Poll, Reply
from jobs.adapters.realtime.worker_channel import WorkerChannel, open_channel
from udfs.delivery.plan import Planner
from udfs.delivery.realtime import TaskReport
from udfs.errors import StreamError
from udfs.filters.subscriptions import Subscription
from udfs.messages.readers import Packets

pytestmark = pytest.mark.server

MADE = Planner(Packets(ITCH), ADDRESSING).plan(
    [Subscription("one", "h1", "price > 3")], NETWORK, TREES, VERSIONS
)
PLAN, STACKS = pickle.dumps(MADE.plan), pickle.dumps(MADE.header_stacks)
PATIENT = 60


@dataclass
class Driver:
    """Answers with what the test sets."""

    number: int = 0
    stop: bool = False
    refuses: bool = False
    taken: list[TaskReport] = field(default_factory=list)
    looks: list[Poll] = field(default_factory=list)
    plan: bytes = PLAN
    #: Answers about reports wait for it.
    going_on: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.going_on.set()

    def answer(self, poll: Poll) -> Reply:
        self.looks.append(poll)
        if poll.reports:
            self.going_on.wait(PATIENT)
        taken = () if self.refuses else poll.reports
        self.taken += taken
        return Reply(
            self.number,
            None if poll.plan == self.number else self.plan,
            7,
            None if poll.stacks == 7 else STACKS,
            len(taken),
            {0: 11},
            self.stop,
        )


def wait(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENT
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def board(driver: Driver) -> Iterator[ChannelServer]:
    made = ChannelServer("127.0.0.1", "127.0.0.1", driver.answer)
    yield made
    made.close()


def report(number: int) -> TaskReport:
    return TaskReport(number, 1.5, 0.25, [{"kind": "partition", "partition": 0}])


def break_line(board: ChannelServer) -> None:
    for connection in list(board._open.values()):
        # One that is broken already may still be answered.
        with suppress(OSError):
            channel._shut_down(connection)


def cut(line: WorkerChannel, board: ChannelServer) -> None:
    """Breaks the line of a worker, which finds the driver no more; the others connect again."""
    line._address = replace(board.address, port=1)
    break_line(board)


def test_a_worker_has_the_plan_before_its_first_record_and_each_new_one_soon(driver, board):
    line = WorkerChannel(board.address)
    assert line.begin() == {0: 11}
    first = line.plan
    assert first.number == 0 and not line.stopping
    assert first.plan.matcher.receivers == MADE.plan.matcher.receivers
    driver.number = 4
    wait(lambda: line.plan.number == 4)
    # Stacks that it has are not sent again.
    assert line.plan.header_stacks is first.header_stacks
    # What the worker has is not what its task sends by.
    seen = len(driver.looks)
    wait(lambda: len(driver.looks) > seen + 2)
    assert board.oldest_plan == -1
    line.use(4)
    wait(lambda: board.oldest_plan == 4)
    driver.stop = True
    wait(lambda: line.stopping)
    line.end()
    wait(lambda: board.active == 0 and board.oldest_plan is None)


def test_reports_are_taken_once_and_in_order_and_wait_while_they_are_not(driver, board):
    line = WorkerChannel(board.address)
    line.begin()
    driver.refuses = True
    for number in range(3):
        line.report(report(number))
    line.end()
    wait(lambda: any(len(poll.reports) == 3 for poll in driver.looks))
    # Still to come, though no task sends any more.
    assert board.active
    driver.refuses = False
    wait(lambda: board.active == 0)
    assert [taken.number for taken in driver.taken] == [0, 1, 2]


def test_where_the_line_breaks_the_last_plan_stays_and_it_is_made_again(driver, board):
    line = WorkerChannel(board.address)
    line.begin()
    plan = line.plan
    seen = len(driver.looks)
    break_line(board)
    line.report(report(5))
    assert line.plan is plan
    wait(lambda: bool(driver.taken))
    assert [taken.number for taken in driver.taken] == [5]
    assert len(driver.looks) > seen
    # It still had the plan, and got none.
    assert driver.looks[-1].plan == 0
    line.end()


def test_a_report_that_is_told_again_while_the_driver_is_still_at_it_is_taken_once(driver, board):
    line = WorkerChannel(board.address)
    line.begin()
    driver.going_on.clear()
    line.report(report(5))
    wait(lambda: any(poll.reports for poll in driver.looks))
    for again in (1, 2, 3):
        break_line(board)
        # The next connection tells it, too, and the first is still being answered.
        wait(lambda again=again: len(board._open) == 1 + again)
        line.report(report(5 + again))
    driver.going_on.set()
    wait(lambda: len(driver.taken) >= 4)
    seen = len(driver.looks)
    wait(lambda: len(driver.looks) > seen + 3)
    assert [taken.number for taken in driver.taken] == [5, 6, 7, 8]
    line.end()
    wait(lambda: board.active == 0)


def test_a_worker_whose_line_broke_counts_with_its_plan_until_its_lease_is_surely_over(
    driver, board, monkeypatch
):
    cut_off, other = (WorkerChannel(board.address) for _ in range(2))
    for line in (cut_off, other):
        line.begin()
        line.use(0)
    wait(lambda: board.oldest_plan == 0)
    cut(cut_off, board)
    driver.number = 4
    wait(lambda: other.plan.number == 4)
    other.use(4)
    seen = len(driver.looks)
    wait(lambda: len(driver.looks) > seen + 3)
    assert cut_off.plan.number == 0
    assert board.oldest_plan == 0 and board.active == 2
    # It comes back, and counts with what it uses then.
    cut_off._address = board.address
    wait(lambda: cut_off.plan.number == 4)
    cut_off.use(4)
    wait(lambda: board.oldest_plan == 4)
    assert channel.FORGET_SECONDS > channel.LEASE_SECONDS
    cut(cut_off, board)
    monkeypatch.setattr(channel, "FORGET_SECONDS", -1.0)
    assert board.oldest_plan is None and board.active == 0


def test_without_the_driver_nothing_is_sent_for_longer_than_the_lease(driver, board, monkeypatch):
    line = WorkerChannel(board.address)
    line.begin()
    line.await_lease()
    cut(line, board)
    # Broken for a moment, it goes on.
    line.await_lease()
    monkeypatch.setattr(worker_channel, "LEASE_SECONDS", 0.5)
    wait(lambda: time.monotonic() - line._answered > 0.5)
    waiting = threading.Thread(target=line.await_lease, daemon=True)
    waiting.start()
    driver.number = 4
    waiting.join(0.5)
    assert waiting.is_alive()
    monkeypatch.setattr(worker_channel, "LEASE_SECONDS", 60.0)
    line._answered = -60.0
    line._address = board.address
    waiting.join(PATIENT)
    # With the lease it has the plan that came meanwhile.
    assert not waiting.is_alive() and line.plan.number == 4
    line.end()


def test_reports_that_nobody_takes_hold_up_what_would_be_sent_and_a_stop_ends_that(
    driver, board, monkeypatch
):
    monkeypatch.setattr(worker_channel, "MOST_REPORTS", 20)
    line = WorkerChannel(board.address)
    line.begin()
    driver.refuses = True
    for number in range(20):
        line.await_lease()
        line.report(report(number))
    waiting = threading.Thread(target=line.await_lease, daemon=True)
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    # New plans come all the same, and no look tells everything again.
    driver.number = 4
    wait(lambda: line.plan.number == 4)
    assert max(len(poll.reports) for poll in driver.looks) < 20
    driver.refuses = False
    waiting.join(PATIENT)
    assert not waiting.is_alive()
    wait(lambda: [taken.number for taken in driver.taken] == list(range(20)))
    driver.refuses = True
    for number in range(20):
        line.report(report(number))
    driver.stop = True
    wait(lambda: line.stopping)
    line.await_lease()
    assert board.active == 1 + 20
    line.end()


def test_a_plan_that_cannot_be_read_is_told_as_that_and_the_line_holds(driver, board):
    line = WorkerChannel(board.address)
    driver.plan = pickle.dumps(_Missing())
    with pytest.raises(StreamError) as error:
        line.begin()
    assert error.value.code == "STREAM.PLAN_UNREADABLE"
    assert "no_such_package" in error.value.message
    driver.plan = PLAN
    assert line.begin() == {0: 11}
    # Of a running task the last plan stays, until one comes that can be read.
    first = line.plan
    driver.plan, driver.number = pickle.dumps(_Missing()), 1
    seen = len(driver.looks)
    line.report(report(0))
    wait(lambda: len(driver.looks) > seen + 1 and bool(driver.taken))
    assert line.plan is first
    driver.plan = PLAN
    wait(lambda: line.plan.number == 1)
    line.end()


def test_an_answer_that_fails_is_asked_for_again(driver, board):
    line = WorkerChannel(board.address)
    answer, failures = board._answer, [KeyError("delivery 7")]

    def failing(poll: Poll) -> Reply:
        if poll.reports and failures:
            raise failures.pop()
        return answer(poll)

    board._answer = failing
    line.begin()
    line.report(report(3))
    wait(lambda: bool(driver.taken))
    assert [taken.number for taken in driver.taken] == [3]
    line.end()


def test_who_does_not_know_the_secret_is_turned_away_and_nothing_of_his_is_read(
    driver, board, monkeypatch
):
    stranger = replace(board.address, secret=bytes(32))
    line = WorkerChannel(stranger)
    monkeypatch.setattr(worker_channel, "PATIENCE_SECONDS", 1.0)
    with pytest.raises(StreamError) as error:
        line.begin()
    assert error.value.code == "STREAM.NO_PLAN" and "spark.driver.host" in error.value.message
    assert not driver.looks

    read = threading.Event()
    _Trap.sprung = read
    with socket.create_connection((board.address.host, board.address.port), 10) as caller:
        bomb = pickle.dumps(_Trap())
        caller.sendall(len(bomb).to_bytes(4) + bomb)
        caller.settimeout(PATIENT)
        while caller.recv(4096):
            pass
    assert not read.is_set() and not driver.looks


def test_who_says_nothing_keeps_nobody_waiting(driver, board):
    with socket.create_connection((board.address.host, board.address.port), 10):
        line = WorkerChannel(board.address)
        assert line.begin() == {0: 11}
        line.end()


def test_a_process_has_one_line_to_a_driver_and_its_secret_is_not_printed(board):
    address = pickle.loads(pickle.dumps(board.address))
    assert open_channel(address) is open_channel(board.address)
    assert open_channel(replace(address, port=1)) is not open_channel(address)
    assert address.secret == board.address.secret and len(address.secret) == 32
    assert "secret" not in repr(address)
    assert Address("a", 1, b"x") != Address("a", 1, b"y")


class _Missing:
    """Needs a package, when it is unpickled, that is not there."""

    def __reduce__(self) -> tuple[object, ...]:
        return importlib.import_module, ("no_such_package",)


class _Trap:
    """Tells when it is unpickled."""

    sprung = threading.Event()

    def __reduce__(self) -> tuple[object, ...]:
        return _spring, (os.getpid(),)


def _spring(_: int) -> None:
    _Trap.sprung.set()
