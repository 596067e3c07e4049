"""No host delays others for long by its requests to the re-request service.

The service is real. Its ledger and records are not: it takes a moment to compute a range.
"""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import ClassVar

import pytest
from ports import free_port
from waiting import until

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.replay import service
from stackcast.jobs.adapters.replay.ledger import KnownSession
from stackcast.jobs.adapters.replay.metrics import RerequestMetrics
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS
from stackcast.udfs.errors import MessageError, ReplayError, TableError
from stackcast.udfs.messages.summaries import cookie_of, is_summary, request, unpack
from stackcast.udfs.replay.notifications import Notifications
from stackcast.udfs.replay.sent_ranges import Gap, SentRange

pytestmark = pytest.mark.integration

SESSION = b"8ZY63T0000"
#: Offsets per range, and end of the ledger.
EACH, END = 10, 400
#: End of a ledger that takes a host minutes.
LONG_END = 20_000
#: Limits waits, so that a test that hangs ends.
WAIT_S = 600


@dataclasses.dataclass(frozen=True)
class Span:
    """Offsets of one batch in partition 0."""

    partition: int
    from_: int
    until: int
    silent: bool = False
    ranges: tuple[SimpleNamespace, ...] = (SimpleNamespace(batch=1, origin=0),)


class Slow:
    """Replaces `Replay`: each range of ten offsets takes `seconds`, and has no notification."""

    #: First offsets of the ranges that were computed.
    done: ClassVar[list[int]] = []
    seconds: ClassVar[float] = 0.15
    end: ClassVar[int] = END
    #: Offset of the newest notification on record; None if there is none.
    newest: ClassVar[int | None] = None

    def __init__(self, *_: object) -> None:
        ranges = SimpleNamespace(
            at=lambda _, o: Gap(self.end, None, False, 0) if o >= self.end else "sent",
            last_sent=self.last_sent,
        )
        origins = [SimpleNamespace(versions={})]
        self.ledger = SimpleNamespace(
            sessions={SESSION: KnownSession(0)},
            topic=None,
            ranges=ranges,
            origins=origins,
            refresh=lambda: None,
        )

    def last_sent(self) -> tuple[int, SentRange] | None:
        if self.newest is None:
            return None
        begin = self.newest // EACH * EACH
        sequences = (self.newest << 26,) * 2
        end = self.newest + 1
        return 0, SentRange(begin, end, begin, end, *sequences, 1, 0, 0, EACH)

    def trim(self) -> None:
        """Has nothing to remove."""

    def cancel(self) -> None:
        """Ends nothing."""

    def prepare(self, partition: int, offset: int) -> SimpleNamespace:
        if offset == 105:
            raise ReplayError("RECORDS_GONE", "deleted", until=110)
        begin = offset // EACH * EACH
        return SimpleNamespace(span=Span(partition, begin, begin + EACH))

    def run(self, run: SimpleNamespace, _: object) -> Notifications:
        time.sleep(self.seconds)
        self.done.append(run.span.from_)
        return Notifications.none(run.span.from_, run.span.until)


class Asker:
    """The socket of a host, and its cookie."""

    def __init__(self, address: tuple[str, int], name: str, source: str = "127.0.0.1") -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.settimeout(WAIT_S)
        self.socket.bind((source, 0))
        self.socket.connect(address)
        self.name, self.cookie = name, b""

    def ask(self, offset: int) -> None:
        self.socket.send(request(SESSION, offset << 26, name=self.name, cookie=self.cookie))

    def answer(self, offset: int) -> int:
        """Returns the offset at which the answer ends."""
        self.ask(offset)
        while not is_summary(datagram := self.socket.recv(65536)):
            self.cookie = cookie_of(datagram)
            self.ask(offset)
        return unpack(datagram).until >> 26


class Outcomes:
    """How many requests have ended, by outcome."""

    def __init__(self) -> None:
        self.metrics = RerequestMetrics()

    def __getitem__(self, outcome: str) -> int:
        labels = {"outcome": outcome}
        value = self.metrics.registry.get_sample_value("stackcast_rerequests_total", labels)
        return int(value or 0)


@pytest.fixture
def outcomes() -> Outcomes:
    return Outcomes()


@pytest.fixture
def rerequests(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, outcomes: Outcomes
) -> service.Rerequests:
    """Returns a service that does not serve yet; its parameter replaces attributes of `Slow`."""
    for name, value in {"end": END, "newest": None, **getattr(request, "param", {})}.items():
        monkeypatch.setattr(Slow, name, value)
    hosts = SimpleNamespace(refresh=lambda: None, identify=lambda _, name: name)
    monkeypatch.setattr(service, "Replay", Slow)
    monkeypatch.setattr(service, "Hosts", lambda *_: hosts)
    monkeypatch.setattr(service.session, "slots", lambda _: 2)
    settings = Settings(rerequest_listen=f"127.0.0.1:{free_port()}")
    Slow.done.clear()
    tables = SimpleNamespace(append=lambda *_: None)
    return service.Rerequests(None, settings, tables, outcomes.metrics)  # type: ignore[arg-type]


@contextmanager
def serving(rerequests: service.Rerequests, *arguments: Callable[[], None]) -> Iterator[None]:
    """Run a service in a thread."""
    stopping = threading.Event()
    thread = threading.Thread(target=rerequests.serve, args=(stopping, *arguments), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


@pytest.fixture
def address(rerequests: service.Rerequests) -> Iterator[tuple[str, int]]:
    """Returns the address of a service that runs."""
    with serving(rerequests):
        yield rerequests.address


@pytest.mark.parametrize("rerequests", [{"end": LONG_END}], indirect=True)
def test_a_host_that_requests_everything_delays_others_by_a_few_ranges(
    rerequests, address, monkeypatch
):
    greedy = Asker(address, "greedy")
    #: Number of ranges that were computed when the service took the last request of a socket.
    computed: dict[tuple[str, int], int] = {}
    take = rerequests._take

    def counting(datagram: bytes, source: tuple[str, int]) -> None:
        computed[source] = len(Slow.done)
        take(datagram, source)

    monkeypatch.setattr(rerequests, "_take", counting)

    def request_everything() -> None:
        offset = 0
        while offset < LONG_END:
            offset = greedy.answer(offset)

    thread = threading.Thread(target=request_everything, daemon=True)
    thread.start()
    until(lambda: len(Slow.done) >= 2)
    for number in range(5):
        modest = Asker(address, f"h{number}")
        begin = LONG_END - EACH * (number + 1)
        assert modest.answer(begin) == LONG_END
        before = computed[modest.socket.getsockname()]
        # Two ranges at most were in progress, so the first range of the host was next.
        assert begin in Slow.done[before : before + 4]
        assert thread.is_alive()
    monkeypatch.setattr(Slow, "seconds", 0.0)
    thread.join()


def test_a_range_that_cannot_be_computed_is_reported_and_delays_no_other_host(address):
    assert Asker(address, "h1").answer(105) == 110
    assert Asker(address, "h2").answer(110) >= 120


def test_hosts_that_request_the_same_range_are_answered_together(address):
    askers = [Asker(address, f"h{number}") for number in range(20)]
    ends: list[int] = []
    threads = [
        threading.Thread(target=lambda a=asker: ends.append(a.answer(END - EACH)))
        for asker in askers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert ends == [END] * len(askers)
    assert len(Slow.done) <= 2


def test_an_address_without_a_valid_cookie_gets_only_a_cookie(address):
    first, second = Asker(address, "h1"), Asker(address, "h1")
    for cookie in (b"", bytes(16), b"x" * 16):
        first.cookie = cookie
        first.ask(0)
        datagram = first.socket.recv(65536)
        assert cookie_of(datagram)
        assert len(datagram) <= 2 * len(request(SESSION, 0, name="h1"))
    assert not Slow.done
    assert first.answer(END - EACH) == END
    # A cookie is valid for one address.
    second.cookie = first.cookie
    second.ask(END - EACH)
    assert cookie_of(second.socket.recv(65536)) not in (b"", first.cookie)


def forge(address: tuple[str, int], name: str, number: int, source: str = "127.0.0.1") -> None:
    """Send requests of a host without a cookie and with wrong ones, and read no answer."""
    forger = Asker(address, name, source)
    for place in range(number):
        forger.cookie = (b"", bytes(16), place.to_bytes(16))[place % 3]
        forger.ask(0)
    forger.socket.close()


def test_requests_that_others_send_with_a_hosts_address_do_not_silence_it(address, outcomes):
    host = Asker(address, "h1")
    assert host.answer(END - EACH) == END
    # These are more than a host may send at once.
    number = 2 * int(service.AT_ONCE)
    forge(address, "h1", number)
    until(lambda: outcomes["challenged"] + outcomes["limited"] > number)
    host.ask(END - EACH)
    until(lambda: outcomes["answered"] + outcomes["limited"] >= 2)
    assert outcomes["limited"] == 0
    assert host.answer(END - EACH) == END


def test_a_host_that_asks_too_often_with_its_cookie_is_refused(address, outcomes, monkeypatch):
    monkeypatch.setattr(service.Sender, "send", lambda *_: None)
    host = Asker(address, "h1")
    host.ask(0)
    host.cookie = cookie_of(host.socket.recv(65536))
    for _ in range(4 * int(service.AT_ONCE)):
        host.ask(END)
    until(lambda: outcomes["limited"])
    assert outcomes["challenged"] == 1


@pytest.fixture
def few_challenges(monkeypatch: pytest.MonkeyPatch) -> int:
    """Limits each prefix to a few challenges; returns how many."""
    monkeypatch.setattr(service, "CHALLENGE_RATE", 0.0)
    monkeypatch.setattr(service, "CHALLENGE_BURST", 5.0)
    return 5


def test_a_prefix_that_floods_the_service_gets_a_few_cookies_and_costs_others_nothing(
    few_challenges, address, outcomes
):
    verified = Asker(address, "h1")
    assert verified.answer(END - EACH) == END
    forge(address, "h1", 60, "127.0.0.9")
    until(lambda: outcomes["challenge_limited"] >= 61 - few_challenges)
    assert outcomes["challenged"] == few_challenges
    # The flood does not use up what others are allowed: a host of the prefix that has a cookie, and
    # hosts of other prefixes.
    assert verified.answer(END - EACH) == END
    assert Asker(address, "h1", "127.0.1.9").answer(END - EACH) == END
    assert outcomes["limited"] == 0


def test_datagrams_that_keep_coming_do_not_stop_the_service_from_answering(rerequests, monkeypatch):
    datagram = request(SESSION, 0, name="h1"), ("127.0.0.1", 9)
    taken: list[object] = []

    def read_request(_: bytes) -> object:
        taken.append(None)
        assert len(taken) < 1000, "the service reads without end"
        rerequests._inbox.append(datagram)
        raise MessageError("BAD_REQUEST", "a flood")

    monkeypatch.setattr(service, "read_request", read_request)
    rerequests._inbox.append(datagram)
    rerequests._step(SYSTEM_THREADS.worker("test"))
    assert len(taken) == 1


@pytest.mark.parametrize("rerequests", [{"newest": 395, "seconds": 0.0}], indirect=True)
def test_a_service_is_ready_when_it_has_the_newest_notifications(rerequests, outcomes):
    ready: list[list[int]] = []
    with serving(rerequests, lambda: ready.append([*Slow.done])):
        until(lambda: ready)
        assert ready == [[390]]
        assert Asker(rerequests.address, "h1").answer(390) == END
    # The host was answered from what the service had computed before, and `ready` came once.
    assert Slow.done == [390]
    assert len(ready) == 1
    assert outcomes["answered"] == 1 and outcomes["failed"] == 0


@pytest.mark.parametrize("newest", [None, 105], ids=["nothing sent", "newest records gone"])
def test_a_service_that_has_nothing_to_prepare_is_ready(rerequests, monkeypatch, newest):
    monkeypatch.setattr(Slow, "newest", newest)
    ready = threading.Event()
    with serving(rerequests, ready.set):
        assert ready.wait(WAIT_S)
        assert not Slow.done


def test_a_service_is_not_ready_before_it_can_compute(rerequests, monkeypatch):
    monkeypatch.setattr(Slow, "newest", 395)
    monkeypatch.setattr(service, "RETRY_SECONDS", 0.0)
    failures: list[str] = []
    ready: list[list[str]] = []

    def fail(name: str) -> Callable[..., None]:
        """Returns a function that fails three times, and then works."""
        original = getattr(Slow, name)

        def call(*arguments: object) -> object:
            if failures.count(name) < 3:
                failures.append(name)
                raise TableError("MISSING", f"{name} fails")
            return original(*arguments)

        return call

    for name in ("prepare", "run"):
        monkeypatch.setattr(Slow, name, fail(name))
    with serving(rerequests, lambda: ready.append([*failures])):
        until(lambda: ready)
    assert ready == [["prepare"] * 3 + ["run"] * 3]
