"""The network that a command line asks for: its words, files and catalogues to a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.catalogue import published_network
from stackcast.udfs.network.labels import LabelFormat
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.simple_graph import Dropped
from stackcast.udfs.network.topology import fabric, jellyfish


@dataclass(frozen=True)
class Asked:
    """One of ``fabric``, ``jellyfish`` (sizes by name), ``topohub`` (name), ``graphml`` (file).

    ``hosts_per_switch`` is not for a fabric, which has ``hosts`` on each rack. ``parallel`` edges
    of a graph are cables of their own.
    """

    fabric: Mapping[str, int] | None = None
    jellyfish: Mapping[str, int] | None = None
    topohub: str | None = None
    graphml: Path | None = None
    hosts_per_switch: int = 1
    publishers: int = 1
    parallel: bool = False


def build(asked: Asked, labels: LabelFormat) -> tuple[Network, Dropped]:
    """The network, and what a graph lost on its way to one. Raises NetworkError."""
    try:
        return _build(asked, labels)
    except NetworkError as error:
        if error.what == "TOO_MANY_LINKS" and labels.bits < 32:
            message = f"{error.message} (--label-bits 32)"
            raise NetworkError("TOO_MANY_LINKS", message, **error.fields) from None
        raise


def _build(asked: Asked, labels: LabelFormat) -> tuple[Network, Dropped]:
    each, publishers = asked.hosts_per_switch, asked.publishers
    if asked.fabric is not None:
        made = fabric(**asked.fabric, publishers=publishers, labels=labels)
        return made, Dropped()
    if asked.jellyfish is not None:
        return jellyfish(
            **asked.jellyfish, hosts_per_switch=each, publishers=publishers, labels=labels
        ), Dropped()
    content = None if asked.graphml is None else _content(asked.graphml)
    name = asked.topohub if content is None else str(asked.graphml)
    read = published_network(name or "", content, each, publishers, labels, asked.parallel)
    return read.network, read.dropped


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise NetworkError(
            "UNKNOWN_NETWORK", f"cannot read network {path}: {error.strerror}", path=str(path)
        ) from None


def addresses(pattern: str, network: Network, first_port: int) -> dict[str, str]:
    """P4Runtime address of each switch: ``{port}`` counts up from ``first_port`` in their order.

    Raises NetworkError ``BAD_ADDRESS`` for a port over 65,535.
    """
    fill: Callable[..., str] = pattern.format
    found = {
        switch.name: fill(switch=switch.name, device_id=switch.device_id, port=first_port + place)
        for place, switch in enumerate(network.switches.values())
    }
    for switch, address in found.items():
        port = address.rpartition(":")[2]
        if not 0 < int(port) < 1 << 16:
            raise NetworkError(
                "BAD_ADDRESS",
                f"switch {switch!r} would have the P4Runtime address {address}, but ports must "
                "be from 1 to 65535: use a pattern with {switch} for the host, or a lower "
                "--first-port",
                switch=switch,
            )
    return found
