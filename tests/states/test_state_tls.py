"""Replicated state over TLS: only holders of a certificate of the authority take part.

A stranger reads and changes nothing and delays no other connection, both sides report why a
connection fails, and certificates are replaced without a restart.
"""

from __future__ import annotations

import contextlib
import logging
import random
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import certificates
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from state_hosts import LOCAL, MemoryStore, StateHosts, endpoint, state_hosts
from typer.testing import CliRunner
from waiting import until

from stackcast.cli.states import app
from stackcast.jobs.adapters.states import service
from stackcast.jobs.adapters.states.client import StatesClient
from stackcast.jobs.adapters.states.credentials import StateCredentials
from stackcast.jobs.adapters.states.links import TunnelLink
from stackcast.jobs.adapters.states.replica import Replica
from stackcast.jobs.adapters.states.service import ControllerService, MiddlewareService
from stackcast.udfs.errors import StateError
from stackcast.udfs.states.messages import Signal, SignalKind

pytestmark = pytest.mark.integration

#: Only against hangs.
WAIT_S = 600.0


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates for the controller (h1), for two hosts, and for others."""
    folder = certificates.make(tmp_path_factory.mktemp("tls"), "h1")
    for host in (2, 3):
        certificates.sign(folder, f"h{host}", names=f"IP:{LOCAL},IP:10.0.0.{host}")
    certificates.sign(folder, "elsewhere", names="DNS:elsewhere,IP:10.0.0.2")
    return folder


def shown_by(pems: Path, name: str, ca: str = "ca") -> StateCredentials:
    return StateCredentials(f"{pems}/{ca}.pem", f"{pems}/{name}.pem", f"{pems}/{name}.key")


@pytest.fixture
def hosts(pems: Path) -> Iterator[StateHosts]:
    credentials = {port: shown_by(pems, f"h{port}") for port in (1, 2, 3)}
    with state_hosts(2, credentials=credentials) as hosts:
        yield hosts


def connect(
    address: tuple[str, int], credentials: StateCredentials | None, ca: Path | None = None
) -> socket.socket:
    """Returns a connection; with TLS after its handshake, by the ssl module alone."""
    peer = socket.create_connection(address, timeout=WAIT_S)
    if credentials is None and ca is None:
        return peer
    context = ssl.create_default_context(cafile=str(ca or credentials.ca))  # type: ignore[union-attr]
    if credentials is not None:
        context.load_cert_chain(credentials.certificate, credentials.key)
    return context.wrap_socket(peer, server_hostname=address[0])


def is_closed(peer: socket.socket) -> bool:
    """Waits until the other side ends a connection without having sent a signal."""
    with contextlib.suppress(ConnectionResetError, ssl.SSLError):
        while data := peer.recv(4096):
            assert data[:2] == b"\x15\x03", data  # an alert of TLS, to a client that speaks none
    return True


# With certificates


def test_updates_reach_all_replicas_and_the_controller(hosts: StateHosts) -> None:
    large = random.Random(1).randbytes(300_000)
    with hosts.replica(2, "a") as a, hosts.replica(3, "b") as b:
        a.publish(b"first")
        b.publish(large)
        for program in (a, b):
            until(lambda program=program: program.values == {"a": b"first", "b": large})
            program.flush(WAIT_S)
        # All connections begin again, and no update of the time between is lost.
        hosts.stop(1)
        hosts.stop(2)
        a.publish(b"last")
        hosts.start(1)
        hosts.start(2)
        until(lambda: b.values == {"a": b"last", "b": large})
        a.flush(WAIT_S)


def test_threads_of_a_program_publish_while_updates_arrive(hosts: StateHosts) -> None:
    names = [f"state {number}" for number in range(4)]

    def publish(client: StatesClient, name: str, seed: int) -> None:
        rng = random.Random(seed)
        for number in range(30):
            client.publish(name, b"%d " % number + rng.randbytes(rng.choice([0, 100, 60_000])))

    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(
                StatesClient(f"program {port}", hosts.listen[port], hosts.credentials[port])
            )
            for port in (2, 3)
        ]
        for client in clients:
            for name in names:
                client.subscribe(name)
        threads = [
            threading.Thread(target=publish, args=(client, name, place))
            for client in clients
            for place, name in enumerate(names)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for client in clients:
            client.flush(WAIT_S)

        def numbers(client: StatesClient, name: str) -> dict[str, bytes]:
            return {who: data.split()[0] for who, data in client.values(name).items()}

        last = {"program 2": b"29", "program 3": b"29"}
        for client in clients:
            for name in names:
                until(lambda client=client, name=name: numbers(client, name) == last)


def test_commands_take_part_with_certificates(hosts: StateHosts, pems: Path) -> None:
    place = ["--middleware", endpoint(hosts.listen[2])]
    files = {"--tls-ca": "ca.pem", "--tls-certificate": "h2.pem", "--tls-key": "h2.key"}
    shown = [word for option, file in files.items() for word in (option, f"{pems}/{file}")]
    with hosts.replica(3, "reader") as reader:
        ran = CliRunner().invoke(
            app, ["publish", "scanners", "--name", "w", *place, *shown], input="21\n22\n"
        )
        assert ran.exit_code == 0, ran.output
        until(lambda: reader.values == {"w": b"22"})
        ran = CliRunner().invoke(app, ["subscribe", "scanners", "--count", "1", *place, *shown])
        assert ran.exit_code == 0 and '"data": "22"' in ran.output


# Without


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (None, "sent no certificate"),
        ("stranger", "unable to get local issuer certificate"),
        ("expired", "certificate has expired"),
    ],
)
def test_no_program_connects_without_a_valid_certificate_of_the_authority(
    hosts: StateHosts, pems: Path, caplog: pytest.LogCaptureFixture, name: str | None, words: str
) -> None:
    shown = None if name is None else shown_by(pems, name)
    for port in (1, 2):
        caplog.clear()
        with connect(hosts.listen[port], shown, pems / "ca.pem") as peer:
            # TLS 1.3 lets a client speak before the server has looked at its certificate.
            with contextlib.suppress(OSError):
                peer.sendall(Signal(SignalKind.INIT_VNF, data=b"intruder").pack())
            assert is_closed(peer)
        until(lambda: "STATE.BAD_TLS: " in caplog.text and words in caplog.text)
    known = hosts.controller.controller._facts.programs.known
    assert not known and not hosts.services[2][0].middleware._programs
    with hosts.replica(2, "a") as a:
        a.publish(b"1")
        a.flush(WAIT_S)


@pytest.mark.parametrize(
    ("name", "ca", "words"),
    [
        ("stranger", "ca", "the other side rejected our certificate: unknown ca"),
        (
            "h2",
            "other",
            "the other side is not valid: self-signed certificate in certificate chain",
        ),
    ],
)
def test_a_program_says_why_its_middleware_cannot_be_used(
    hosts: StateHosts,
    pems: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    ca: str,
    words: str,
) -> None:
    with Replica("scanners", "a", hosts.listen[2], credentials=shown_by(pems, name, ca)) as program:
        program.publish(b"1")
        until(lambda: words in caplog.text)
        with pytest.raises(StateError, match=r"STATE\.NOT_CONFIRMED: .*STATE\.BAD_TLS: ") as raised:
            program.flush(1.0)
        assert words in str(raised.value)
    lines = [record.getMessage() for record in caplog.records if words in record.getMessage()]
    assert len([line for line in lines if line.startswith("middleware at ")]) == 1


def test_a_server_whose_certificate_names_another_host_gets_no_signal(
    pems: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with state_hosts(1, started=False) as hosts:
        hosts.credentials = {1: shown_by(pems, "elsewhere"), 2: shown_by(pems, "h2")}
        hosts.start(1)
        hosts.start(2)
        wrong = f"controller at {endpoint(hosts.listen[1])} is not reachable (STATE.BAD_TLS: "
        until(lambda: wrong in caplog.text and "IP address mismatch" in caplog.text)
        assert not hosts.controller.controller._addresses
        hosts.credentials[2] = shown_by(pems, "elsewhere")
        hosts.stop(2)
        hosts.start(2)
        program = Replica("scanners", "a", hosts.listen[2], credentials=shown_by(pems, "h2"))
        caplog.clear()
        with program:
            until(lambda: "middleware at " in caplog.text and "IP address mismatch" in caplog.text)
        assert not hosts.services[2][0].middleware._programs


@pytest.mark.parametrize("server_has_tls", [True, False])
def test_tls_on_one_side_only_is_reported_on_both(
    pems: Path, caplog: pytest.LogCaptureFixture, server_has_tls: bool
) -> None:
    speaks, does_not = (
        r"STATE\.BAD_TLS: the other side uses TLS, but this side does not",
        r"STATE\.BAD_TLS: the other side does not seem to use TLS",
    )
    server, client = (does_not, speaks) if server_has_tls else (speaks, does_not)

    def logged(begin: str, words: str) -> Callable[[], bool]:
        return lambda: any(
            record.getMessage().startswith(begin) and _is_in(words, record.getMessage())
            for record in caplog.records
        )

    with state_hosts(1, started=False) as hosts:
        # Between middleware and controller.
        hosts.credentials = {1 if server_has_tls else 2: shown_by(pems, "h2")}
        hosts.start(1)
        hosts.start(2)
        until(logged("the replica controller at ", client))
        until(logged("closed the connection from ", server))
        assert not hosts.controller.controller._addresses
        # Between program and middleware.
        hosts.stop(2)
        caplog.clear()
        hosts.credentials = {2: shown_by(pems, "h2")} if server_has_tls else {}
        hosts.start(2)
        shown = None if server_has_tls else shown_by(pems, "h2")
        with Replica("scanners", "a", hosts.listen[2], credentials=shown):
            until(logged("middleware at ", client))
            until(logged("closed the connection from ", server))
        assert not hosts.services[2][0].middleware._programs


def _is_in(pattern: str, text: str) -> bool:
    return pattern.replace("\\", "") in text


def test_a_host_speaks_only_for_the_address_in_its_certificate(
    hosts: StateHosts, pems: Path, caplog: pytest.LogCaptureFixture
) -> None:
    until(lambda: set(hosts.controller.controller._addresses.values()) == {0x0A000002, 0x0A000003})
    with connect(hosts.listen[1], shown_by(pems, "h3")) as peer:
        peer.sendall(Signal(SignalKind.LEASE, data=bytes([10, 0, 0, 2])).pack())
        peer.sendall(Signal(SignalKind.INIT_VNF, data=b"in the name of host 2").pack())
        assert is_closed(peer)
    until(lambda: "is not valid for 10.0.0.2, the address that it reports" in caplog.text)
    assert not hosts.controller.controller._facts.programs.known
    # A middleware of this host refuses to start.
    link = TunnelLink("10.0.0.2", (LOCAL, 0), hosts.near[2])
    try:
        with pytest.raises(
            StateError, match=r"STATE\.BAD_TLS: .*h3\.pem is not valid for 10\.0\.0\.2"
        ):
            MiddlewareService(link, (LOCAL, 0), hosts.listen[1], shown_by(pems, "h3"))
    finally:
        link.close()


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (("ca.pem", "h2.pem", ""), "set all three"),
        (("ca.pem", "", ""), "set all three"),
        (("", "h2.pem", "h2.key"), "set all three"),
        (("ca.pem", "h2.pem", "h3.key"), "belongs to"),
        (("h2.key", "h2.pem", "h2.key"), "contains no certificate"),
        (("ca.pem", "server.pem", "locked.key"), "without password"),
        (("ca.pem", "h2.pem", "gone.key"), "No such file"),
        (("ca.pem", "h2.pem", "."), "Is a directory"),
        (("ca.pem", "h2.pem", "\0"), "null byte"),
        (("ca.pem", "expired.pem", "expired.key"), "certificate has expired"),
    ],
)
def test_files_that_do_not_fit_are_reported_at_the_start(
    pems: Path, files: tuple[str, str, str], words: str
) -> None:
    shown = StateCredentials(*(name and f"{pems}/{name}" for name in files))
    assert not shown.plain
    link = TunnelLink("10.0.0.2", (LOCAL, 0), (LOCAL, 9))
    starts: list[Callable[[], object]] = [
        lambda: StatesClient("a", (LOCAL, 1), shown),
        lambda: MiddlewareService(link, (LOCAL, 0), (LOCAL, 1), shown),
        lambda: ControllerService(link, (LOCAL, 0), MemoryStore(), credentials=shown),
    ]
    try:
        for start in starts:
            with pytest.raises(StateError, match=r"^STATE\.BAD_TLS: ") as raised:
                start()
            assert words in str(raised.value)
            assert "BEGIN" not in f"{raised.value}{shown!r}"
    finally:
        link.close()


def test_a_service_without_tls_warns_unless_it_listens_on_loopback(
    pems: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def start(host: str, shown: StateCredentials | None) -> str:
        caplog.clear()
        link = TunnelLink("10.0.0.2", (LOCAL, 0), (LOCAL, 9))
        ControllerService(link, (host, 0), MemoryStore(), credentials=shown)._close()
        return caplog.text

    assert "neither encrypted nor authenticated" in start("0.0.0.0", None)
    assert not start(LOCAL, None)
    assert not start("0.0.0.0", shown_by(pems, "h2"))


# Connections that delay others


def test_silent_connections_delay_no_others_and_are_closed(
    hosts: StateHosts, pems: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only the number of connections closes one, until the test lets their time pass.
    monkeypatch.setattr(service, "MOST_NEW", 8)
    monkeypatch.setattr(service, "PATIENCE", WAIT_S)
    with contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(hosts.listen[port], timeout=WAIT_S))
            for port in (1, 2)
            for _ in range(20)
        ]
        for place, peer in enumerate(silent):
            with contextlib.suppress(OSError):
                peer.sendall(b"\x16\x03\x01"[: place % 4])
        # They also come after the handshake.
        introduced = stack.enter_context(connect(hosts.listen[2], shown_by(pems, "h3")))
        with hosts.replica(2, "a") as a, hosts.replica(3, "b") as b:
            a.publish(b"1")
            a.flush(WAIT_S)
            until(lambda: b.values == {"a": b"1"})
            for oldest in (*silent[:12], *silent[20:32]):
                assert is_closed(oldest)
            monkeypatch.setattr(service, "PATIENCE", 0.0)
            for port in (1, 2):
                late = stack.enter_context(
                    socket.create_connection(hosts.listen[port], timeout=WAIT_S)
                )
                waiting = hosts.services[port][0]._new
                waiting.update(dict.fromkeys(list(waiting), 0.0))
                assert is_closed(late)
            for peer in (*silent, introduced):
                assert is_closed(peer)
            a.publish(b"2")
            a.flush(WAIT_S)
            until(lambda: b.values == {"a": b"2"})


@examples(60)
@given(st.lists(st.binary(min_size=1, max_size=600), max_size=4), st.booleans())
def test_the_service_survives_any_bytes_of_a_stranger(
    served: StateHosts, chunks: list[bytes], is_controller: bool
) -> None:
    with socket.create_connection(served.listen[1 if is_controller else 2], timeout=WAIT_S) as peer:
        with contextlib.suppress(OSError):
            for chunk in chunks:
                peer.sendall(chunk)
            peer.shutdown(socket.SHUT_WR)
        assert is_closed(peer)
    with served.replica(2, "a", subscribes=False) as program:
        program.publish(b"1")
        program.flush(WAIT_S)


@pytest.fixture(scope="module")
def served(pems: Path) -> Iterator[StateHosts]:
    with state_hosts(1, credentials={n: shown_by(pems, f"h{n}") for n in (1, 2)}) as hosts:
        yield hosts


# Rotation


def serial(hosts: StateHosts, port: int, shown: StateCredentials) -> str:
    """Returns the serial number of the certificate that a service shows."""
    with connect(hosts.listen[port], shown) as peer:
        assert isinstance(peer, ssl.SSLSocket)
        certificate = peer.getpeercert()
    assert certificate is not None
    return str(certificate["serialNumber"])


def test_certificates_and_authority_are_replaced_while_all_runs(
    pems: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for name in ("ca.pem", "h1.pem", "h1.key", "h2.pem", "h2.key"):
        shutil.copy(pems / name, tmp_path)
    credentials = {port: shown_by(tmp_path, f"h{port}") for port in (1, 2)}
    client = shown_by(pems, "h3")
    with state_hosts(1, credentials=credentials) as hosts, hosts.replica(2, "a") as program:
        program.publish(b"1")
        program.flush(WAIT_S)
        before = {port: serial(hosts, port, client) for port in (1, 2)}
        # A key without its certificate: the previously loaded files remain in use.
        certificates.sign(pems, "new", names=f"IP:{LOCAL},IP:10.0.0.2")
        for port in (1, 2):
            shutil.copy(pems / "new.key", tmp_path / f"h{port}.key")
            assert serial(hosts, port, client) == before[port]
        assert "the previously loaded files remain in use" in caplog.text
        for port in (1, 2):
            shutil.copy(pems / "new.pem", tmp_path / f"h{port}.pem")
            assert serial(hosts, port, client) not in before.values()
        # Existing connections continue, and new ones succeed, also to the controller.
        program.publish(b"2")
        program.flush(WAIT_S)
        hosts.services[2][0]._connections[0].socket.shutdown(socket.SHUT_RDWR)
        program.publish(b"3")
        program.flush(WAIT_S)
        # The authority is replaced: a program with a certificate of the old one is refused.
        certificates.sign(pems, "moved", "other", names=f"IP:{LOCAL},IP:10.0.0.2")
        for port in (1, 2):
            for end in ("pem", "key"):
                shutil.copy(pems / f"moved.{end}", tmp_path / f"h{port}.{end}")
        shutil.copy(pems / "other.pem", tmp_path / "ca.pem")
        with connect(hosts.listen[2], client, pems / "other.pem") as peer:
            assert is_closed(peer)
        hosts.services[2][0]._connections[0].socket.shutdown(socket.SHUT_RDWR)
        with hosts.replica(2, "b") as other:
            other.publish(b"4")
            other.flush(WAIT_S)
        # The program's own connection began under the old authority, and continues.
        program.publish(b"5")
        program.flush(WAIT_S)


def test_a_program_that_was_refused_is_served_when_its_files_are_corrected(
    hosts: StateHosts, pems: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for end in ("pem", "key"):
        shutil.copy(pems / f"stranger.{end}", tmp_path / f"own.{end}")
    shown = replace(shown_by(tmp_path, "own"), ca=f"{pems}/ca.pem")
    with Replica("scanners", "a", hosts.listen[2], credentials=shown) as program:
        program.publish(b"1")
        until(lambda: "rejected our certificate" in caplog.text)
        for end in ("pem", "key"):
            shutil.copy(pems / f"client.{end}", tmp_path / f"own.{end}")
        program.flush(WAIT_S)
