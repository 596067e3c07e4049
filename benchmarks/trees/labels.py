"""Labels of our encoder beside Algorithm 5.1, the optimum, BIER and port bitmaps."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import networkx as nx
import numpy as np
import topohub
from label_optimum import label_optimum

from benchmarks.support.results import Lines, in_parallel
from benchmarks.trees import other_encodings
from benchmarks.trees.clients import Crowd, crowd, recorded
from benchmarks.trees.networks import CANDIDATES, zoo
from udfs.network.network import Network
from udfs.network.topology import fabric, from_graph, jellyfish
from udfs.retuning.costs import Replayer
from udfs.trees.encode import Encoder
from udfs.trees.publications import Publication
from udfs.trees.strategies.registry import STRATEGIES
from udfs.trees.strategies.strategy import Situation, numbered, select, uniform

RULES, SMALL_RULES = 40, 6
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
SMALL = ("fabric of 10", "Jellyfish of 12", "Abilene")
SOLVED = 6
"""Publications of each small network and strategy."""

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
    return from_graph(graph, publishers=0)


def against_greedy(name: str) -> list[Line]:
    """Both encoders over the same trees, and other encodings of the same publications."""
    network, who, random = scenario(name)
    situation = Situation(network, who.clients(), recorded(who, random, RECORDED), 0)
    publications = who.draw(random, MEASURED)
    lines: list[Line] = []
    for strategy in COMPARED:
        trees = select(STRATEGIES[strategy], situation, uniform(network, RULES))
        refined, greedy = (
            Replayer(network, numbered(trees, strategy), algorithm).replay(publications)
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
        "a bit a host": [],
        "port bitmaps": [],
    }
    for each in publications:
        edges = [edge for e in plain[each.publisher].encode(each.receivers) for edge in e.edges]
        bitmaps = other_encodings.port_bitmaps(network, dict.fromkeys(edges))
        sizes["BIER (RFC 8296)"].append(other_encodings.bier(network, each.receivers).total)
        sizes["a bit a host"].append(other_encodings.bare_bits(network, each.receivers).total)
        sizes["port bitmaps"].append(bitmaps.total)
        if name.startswith("fabric"):
            headers = other_encodings.elmo(network, each.publisher, each.receivers)
            sizes.setdefault("Elmo", []).append(headers.total)
    return [
        {"name": "other encoding", "network": name, "encoding": encoding}
        | _bytes("header", np.array(values))
        for encoding, values in sizes.items()
    ]


def against_optimum(task: tuple[str, str]) -> tuple[list[int], list[int], list[int]]:
    """Returns labels of our encoder, of greedy, and the fewest there are."""
    name, strategy = task
    network, who, random = scenario(name)
    situation = Situation(network, who.clients(), recorded(who, random, RECORDED), 0)
    drawn = {(p.publisher, p.receivers): p for p in who.draw(random, MEASURED)}
    publications = random.sample(list(drawn.values()), min(SOLVED, len(drawn)))
    chosen = select(STRATEGIES[strategy], situation, uniform(network, SMALL_RULES))
    trees = numbered(chosen, strategy)
    refined, greedy = (
        Replayer(network, trees, algorithm).replay(publications).stack_labels.tolist()
        for algorithm in ("refined", "greedy")
    )
    fewest = [label_optimum(network, p.publisher, p.receivers, trees).cost for p in publications]
    return refined, greedy, fewest


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
    lines.floor("publications of more labels than greedy's", longer, 0, "publications")
    for strategy in COMPARED:
        saving = sum(savings[strategy]) / len(savings[strategy])
        if strategy in SMALL_TREES:
            lines.floor(
                f"saving against greedy, {strategy}, mean of networks", saving, 0.1, "", least=True
            )
    tasks = [(name, strategy) for name in SMALL for strategy in COMPARED]
    ours: list[int] = []
    theirs: list[int] = []
    fewest: list[int] = []
    for (name, strategy), found in in_parallel(against_optimum, tasks, processes):
        refined, greedy, optimum = found
        ours, theirs, fewest = ours + refined, theirs + greedy, fewest + optimum
        lines.say(
            "against optimum",
            network=name,
            strategy=strategy,
            publications=len(optimum),
            labels=sum(refined) / len(refined),
            greedy=sum(greedy) / len(greedy),
            optimum=sum(optimum) / len(optimum),
            at_optimum=sum(a == b for a, b in zip(refined, optimum, strict=True)),
        )
    ratio = [a / b for a, b in zip(ours, fewest, strict=True)]
    lines.say(
        "all against optimum",
        publications=len(ratio),
        mean=sum(ratio) / len(ratio),
        greedy_mean=sum(a / b for a, b in zip(theirs, fewest, strict=True)) / len(ratio),
        largest=max(ratio),
        at_optimum=sum(a == b for a, b in zip(ours, fewest, strict=True)) / len(ratio),
    )
    lines.floor(
        "labels against the optimum in small networks, mean", sum(ratio) / len(ratio), 1.05, "x"
    )


def _bytes(name: str, sizes: np.ndarray) -> Line:
    return {f"{name}_bytes": float(sizes.mean()), f"{name}_bytes_max": int(sizes.max())}
