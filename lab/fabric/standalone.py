"""One switch in one process: ports in, a data plane, ports out.

The loop takes frames from all ports in turn, so that a busy port does not keep the others waiting.
Tables come over P4Runtime, which is served beside it.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from stackcast.lab.fabric.injections import Injections
from stackcast.lab.fabric.ports import Link, Port
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.switch.data_plane import CPU_PORT, DataPlane
from stackcast.switch.p4runtime.device import Device
from stackcast.switch.p4runtime.endpoint import ServerCredentials, check_listen
from stackcast.switch.p4runtime.files import parse_json, parse_p4info
from stackcast.switch.p4runtime.roles import Roles
from stackcast.switch.p4runtime.server import P4RuntimeServer
from stackcast.udfs.errors import LabError, SwitchError

_IN_TURN = 64
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


@dataclass(frozen=True)
class SwitchOptions:
    """A switch as the command line describes it.

    links: what each port is joined to. grpc: ``HOST:PORT`` of the P4Runtime server. json, p4info:
    the program that runs from the start: both or none. tls_certificate, tls_key: of the server;
    tls_ca: of its clients, which then need a certificate. roles: those configured.
    """

    links: Mapping[int, Link]
    grpc: str
    device_id: int = 1
    json: Path | None = None
    p4info: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_ca: Path | None = None
    roles: Roles = field(default_factory=Roles)


def serve(options: SwitchOptions, say: Callable[[dict[str, Any]], None]) -> None:
    """Run a switch until SIGTERM, SIGINT or SIGHUP; SIGUSR1 tells what it counts.

    ``say`` is given the line that says where it is, once all answers, and the counters. Call it
    from the main thread. A call that is not done when the server stops goes on in its thread: end
    the process then. Raises LabError ``BAD_SWITCH``, ``BAD_TLS``, ``BAD_ADDRESS``, ``PORT_TAKEN``
    and what opening ports raises, and SwitchError ``WRONG_PROGRAM``.
    """
    tls = _credentials(options)
    with _grpc_option():
        check_listen(options.grpc)
    data_plane = SimpleSwitch()
    injections = Injections()
    name = f"device {options.device_id}"
    inject = partial(injections.put, name)
    device = Device(name, options.device_id, data_plane, inject, options.roles)
    if (options.json is None) != (options.p4info is None):
        raise LabError("BAD_SWITCH", "--program and --p4info must be given together")
    if options.json is not None and options.p4info is not None:
        device.install(*_program(options.p4info, options.json))
    switch = StandaloneSwitch(data_plane, open_ports(options.links), injections)
    try:
        with _signals() as wake:
            with _grpc_option():
                server = P4RuntimeServer([device], options.grpc, tls).start()

            def signalled(number: int) -> bool:
                if number == signal.SIGUSR1:
                    say(switch.status())
                return number == signal.SIGUSR1

            try:
                say(
                    {
                        "p4runtime": server.address,
                        "device_id": options.device_id,
                        "ports": {str(n): str(link) for n, link in options.links.items()},
                        "pid": os.getpid(),
                    }
                )
                switch.run(wake, signalled)
                say(switch.status())
            finally:
                server.stop()
    finally:
        switch.close()


@contextmanager
def _grpc_option() -> Iterator[None]:
    """Name the option in errors of the server's address."""
    try:
        yield
    except LabError as error:
        if error.what not in ("BAD_ADDRESS", "PORT_TAKEN"):
            raise
        raise LabError(error.what, f"--grpc: {error.message}", **error.fields) from None


def open_ports(links: Mapping[int, Link]) -> list[Port]:
    """Opens all ports, or none: what one of them raises closes the others."""
    ports: list[Port] = []
    try:
        for number, link in links.items():
            ports.append(link.open(number))
    except LabError:
        for port in ports:
            port.close()
        raise
    return ports


class StandaloneSwitch:
    """Carries frames from ports through ``data_plane`` to ports. Closes the ports at its end.

    ``drops`` counts ``unplugged_port``: copies for a port that the switch lacks.
    """

    def __init__(
        self, data_plane: DataPlane, ports: Iterable[Port], injections: Injections | None = None
    ) -> None:
        self._injections = injections or Injections()
        self.drops: Counter[str] = Counter()
        self._data_plane = data_plane
        self._ports = {port.number: port for port in ports}

    def run(self, wake: socket.socket, signalled: Callable[[int], bool]) -> None:
        """Carry frames until told to stop.

        Parameters
        ----------
        wake: gives one byte for each signal, its number (``signal.set_wakeup_fd``).
        signalled: called with each number; False ends the loop.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(wake, selectors.EVENT_READ, None)
            selector.register(self._injections, selectors.EVENT_READ, None)
            for port in self._ports.values():
                selector.register(port, selectors.EVENT_READ, port)
            while True:
                for key, _ in selector.select():
                    if key.data is not None:
                        self.carry(key.data)
                    elif key.fileobj is self._injections:
                        for _, data in self._injections.take():
                            self._send(CPU_PORT, data)
                    elif not all([signalled(number) for number in wake.recv(64)]):
                        return

    def carry(self, port: Port) -> None:
        """Frames that wait at ``port``, a few at most, out of where the data plane sends them."""
        for _ in range(_IN_TURN):
            frame = port.receive()
            if frame is None:
                return
            self._send(port.number, frame)

    def _send(self, entered: int, frame: bytes) -> None:
        for number, copy in self._data_plane.process(entered, frame):
            egress = self._ports.get(number)
            if egress is None:
                self.drops["unplugged_port"] += 1
            else:
                egress.send(copy)

    def status(self) -> dict[str, Any]:
        """Returns the counts since the start: by port, of all drops by reason, of the program."""
        drops = self.drops + self._data_plane.drops
        if self._injections.lost:
            drops["lost_packet_out"] = self._injections.lost
        for port in self._ports.values():
            drops.update(port.drops)
        return {
            "ports": {
                str(port.number): {
                    "link": port.what,
                    **vars(port.counters),
                    "drops": dict(sorted(port.drops.items())),
                }
                for port in self._ports.values()
            },
            "drops": dict(sorted(drops.items())),
            "counters": {
                name: cells for name, cells in self._data_plane.counters().items() if cells
            },
        }

    def close(self) -> None:
        """Gives sockets and interfaces back."""
        for port in self._ports.values():
            port.close()
        self._injections.close()


def _credentials(options: SwitchOptions) -> ServerCredentials | None:
    if options.tls_certificate is not None and options.tls_key is not None:
        return ServerCredentials(options.tls_certificate, options.tls_key, options.tls_ca)
    if (options.tls_certificate, options.tls_key, options.tls_ca) != (None, None, None):
        raise LabError("BAD_SWITCH", "TLS needs both --tls-certificate and --tls-key")
    return None


def _program(p4info: Path, json: Path) -> tuple[str, bytes]:
    """Both files of a program; what cannot be read is told by file, line and column."""
    config = _contents("--program", json)
    parse_json(config, str(json))
    try:
        text = _contents("--p4info", p4info).decode()
    except UnicodeDecodeError:
        raise SwitchError(
            "WRONG_PROGRAM", f"{p4info} is not a P4Info file in text format"
        ) from None
    parse_p4info(text, str(p4info))
    return text, config


def _contents(option: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise LabError("BAD_SWITCH", f"{option} {path}: {error.strerror}") from None


@contextmanager
def _signals() -> Iterator[socket.socket]:
    """A socket with the number of each signal that comes, as a byte."""
    wake, waker = socket.socketpair()
    waker.setblocking(False)
    before = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
    old = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    try:
        yield wake
    finally:
        signal.set_wakeup_fd(old)
        for number, handler in before.items():
            signal.signal(number, handler)
        wake.close()
        waker.close()
