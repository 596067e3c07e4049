"""The parts of a network: switches, hosts, and the directed links out of switches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stackcast.udfs.network.tunnel import TunnelEnd

Role = Literal["subscriber", "publisher"]


@dataclass(frozen=True)
class Switch:
    """A switch; ``device_id`` (64 bits) is P4Runtime's and unique in the network."""

    name: str
    device_id: int
    layer: str | None = None


@dataclass(frozen=True)
class Host:
    """A host on one port of one switch; ``mac`` (48 bits) and ``ipv4`` (32 bits) are integers."""

    name: str
    switch: str
    port: int
    mac: int
    ipv4: int
    role: Role = "subscriber"


@dataclass(frozen=True)
class Link:
    """A directed link out of ``switch`` by ``port`` (1..511).

    ``id`` is unique and fits the network's labels; ``neighbor_port`` is None where the neighbor is
    a host. ``weight`` is what crossing the link costs: above 0, at most 1e12, without unit.
    ``tunnel``: its end here where the link is a tunnel.
    """

    id: int
    switch: str
    port: int
    neighbor: str
    neighbor_port: int | None
    weight: float = 1.0
    up: bool = True
    tunnel: TunnelEnd | None = None
