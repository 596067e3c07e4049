"""The switches of a network and the links between them, in one process."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stackcast.switch.data_plane import CPU_PORT, DataPlane
from stackcast.udfs.network.network import Network


@dataclass(slots=True)
class _Wire:
    """One direction of a link, out of a switch or out of a host."""

    name: str
    switch: str | None
    port: int
    host: str
    up: bool
    bytes: int = 0


class Fabric:
    """Carries frames from hosts through all switches to hosts.

    Parameters
    ----------
    data_planes: one a switch, by name.
    deliver: called with ``(host, frame)`` for each frame that arrives at a host.
    loss: share of the frames that each link loses, the same ones each time; ``loss`` may be set to
        another.

    ``drops`` counts by reason what the links lost: ``unplugged_port``, ``link_down``, ``loop``,
    ``loss``.
    """

    def __init__(
        self,
        network: Network,
        data_planes: Mapping[str, DataPlane],
        deliver: Callable[[str, bytes], None],
        loss: float = 0.0,
    ) -> None:
        self.loss, self._dice = loss, random.Random(1)
        self.frames_in = 0
        self.drops: Counter[str] = Counter()
        self._data_planes = data_planes
        self._deliver = deliver
        self._out: dict[str, dict[int, _Wire]] = {name: {} for name in network.switches}
        for link in network.links:
            host = link.neighbor_port is None
            self._out[link.switch][link.port] = _Wire(
                f"{link.switch}->{link.neighbor}",
                None if host else link.neighbor,
                link.neighbor_port or 0,
                link.neighbor if host else "",
                network.usable(link),
            )
        self._into = {
            name: _Wire(f"{name}->{host.switch}", host.switch, host.port, name, True)
            for name, host in network.hosts.items()
        }
        # A frame crosses a link once, or a few times where stacks ask for it. Wrong tables can
        # make it go round for ever, as switches do not touch the IPv4 time to live.
        self._storm = 16 * len(network.links) + 16

    def send(self, host: str, frame: bytes) -> None:
        """One frame from a host; returns when every copy has ended."""
        self.frames_in += 1
        first = self._into[host]
        first.bytes += len(frame)
        if self._lost():
            return
        assert first.switch is not None
        self._carry(first.switch, first.port, frame)

    def inject(self, switch: str, data: bytes) -> None:
        """What a switch's controller sends out; returns when every copy has ended."""
        self._carry(switch, CPU_PORT, data)

    def _carry(self, switch: str, entered: int, frame: bytes) -> None:
        crossings = 0
        waiting = deque([(switch, entered, frame)])
        while waiting:
            name, port_in, arriving = waiting.popleft()
            out = self._out[name]
            for port, copy in self._data_planes[name].process(port_in, arriving):
                egress = out.get(port)
                if egress is None or not egress.up:
                    self.drops["unplugged_port" if egress is None else "link_down"] += 1
                    continue
                crossings += 1
                if crossings > self._storm:
                    self.drops["loop"] += 1
                    return
                egress.bytes += len(copy)
                if self._lost():
                    continue
                if egress.switch is None:
                    self._deliver(egress.host, copy)
                else:
                    waiting.append((egress.switch, egress.port, copy))

    def _lost(self) -> bool:
        if self.loss == 0.0 or self._dice.random() >= self.loss:
            return False
        self.drops["loss"] += 1
        return True

    def plug(self, one: str, other: str, up: bool) -> None:
        """Brings the links between two switches up or down, whatever tables say of them."""
        names = f"{one}->{other}", f"{other}->{one}"
        for wires in self._out.values():
            for wire in wires.values():
                if wire.name in names:
                    wire.up = up

    def link_bytes(self) -> dict[str, int]:
        """Returns bytes that each direction of each link has carried: ``{"u->v": bytes}``."""
        wires = [*self._into.values(), *(w for out in self._out.values() for w in out.values())]
        return {wire.name: wire.bytes for wire in wires}

    def switch_drops(self) -> dict[str, dict[str, int]]:
        """Returns frames that switches dropped, by reason, of those that dropped any."""
        planes = self._data_planes.items()
        return {name: dict(plane.drops) for name, plane in planes if plane.drops}

    def all_drops(self) -> Counter[str]:
        """Returns frames dropped by switches and links, by reason."""
        total = Counter(self.drops)
        for drops in self.switch_drops().values():
            total.update(drops)
        return total
