"""Sockets of ``stackcast receive`` where the way to a far end fails: the stream itself goes on."""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from lossy_network import notification, summary_bytes

from stackcast.cli.receive import failures as failures_module
from stackcast.cli.receive.failures import Failures
from stackcast.cli.receive.host_watch import HostWatch
from stackcast.cli.receive.outlets import ForwardOutlet
from stackcast.cli.receive.reception import Reception
from stackcast.cli.receive.sockets import Wires
from stackcast.udfs.messages.recovery.receiver import Receiver, ReceiverOptions
from stackcast.udfs.stop_request import StopRequest

pytestmark = pytest.mark.integration

SESSION = b"SESSION001"
UNREACHABLE = [errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EPERM, errno.ECONNREFUSED]


class Failing(socket.socket):
    """Fails as the kernel says it of a way that is broken; ``errors`` are those still to come."""

    def __init__(self, *errors: int) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_DGRAM)
        self.setblocking(False)
        self.errors = list(errors)
        self.sent: list[bytes] = []

    def recv_into(self, *arguments) -> int:
        self._fail()
        return super().recv_into(*arguments)

    def send(self, data, *_) -> int:
        self._fail()
        self.sent.append(bytes(data))
        return super().send(data)

    def _fail(self) -> None:
        if self.errors:
            number = self.errors.pop(0)
            raise OSError(number, os.strerror(number))


class Taken:
    """Keeps what goes on; asks for a stop when it has ``wanted``."""

    def __init__(self, stop: StopRequest, wanted: int) -> None:
        self._stop, self._wanted = stop, wanted
        self.sequences: list[int] = []

    def put(self, deliveries) -> None:
        self.sequences += [each.sequence for each in deliveries]
        if len(self.sequences) >= self._wanted:
            self._stop.set()

    def close(self) -> None:
        """Has nothing open."""


@pytest.fixture
def stream() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:
        it.bind(("127.0.0.1", 0))
        it.setblocking(False)
        yield it


@pytest.mark.parametrize("error", UNREACHABLE, ids=errno.errorcode.get)
def test_a_broken_way_to_the_service_ends_no_healthy_stream(error, stream, capsys):
    sent = {offset << 26: 1 for offset in range(4)}
    first, lost, *rest = [notification(SESSION, sequence, 1) for sequence in sent]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far, Failing(*[error] * 20) as service:
        far.bind(("127.0.0.1", 0))
        service.connect(far.getsockname())

        def answer() -> None:
            _, asker = far.recvfrom(2048)
            far.sendto(lost, asker)

        threading.Thread(target=answer, daemon=True).start()
        # By the summary the second is missing: it is asked for, and asking fails for a while.
        for datagram in (first, *rest, summary_bytes(SESSION, 0, 4 << 26, sent)):
            stream.sendto(datagram, stream.getsockname())
        wires = Wires(stream, None, service)
        stop = StopRequest()
        taken = Taken(stop, wanted=4)
        options = ReceiverOptions(asks=True, timeout=0.001)
        receiver = Receiver(options, time.monotonic(), [SESSION])
        Reception(receiver, wires, taken, HostWatch(wires, "", 0.0)).run(stop, seconds=60)
    assert sorted(taken.sequences) == sorted(sent)
    # Counted all, and said once.
    assert wires.failures.counts.total() == 20
    assert capsys.readouterr().err.count(os.strerror(error)) == 1


@pytest.mark.parametrize("error", UNREACHABLE, ids=errno.errorcode.get)
def test_what_cannot_be_forwarded_is_counted_and_the_next_is_forwarded(error):
    failures = Failures()
    outlet = ForwardOutlet("127.0.0.1", 9, failures)
    outlet.close()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client, Failing(error, error) as far:
        client.bind(("127.0.0.1", 0))
        far.connect(client.getsockname())
        outlet._socket = far
        receiver = Receiver(ReceiverOptions(), 0.0)
        for offset in (1, 2):
            outlet.put(receiver.receive([notification(SESSION, offset << 26, 1)], 0.0).deliveries)
        assert far.sent == [notification(SESSION, 2 << 26, 1)]
    assert failures.counts.total() == 1


def test_errors_that_do_not_end_are_told_now_and_then_with_their_number(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(failures_module.time, "monotonic", lambda: now[0])
    failures = Failures()
    for _ in range(1000):
        failures.add("re-requests", OSError(errno.EPERM, "Operation not permitted"))
        now[0] += 0.1
    told = capsys.readouterr().err.splitlines()
    assert 2 <= len(told) <= 5
    assert told[0].startswith("re-requests: Operation not permitted")
    assert failures.counts["re-requests"] == 1000


def test_an_error_that_stays_leaves_time_for_everything_else(stream):
    with Failing(*[errno.ENETUNREACH] * 100_000) as service:
        wires = Wires(stream, None, service)
        found, more = wires.read(service)
        assert (found, more) == ([], False)
        assert wires.failures.counts.total() == 1
        assert not select.select([stream], [], [], 0)[0]
