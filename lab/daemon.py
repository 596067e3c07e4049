"""A lab that outlives the command which started it: ``stackcast lab up`` and ``down``.

One background process holds the lab; broker and network are its children and end with it. It writes

- ``lab.json``: process, addresses; there while the lab is up;
- ``lab.conf``: Spark properties for jobs that use the lab;
- ``network/*.jsonl``: rows for the tables, as ``jobs/create_tables.py`` takes them.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from lab.lab import FolderLock, Lab
from lab.publisher import ensure_topic
from lab.subscriptions import subscriptions
from lab.topologies import NetworkOptions, load_network
from udfs.errors import LabError, StackcastError
from udfs.trees.broadcast import broadcast_trees
from udfs.trees.network import Network
from udfs.trees.rows import network_to_rows, tree_to_row

_UP_S, _DOWN_S = 120.0, 30.0
_LOOK_S = 0.5
_WINDOW = 64


@dataclass(frozen=True)
class Options:
    """What ``lab up`` brings up."""

    folder: str
    network: NetworkOptions = field(default_factory=NetworkOptions)
    topics: tuple[str, ...] = ("itch.raw", "itch.dead")
    partitions: int = 2
    subscriptions: int = 1000
    seed: int = 1

    @staticmethod
    def from_json(text: str) -> Options:
        values = json.loads(text)
        values["network"] = NetworkOptions(**values["network"])
        values["topics"] = tuple(values["topics"])
        return Options(**values)


def up(options: Options) -> dict[str, Any]:
    """Starts a lab in the background; returns what ``lab.json`` says when all of it answers.

    Errors: ``LabError`` ``ALREADY_UP``, ``BUSY`` (something else uses the folder), or why the lab
    could not be started.
    """
    folder = Path(options.folder).absolute()
    running = _running(folder)
    if running is not None:
        raise LabError(
            "ALREADY_UP",
            f"a lab is up in {folder} (process {running}): 'stackcast lab down' ends it",
            folder=str(folder),
            pid=running,
        )
    # A network that cannot be is told here, not in the log of a background process.
    load_network(options.network)
    FolderLock(folder).check()
    output = folder / "log" / "lab.log"
    output.parent.mkdir(parents=True, exist_ok=True)
    _state(folder).unlink(missing_ok=True)
    with output.open("wb") as stream:
        child = subprocess.Popen(
            [sys.executable, "-m", "lab.daemon", json.dumps(asdict(options))],
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


def down(folder: str | Path) -> bool:
    """Ends the lab that ``up`` started, and waits until it is gone; False if there was none.

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
                _state(folder).unlink(missing_ok=True)
                return True
            time.sleep(0.05)
    raise LabError("NOT_DOWN", f"the lab in {folder} (process {pid}) does not end", pid=pid)


def _state(folder: Path) -> Path:
    return folder / "lab.json"


def _running(folder: Path) -> int | None:
    """Process of the background lab in a folder.

    A file alone proves nothing, as process ids are used again: its process must hold the lock too.
    """
    try:
        pid = int(json.loads(_state(folder).read_text())["pid"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return pid if FolderLock(folder).holder() == pid else None


def _wait_until_up(folder: Path, child: subprocess.Popen[bytes], output: Path) -> dict[str, Any]:
    deadline = time.monotonic() + _UP_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            said = output.read_text(errors="replace").strip() or "(nothing)"
            raise LabError("NOT_UP", f"the lab could not be started; {output} says: {said}")
        try:
            state: dict[str, Any] = json.loads(_state(folder).read_text())
        except (FileNotFoundError, ValueError):
            state = {}
        if state.get("ready"):
            return state
        time.sleep(0.05)
    raise LabError("NOT_UP", f"the lab was not up after {_UP_S:.0f} s; see {output}")


def run(options: Options, stop: Callable[[float], bool]) -> None:
    """Holds a lab until ``stop`` (which waits for so many seconds) says true."""
    folder = Path(options.folder).absolute()
    network = load_network(options.network)
    with Lab(folder, network) as lab:
        try:
            _write_state(folder, {"pid": os.getpid(), "ready": False})
            lab.up()
            for topic in options.topics:
                ensure_topic(lab.bootstrap_servers, topic, options.partitions)
            write_deployment(lab, options)
            state = {
                "pid": os.getpid(),
                "ready": True,
                "bootstrap_servers": lab.bootstrap_servers,
                "p4runtime": lab.p4runtime,
                "ingress": lab.ingress,
                "hosts": list(lab.hosts),
                "switches": list(network.switches),
            }
            _write_state(folder, state)
            while not stop(_LOOK_S):
                lab.check()
        finally:
            _state(folder).unlink(missing_ok=True)


def write_deployment(lab: Lab, options: Options) -> None:
    """Writes ``lab.conf`` and ``network/*.jsonl``: what a job must know to use this lab."""
    lines = {
        "kafka.bootstrap.servers": lab.bootstrap_servers,
        "publisher": next(iter(lab.ingress)),
        "sink": "udp",
        "sink.udp.endpoint": next(iter(lab.ingress.values())),
        "sink.udp.window": _WINDOW,
        "tables": lab.folder / "tables",
        "checkpoint": lab.folder / "checkpoint",
    }
    text = "# Written by 'stackcast lab up': jobs that are given this file use the lab.\n"
    text += "".join(f"spark.stackcast.{key} {value}\n" for key, value in lines.items())
    (lab.folder / "lab.conf").write_text(text)
    folder = lab.folder / "network"
    folder.mkdir(exist_ok=True)
    for table, rows in _rows(lab.network, lab.p4runtime, options).items():
        content = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{table}.jsonl").write_text(content)


def _rows(network: Network, p4runtime: str, options: Options) -> dict[str, Sequence[Any]]:
    wanted = subscriptions(network.subscribers(), options.subscriptions, seed=options.seed)
    # The columns that people fill when they write the table.
    who = {"format": "itch", "enabled": True, "updated_by": "lab", "updated_at": None}
    return {
        **network_to_rows(network, dict.fromkeys(network.switches, p4runtime)),
        "virtual_trees": [tree_to_row(tree) for tree in broadcast_trees(network)],
        "subscriptions": [{**row, **who} for row in wanted],
    }


def _write_state(folder: Path, state: dict[str, Any]) -> None:
    """In one step, so that nobody reads half of it."""
    draft = folder / "lab.json.new"
    draft.write_text(json.dumps(state, indent=2) + "\n")
    draft.rename(_state(folder))


def main() -> int:
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    try:
        run(Options.from_json(sys.argv[1]), stop.wait)
    except StackcastError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
