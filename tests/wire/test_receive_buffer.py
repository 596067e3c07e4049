"""Receive buffers of real sockets: sizes that the kernel cuts, and datagrams that it drops."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest
from ports import free_port

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.replay import service
from stackcast.jobs.adapters.states import links
from stackcast.jobs.adapters.states.links import GroupLink
from stackcast.jobs.adapters.wire.receive_buffer import dropped, enlarge_receive_buffer, shortfall

pytestmark = pytest.mark.integration

#: More than any process gets.
TOO_MUCH = (1 << 31) - 1


@pytest.fixture
def wire() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:
        it.bind(("127.0.0.1", 0))
        it.setblocking(False)
        yield it


def test_a_size_that_the_kernel_grants_is_not_reported(wire: socket.socket) -> None:
    enlarge_receive_buffer(wire, 100_000)
    assert shortfall(wire, 100_000) == ""


def test_a_size_that_the_kernel_cuts_is_reported_with_both_sizes_and_a_remedy(
    wire: socket.socket,
) -> None:
    enlarge_receive_buffer(wire, TOO_MUCH)
    granted = wire.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
    text = shortfall(wire, TOO_MUCH)
    assert f"receive buffer of {TOO_MUCH:,} bytes, but the kernel granted {granted:,}" in text
    assert text.endswith(f"sysctl -w net.core.rmem_max={TOO_MUCH}")


def test_every_datagram_is_received_or_counted_as_dropped(wire: socket.socket) -> None:
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000)
    assert dropped(wire) == 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(1_000):
            sender.sendto(bytes(100), wire.getsockname())
    received = 0
    with pytest.raises(BlockingIOError):
        while wire.recv(200):
            received += 1
    assert 0 < received < 1_000
    assert received + dropped(wire) == 1_000


def test_a_link_of_states_logs_a_buffer_that_the_kernel_cut(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(links, "_BUFFER", TOO_MUCH)
    with caplog.at_level(logging.WARNING):
        GroupLink("127.0.0.1", free_port()).close()
    assert "net.core.rmem_max" in caplog.text


def test_the_service_of_re_requests_logs_a_buffer_that_the_kernel_cut(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service, "_RECEIVE_BUFFER", TOO_MUCH)
    settings = replace(Settings(), rerequest_listen=f"127.0.0.1:{free_port()}")
    with caplog.at_level(logging.WARNING):
        service._listen(settings).close()
    assert "spark.stackcast.rerequest.listen: requested a receive buffer" in caplog.text
