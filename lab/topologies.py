"""Networks for the lab: the fabric of WERNECKE 5.3.1, or one from a catalogue or a file."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path

import networkx as nx
import topohub

from udfs.errors import LabError
from udfs.trees.network import Network
from udfs.trees.topology import fabric, from_graph


@dataclass(frozen=True)
class NetworkOptions:
    """Which network the lab runs.

    Without ``name``, a fabric: ``pods`` of ``racks`` with ``hosts`` on each rack, ``planes`` of
    ``spines``; 16 subscribers by default. With ``name``, a network of topohub
    (``topozoo/Abilene``) or a GraphML file, with ``hosts_per_switch`` on each node.
    """

    pods: int = 4
    racks: int = 2
    hosts: int = 2
    planes: int = 2
    spines: int = 2
    name: str = ""
    hosts_per_switch: int = 1
    publishers: int = 1


def load_network(options: NetworkOptions) -> Network:
    """The network that ``options`` ask for.

    Errors: ``LabError`` ``UNKNOWN_NETWORK`` (with names that are near) or ``BAD_GRAPHML``;
    ``NetworkError`` if it does not fit the labels.
    """
    if not options.name:
        return fabric(
            options.pods,
            options.racks,
            options.hosts,
            options.planes,
            options.spines,
            options.publishers,
        )
    if options.name.endswith((".graphml", ".xml")):
        graph = _from_file(Path(options.name))
    else:
        graph = _from_topohub(options.name)
    return from_graph(graph, options.hosts_per_switch, options.publishers)


def _from_file(path: Path) -> nx.Graph:
    try:
        return nx.read_graphml(path)
    except OSError as error:
        raise LabError(
            "UNKNOWN_NETWORK", f"cannot read the network {path}: {error.strerror}", path=str(path)
        ) from None
    # networkx lets the errors of its XML parser, of keys and of numbers through.
    except (nx.NetworkXError, SyntaxError, ValueError, KeyError, TypeError) as error:
        raise LabError("BAD_GRAPHML", f"{path} is not GraphML: {error}", path=str(path)) from error


def _from_topohub(name: str) -> nx.Graph:
    try:
        return nx.node_link_graph(topohub.get(name), edges="edges")
    except (KeyError, OSError):
        near = get_close_matches(name, _topohub_names(name), n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise LabError(
            "UNKNOWN_NETWORK",
            f"topohub has no network '{name}', and it is no .graphml file{hint}",
            name=name,
            suggestions=near,
        ) from None


def _topohub_names(name: str) -> list[str]:
    """Names of the group that ``name`` asks for, or of the groups of real networks."""
    group = name.split("/", 1)[0]
    data = files("topohub") / "data"
    groups = [group] if (data / group).is_dir() else ["topozoo", "sndlib"]
    return [
        f"{each}/{entry.name.removesuffix('.json')}"
        for each in groups
        for entry in (data / each).iterdir()
    ]
