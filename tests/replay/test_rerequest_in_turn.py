"""Hosts that request the same range one after the other get their own notifications.

The service is real. Its ledger and records are not: there is one range, computed for the hosts that
request it.
"""

from __future__ import annotations

import dataclasses
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from ports import free_port

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.replay import service
from stackcast.jobs.adapters.replay.ledger import KnownSession
from stackcast.jobs.adapters.replay.metrics import RerequestMetrics
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


def datagram(number: int) -> bytes:
    return SESSION + (number << 26).to_bytes(8) + (1).to_bytes(2) + b"\0\1%d" % number


class OneRange:
    """Replaces `Replay`: host number n is owed the notification of offset n."""

    def __init__(self, *_: object) -> None:
        self.ledger = SimpleNamespace(
            sessions={SESSION: KnownSession(0)},
            topic=None,
            ranges=SimpleNamespace(
                at=lambda _, o: Gap(END, None, False, 0) if o >= END else "",
                last_sent=lambda: None,
            ),
            origins=[SimpleNamespace(versions={})],
            refresh=lambda: None,
        )

    def trim(self) -> None:
        """Removes nothing."""

    def prepare(self, _: int, __: int) -> SimpleNamespace:
        return SimpleNamespace(span=Span())

    def run(self, _: SimpleNamespace, hosts: frozenset[str] | None) -> Notifications:
        wanted = [n for n, host in enumerate(HOSTS) if hosts is None or host in hosts]
        return Notifications(
            *(0, END, hosts),
            np.array([number << 26 for number in wanted], np.uint64),
            np.ones(len(wanted), np.int32),
            np.arange(len(wanted), dtype=np.int32),
            [(HOSTS[number],) for number in wanted],
            pa.chunked_array([[datagram(number) for number in wanted]], pa.binary()),
        )


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """Returns the address of a service."""
    hosts = SimpleNamespace(refresh=lambda: None, identify=lambda _, name: name)
    monkeypatch.setattr(service, "Replay", OneRange)
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
