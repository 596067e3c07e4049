"""Limits for clients without a token, for slow clients and for floods of requests."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from console_server import TOKEN, serving, stub
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient
from waiting import until

from stackcast.jobs import console as job
from stackcast.jobs.adapters.app.connections import MOST_HEAD_BYTES, MOST_OPEN, Limits, _peer
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.console.application import MOST_BYTES
from stackcast.udfs.errors import SettingsError

pytestmark = pytest.mark.integration

#: Only against hangs, seconds.
PATIENCE = 600.0
DRAFT = {"id": "mine", "subscriber": "h1", "filter": "price > 20"}


def connected(address: str, source: str = "127.0.0.1") -> socket.socket:
    place = urlsplit(address)
    return socket.create_connection((place.hostname, place.port), PATIENCE, (source, 0))


def request(
    address: str, path: str, body: object = None, token: str = TOKEN
) -> tuple[int, http.client.HTTPMessage]:
    """Returns status and headers of an answer."""
    content = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    query = urllib.request.Request(f"{address}{path}", content, headers)
    try:
        with urllib.request.urlopen(query, timeout=PATIENCE) as answer:
            answer.read()
            return answer.status, answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.headers


def is_closed(connection: socket.socket) -> bool:
    """Read for a moment, and return whether the server has closed the connection."""
    connection.settimeout(0.05)
    with contextlib.suppress(TimeoutError):
        try:
            while connection.recv(1 << 16):
                pass
        except ConnectionError:
            pass
        return True
    return False


def test_nothing_is_computed_without_the_token():
    console, view = stub()
    ask = TestClient(console.application, base_url="http://127.0.0.1")
    posts = [route.path for route in console.application.routes if "POST" in route.methods]
    assert len(posts) >= 7
    for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {TOKEN}x"}):
        answers = [ask.post(path, json=DRAFT, headers=headers) for path in posts]
        answers.append(ask.get("/api/letters", headers=headers))
        # The token comes before the size of the body.
        answers += [ask.post(path, content=b" " * (MOST_BYTES + 1)) for path in posts]
        assert {answer.status_code for answer in answers} == {401}
        assert {answer.json()["error"]["code"] for answer in answers} == {"CONSOLE.NO_TOKEN"}
    assert view.calls == []
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert ask.post("/api/preview", json=DRAFT, headers=headers).status_code == 200
    assert view.calls == ["preview"]


def test_a_flood_of_previews_is_refused_and_delays_nothing_else():
    free, most = threading.Event(), 60

    def preview(*_: object) -> dict[str, Any]:
        assert free.wait(PATIENCE)
        return {}

    console, view = stub(preview=preview)
    refused: list[str] = []

    def ask(address: str) -> int:
        status, headers = request(address, "/api/preview", DRAFT)
        if status == 503:
            refused.append(headers["Retry-After"])
        return status

    limits = Limits(per_address=2 * most)
    with serving(console, limits) as address, ThreadPoolExecutor(most) as clients:
        try:
            answers = [clients.submit(ask, address) for _ in range(most)]
            # Two are computed and sixteen wait.
            until(lambda: len(refused) == most - 18 and view.calls)
            assert all(int(seconds) > 0 for seconds in refused)
            for path in ("/api/health", "/metrics", "/api/subscriptions", "/api/network", "/"):
                assert request(address, path)[0] == 200
            assert request(address, "/api/check", DRAFT)[0] == 200
            assert view.calls.count("preview") == 2
        finally:
            free.set()
        statuses = [answer.result() for answer in answers]
    assert statuses.count(200) == view.calls.count("preview") == 18


def test_requests_for_health_at_once_share_one_lookup():
    free = threading.Event()

    def read() -> dict[str, Any]:
        assert free.wait(PATIENCE)
        return {"stream": {}}

    console, view = stub(read=read)
    with serving(console) as address, ThreadPoolExecutor(20) as clients:
        answers = [clients.submit(request, address, "/api/health") for _ in range(20)]
        until(lambda: view.calls == ["read"])
        free.set()
        assert {answer.result()[0] for answer in answers} == {200}
    assert len(view.calls) < 20


HEAD = f"POST /api/check HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
BODY = HEAD + b"Content-Type: application/json\r\nContent-Length: 60000\r\n\r\n"


@pytest.mark.parametrize(
    ("begin", "drop"),
    [
        (b"", b""),
        (b"", b"G"),
        (HEAD, b"x"),
        (BODY, b" "),
        (b"POST /api/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 60000\r\n\r\n", b" "),
        (b"GET /api/network HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"G"),
    ],
    ids=["says nothing", "line", "headers", "body", "body without a token", "second request"],
)
def test_a_client_that_sends_single_bytes_is_closed_and_an_open_page_is_not(
    begin: bytes, drop: bytes
):
    console, _ = stub()
    with serving(console, Limits(request_seconds=0.5)) as address:
        pages = urllib.request.urlopen(f"{address}/api/news", timeout=PATIENCE)
        with pages as news, connected(address) as slow:
            assert news.readline().startswith(b"data: ")
            slow.sendall(begin)
            # The time between two bytes stays short.
            while not is_closed(slow):
                with contextlib.suppress(ConnectionError):
                    slow.send(drop)
            for _ in range(4):
                assert news.readline()


NEWS = b"GET /api/news HTTP/1.1\r\nHost: 127.0.0.1\r\n"
BEARER = f"Authorization: Bearer {TOKEN}\r\n".encode()


def follows(connection: socket.socket, head: bytes = NEWS) -> bool:
    """Ask for news, and return whether the server sends them."""
    with contextlib.suppress(ConnectionError):
        connection.sendall(head + b"\r\n")
        return connection.recv(12) == b"HTTP/1.1 200"
    return False


def are_open(*connections: socket.socket) -> list[bool]:
    """Read what has arrived, and return which connections the server has not closed."""
    opened = []
    for connection in connections:
        connection.setblocking(False)
        try:
            while connection.recv(1 << 16):
                pass
            opened.append(False)
        except BlockingIOError:
            opened.append(True)
        except ConnectionError:
            opened.append(False)
    return opened


def test_connections_are_limited_per_address_and_those_with_the_token_stay():
    console, _ = stub()
    limits = Limits(per_address=3, request_seconds=PATIENCE)
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(serving(console, limits))

        def connect(source: str = "127.0.0.1") -> socket.socket:
            return stack.enter_context(connected(address, source))

        without = [connect() for _ in range(8)]
        until(lambda: are_open(*without) == [False] * 5 + [True] * 3)
        other = connect("127.0.0.2")
        # A new connection takes the place of the oldest one without the token.
        having = []
        for _ in range(3):
            having.append(connect())
            assert follows(having[-1], NEWS + BEARER)
        until(lambda: not any(are_open(*without)))
        refused = [connect() for _ in range(3)]
        assert not any(map(follows, refused))
        assert follows(other) and all(are_open(other, *having))
        having.pop().close()
        until(lambda: _answers(address))


def test_clients_without_the_token_do_not_shut_out_those_with_it():
    console, _ = stub()
    sources = [f"127.0.0.{number}" for number in range(2, 10)]
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(serving(console, Limits(request_seconds=PATIENCE)))
        page, viewer = (stack.enter_context(connected(address)) for _ in range(2))
        assert follows(page, NEWS + BEARER) and follows(viewer)
        flood = []
        for source in sources * 64:
            flood.append(stack.enter_context(connected(address, source)))
            assert follows(flood[-1])
        until(lambda: sum(are_open(*flood)) == MOST_OPEN - 1)
        # Not even a client without the token loses its place to addresses that have many.
        assert all(are_open(page, viewer))
        assert request(address, "/api/check", DRAFT)[0] == 200
        assert follows(stack.enter_context(connected(address)), NEWS + BEARER)


def test_requests_without_the_token_do_not_delay_those_with_it():
    free, most = threading.Event(), 80

    def drawn() -> str:
        assert free.wait(PATIENCE)
        return ""

    console, view = stub(drawn=drawn)
    refused = []

    def ask(address: str) -> None:
        if request(address, "/api/network", token="wrong")[0] == 503:
            refused.append(address)

    limits = Limits(per_address=2 * most)
    with serving(console, limits) as address, ThreadPoolExecutor(most) as clients:
        try:
            answers = [clients.submit(ask, address) for _ in range(most)]
            # Two are computed and 64 wait.
            until(lambda: len(refused) == most - 66)
            for path, body in (("/api/subscriptions", None), ("/api/check", DRAFT), ("/", None)):
                assert request(address, path, body)[0] == 200
            assert request(address, "/api/subscriptions", token="wrong")[0] == 503
            assert view.calls.count("drawn") == 2
        finally:
            free.set()
        for answer in answers:
            answer.result()


def _answers(address: str) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        return request(address, "/api/health")[0] == 200
    return False


def test_a_client_that_does_not_read_its_answer_is_closed():
    console, _ = stub(drawn=lambda: "x" * (32 << 20))
    limits = Limits(per_address=1, response_seconds=0.3)
    with serving(console, limits) as address, connected(address) as deaf:
        # A connection without the token would be closed for another one.
        deaf.sendall(b"GET /api/network HTTP/1.1\r\nHost: 127.0.0.1\r\n" + BEARER + b"\r\n")
        assert deaf.recv(12) == b"HTTP/1.1 200"
        # There is room for another connection once this one is closed.
        until(lambda: _answers(address))


def test_a_client_that_reads_slowly_gets_its_whole_answer():
    console, _ = stub(drawn=lambda: "x" * (32 << 20))
    limits = Limits(request_seconds=0.3)
    with serving(console, limits) as address, connected(address) as slow:
        slow.sendall(b"GET /api/network HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        size = len(slow.recv(1 << 16))
        # The time for a request to arrive passes twice.
        for _ in range(2):
            with connected(address) as idle:
                until(lambda idle=idle: is_closed(idle))
        while size < 32 << 20:
            part = slow.recv(1 << 20)
            assert part, f"closed after {size} bytes"
            size += len(part)


@pytest.fixture
def errors() -> Iterator[list[logging.LogRecord]]:
    """Records of the log of level ERROR."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = records.append  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    yield records
    logging.getLogger().removeHandler(handler)


def test_any_bytes_are_refused_without_a_traceback(
    errors: list[logging.LogRecord],
):
    console, _ = stub()
    parts = st.sampled_from(
        [
            *(b"GET ", b"POST ", b"CONNECT ", b"/", b"/api/check", b"/api/save?\xff", b"*"),
            *(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", b" HTTP/9.9\r\n", b"\r\n", b"\n", b"\r\n\r\n"),
            *(b"Host: 127.0.0.1\r\n", b"Host: [\r\n", b"Content-Length: -1\r\n"),
            *(b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"fffffffff\r\n"),
            *(b"Upgrade: websocket\r\nConnection: upgrade\r\n", b"Expect: 100-continue\r\n"),
            *(b"Authorization: \xff\r\n", b"a: " + b"x" * MOST_HEAD_BYTES + b"\r\n", b"{}"),
            f"Authorization: Bearer {TOKEN}\r\n".encode(),
        ]
    ) | st.binary(max_size=8)

    with serving(console, Limits(request_seconds=0.2)) as address:

        @examples(300)
        @given(st.lists(parts, max_size=12))
        def send(sent: list[bytes]) -> None:
            with connected(address) as connection:
                with contextlib.suppress(ConnectionError):
                    connection.sendall(b"".join(sent))
                    connection.shutdown(socket.SHUT_WR)
                answer = b""
                with contextlib.suppress(ConnectionError):
                    while part := connection.recv(1 << 16):
                        answer += part
            assert not answer or answer[:9] == b"HTTP/1.1 "
            assert answer[9:10] in (b"", b"1", b"2", b"4"), answer

        send()
        assert request(address, "/api/health")[0] == 200
    assert errors == []


def test_a_client_that_disconnects_during_a_request_leaves_no_traceback(
    errors: list[logging.LogRecord],
):
    console, view = stub()
    with serving(console, Limits(per_address=1)) as address:
        with connected(address) as leaving:
            leaving.sendall(BODY.removesuffix(b"\r\n") + b"Expect: 100-continue\r\n\r\n")
            # Before the server has read the token, another connection would replace this one.
            assert leaving.recv(12) == b"HTTP/1.1 100"
            leaving.sendall(b"{")
            # It is the one connection that the address may have.
            assert not _answers(address)
        until(lambda: _answers(address))
    assert errors == [] and "check" not in view.calls


def started(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> Lifecycle:
    """Start the job with a console that has no tables, and end it once it serves."""
    lifecycle = Lifecycle()
    monkeypatch.setattr(job, "console", lambda *_: stub()[0])
    lifecycle.stopping.set()
    assert job.serve(job.parser().parse_args(arguments), Settings(), lifecycle) == 0
    return lifecycle


def test_the_token_is_never_logged_and_is_printed_only_without_a_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    started(["--listen", "127.0.0.1:0", "--token-file", str(file)], monkeypatch)
    shown = capsys.readouterr()
    assert "http://127.0.0.1:" in shown.out and str(file) in shown.out
    assert TOKEN not in shown.out + shown.err + caplog.text
    monkeypatch.setattr(job.secrets, "token_urlsafe", lambda _: "one-made-at-the-start")
    started(["--listen", "127.0.0.1:0"], monkeypatch)
    shown = capsys.readouterr()
    assert "/#token=one-made-at-the-start" in shown.out
    assert "one-made-at-the-start" not in shown.err + caplog.text


@pytest.mark.parametrize("token", ["short", "", "with blanks in it", "ein-Schlüssel-mit-ü"])
def test_a_token_that_no_header_can_contain_is_refused(tmp_path: Path, token: str):
    (tmp_path / "token").write_text(token, encoding="utf-8")
    with pytest.raises(SettingsError, match="BAD_VALUE"):
        job.token_of(tmp_path / "token")


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_all_addresses_of_a_host_count_together(address: str, peer: str):
    assert _peer(address) == peer
