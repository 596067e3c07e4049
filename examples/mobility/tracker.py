"""One tracker of mobility, a VNF of the use case (STARE I-A), as a separate process.

    python tracker.py --edge edge1 --city CITY.json --middleware IP:PORT --out FOLDER

CITY.json has ``scanners`` (name: [edge, x, y]) and ``neighbours`` (edge: [edges]). The tracker
publishes the reports of its scanners as state ``sightings/EDGE``, and has replicas of the states of
its neighbours, from which it derives the movements into its edge and out of it. A scanner connects
by TCP and sends one report per line. The tracker prints its address as a line of JSON. Then it
answers lines on standard input: ``status`` with the progress of each state, and ``stop`` after it
has written ``FOLDER/EDGE.json`` with its states, its movements and the times of updates.
"""

from __future__ import annotations

import json
import logging
import socketserver
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from movements import Movement, Scanner, movements, touching
from sightings import Sighting, Sightings, read_report, read_state
from stackcast.command_line import ArgumentParser
from stackcast.jobs.adapters.states.replica import Replica
from stackcast.jobs.adapters.wire.udp import parse_endpoint
from stackcast.udfs.errors import StateError
from stackcast.udfs.states.program import Update

log = logging.getLogger("stackcast.tracker")

#: Longest wait for updates in seconds, so that the end is noticed.
_WAIT_S = 0.2


def state_of(edge: str) -> str:
    """Return the name of an edge's state."""
    return f"sightings/{edge}"


class Tracker:
    """The states and updates of one tracker. Several threads may use it.

    Args:
        edge: edge of the tracker.
        scanners: scanners of the city by name.
        own: replica of the tracker's own state.

    Attributes:
        edge: edge of the tracker.
        published: number, size in bytes and time of each published update.
        came: number, size in bytes, time of publication and time of arrival of each received
            update, by edge. Times are in nanoseconds since 1970.
    """

    def __init__(self, edge: str, scanners: dict[str, Scanner], own: Replica) -> None:
        self.edge = edge
        self.published: list[tuple[int, int, int]] = []
        self.came: dict[str, list[tuple[int, int, int, int]]] = {}
        self._scanners, self._own = scanners, own
        self._sightings = Sightings()
        self._held: dict[str, dict[str, list[Sighting]]] = {edge: {}}
        self._numbers: dict[str, int] = {}
        self._lock = threading.Lock()

    def report(self, line: bytes) -> None:
        """Add a report of a scanner, and publish the state."""
        report = read_report(line)
        scanner = self._scanners.get(report.scanner)
        if scanner is None or scanner.edge != self.edge:
            raise StateError("BAD_SIGHTINGS", f"{report.scanner} is not a scanner of {self.edge}")
        with self._lock:
            self._sightings.add(report)
            self._held[self.edge] = self._sightings.of
            now = time.time_ns()
            state = self._sightings.pack(now)
            self._own.publish(state)
            self.published.append((len(self.published) + 1, len(state), now))

    def take(self, edge: str, update: Update) -> None:
        """Store an update of another edge."""
        now = time.time_ns()
        published, devices = read_state(update.data)
        with self._lock:
            self._held[edge] = devices
            self._numbers[edge] = update.number
            self.came.setdefault(edge, []).append((update.number, len(update.data), published, now))

    def movements(self) -> list[Movement]:
        """Return the movements into this edge and out of it."""
        with self._lock:
            all_movements = movements(self._held.values(), self._scanners)
        return touching(all_movements, self.edge, self._scanners)

    def status(self) -> dict[str, Any]:
        """Return the number of published updates, and the time of each edge's newest update."""
        with self._lock:
            newest = {edge: came[-1][2] for edge, came in self.came.items()}
            last = self.published[-1][2] if self.published else 0
            return {"published": len(self.published), "last": last, "newest": newest}

    def end(self) -> dict[str, Any]:
        """Return states, movements and updates."""
        rows = [asdict(movement) for movement in self.movements()]
        with self._lock:
            return {
                "edge": self.edge,
                "held": self._held,
                "movements": rows,
                "published": self.published,
                "came": self.came,
            }


def _follow(tracker: Tracker, edge: str, replica: Replica, ended: threading.Event) -> None:
    while not ended.is_set():
        for update in replica.updates(_WAIT_S):
            try:
                tracker.take(edge, update)
            except StateError as error:
                log.warning("update %d of %s: %s", update.number, edge, error)


def _server(tracker: Tracker) -> socketserver.ThreadingTCPServer:
    class Reports(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                try:
                    tracker.report(line)
                except StateError as error:
                    log.warning("%s: %s", self.client_address, error)
                self.wfile.write(b"\n")

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Reports)
    server.daemon_threads = True
    return server


def main(arguments: list[str] | None = None) -> int:
    parser = ArgumentParser(prog="tracker.py", description=__doc__)
    parser.add_argument("--edge", required=True, help="edge of the tracker")
    parser.add_argument(
        "--city", metavar="FILE", type=Path, required=True, help="scanners and neighbours as JSON"
    )
    parser.add_argument(
        "--middleware",
        metavar="HOST:PORT",
        type=parse_endpoint,
        required=True,
        help="TCP address of the middleware on this host",
    )
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path, required=True, help="folder of the results"
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    city = json.loads(options.city.read_text())
    scanners = {name: Scanner(name, *place) for name, place in city["scanners"].items()}
    ended = threading.Event()
    with ExitStack() as stack:
        name, middleware = options.edge, options.middleware
        own = stack.enter_context(Replica(state_of(name), name, middleware, subscribes=False))
        tracker = Tracker(name, scanners, own)
        stack.callback(ended.set)
        for edge in city["neighbours"][name]:
            replica = stack.enter_context(Replica(state_of(edge), name, middleware))
            threading.Thread(
                target=_follow, args=(tracker, edge, replica, ended), daemon=True
            ).start()
        server = stack.enter_context(_server(tracker))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stack.callback(server.shutdown)
        _print({"reports": "{}:{}".format(*server.server_address)})
        for line in sys.stdin:
            if line.strip() == "stop":
                own.flush()
                (options.out / f"{name}.json").write_text(json.dumps(tracker.end()))
                _print({"stopped": name})
                break
            _print(tracker.status())
    return 0


def _print(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    sys.exit(main())
