"""Networks for the lab: the fabric of WERNECKE 5.3.1, a line of switches as in KUNDEL IV, or one
from a catalogue or a file."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from stackcast.udfs.errors import LabError, NetworkError
from stackcast.udfs.network.catalogue import published_network
from stackcast.udfs.network.encodings import label_format
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import fabric, line

#: Name of the line of three switches, the testbed of KUNDEL IV.
LINE = "line"

log = logging.getLogger("stackcast.lab")


@dataclass(frozen=True)
class NetworkOptions:
    """The choice of the lab's network.

    Without ``name``, a fabric: ``pods`` of ``racks`` with ``hosts`` on each rack, ``planes`` of
    ``spines``; 16 subscribers by default. With ``name``, a ``line`` of three switches, a network
    of topohub (``topozoo/Abilene``) or a GraphML file, with ``hosts_per_switch`` on each node.
    Stacks are of an ``encoding``, with labels of ``label_bits``, 16 or 32.
    """

    pods: int = 4
    racks: int = 2
    hosts: int = 2
    planes: int = 2
    spines: int = 2
    name: str = ""
    hosts_per_switch: int = 1
    publishers: int = 1
    encoding: str = "virtual_trees"
    label_bits: int = 16


@dataclass(frozen=True)
class LoadedNetwork:
    """The lab's network.

    Attributes:
        network: the network.
        left_out: lines that name what it does not have of the graph of a catalogue or file.
    """

    network: Network
    left_out: tuple[str, ...] = ()


def load_network(options: NetworkOptions) -> Network:
    """Return the network that ``options`` ask for, and log what it does not have of its graph.

    Raises:
        LabError: an error of `read_network`.
        NetworkError: an error of `read_network`.
    """
    read = read_network(options)
    for text in read.left_out:
        log.warning("network %s: %s", options.name, text)
    return read.network


def read_network(options: NetworkOptions) -> LoadedNetwork:
    """Return the network that ``options`` ask for.

    Raises:
        LabError: ``UNKNOWN_NETWORK`` (with similar names) or ``BAD_GRAPHML``.
        NetworkError: the network does not fit the labels.
    """
    labels = label_format(options.encoding, options.label_bits)
    if not options.name:
        return LoadedNetwork(
            fabric(
                options.pods,
                options.racks,
                options.hosts,
                options.planes,
                options.spines,
                options.publishers,
                labels,
            )
        )
    if options.name == LINE:
        return LoadedNetwork(line(3, options.hosts_per_switch, options.publishers, labels))
    is_file = options.name.endswith((".graphml", ".xml"))
    content = _content(Path(options.name)) if is_file else None
    try:
        read = published_network(
            options.name, content, options.hosts_per_switch, options.publishers, labels
        )
    except NetworkError as error:
        if error.what == "BAD_GRAPHML":
            raise LabError("BAD_GRAPHML", error.message, **error.fields) from error
        if error.what != "UNKNOWN_NETWORK":
            raise
        message = (
            f"{error.message} (--network also accepts a GraphML file, named *.graphml; "
            f"{LINE!r} is a line of three switches)"
        )
        raise LabError("UNKNOWN_NETWORK", message, **error.fields) from None
    return LoadedNetwork(read.network, read.dropped.lines())


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise LabError(
            "UNKNOWN_NETWORK", f"cannot read the network {path}: {error.strerror}", path=str(path)
        ) from None
