"""Speed of the encoder: beside Algorithm 5.1 in plain networkx, in a large network, and by the
index of candidates where many trees are stored; and of strategies in a large network."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from random import Random

from benchmarks.support.measuring import one_core
from benchmarks.support.results import Lines, in_parallel
from benchmarks.trees.plain_greedy import PlainGreedy
from stackcast.udfs.network.labels import MAX_LABELS, WIDE
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import fabric, jellyfish
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.trees.encode import Encoder
from stackcast.udfs.trees.publications import Clients, Publication, Statistics
from stackcast.udfs.trees.steiner import steiner_tree
from stackcast.udfs.trees.stored_trees import StoredTrees
from stackcast.udfs.trees.strategies.random_trees import RandomVariant
from stackcast.udfs.trees.strategies.registry import STRATEGIES
from stackcast.udfs.trees.strategies.strategy import (
    FEWEST_EDGES,
    Edges,
    Situation,
    numbered,
    select,
    uniform,
)
from stackcast.udfs.trees.switch_graph import SwitchGraph

SWITCHES, DEGREE, TREES, RECEIVERS = 256, 8, 40, 100
PUBLICATIONS, PUBLISHERS = 1000, 20
#: The plain algorithm encodes so many of them; the rest is extrapolated.
PLAIN = {"mehlhorn": 2, "takahashi-matsuyama": 1, "kou": 1}
#: Of the index: receivers of a publication, tenants, and the hosts of each.
FEW_RECEIVERS, TENANTS, TENANT_HOSTS = 10, 3_000, 16
#: Passes over the same sets, whose median counts: nothing is remembered of a set.
PASSES = 5
#: Sets of a process where many are encoded.
MANY = 10_000
ONE_STACK, FRAMES = "one stack of any length", "frames of 64 labels"
LARGE_SWITCHES, LARGE_RECEIVERS, LARGE_RUNS = 10_000, 1_000, 20
#: Of the strategies there: publications on record, publishers, and trees that a switch may hold.
LARGE_RECORD, LARGE_PUBLISHERS, LARGE_RULES = 1_000, 5, 20

Wanted = tuple[str, frozenset[str]]


def stored(network: Network, trees: int, seed: int) -> list[VirtualTree]:
    """Returns the first trees of random-variant: all hosts, halves, quarters and so on."""
    situation = Situation(network, Clients({}), Statistics(), seed)
    found: dict[Edges, None] = {}
    for edges in RandomVariant().candidates(situation, uniform(network, trees)):
        if len(edges) >= FEWEST_EDGES:
            found[edges] = None
        if len(found) == trees:
            break
    return numbered(found, "random-variant")


def publications(network: Network, count: int, receivers: int, publishers: int) -> list[Wanted]:
    """Returns ``count`` different ones, of each publisher as many as of another."""
    random = Random(f"speed {count} {receivers}")
    hosts = list(network.hosts)
    sources = random.sample(hosts, publishers)
    wanted = []
    for number in range(count):
        source = sources[number % publishers]
        others = [host for host in hosts if host != source]
        wanted.append((source, frozenset(random.sample(others, receivers))))
    return wanted


def run() -> None:
    """1,000 publications × 40 trees in a Jellyfish of 256 switches, 100 receivers."""
    lines = Lines("trees", "speed")
    network = jellyfish(SWITCHES, DEGREE, publishers=0)
    trees = stored(network, TREES, 0)
    wanted = publications(network, PUBLICATIONS, RECEIVERS, PUBLISHERS)
    seconds: dict[tuple[str, bool], float] = {}
    kinds = [("greedy", False), ("refined", False), ("refined", True)]
    for algorithm, split in kinds:
        encode = _ours(network, trees, algorithm, split)
        encode(wanted[:1])  # compiled
        encode = _ours(network, trees, algorithm, split)
        began = time.thread_time()
        sizes = encode(wanted)
        seconds[algorithm, split] = time.thread_time() - began
        lines.say(
            f"encoder, {algorithm}, {FRAMES if split else ONE_STACK}",
            switches=SWITCHES,
            degree=DEGREE,
            trees=len(trees),
            publications=PUBLICATIONS,
            receivers=RECEIVERS,
            seconds=seconds[algorithm, split],
            milliseconds_each=seconds[algorithm, split] / PUBLICATIONS * 1000,
            labels=statistics.mean(labels for labels, _ in sizes),
            frames=statistics.mean(frames for _, frames in sizes),
        )
    plain_seconds = {}
    for steiner, part in PLAIN.items():
        plain = PlainGreedy(network, trees, steiner)
        began = time.thread_time()
        costs = [plain.encode(*each).cost for each in wanted[:part]]
        spent = time.thread_time() - began
        plain_seconds[steiner] = spent / part * PUBLICATIONS
        sizes = _ours(network, trees, "greedy", split=False)(wanted[:part])
        lines.say(
            f"Algorithm 5.1 in plain networkx, {steiner}",
            publications=part,
            seconds=spent,
            seconds_extrapolated=plain_seconds[steiner],
            times_ours=plain_seconds[steiner] / seconds["refined", False],
            labels=statistics.mean(costs),
            labels_of_greedy=statistics.mean(labels for labels, _ in sizes),
        )
    for split in (False, True):
        lines.floor(
            f"{PUBLICATIONS:,} publications × {len(trees)} trees, {SWITCHES} switches, "
            f"{RECEIVERS} receivers, one core, {FRAMES if split else ONE_STACK}",
            seconds["refined", split],
            10,
            "s",
        )
    for steiner, spent in plain_seconds.items():
        lines.floor(
            f"speedup over Algorithm 5.1 in plain networkx ({steiner})",
            spent / seconds["refined", False],
            1000,
            "x",
            least=True,
        )


def _ours(
    network: Network, trees: list[VirtualTree], algorithm: str, split: bool
) -> Callable[[list[Wanted]], list[tuple[int, int]]]:
    """An encoder that knows nothing yet: labels and frames of each publication.

    Without ``split`` a stack may have any length, as in the text's algorithm.
    """
    graph = SwitchGraph(network)
    forest = StoredTrees(network, graph, trees)
    encoders: dict[str, Encoder] = {}

    def encode(wanted: list[Wanted]) -> list[tuple[int, int]]:
        counts = []
        for publisher, receivers in wanted:
            if publisher not in encoders:
                encoders[publisher] = Encoder(
                    network,
                    publisher,
                    (),
                    MAX_LABELS if split else None,
                    algorithm=algorithm,  # type: ignore[arg-type]
                    graph=graph,
                    stored=forest,
                )
            stacks = encoders[publisher].encode(receivers)
            counts.append((sum(len(each.labels) for each in stacks), len(stacks)))
        return counts

    return encode


def large() -> None:
    """10,000 switches and 1,000 receivers, in a process of its own for its memory."""
    lines = Lines("trees", "large")
    with get_context("spawn").Pool(1) as pool:
        found = pool.apply(_large)
    lines.say("large", **found)
    lines.floor(
        f"one publication, {LARGE_SWITCHES:,} switches, {LARGE_RECEIVERS:,} receivers (median)",
        found["milliseconds"],
        50,
        "ms",
    )
    lines.floor("peak memory of the process", found["peak_megabytes"] / 1000, 2, "GB")


def _large() -> dict[str, float]:
    one_core()
    _forget_peak()
    began = time.thread_time()
    network = jellyfish(LARGE_SWITCHES, DEGREE, publishers=0, labels=WIDE)
    made = time.thread_time() - began
    began = time.thread_time()
    random = Random("large")
    switches = list(network.switches)
    graph = SwitchGraph(network)
    edges = [
        steiner_tree(network, random.sample(switches, LARGE_RECEIVERS), graph=graph)
        for _ in range(TREES)
    ]
    trees = numbered(edges, "random")
    chosen = time.thread_time() - began
    wanted = publications(network, LARGE_RUNS + 1, LARGE_RECEIVERS, 1)
    publisher = wanted[0][0]
    began = time.thread_time()
    encoder = Encoder(network, publisher, trees, graph=graph)
    prepared = time.thread_time() - began
    encoder.encode(wanted[0][1])  # compiled
    spent, frames, labels = [], [], []
    for _, receivers in wanted[1:]:
        began = time.thread_time()
        stacks = encoder.encode(receivers)
        spent.append(time.thread_time() - began)
        frames.append(len(stacks))
        labels.append(sum(len(each.labels) for each in stacks))
    return {
        "switches": LARGE_SWITCHES,
        "degree": DEGREE,
        "trees": len(trees),
        "receivers": LARGE_RECEIVERS,
        "milliseconds": statistics.median(spent) * 1000,
        "largest_milliseconds": max(spent) * 1000,
        "frames": statistics.mean(frames),
        "labels": statistics.mean(labels),
        "network_seconds": made,
        "strategy_seconds": chosen,
        "encoder_seconds": prepared,
        "peak_megabytes": _peak(),
    }


def strategies() -> None:
    """Every strategy at 10,000 switches, with publications to 10 receivers each on record."""
    lines = Lines("trees", "strategies")
    network = jellyfish(LARGE_SWITCHES, DEGREE, publishers=LARGE_PUBLISHERS, labels=WIDE)
    hosts, random = network.subscribers(), Random("strategies")
    record = [
        Publication(publisher, frozenset(random.sample(hosts, FEW_RECEIVERS)), 1, 120)
        for publisher in network.publishers()
        for _ in range(LARGE_RECORD // LARGE_PUBLISHERS)
    ]
    clients = Clients(dict.fromkeys(network.publishers(), frozenset(hosts)))
    situation = Situation(network, clients, Statistics(record))
    seconds: dict[str, float] = {}
    for name, strategy in STRATEGIES.items():
        began = time.thread_time()
        trees = select(strategy, situation, uniform(network, LARGE_RULES))
        seconds[name] = time.thread_time() - began
        lines.say(name, trees=len(trees), edges=sum(map(len, trees)), seconds=seconds[name])
    slowest = max(seconds, key=lambda name: seconds[name])
    lines.floor(
        f"slowest strategy at {LARGE_SWITCHES:,} switches ({slowest})", seconds[slowest], 60, "s"
    )


def _forget_peak() -> None:
    """A process begins with its parent's peak, where the kernel does not let it be forgotten."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", "ascii")


def _peak() -> float:
    """MB that this process held at most."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text("ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1000
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def index(processes: int) -> None:
    """Few receivers, and many stored trees: what the index of candidates spares, and costs; and
    how long a million sets take on so many cores."""
    lines = Lines("trees", "index")
    seconds = max(found for _, found in in_parallel(_many, range(processes), processes))
    sets = processes * MANY
    minutes = 1e6 * seconds / sets / 60
    lines.say("a million sets", processes=processes, measured=sets, minutes=minutes)
    lines.floor(
        f"1 M sets of {FEW_RECEIVERS} receivers, {TREES} trees, {SWITCHES} switches, "
        f"{processes} cores, extrapolated from {sets:,}",
        minutes,
        10,
        "min",
    )
    network = jellyfish(SWITCHES, DEGREE, publishers=0)
    wanted = publications(network, 200, FEW_RECEIVERS, PUBLISHERS)
    _index(
        lines,
        "random-variant, all trees considered",
        network,
        stored(network, TREES, 0),
        wanted,
        1.2,
    )
    network = fabric(pods=8, racks=24, hosts=8, planes=4, spines=8, labels=WIDE)
    trees, groups = tenants(network, TENANTS, TENANT_HOSTS)
    (publisher,) = network.publishers()
    random = Random("index")
    for name, drawn in (("of one tenant", groups), ("of any tenant", [network.subscribers()])):
        wanted = [
            (publisher, frozenset(random.sample(random.choice(drawn), FEW_RECEIVERS)))
            for _ in range(40)
        ]
        _index(lines, f"trees of tenants, receivers {name}", network, trees, wanted, 1.0)


def _many(part: int) -> float:
    """Seconds that one process takes for its part of the sets."""
    network = jellyfish(SWITCHES, DEGREE, publishers=0)
    wanted = publications(network, (part + 1) * MANY, FEW_RECEIVERS, PUBLISHERS)[part * MANY :]
    encode = _ours(network, stored(network, TREES, 0), "refined", split=True)
    encode(wanted[:100])  # compiled, and each publisher has its encoder
    began = time.perf_counter()
    encode(wanted)
    return time.perf_counter() - began


def _index(
    lines: Lines,
    name: str,
    network: Network,
    trees: list[VirtualTree],
    wanted: list[Wanted],
    least: float,
) -> None:
    found = {}
    for algorithm in ("greedy", "refined"):
        encode = _ours(network, trees, algorithm, split=True)
        encode(wanted)  # compiled, and each publisher has its encoder
        spent = []
        for _ in range(PASSES):
            began = time.thread_time()
            sizes = encode(wanted)
            spent.append(time.thread_time() - began)
        seconds = statistics.median(spent)
        found[algorithm] = [labels for labels, _ in sizes]
        lines.say(
            f"{name}, {algorithm}",
            trees=len(trees),
            receivers=FEW_RECEIVERS,
            milliseconds_each=seconds / len(wanted) * 1000,
            labels=statistics.mean(found[algorithm]),
        )
    longer = sum(r > g for r, g in zip(found["refined"], found["greedy"], strict=True))
    lines.say(f"{name}, stacks longer than of Algorithm 5.1 over all trees", publications=longer)
    lines.floor(f"{name}: time per set", seconds / len(wanted) * 1000, least, "ms")


def tenants(network: Network, count: int, size: int) -> tuple[list[VirtualTree], list[list[str]]]:
    """Returns a tree to the hosts of each of ``count`` tenants, and those hosts."""
    random, graph = Random("tenants"), SwitchGraph(network)
    hosts = network.subscribers()
    groups: dict[Edges, list[str]] = {}
    while len(groups) < count:
        group = random.sample(hosts, size)
        groups[steiner_tree(network, group, graph=graph)] = group
    return numbered(groups, "tenants"), list(groups.values())
