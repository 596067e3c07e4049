"""Parts of replicated state as processes that tests kill: a switch, and a program.

    python tests/support/state_parts.py switch JSON      {"near": {PORT: [HOST, PORT]}, "far": ...}
    python tests/support/state_parts.py program JSON     {"name", "folder", "state", "middleware"}

A program publishes its next number several times per second, unless its folder contains a file
``quiet``. It writes lines to files of that folder before it continues: ``NAME.published``,
``NAME.safe`` (the last number that the replica controller has), and ``NAME.values`` (all values of
its replica, whenever they change).
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

from stackcast.jobs.adapters.states.replica import Replica

LOOK_S = 0.05


def switch(options: dict[str, Any]) -> None:
    """Run until the process is killed."""
    # Programs, which start often, do not need these modules.
    import p4_products  # noqa: PLC0415
    from state_hosts import entries_of  # noqa: PLC0415

    from stackcast.lab.fabric.ports import UdpTunnel  # noqa: PLC0415
    from stackcast.lab.fabric.standalone import StandaloneSwitch  # noqa: PLC0415
    from stackcast.switch.bmv2.simple_switch import SimpleSwitch  # noqa: PLC0415

    numbers = sorted(map(int, options["near"]))
    plane = SimpleSwitch()
    plane.load(p4_products.products("state_replication")[1].read_bytes())
    plane.apply(entries_of(numbers))
    near, far = ({n: tuple(options[end][str(n)]) for n in numbers} for end in ("near", "far"))
    tunnels = [UdpTunnel(near[n], far[n]).open(n) for n in numbers]
    stop, _stopper = socket.socketpair()
    StandaloneSwitch(plane, tunnels).run(stop, lambda number: False)


class Log:
    """Lines of a file that outlive the process, but not the machine."""

    def __init__(self, folder: str, name: str) -> None:
        self.path = Path(folder, name)
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()

    def put(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())


def program(options: dict[str, Any]) -> None:
    """Run until the process is killed."""
    name, folder = options["name"], options["folder"]
    published, safe, values = (
        Log(folder, f"{name}.{what}") for what in ("published", "safe", "values")
    )
    number = int((published.lines() or ["0"])[-1])
    quiet, last_values = Path(folder, "quiet"), {}
    first, last_safe = number + 1, 0
    with Replica(options["state"], name, tuple(options["middleware"])) as replica:
        values.put("{}")
        due = time.monotonic()
        while True:
            if not quiet.exists() and time.monotonic() > due:
                due = time.monotonic() + random.uniform(0, 0.4)
                number += 1
                published.put(str(number))
                # Some updates have several segments.
                replica.publish(b"%d " % number + b"x" * random.choice([0, 0, 3000]))
            acknowledged = number - replica._client._program.unacknowledged
            if acknowledged >= first and acknowledged > last_safe:
                last_safe = acknowledged
                safe.put(str(acknowledged))
            current = {who: int(data.split()[0]) for who, data in replica.values.items()}
            if current != last_values:
                last_values = current
                values.put(json.dumps(current))
            time.sleep(LOOK_S)


if __name__ == "__main__":
    {"switch": switch, "program": program}[sys.argv[1]](json.loads(sys.argv[2]))
