"""No host keeps others waiting for long, whatever it asks of the re-request service.

The service itself, on a ledger and records made up here: a range of offsets takes its time.
"""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import ClassVar

import pytest
from ports import free_port

from jobs.adapters.app.settings import Settings
from jobs.adapters.replay import service
from jobs.adapters.replay.metrics import RerequestMetrics
from udfs.errors import ReplayError
from udfs.messages.summaries import cookie_of, is_summary, request, unpack
from udfs.replay.notifications import Notifications
from udfs.replay.sent_ranges import Gap

pytestmark = pytest.mark.server

SESSION = b"8ZY63T0000"
EACH, END, SECONDS = 10, 400, 0.15


@dataclasses.dataclass(frozen=True)
class Span:
    """Offsets of partition 0, of one batch."""

    partition: int
    from_: int
    until: int
    silent: bool = False
    ranges: tuple[SimpleNamespace, ...] = (SimpleNamespace(batch=1, origin=0),)


class Slow:
    """In place of a `Replay`: each range of ten offsets takes a while, and brings nothing."""

    #: First offsets of the ranges that were computed.
    done: ClassVar[list[int]] = []

    def __init__(self, *_: object) -> None:
        ranges = SimpleNamespace(at=lambda _, o: Gap(END, None, False, 0) if o >= END else "sent")
        origins = [SimpleNamespace(versions={})]
        self.ledger = SimpleNamespace(
            sessions={SESSION: 0}, ranges=ranges, origins=origins, refresh=lambda: None
        )

    def trim(self) -> None:
        """Nothing is kept."""

    def prepare(self, partition: int, offset: int) -> SimpleNamespace:
        if offset == 105:
            raise ReplayError("RECORDS_GONE", "nobody has it", until=110)
        begin = offset // EACH * EACH
        return SimpleNamespace(span=Span(partition, begin, begin + EACH))

    def run(self, run: SimpleNamespace, _: object) -> Notifications:
        time.sleep(SECONDS)
        self.done.append(run.span.from_)
        return Notifications.none(run.span.from_, run.span.until)


class Asker:
    def __init__(self, address: tuple[str, int], name: str) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.settimeout(30)
        self.socket.connect(address)
        self.name, self.cookie = name, b""

    def ask(self, offset: int) -> None:
        self.socket.send(request(SESSION, offset << 26, name=self.name, cookie=self.cookie))

    def answer(self, offset: int) -> int:
        """The offset up to which it is answered."""
        self.ask(offset)
        while not is_summary(found := self.socket.recv(65536)):
            self.cookie = cookie_of(found)
            self.ask(offset)
        return unpack(found).until >> 26


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    hosts = SimpleNamespace(refresh=lambda: None, identify=lambda _, name: name)
    monkeypatch.setattr(service, "Replay", Slow)
    monkeypatch.setattr(service, "Hosts", lambda *_: hosts)
    monkeypatch.setattr(service.session, "slots", lambda _: 2)
    settings = Settings(rerequest_listen=f"127.0.0.1:{free_port()}")
    Slow.done.clear()
    tables = SimpleNamespace(append=lambda *_: None)
    made = service.Rerequests(None, settings, tables, RerequestMetrics())  # type: ignore[arg-type]
    stopping = threading.Event()
    thread = threading.Thread(target=made.serve, args=(stopping,), daemon=True)
    thread.start()
    yield made.address
    stopping.set()
    thread.join()


def test_a_host_that_asks_for_all_there_was_delays_others_by_a_range_or_two(address):
    greedy, stopped = Asker(address, "greedy"), threading.Event()

    def ask_for_all() -> None:
        at = 0
        while not stopped.is_set() and at < END:
            at = greedy.answer(at)

    asking = threading.Thread(target=ask_for_all, daemon=True)
    asking.start()
    time.sleep(2 * SECONDS)
    for number in range(5):
        other = Asker(address, f"h{number}")
        before = len(Slow.done)
        begin = END - EACH * (number + 1)
        assert other.answer(begin) == END
        # The first of its ranges was next, or the one after: two were under way at most.
        assert begin in Slow.done[before : before + 4]
        assert before + number < END / EACH, "the greedy one was through too soon"
    stopped.set()
    asking.join()


def test_what_cannot_be_computed_is_told_and_holds_up_nobody(address):
    one, other = Asker(address, "h1"), Asker(address, "h2")
    assert one.answer(105) == 110
    assert other.answer(110) >= 120


def test_many_hosts_that_need_the_same_are_answered_together(address):
    askers = [Asker(address, f"h{number}") for number in range(20)]
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda a=asker: found.append(a.answer(END - EACH)))
        for asker in askers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [END] * len(askers)
    assert len(Slow.done) <= 2


def test_who_does_not_hear_where_it_asks_from_has_nothing_sent_there(address):
    one, other = Asker(address, "h1"), Asker(address, "h1")
    for cookie in (b"", bytes(16), b"x" * 16):
        one.cookie = cookie
        one.ask(0)
        told = one.socket.recv(65536)
        assert cookie_of(told) and len(told) <= 2 * len(request(SESSION, 0, name="h1"))
    assert not Slow.done
    assert one.answer(END - EACH) == END
    # Another address may not use what this one was sent.
    other.cookie = one.cookie
    other.ask(END - EACH)
    assert cookie_of(other.socket.recv(65536)) not in (b"", one.cookie)
