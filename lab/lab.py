"""The lab as one object: a Kafka broker and a network of software switches and hosts.

One lab a folder, held by a lock that ends with its process. Everything the lab starts is a child
of this process and ends with it.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from lab.broker import Broker, default_class_path
from lab.process import Child
from udfs.errors import LabError
from udfs.trees.network import Network
from udfs.trees.rows import network_to_rows

_READY_S = 60
_ANSWER_S = 60
_TRIES, _PROBE_S = 5, 0.02


class FolderLock:
    """The right to run a lab in a folder. Taken by at most one process, freed at its end.

    ``holder`` tells who has it.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lock"
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object has taken the lock."""
        return self._descriptor is not None

    def take(self) -> None:
        """Raises ``LabError`` ``BUSY`` if another lab runs in the folder."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        for _ in range(_TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_PROBE_S)  # it may only have been looked at (``holder``)
        else:
            os.close(descriptor)
            raise self._busy()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._descriptor = descriptor

    def _busy(self) -> LabError:
        holder = self.holder()
        who = f"process {holder}" if holder else "another process"
        return LabError(
            "BUSY",
            f"{who} runs a lab in {self.path.parent}: stop it ('stackcast lab down' if "
            "'stackcast lab up' started it), or choose another folder",
            folder=str(self.path.parent),
            pid=holder,
        )

    def free(self) -> None:
        """Gives the lock back. Does nothing if it is not held."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def check(self) -> None:
        """Raises ``LabError`` ``BUSY`` if somebody holds the lock."""
        if self.holder() is not None:
            raise self._busy()

    def holder(self) -> int | None:
        """Process id of who holds the lock, None if nobody does.

        The file of a lock outlives its holder, so the lock itself is asked.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            text = os.pread(descriptor, 20, 0).decode()
            return int(text) if text.isdecimal() else None
        finally:
            os.close(descriptor)


class Lab:
    """Broker and network, brought up and taken down together; a context manager.

    Entering takes the folder, so that it may be prepared; ``up`` starts things; leaving takes
    everything down and gives the folder back.

    Parameters
    ----------
    folder: ``broker``, ``log`` and ``receipts`` (what each host received) are written below it.
    network: the network to run.
    jars: class path of the broker; ``default_class_path()`` by default.
    java: the Java executable; that of ``JAVA_HOME``, else the first of the path, by default.

    After ``up``: ``bootstrap_servers`` (``host:port``), ``p4runtime`` (``host:port``, all switches
    by their device id), ``ingress`` (publisher host to ``host:port`` of its UDP tunnel), ``hosts``
    (names of subscribers).
    """

    def __init__(
        self,
        folder: str | Path,
        network: Network,
        jars: Iterable[str | Path] | None = None,
        java: str | None = None,
    ) -> None:
        self.folder = Path(folder).absolute()
        self.network = network
        self.hosts: tuple[str, ...] = network.subscribers()
        self.bootstrap_servers = ""
        self.p4runtime = ""
        self.ingress: dict[str, str] = {}
        self._jars = jars
        self._java = java or _java()
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

    def up(self) -> Lab:
        """Starts everything; returns when all of it answers. What fails takes the rest down.

        Errors: ``LabError`` ``BUSY``, ``NO_BROKER_JARS``, ``BROKER_FAILED``, ``CHILD_FAILED``.
        """
        if not self._lock.held:
            self._lock.take()
        try:
            jars = self._jars if self._jars is not None else default_class_path()
            self._start_network()
            self._broker = Broker(jars, self.folder / "broker", self._java)
            self.bootstrap_servers = self._broker.start().bootstrap_servers
        except BaseException:
            self.down()
            raise
        return self

    def down(self) -> None:
        """Ends everything, waits until it is gone, and frees the folder. May be called twice."""
        try:
            if self._switches is not None:
                self._switches.stop()
            if self._broker is not None:
                self._broker.stop()
        finally:
            self._switches = self._broker = None
            self._lock.free()

    def check(self) -> None:
        """Raises ``LabError`` ``DIED`` if broker or network have ended by themselves."""
        for what, part in (("Kafka broker", self._broker), ("network", self._switches)):
            if part is not None and not part.alive():
                raise LabError(
                    "DIED", f"the {what} has ended by itself; its logs are in {self.folder}"
                )

    def status(self) -> dict[str, Any]:
        """What the network counts now: frames, bytes by link, drops by reason, by host."""
        if self._switches is None:
            raise LabError("NOT_UP", "the lab does not run: call up() first")
        answer: dict[str, Any] = json.loads(
            self._switches.ask(json.dumps({"command": "status"}), _ANSWER_S)
        )
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
                    f"{status['outstanding']} datagrams are still on their way to hosts",
                )
            time.sleep(0.05)

    def _start_network(self) -> None:
        description = self.folder / "network.json"
        rows = network_to_rows(self.network, dict.fromkeys(self.network.switches, ""))
        description.write_text(json.dumps(rows))
        log = self.folder / "log" / "network.log"
        self._switches = Child(
            "the lab's network",
            [
                sys.executable,
                "-m",
                "lab.network",
                "--description",
                description,
                "--out",
                self.folder,
            ],
            log,
        )
        ready = json.loads(self._switches.start(_READY_S))
        self.p4runtime = ready["p4runtime"]
        self.ingress = dict(ready["ingress"])


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"
