"""Hosts get their own notifications, of the generation of the topic that they ask for.

The service is real. Its ledger and records are not: there is one range, computed for the hosts that
request it.
"""

from __future__ import annotations

import dataclasses
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from ports import free_port

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.replay import service
from stackcast.jobs.adapters.replay.ledger import KnownSession
from stackcast.jobs.adapters.replay.metrics import RerequestMetrics
from stackcast.udfs.messages.sequence import Topic
from stackcast.udfs.messages.summaries import cookie_of, is_summary, request, unpack
from stackcast.udfs.replay.notifications import Notifications
from stackcast.udfs.replay.sent_ranges import Gap

pytestmark = pytest.mark.integration

SESSION = b"8ZY63T0000"
END = 10
HOSTS = ("h1", "h2", "h3")


@dataclasses.dataclass(frozen=True)
class Span:
    """Offsets of the batch."""

    partition: int = 0
    from_: int = 0
    until: int = END
    silent: bool = False
    ranges: tuple[SimpleNamespace, ...] = (SimpleNamespace(batch=1, origin=0),)


def datagram(number: int, content: bytes = b"old") -> bytes:
    header = SESSION + (number << 26).to_bytes(8) + (1).to_bytes(2)
    return header + len(content).to_bytes(2) + content


class OneRange:
    """Replaces `Replay`: host number n is owed the notification of offset n.

    Attributes:
        content: the message of each notification.
        began: set when a range is being computed.
        goes_on: a range that is being computed waits for it.
        refreshed: set when the service has seen a generation of the topic.
    """

    def __init__(self) -> None:
        self.content = b"old"
        self.began, self.goes_on, self.refreshed = (threading.Event() for _ in range(3))
        self.goes_on.set()
        self.ledger = SimpleNamespace(
            sessions={SESSION: KnownSession(0)},
            topic=None,
            ranges=SimpleNamespace(
                at=lambda _, o: Gap(END, None, False, 0) if o >= END else "",
                last_sent=lambda: None,
            ),
            origins=[SimpleNamespace(versions={})],
            refresh=self._refresh,
        )

    def _refresh(self) -> None:
        if self.ledger.topic is not None:
            self.refreshed.set()

    def trim(self) -> None:
        """Removes nothing."""

    def cancel(self) -> None:
        """Ends nothing."""

    def prepare(self, _: int, __: int) -> SimpleNamespace:
        return SimpleNamespace(span=Span())

    def run(self, _: SimpleNamespace, hosts: frozenset[str] | None) -> Notifications:
        content = self.content
        self.began.set()
        self.goes_on.wait()
        wanted = [n for n, host in enumerate(HOSTS) if hosts is None or host in hosts]
        return Notifications(
            *(0, END, hosts),
            np.array([number << 26 for number in wanted], np.uint64),
            np.ones(len(wanted), np.int32),
            np.arange(len(wanted), dtype=np.int32),
            [(HOSTS[number],) for number in wanted],
            pa.chunked_array([[datagram(number, content) for number in wanted]], pa.binary()),
        )


@pytest.fixture
def replay() -> OneRange:
    return OneRange()


@pytest.fixture
def address(replay: OneRange, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """Returns the address of a service."""
    hosts = SimpleNamespace(refresh=lambda: None, identify=lambda _, name: name)
    monkeypatch.setattr(service, "Replay", lambda *_: replay)
    monkeypatch.setattr(service, "Hosts", lambda *_: hosts)
    monkeypatch.setattr(service.session, "slots", lambda _: 2)
    settings = Settings(rerequest_listen=f"127.0.0.1:{free_port()}")
    tables = SimpleNamespace(append=lambda *_: None)
    rerequests = service.Rerequests(None, settings, tables, RerequestMetrics())  # type: ignore[arg-type]
    stopping = threading.Event()
    thread = threading.Thread(target=rerequests.serve, args=(stopping,), daemon=True)
    thread.start()
    yield rerequests.address
    stopping.set()
    thread.join()


def answer(address: tuple[str, int], host: str) -> list[bytes]:
    """Returns the notifications of a host; the summary must count them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        asker.settimeout(600)
        asker.connect(address)
        asker.send(request(SESSION, 0, name=host))
        found = []
        while not is_summary(one := asker.recv(65536)):
            if cookie := cookie_of(one):
                asker.send(request(SESSION, 0, name=host, cookie=cookie))
            else:
                found.append(one)
    assert unpack(one).notifications == len(found)
    assert unpack(one).until == END << 26
    return found


def test_a_range_that_was_computed_for_one_host_is_no_answer_to_another(address):
    for number, host in enumerate(HOSTS):
        assert answer(address, host) == [datagram(number)]


def test_what_was_computed_before_a_new_generation_is_computed_again(address, replay):
    """Kafka may have given the offsets to other records."""
    replay.goes_on.clear()
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(answer, address, "h1")
        replay.began.wait()
        replay.content, replay.ledger.topic = b"new", Topic("t", "A", 1)
        replay.refreshed.wait()
        replay.goes_on.set()
        assert asking.result() == [datagram(0, b"new")]
