"""A lab of hosts that replicate states: switches, the replica controller, and a middleware a host.

Programs on these hosts connect to `ReplicationLab.middlewares`, with `Replica` or as processes of
`ReplicationLab.child`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path
from types import TracebackType

from stackcast.lab.up.broker import free_ports
from stackcast.lab.up.lab import Lab
from stackcast.lab.up.process import Child
from stackcast.udfs.network.network import Network

_READY_S = 120.0


class ReplicationLab:
    """A lab whose hosts have middlewares; a context manager.

    ``lab`` is entered with it, and up by ``lab.up()``; once its switches hold their entries,
    `begin` and `ready` start controller and middlewares, side by side. All ends with it.

    Parameters
    ----------
    folder, network: of the lab. hosts: those with a middleware. controller: the host of the replica
        controller. loss: share of the frames that each link loses.

    After construction: ``middlewares``, ``(ip, port)`` by host.
    """

    def __init__(
        self,
        folder: Path,
        network: Network,
        hosts: Iterable[str],
        controller: str,
        loss: float = 0.0,
    ) -> None:
        self._folder, self._network, self._controller = folder, network, controller
        names = sorted({*hosts, controller})
        free = iter(free_ports(2 * len(names)))
        self._ends = {name: f"127.0.0.1:{next(free)}" for name in names}
        listen = {name: ("127.0.0.1", next(free)) for name in names}
        self._meets = listen.pop(controller)
        self.middlewares = listen
        self.lab = Lab(folder, network, loss=loss, tunnels=self._ends)
        self._stack = ExitStack()
        self._waited: list[Child] = []

    def __enter__(self) -> ReplicationLab:
        self._stack.enter_context(self.lab)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def begin(self) -> None:
        """Starts controller and middlewares, and does not wait for them."""
        meets = "{}:{}".format(*self._meets)
        brokers = ("--bootstrap-servers", self.lab.bootstrap_servers)
        self._waited = [self._states("controller", self._controller, meets, *brokers)]
        self._waited += [
            self._states("middleware", host, "{}:{}".format(*place), "--controller", meets)
            for host, place in self.middlewares.items()
        ]

    def ready(self) -> None:
        """Waits until they serve. Raises LabError."""
        for child in self._waited:
            child.ready(_READY_S)

    def child(self, name: str, *arguments: str) -> Child:
        """Start a process of a Python script, or ``-m`` and a module, which ends with the lab."""
        log = self._folder / "log" / f"{name}.log"
        child = self._stack.enter_context(Child(name, [sys.executable, *arguments], log))
        child.begin()
        return child

    def _states(self, kind: str, host: str, listen: str, *more: str) -> Child:
        address = str(IPv4Address(self._network.host(host).ipv4))
        link = f"udp:{self._ends[host]}/{self.lab.tunnels[host]}"
        said = ("--address", address, "--listen", listen, "--link", link)
        command = ("-m", "stackcast.cli.main", "states", kind)
        return self.child(f"{kind}-{host}", *command, *said, *more)
