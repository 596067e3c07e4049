"""The line between driver and workers: plans down, reports up, and nobody else on it."""

from __future__ import annotations

import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest
from delivery_cases import ADDRESSING, ITCH, NETWORK, TREES, VERSIONS

from jobs.adapters.realtime import channel
from jobs.adapters.realtime.channel import (
    Address,
    ChannelServer,
    Poll,
    Reply,
    WorkerChannel,
    open_channel,
)
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

    def answer(self, poll: Poll) -> Reply:
        self.looks.append(poll)
        taken = () if self.refuses else poll.reports
        self.taken += taken
        return Reply(
            self.number,
            None if poll.plan == self.number else PLAN,
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
    for connection in list(board._open.values()):
        channel._shut_down(connection)
    line.report(report(5))
    assert line.plan is plan
    wait(lambda: bool(driver.taken))
    assert [taken.number for taken in driver.taken] == [5]
    assert len(driver.looks) > seen
    # It still had the plan, and got none.
    assert driver.looks[-1].plan == 0
    line.end()


def test_who_does_not_know_the_secret_is_turned_away_and_nothing_of_his_is_read(driver, board):
    stranger = replace(board.address, secret=bytes(32))
    line = WorkerChannel(stranger)
    channel.PATIENCE_SECONDS, before = 1.0, channel.PATIENCE_SECONDS
    try:
        with pytest.raises(StreamError) as error:
            line.begin()
    finally:
        channel.PATIENCE_SECONDS = before
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


class _Trap:
    """Tells when it is unpickled."""

    sprung = threading.Event()

    def __reduce__(self) -> tuple[object, ...]:
        return _spring, (os.getpid(),)


def _spring(_: int) -> None:
    _Trap.sprung.set()
