"""Hosts with real sockets on one software switch that carries replicated states."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import p4_products
from paths import ROOT
from ports import free_port

from stackcast.jobs.adapters.states.credentials import StateCredentials
from stackcast.jobs.adapters.states.links import TunnelLink
from stackcast.jobs.adapters.states.replica import Replica
from stackcast.jobs.adapters.states.service import ControllerService, MiddlewareService, Service
from stackcast.jobs.adapters.switches.p4runtime import SwitchConnection
from stackcast.lab.fabric.injections import Injections
from stackcast.lab.fabric.ports import UdpTunnel
from stackcast.lab.fabric.standalone import StandaloneSwitch
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.switch.p4runtime.device import Device
from stackcast.switch.p4runtime.server import P4RuntimeServer
from stackcast.udfs.states.outputs import Keep, Record
from stackcast.udfs.switches.entry import Difference, SwitchEntry
from stackcast.udfs.switches.ports import port_groups
from stackcast.udfs.switches.state_entries import publishing_port, spanning

LOCAL = "127.0.0.1"
REGISTERS, TABLE = "state_replication", "state_replication_table"


class MemoryStore:
    """The records of a controller, for the next controller of a test."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.kept: dict[tuple[int, int, int, int], Keep] = {}

    def read(self) -> tuple[list[Record], list[tuple[int, bytes]]]:
        kept = [(keep.state, keep.datagram or b"") for keep in self.kept.values()]
        return list(self.records.values()), kept

    def put(self, outputs: list[Record | Keep]) -> None:
        for output in outputs:
            if isinstance(output, Record):
                if output.value is None:
                    self.records.pop(output.key, None)
                else:
                    self.records[output.key] = output
                continue
            key = output.state, output.vnf, output.update, output.segment
            if output.datagram is None:
                self.kept.pop(key, None)
            else:
                self.kept[key] = output


@dataclass
class StateHosts:
    """A switch with a controller at port 1 and ``hosts`` middlewares from port 2 on.

    ``credentials``: of the hosts that have TLS, by port.
    """

    hosts: int
    credentials: dict[int, StateCredentials] = field(default_factory=dict)
    store: MemoryStore = field(default_factory=MemoryStore)
    switch: SimpleSwitch = field(default_factory=SimpleSwitch)
    services: dict[int, tuple[Service, threading.Thread]] = field(default_factory=dict)
    places: dict[int, tuple[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        numbers = range(1, self.hosts + 2)
        self.near, self.far, self.listen = (
            {number: (LOCAL, free_port()) for number in numbers} for _ in range(3)
        )

    @property
    def controller(self) -> ControllerService:
        service = self.services[1][0]
        assert isinstance(service, ControllerService)
        return service

    def start(self, port: int) -> None:
        """Starts the controller, or a middleware."""
        link = TunnelLink(f"10.0.0.{port}", self.far[port], self.near[port])
        service: Service = (
            ControllerService(link, self.listen[1], self.store, credentials=self.credentials.get(1))
            if port == 1
            else MiddlewareService(
                link, self.listen[port], self.listen[1], self.credentials.get(port)
            )
        )
        thread = threading.Thread(target=service.run, daemon=True)
        thread.start()
        self.services[port] = service, thread

    def stop(self, port: int) -> None:
        """Ends one; programs see their connections close."""
        service, thread = self.services.pop(port)
        service.stop()
        thread.join()

    def replica(self, port: int, name: str, state: str = "scanners", **options: bool) -> Replica:
        """A replica on a host, not yet entered; it shows the host's certificate."""
        credentials = self.credentials.get(port)
        return Replica(state, name, self.listen[port], credentials=credentials, **options)


def entries_of(ports: Iterable[int]) -> dict[str, SwitchEntry]:
    """Returns the entries of a switch with hosts 10.0.0.PORT, all of them publishers."""
    entries = [
        *port_groups("s1", list(ports)),
        *(publishing_port("s1", n, 0x0A000000 | n) for n in ports),
        spanning("s1", [], ports),
    ]
    return {entry.key: entry for entry in entries}


@contextmanager
def state_hosts(
    hosts: int,
    *,
    started: bool = True,
    program: str = REGISTERS,
    credentials: dict[int, StateCredentials] | None = None,
) -> Iterator[StateHosts]:
    """Yield hosts on a running switch. Its controller runs if the program keeps ports in a table.

    Args:
        hosts: number of middlewares.
        started: whether replica controller and middlewares are started.
        program: name of the P4 program.
        credentials: of the hosts that have TLS, by port.
    """
    site = StateHosts(hosts, credentials or {})
    ports = range(1, hosts + 2)
    tunnels = [UdpTunnel(site.near[n], site.far[n]).open(n) for n in ports]
    injections = Injections()
    with ExitStack() as ending:
        switch = StandaloneSwitch(site.switch, tunnels, injections)
        ending.callback(switch.close)
        device = Device("s1", 1, site.switch, lambda data: injections.put("s1", data))
        server = P4RuntimeServer([device]).start()
        ending.callback(server.stop)
        info, json = p4_products.products(program)
        with SwitchConnection.connect(server.address, 1, 1, name="s1") as connection:
            connection.ensure_pipeline(info.read_text(), json.read_bytes())
            rows = tuple(entries_of(ports).values())
            assert connection.write(Difference(rows, (), ())) == []
        stop, stopper = socket.socketpair()
        running = threading.Thread(target=switch.run, args=(stopper, lambda number: False))
        running.start()
        ending.callback(stopper.close)
        ending.callback(stop.close)
        ending.callback(running.join)
        ending.callback(stop.send, b"x")
        if program == TABLE:
            command = ("-m", "stackcast.cli.main", "states", "switch-controller", server.address)
            controller = subprocess.Popen(
                [sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE
            )
            ending.callback(lambda: _ended(controller))
            ending.callback(controller.terminate)
            assert controller.stdout is not None and controller.stdout.readline()
        for port in ports if started else ():
            site.start(port)
        try:
            yield site
        finally:
            for port in list(site.services):
                site.stop(port)


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.communicate(timeout=600)
    assert process.returncode == 0


def endpoint(address: tuple[str, int]) -> str:
    """An address as settings and options have it."""
    return f"{address[0]}:{address[1]}"
