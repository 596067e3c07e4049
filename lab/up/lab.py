"""The lab as one object: a Kafka broker and a network of software switches and hosts.

One lab a folder, held by a lock that ends with its process. Everything the lab starts is a child
of this process and ends with it.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

from stackcast.lab.fabric.hosts import check_external, receivers
from stackcast.lab.up.broker import Broker, default_class_path
from stackcast.lab.up.folder import FolderLock, clear
from stackcast.lab.up.process import Child
from stackcast.requirements import java_program
from stackcast.udfs.errors import LabError
from stackcast.udfs.network.encodings import label_bits
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.rows import network_to_rows

_READY_S = 60
_ANSWER_S = 60


class Lab:
    """Broker and network, brought up and taken down together; a context manager.

    Entering takes the folder, which must be new, empty or a lab's
    (`stackcast.lab.up.folder.claim`), so that it may be prepared; ``clear`` removes what an earlier
    run left; ``up`` starts things; leaving takes everything down and gives the folder back.

    Parameters
    ----------
    folder: ``broker``, ``log`` and ``receipts`` (what each host received) are written below it.
    network: the network to run.
    external: address (``ip:port``) by host, of hosts whose datagrams another program receives;
        these have no receipts.
    tunnels: the same, of hosts whose programs send and get whole frames; ``tunnels`` has after
        ``up`` where to.
    jars: class path of the broker; ``default_class_path()`` by default.
    java: the Java executable; that of ``JAVA_HOME``, else the first of the path, by default.
    broker: whether there is a broker, which needs Java; a network that matches needs none.
    loss: share of the frames that each link loses.

    After ``up``: ``bootstrap_servers`` (``host:port``), ``p4runtime`` (``host:port``, all switches
    by their device id), ``ingress`` (publisher host to ``host:port`` of its UDP tunnel), ``hosts``
    (names of those that may receive).
    """

    def __init__(
        self,
        folder: str | Path,
        network: Network,
        jars: Iterable[str | Path] | None = None,
        java: str | None = None,
        external: Mapping[str, str] = MappingProxyType({}),
        broker: bool = True,
        loss: float = 0.0,
        tunnels: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        check_external(external, network.subscribers())
        check_external(tunnels, network.hosts, "--tunnel-host")
        self.folder = Path(folder).absolute()
        self.network = network
        self.hosts: tuple[str, ...] = receivers(network)
        self.bootstrap_servers = ""
        self.p4runtime = ""
        self.ingress: dict[str, str] = {}
        self.tunnels: dict[str, str] = {}
        self._external = dict(external)
        self._tunnels = dict(tunnels)
        self._with_broker = broker
        self._loss = loss
        self._jars = jars
        self._java = java or java_program()
        self._lock = FolderLock(self.folder)
        self._broker: Broker | None = None
        self._switches: Child | None = None

    def __enter__(self) -> Lab:
        self._lock.take()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    def clear(self) -> None:
        """Removes tables, checkpoint, receipts, broker data and reports of an earlier run.

        Between entering and ``up``. Raises ``LabError`` ``FOLDER_NOT_EMPTIED``.
        """
        if not self._lock.held or self._broker is not None or self._switches is not None:
            raise LabError(
                "FOLDER_NOT_EMPTIED", f"{self.folder} can only be cleared before up() is called"
            )
        clear(self.folder)

    def up(self) -> Lab:
        """Starts everything; returns when all of it answers. What fails takes the rest down.

        Errors: ``LabError`` ``BUSY``, ``NO_BROKER_JARS``, ``BROKER_FAILED``, ``CHILD_FAILED``.
        """
        if not self._lock.held:
            self._lock.take()
        try:
            if self._with_broker:
                jars = self._jars if self._jars is not None else default_class_path()
                self._broker = Broker(jars, self.folder / "broker", self._java)
                self._broker.begin()
            self._start_network()
            if self._broker is not None:
                self.bootstrap_servers = self._broker.start().bootstrap_servers
        except BaseException:
            self.down()
            raise
        return self

    def down(self) -> None:
        """Ends everything, waits until it is gone, and frees the folder. May be called twice.

        A second Ctrl-C does not cut it short: parts that outlive the lock would be in the way of
        the next lab.
        """
        with _deaf_to_interrupts():
            try:
                if self._switches is not None:
                    self._switches.stop()
            finally:
                self._switches = None
                try:
                    if self._broker is not None:
                        self._broker.stop()
                finally:
                    self._broker = None
                    self._lock.free()

    def check(self) -> None:
        """Raises ``LabError`` ``DIED`` if broker or network have ended by themselves."""
        for what, part in (("Kafka broker", self._broker), ("network", self._switches)):
            if part is not None and not part.alive():
                raise LabError(
                    "DIED", f"the {what} has ended unexpectedly; its logs are in {self.folder}"
                )

    def status(self) -> dict[str, Any]:
        """Returns the network's counts: frames, bytes by link, drops by reason, by host."""
        return self.ask({"command": "status"})

    def plug(self, one: str, other: str, up: bool) -> None:
        """Brings the links between two switches up or down. Tables say nothing of it by themselves,
        as a cable that somebody pulls does not either."""
        self.ask({"command": "link", "between": [one, other], "up": up})

    def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        """Give the network a command of `stackcast.lab.fabric.network`, and return its answer."""
        if self._switches is None:
            raise LabError("NOT_UP", "the lab is not running: call up() first")
        answer: dict[str, Any] = json.loads(self._switches.ask(json.dumps(command), _ANSWER_S))
        return answer

    def settle(self) -> dict[str, Any]:
        """Waits until nothing is on its way to a host any more; then as ``status``.

        For who has flushed a sink with a window: what is acknowledged is in the receipts already.
        """
        deadline = time.monotonic() + _ANSWER_S
        while True:
            status = self.status()
            if status["outstanding"] == 0:
                return status
            if time.monotonic() >= deadline:
                raise LabError(
                    "NOT_SETTLED",
                    f"{status['outstanding']} datagrams to hosts are still in transit",
                )
            time.sleep(0.05)

    def _start_network(self, more: Iterable[str] = ()) -> None:
        description = self.folder / "network.json"
        rows = network_to_rows(self.network, dict.fromkeys(self.network.switches, ""))
        labels = self.network.labels
        form = {"encoding": labels.encoding, "label_bits": label_bits(labels)}
        description.write_text(json.dumps({**rows, **form}))
        log = self.folder / "log" / "network.log"
        arguments: list[str | Path] = [sys.executable, "-m", "stackcast.lab.fabric.network"]
        arguments += ["--description", description, "--out", self.folder, *more]
        if self._loss:
            arguments += ["--loss", str(self._loss)]
        for host, address in self._external.items():
            arguments += ["--external-host", f"{host}={address}"]
        for host, address in self._tunnels.items():
            arguments += ["--tunnel-host", f"{host}={address}"]
        self._switches = Child(
            "the lab's network",
            arguments,
            log,
        )
        ready = json.loads(self._switches.start(_READY_S))
        self.p4runtime = ready["p4runtime"]
        self.ingress = dict(ready["ingress"])
        self.tunnels = dict(ready["tunnels"])


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Ctrl-C does nothing meanwhile. Only the main thread can, and need, see to that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        # None: a handler that was not set from Python, and that Python cannot put back.
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
