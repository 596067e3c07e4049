"""Parts of replicated state as processes of their own, to be killed: a switch, and a program.

    python tests/support/state_parts.py switch JSON      {"near": {PORT: [HOST, PORT]}, "far": ...}
    python tests/support/state_parts.py program JSON     {"name", "folder", "state", "middleware"}

A program publishes its next number some times a second until there is a file ``quiet`` in its
folder, and writes into files there, a line each before anything else happens: ``NAME.published``,
``NAME.safe`` (what the replica controller had), and ``NAME.held``, all values of its replica
whenever they change.
"""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import time
from pathlib import Path
from typing import Any

import p4_products
from state_hosts import entries_of

from jobs.adapters.states.replica import Replica
from lab.fabric.ports import UdpTunnel
from lab.fabric.standalone import StandaloneSwitch
from lab.switch.bmv2.simple_switch import SimpleSwitch

LOOK_S = 0.05


def switch(asked: dict[str, Any]) -> None:
    """Runs until it is killed."""
    numbers = sorted(map(int, asked["near"]))
    plane = SimpleSwitch()
    plane.load(p4_products.products("state_replication")[1].read_bytes())
    plane.apply(entries_of(numbers))
    near, far = ({n: tuple(asked[end][str(n)]) for n in numbers} for end in ("near", "far"))
    tunnels = [UdpTunnel(near[n], far[n]).open(n) for n in numbers]
    here, _there = socket.socketpair()
    StandaloneSwitch(plane, tunnels).run(here, lambda number: False)


class Log:
    """Lines of a file that outlives the process, if not the machine."""

    def __init__(self, folder: str, name: str) -> None:
        self.path = Path(folder, name)
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()

    def put(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())


def program(asked: dict[str, Any]) -> None:
    """Runs until it is killed."""
    name, folder = asked["name"], asked["folder"]
    published, safe, held = (
        Log(folder, f"{name}.{what}") for what in ("published", "safe", "held")
    )
    number = int((published.lines() or ["0"])[-1])
    quiet, seen = Path(folder, "quiet"), {}
    first, told = number + 1, 0
    with Replica(asked["state"], name, tuple(asked["middleware"])) as replica:
        held.put("{}")
        since = time.monotonic()
        while True:
            if not quiet.exists() and time.monotonic() > since:
                since = time.monotonic() + random.uniform(0, 0.4)
                number += 1
                published.put(str(number))
                # Some have several segments.
                replica.publish(b"%d " % number + b"x" * random.choice([0, 0, 3000]))
            certain = number - replica._client._program.unacknowledged
            if certain >= first and certain > told:
                told = certain
                safe.put(str(certain))
            values = {who: int(data.split()[0]) for who, data in replica.values.items()}
            if values != seen:
                seen = values
                held.put(json.dumps(values))
            time.sleep(LOOK_S)


if __name__ == "__main__":
    {"switch": switch, "program": program}[sys.argv[1]](json.loads(sys.argv[2]))
