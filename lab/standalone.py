"""One switch in one process: ports in, a pipeline, ports out.

The loop takes frames from all ports in turn, so that a busy port does not keep the others waiting.
Tables come over P4Runtime, which is served beside it.
"""

from __future__ import annotations

import selectors
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lab.ports import Link, Port
from lab.switch import Pipeline
from udfs.errors import LabError

_IN_TURN = 64


def open_ports(links: Mapping[int, Link]) -> list[Port]:
    """All ports, or none: what one of them raises closes the others."""
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
    """Carries frames from ports through ``pipeline`` to ports. Closes the ports at its end.

    ``drops`` counts ``unplugged_port``: copies for a port that the switch lacks.
    """

    def __init__(self, pipeline: Pipeline, ports: Iterable[Port]) -> None:
        self.drops: Counter[str] = Counter()
        self._pipeline = pipeline
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
            for port in self._ports.values():
                selector.register(port, selectors.EVENT_READ, port)
            while True:
                for key, _ in selector.select():
                    if key.data is not None:
                        self.carry(key.data)
                    elif not all([signalled(number) for number in wake.recv(64)]):
                        return

    def carry(self, port: Port) -> None:
        """Frames that wait at ``port``, a few at most, out of where the pipeline sends them."""
        for _ in range(_IN_TURN):
            frame = port.receive()
            if frame is None:
                return
            for number, copy in self._pipeline.process(port.number, frame):
                egress = self._ports.get(number)
                if egress is None:
                    self.drops["unplugged_port"] += 1
                else:
                    egress.send(copy)

    def status(self) -> dict[str, Any]:
        """What was counted since the start: by port, drops by reason, the program's counters."""
        drops = self.drops + self._pipeline.drops
        for port in self._ports.values():
            drops.update(port.drops)
        return {
            "ports": {
                str(port.number): {"link": port.what, **vars(port.counters)}
                for port in self._ports.values()
            },
            "drops": dict(sorted(drops.items())),
        }

    def close(self) -> None:
        """Gives sockets and interfaces back."""
        for port in self._ports.values():
            port.close()
