"""The networks of WERNECKE Table 6.1, with places on a map, four clusters, and where clients are
dense (6.5.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import cos, radians
from pathlib import Path
from random import Random

import networkx as nx
import numpy as np
import topohub
from numpy.typing import NDArray

from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import read_graph

CLUSTERS = 4
DENSE = 0.6
#: How likely a host of a dense switch is drawn, compared with one of another switch. The text says
#: high and low.
HIGH, LOW = 9.0, 1.0

TABLE = {
    "Chinanet": (42, 66, 10.52, 4),
    "Litnet": (43, 43, 5.04, 4),
    "Cernet": (41, 58, 5.6, 5),
    "Ntt": (32, 65, 7.07, 6),
    "Cesnet200706": (44, 51, 6.27, 6),
    "Carnet": (44, 43, 5.48, 6),
    "Dfn": (50, 78, 5.31, 6),
    "Telcove": (71, 70, 9.13, 7),
    "Forthnet": (62, 62, 7.72, 7),
    "Bellsouth": (51, 66, 7.55, 7),
    "Garr200902": (54, 68, 5.13, 7),
    "Arnes": (41, 57, 4.53, 7),
    "BeyondTheNetwork": (53, 65, 3.98, 7),
    "Uunet": (49, 84, 7.38, 8),
    "Tw": (71, 115, 5.58, 8),
    "Uninett2010": (71, 97, 3.12, 9),
    "Uninett2011": (71, 97, 3.12, 9),
    "Renater2010": (43, 56, 3.08, 9),
    "Surfnet": (50, 68, 3.36, 11),
    "Iris": (51, 64, 2.16, 11),
    "Palmetto": (45, 64, 2.57, 12),
    "BtLatinAmerica": (45, 50, 1.87, 12),
    "Bellcanada": (48, 64, 2.59, 13),
    "Sanet": (43, 45, 1.66, 13),
    "LambdaNet": (42, 46, 1.57, 13),
    "HiberniaGlobal": (55, 81, 2.72, 16),
    "Ntelos": (47, 58, 1.92, 17),
    "RedBestel": (84, 93, 0.85, 28),
    "VtlWavenet2008": (88, 92, 0.11, 31),
}
"""|V|, |E|, fluctuation of degrees and diameter as the text has them. Its Uninett is one of two."""
DIVISOR = 88
"""The text's fluctuations are of so many switches in every row, those of its largest network, of
which it takes those that a network does not have to be without links (:func:`padded_fluctuation`).
"""

CANDIDATES = ("Litnet", "Dfn", "VtlWavenet2008")
"""The three that the text looks at closely."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Zoo:
    """A network of one host a switch.

    places: switch → (x, y). centres: a switch of each cluster. dense: the densely populated
    switches of each cluster, the centre first.
    """

    name: str
    network: Network
    places: Mapping[str, Point]
    clusters: tuple[tuple[str, ...], ...]
    centres: tuple[str, ...]
    dense: tuple[tuple[str, ...], ...]
    links: tuple[tuple[str, str], ...]
    diameter: int
    fluctuation: float
    padded: float

    def weights(self, clusters: Sequence[int] | None = None) -> dict[str, float]:
        """Returns the weights of hosts where ``clusters`` (None: all) are populated."""
        chosen = range(CLUSTERS) if clusters is None else clusters
        inside = {switch for number in chosen for switch in self.dense[number]}
        return {
            host.name: HIGH if host.switch in inside else LOW
            for host in self.network.hosts.values()
        }

    def apart(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Returns the clusters in two pairs, the centres of one far from those of the other."""
        graph = nx.Graph(self.links)
        pairings = [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))]

        def between(pairing: tuple[tuple[int, int], tuple[int, int]]) -> int:
            return sum(
                nx.shortest_path_length(graph, self.centres[a], self.centres[b])
                for a in pairing[0]
                for b in pairing[1]
            )

        return max(pairings, key=between)


def padded_fluctuation(degrees: Iterable[int]) -> float:
    """Returns the variance of these degrees with as many zeros as make it `DIVISOR` values."""
    known = list(degrees)
    return float(np.var([*known, *[0] * (DIVISOR - len(known))]))


def names(folder: str | None, only: Sequence[str] = ()) -> list[str]:
    """Networks of the table that are at hand, in topohub or a folder; ``only`` these, if any."""
    if folder:
        found = [name for name in TABLE if (Path(folder) / f"{name}.graphml").is_file()]
    else:
        known = files("topohub") / "data" / "topozoo"
        found = [name for name in TABLE if (known / f"{name}.json").is_file()]
    return [name for name in found if not only or name in only]


@cache
def zoo(name: str, folder: str | None = None) -> Zoo:
    """Reads the network of this name, from ``folder`` or from topohub."""
    if folder:
        graph = nx.read_graphml(Path(folder) / f"{name}.graphml")
    else:
        graph = nx.node_link_graph(topohub.get(f"topozoo/{name}"), edges="edges")
    # Weights of the catalogue are lengths in km; the text counts links.
    for *_, data in graph.edges(data=True):
        data.pop("weight", None)
    read = read_graph(graph, hosts_per_switch=1, publishers=0)
    network = read.network
    links = tuple(
        (link.switch, link.neighbor)
        for link in network.links
        if link.neighbor in network.switches and link.switch < link.neighbor
    )
    plain = nx.Graph(links)
    known = {switch: point for node, switch in read.switches.items()
             if (point := _point(graph.nodes[node])) is not None}  # fmt: skip
    places = _places(network, plain, known)
    clusters = _k_means(places, name)
    centres = tuple(_centre(places, members) for members in clusters)
    degrees = np.array([degree for _, degree in plain.degree])
    return Zoo(
        name,
        network,
        places,
        clusters,
        centres,
        _dense(network, plain, clusters, centres),
        links,
        nx.diameter(plain),
        float(degrees.var()),
        padded_fluctuation(degrees.tolist()),
    )


def _point(node: Mapping[str, object]) -> Point | None:
    """Longitude and latitude as topohub or the Topology Zoo write them."""
    if "pos" in node:
        x, y = node["pos"]  # type: ignore[misc]
        return float(x), float(y)
    if "Longitude" in node and "Latitude" in node:
        return float(str(node["Longitude"])), float(str(node["Latitude"]))
    return None


def _places(network: Network, graph: nx.Graph, known: Mapping[str, Point]) -> dict[str, Point]:
    """Positions on a plane; a switch without one stands amid its neighbors.

    Without any position, distances in links are laid out on a plane (classical scaling).
    """
    if not known:
        return _scaled(network, graph)
    middle = sum(y for _, y in known.values()) / len(known)
    places = {name: (x * cos(radians(middle)), y) for name, (x, y) in known.items()}
    while len(places) < len(network.switches):
        found = {}
        for name in network.switches:
            near = [places[v] for v in sorted(graph[name]) if v in places]
            if name not in places and near:
                found[name] = tuple(float(each) for each in np.mean(near, axis=0))
        places |= found  # type: ignore[arg-type]
    return {name: places[name] for name in network.switches}


def _scaled(network: Network, graph: nx.Graph) -> dict[str, Point]:
    order = list(network.switches)
    square = np.array(nx.floyd_warshall_numpy(graph, order)) ** 2
    centring = np.eye(len(order)) - 1 / len(order)
    values, vectors = np.linalg.eigh(-centring @ square @ centring / 2)
    flat = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0))
    return {name: (float(x), float(y)) for name, (x, y) in zip(order, flat, strict=True)}


def _k_means(places: Mapping[str, Point], seed: str) -> tuple[tuple[str, ...], ...]:
    """Four clusters by Lloyd's algorithm, the tightest of several starts."""
    order = list(places)
    points = np.array([places[name] for name in order])
    random = Random(f"k-means {seed}")
    best: tuple[float, NDArray[np.int64]] | None = None
    for _ in range(20):
        centres = points[random.sample(range(len(order)), CLUSTERS)]
        for _ in range(50):
            squares = ((points[:, None] - centres[None]) ** 2).sum(axis=2)
            member = squares.argmin(axis=1)
            fresh = np.array([
                points[member == k].mean(axis=0) if (member == k).any() else centres[k]
                for k in range(CLUSTERS)
            ])  # fmt: skip
            if np.array_equal(fresh, centres):
                break
            centres = fresh
        spread = float(squares.min(axis=1).sum())
        if len(set(member.tolist())) == CLUSTERS and (best is None or spread < best[0]):
            best = spread, member
    if best is None:
        raise ValueError("fewer than four different places")
    groups = [
        tuple(name for name, k in zip(order, best[1], strict=True) if k == number)
        for number in range(CLUSTERS)
    ]
    return tuple(sorted(groups, key=lambda group: (-len(group), group)))


def _centre(places: Mapping[str, Point], members: Sequence[str]) -> str:
    x, y = np.mean([places[name] for name in members], axis=0)
    return min(
        members, key=lambda name: ((places[name][0] - x) ** 2 + (places[name][1] - y) ** 2, name)
    )


def _dense(
    network: Network,
    graph: nx.Graph,
    clusters: Sequence[Sequence[str]],
    centres: Sequence[str],
) -> tuple[tuple[str, ...], ...]:
    """Those nearest to each centre by links, of each cluster in turn, up to 60 % of all."""
    place = {name: number for number, name in enumerate(network.switches)}
    waiting = []
    for members, centre in zip(clusters, centres, strict=True):
        far = nx.single_source_shortest_path_length(graph, centre)
        waiting.append(sorted(members, key=lambda name: (far[name], place[name])))
    dense: list[list[str]] = [[] for _ in centres]
    wanted = round(DENSE * len(network.switches))
    while sum(map(len, dense)) < wanted:
        for chosen, left in zip(dense, waiting, strict=True):
            if left and sum(map(len, dense)) < wanted:
                chosen.append(left.pop(0))
    return tuple(map(tuple, dense))
