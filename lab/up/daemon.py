"""A lab that outlives the command which started it: ``stackcast lab up`` and ``down``.

One background process holds the lab; broker, network and services (programs that use the lab) are
its children and end with it. It writes

- ``lab.json``: process, addresses, states of the services; there while the lab is up;
- ``lab.conf``: Spark properties for jobs that use the lab;
- ``network/*.jsonl``: rows for the tables, as ``jobs/create_tables.py`` takes them.

What an earlier lab left in the folder is removed first.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import socketserver
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

from stackcast.lab.fabric.hosts import check_external
from stackcast.lab.fabric.topologies import NetworkOptions, read_network
from stackcast.lab.traffic.publisher import ensure_topic
from stackcast.lab.up import deployment, service
from stackcast.lab.up.folder import FolderLock, claim, read_state, state_file, write_whole
from stackcast.lab.up.lab import Lab
from stackcast.lab.up.service import Service
from stackcast.udfs.errors import LabError, StackcastError, printable
from stackcast.udfs.stop_request import StopRequest

#: A service may take 20 seconds to end.
_UP_S, _DOWN_S = 120.0, 45.0
_LOOK_S = 0.5
_ANSWER_S = 60.0


@dataclass(frozen=True)
class LabOptions:
    """The lab that ``lab up`` is to bring up."""

    folder: str
    network: NetworkOptions = field(default_factory=NetworkOptions)
    topics: tuple[str, ...] = ("itch.raw", "itch.dead")
    partitions: int = 2
    subscriptions: int = 1000
    seed: int = 1
    external: dict[str, str] = field(default_factory=dict)
    match: str = "spark"
    loss: float = 0.0
    #: Commands of the services, by name.
    services: dict[str, list[str]] = field(default_factory=dict)

    @staticmethod
    def from_json(text: str) -> LabOptions:
        values = json.loads(text)
        values["network"] = NetworkOptions(**values["network"])
        values["topics"] = tuple(values["topics"])
        return LabOptions(**values)


def up(options: LabOptions, say: Callable[[str], object] = lambda _: None) -> dict[str, Any]:
    """Start a lab in the background; return the content of ``lab.json`` when all of it answers.

    Args:
        options: the lab.
        say: takes a line for each kind of parts that the network does not have of its graph.

    Raises:
        LabError: ``ALREADY_UP``, ``BUSY`` (something else uses the folder), or why the lab could
            not be started.
    """
    folder = Path(options.folder).absolute()
    running = _running(folder)
    if running is not None:
        raise LabError(
            "ALREADY_UP",
            f"a lab is up in {folder} (process {running}): stop it with 'stackcast lab down'",
            folder=str(folder),
            pid=running,
        )
    # What cannot be is told here, not in the log of a background process.
    read = read_network(options.network)
    for line in read.left_out:
        say(line)
    check_external(options.external, read.network.subscribers())
    FolderLock(folder).check()
    claim(folder)
    output = folder / "log" / "lab.log"
    output.parent.mkdir(parents=True, exist_ok=True)
    state_file(folder).unlink(missing_ok=True)
    with output.open("wb") as stream:
        child = subprocess.Popen(
            [sys.executable, "-m", "stackcast.lab.up.daemon", json.dumps(asdict(options))],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    try:
        return _wait_until_up(folder, child, output)
    except BaseException:
        child.terminate()
        child.wait()
        raise


def await_services(folder: str | Path, report: Callable[[str], None]) -> dict[str, Any]:
    """Wait until all services of a lab that is up are ready.

    Args:
        folder: folder of the lab.
        report: gets a line for each step of a service's start.

    Returns:
        The content of ``lab.json``.

    Raises:
        LabError: ``SERVICE_ENDED``; ``NOT_UP`` if the lab itself has ended.
    """
    folder = Path(folder).absolute()
    stages: dict[str, str] = {}
    while True:
        try:
            state: dict[str, Any] = json.loads(state_file(folder).read_text())
        except (FileNotFoundError, ValueError):
            raise LabError("NOT_UP", f"the lab in {folder} has ended unexpectedly") from None
        for name, status in state["services"].items():
            if status["state"] == service.ENDED:
                raise service.ended(name, status)
            if status["stage"] and stages.get(name) != status["stage"]:
                stages[name] = status["stage"]
                report(f"{name}: {status['stage']}")
        if all(status["state"] == service.READY for status in state["services"].values()):
            return state
        time.sleep(0.1)


def down(folder: str | Path) -> bool:
    """Ends the lab that ``up`` started, and waits until it has given its folder back, as the last
    thing that it does; False if there was none.

    Raises ``LabError`` ``BUSY`` if what uses the folder was not started by ``up``.
    """
    folder = Path(folder).absolute()
    pid = _running(folder)
    if pid is None:
        FolderLock(folder).check()
        return False
    lock = FolderLock(folder)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):  # it may have ended while we looked
            os.kill(pid, number)
        deadline = time.monotonic() + _DOWN_S
        while time.monotonic() < deadline:
            if lock.holder() != pid:
                state_file(folder).unlink(missing_ok=True)
                return True
            time.sleep(0.05)
    raise LabError("NOT_DOWN", f"the lab in {folder} (process {pid}) did not stop", pid=pid)


def status(folder: str | Path) -> dict[str, Any] | None:
    """Returns ``lab.json`` and, as ``counters``, ``Lab.status()``; None if no lab is up.

    Raises ``LabError`` ``NO_ANSWER`` if it does not tell.
    """
    folder = Path(folder).absolute()
    state = read_state(folder)
    if state is None:
        return None
    if not state["ready"]:
        raise LabError("NO_ANSWER", f"the lab in {folder} is still starting: try again in a moment")
    host, _, port = state["status"].rpartition(":")
    try:
        with socket.create_connection((host, int(port)), _ANSWER_S) as connection:
            answer = json.loads(connection.makefile("rb").read())
    except (OSError, ValueError) as error:
        raise LabError("NO_ANSWER", f"the lab in {folder} does not respond: {error}") from None
    if "error" in answer:
        raise LabError("NO_ANSWER", f"the lab in {folder} failed: {answer['error']}")
    return state | {"counters": answer}


def _running(folder: Path) -> int | None:
    """Returns the process of the background lab in a folder."""
    state = read_state(folder)
    return None if state is None else int(state["pid"])


def _wait_until_up(folder: Path, child: subprocess.Popen[bytes], output: Path) -> dict[str, Any]:
    deadline = time.monotonic() + _UP_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            said = output.read_text(errors="replace").strip() or "(nothing)"
            raise LabError("NOT_UP", f"the lab could not be started; {output} contains: {said}")
        try:
            state: dict[str, Any] = json.loads(state_file(folder).read_text())
        except (FileNotFoundError, ValueError):
            state = {}
        if state.get("ready"):
            return state
        time.sleep(0.05)
    raise LabError("NOT_UP", f"the lab did not start within {_UP_S:.0f} s; see {output}")


def run(options: LabOptions, stop: Callable[[float], bool]) -> None:
    """Holds a lab until ``stop`` (which waits for so many seconds) says true."""
    folder = Path(options.folder).absolute()
    network = read_network(options.network).network
    with Lab(folder, network, external=options.external, loss=options.loss) as lab:
        try:
            _write_state(folder, {"pid": os.getpid(), "ready": False})
            # Offsets of an earlier broker, and tables of another network, say nothing here.
            lab.clear()
            lab.up()
            for topic in options.topics:
                ensure_topic(lab.bootstrap_servers, topic, options.partitions)
            deployment.write(lab, options.subscriptions, options.seed, options.match)
            with _answering(lab) as address:
                state = {
                    "pid": os.getpid(),
                    "ready": True,
                    "bootstrap_servers": lab.bootstrap_servers,
                    "p4runtime": lab.p4runtime,
                    "ingress": lab.ingress,
                    "hosts": list(lab.hosts),
                    "external": options.external,
                    "switches": list(network.switches),
                    "match": options.match,
                    "status": address,
                }
                with _serving(options, folder) as services:
                    seen = None
                    while seen is None or not stop(_LOOK_S):
                        lab.check()
                        now = {name: each.status() for name, each in services.items()}
                        if now != seen:
                            _write_state(folder, state | {"services": now})
                            seen = now
        finally:
            state_file(folder).unlink(missing_ok=True)


@contextmanager
def _serving(options: LabOptions, folder: Path) -> Iterator[dict[str, Service]]:
    """Start the services, and stop them at the end."""
    services = {
        name: Service(command, folder / "log" / f"{name}.log")
        for name, command in options.services.items()
    }
    with ExitStack() as ending:
        for each in services.values():
            each.begin()
            ending.callback(each.stop)
        yield services


@contextmanager
def _answering(lab: Lab) -> Iterator[str]:
    """Whoever connects to the address that this yields is told the counters of the network."""

    class Answer(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            try:
                answer = lab.status()
            except LabError as error:
                answer = {"error": str(error)}
            with suppress(OSError):  # who asked may have gone
                self.request.sendall(json.dumps(answer).encode())

    # One at a time: the network answers one line for one line.
    with socketserver.TCPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            yield "{}:{}".format(*server.server_address)
        finally:
            server.shutdown()
            thread.join()


def _write_state(folder: Path, state: dict[str, Any]) -> None:
    write_whole(state_file(folder), json.dumps(state, indent=2) + "\n")


def main() -> int:
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    stop = StopRequest()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    try:
        run(LabOptions.from_json(sys.argv[1]), stop.wait)
    except StackcastError as error:
        print(printable(str(error)), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
