"""Labels of our encoder beside Algorithm 5.1, BIER and port bitmaps."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import networkx as nx
import numpy as np
import topohub

from benchmarks.support.results import Lines, in_parallel
from benchmarks.trees import other_encodings
from benchmarks.trees.clients import Crowd, crowd, recorded
from benchmarks.trees.networks import CANDIDATES, zoo
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import fabric, jellyfish, read_graph
from stackcast.udfs.retuning.costs import PrunedTreeReplayer
from stackcast.udfs.trees.encode import Encoder
from stackcast.udfs.trees.publications import Publication
from stackcast.udfs.trees.strategies.registry import STRATEGIES
from stackcast.udfs.trees.strategies.strategy import Situation, numbered, select, uniform

RULES = 40
RECORDED, MEASURED = 20, 8
#: Many small trees that overlap: here a tenth of the labels or more is expected to be saved.
SMALL_TREES = ("topo", "random", "cycles", "partitions", "clusters")
COMPARED = (
    "topo",
    "random",
    "random-variant",
    "cycles",
    "partitions",
    "clusters",
    "tree",
    "threshold-30",
    "path",
    "freq-relation",
    "hybrid",
)
SCENARIOS = ("fabric, 30 %", "fabric, 70 %", *CANDIDATES, "Jellyfish of 64")

Line = dict[str, object]


def scenario(name: str) -> tuple[Network, Crowd, Random]:
    random = Random(f"labels {name}")
    if name.startswith("fabric, "):
        network = fabric(8, 4, 2, 4, 4, publishers=0)
        return network, crowd(network, random, 0.3, int(name[8:10]) / 100), random
    if name in CANDIDATES:
        place = zoo(name)
        return place.network, crowd(place.network, random, 0.3, 0.3, place.weights()), random
    network = _network(name)
    share = 0.3 if len(network.switches) > 20 else 0.6
    return network, crowd(network, random, 0.3, share), random


def _network(name: str) -> Network:
    if name == "Jellyfish of 64":
        return jellyfish(64, 6, publishers=0)
    if name == "Jellyfish of 12":
        return jellyfish(12, 3, publishers=0)
    if name == "fabric of 10":
        return fabric(2, 2, 2, 2, 1, publishers=0)
    graph = nx.node_link_graph(topohub.get("topozoo/Abilene"), edges="edges")
    return read_graph(graph, publishers=0).network


def against_greedy(name: str) -> list[Line]:
    """Both encoders over the same trees, and other encodings of the same publications."""
    network, who, random = scenario(name)
    situation = Situation(network, who.clients(), recorded(who, random, RECORDED), 0)
    publications = who.draw(random, MEASURED)
    lines: list[Line] = []
    for strategy in COMPARED:
        trees = select(STRATEGIES[strategy], situation, uniform(network, RULES))
        refined, greedy = (
            PrunedTreeReplayer(network, numbered(trees, strategy), algorithm).replay(publications)
            for algorithm in ("refined", "greedy")
        )
        ours, theirs = refined.stack_labels, greedy.stack_labels
        # Where frames are split, the splits may differ.
        whole = (refined.parts == 1) & (greedy.parts == 1)
        lines.append(
            {
                "name": "against greedy",
                "network": name,
                "strategy": strategy,
                "stored": len(trees),
                "publications": len(publications),
                "labels": float(ours.mean()),
                "greedy_labels": float(theirs.mean()),
                "saving": float(1 - ours.sum() / theirs.sum()),
                "longer": int((ours > theirs)[whole].sum()),
                "shorter": int((ours < theirs)[whole].sum()),
                **_bytes("ours", refined.header_bytes),
                **_bytes("greedy", greedy.header_bytes),
            }
        )
    lines += _others(name, network, publications)
    return lines


def _others(name: str, network: Network, publications: Sequence[Publication]) -> list[Line]:
    """Bytes of BIER and of port bitmaps. Bitmaps take the delivery tree of plain hops."""
    plain = {each.publisher: Encoder(network, each.publisher, ()) for each in publications}
    sizes: dict[str, list[int]] = {
        "BIER (RFC 8296)": [],
        "one bit per host": [],
        "port bitmaps": [],
    }
    for each in publications:
        edges = [edge for e in plain[each.publisher].encode(each.receivers) for edge in e.edges]
        bitmaps = other_encodings.port_bitmaps(network, dict.fromkeys(edges))
        sizes["BIER (RFC 8296)"].append(other_encodings.bier(network, each.receivers).total)
        sizes["one bit per host"].append(other_encodings.bare_bits(network, each.receivers).total)
        sizes["port bitmaps"].append(bitmaps.total)
        if name.startswith("fabric"):
            headers = other_encodings.elmo(network, each.publisher, each.receivers)
            sizes.setdefault("Elmo", []).append(headers.total)
    return [
        {"name": "other encoding", "network": name, "encoding": encoding}
        | _bytes("header", np.array(values))
        for encoding, values in sizes.items()
    ]


def run(processes: int) -> None:
    lines = Lines("trees", "labels")
    savings: dict[str, list[float]] = {}
    longer = 0
    for _, found in in_parallel(against_greedy, SCENARIOS, processes):
        for line in found:
            lines.say(**line)  # type: ignore[arg-type]
            if line["name"] == "against greedy":
                longer += line["longer"]  # type: ignore[operator]
                if line["stored"]:
                    savings.setdefault(str(line["strategy"]), []).append(line["saving"])  # type: ignore[arg-type]
    lines.floor("publications with more labels than Algorithm 5.1", longer, 0, "publications")
    for strategy in COMPARED:
        saving = sum(savings[strategy]) / len(savings[strategy])
        if strategy in SMALL_TREES:
            what = f"labels saved relative to Algorithm 5.1, {strategy}, mean over networks"
            lines.floor(what, saving, 0.1, "", least=True)


def _bytes(name: str, sizes: np.ndarray) -> Line:
    return {f"{name}_bytes": float(sizes.mean()), f"{name}_bytes_max": int(sizes.max())}
