"""All ways on the same networks, with the same notifications."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from statistics import fmean

from benchmarks.encodings.ways import (
    Paths,
    Taken,
    by_edges,
    by_stacks,
    cut_to_subtrees,
    rooted,
    together,
)
from benchmarks.support.results import Lines, in_parallel
from benchmarks.trees.networks import CANDIDATES, zoo
from benchmarks.trees.other_encodings import ENCAPSULATION, elmo
from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.encodings import ENCODINGS, label_format
from stackcast.udfs.network.network import Host, Network
from stackcast.udfs.network.topology import fabric, jellyfish
from stackcast.udfs.network.virtual_tree import VirtualTree, tree_ports
from stackcast.udfs.stacks.forwarding import network_tables
from stackcast.udfs.switches.stack_entries import switch_entries
from stackcast.udfs.trees.encoders import encoder_of
from stackcast.udfs.trees.publisher_trees import first_trees, publisher_edges

NAMES = ("fabric 8x4x2", "fabric 4x4x12", *CANDIDATES, "Jellyfish 255", "Jellyfish 256")
SHARES = (0.1, 0.3, 0.6)
STABLE = 0.7
CHURN = 0.1
DATAGRAM = 20 + 8 + 50
ONE_TREE = "virtual_trees, one broadcast tree"
COUNTED = (
    "header", "header_links", "load", "frames", "packets", "lookups", "passes", "delay", "queued"
)  # fmt: skip


def network_of(name: str) -> Network:
    """Makes a network of the table, with one publisher."""
    if name.startswith("Jellyfish"):
        return jellyfish(int(name[10:]), 3)
    if name.startswith("fabric"):
        pods, racks, hosts = map(int, name[7:].split("x"))
        return fabric(pods, racks, hosts, 4, 4) if hosts == 2 else fabric(pods, racks, hosts, 2, 2)
    return publishing(zoo(name).network)


def publishing(network: Network) -> Network:
    """Makes the first host the publisher, where all are subscribers."""
    first, *others = network.hosts.values()
    made = Host(first.name, first.switch, first.port, first.mac, first.ipv4, "publisher")
    return Network.from_rows(network.switches.values(), [made, *others], network.links)


def drawn(network: Network, random: Random, share: float) -> frozenset[str]:
    hosts = network.subscribers()
    return frozenset(random.sample(hosts, max(1, round(share * len(hosts)))))


def relabelled(network: Network, encoding: str) -> Network:
    return Network.from_rows(
        network.switches.values(), network.hosts.values(), network.links,
        label_format(encoding, 16),
    )  # fmt: skip


def changed(network: Network, before: Iterable[VirtualTree], after: Iterable[VirtualTree]) -> int:
    """Counts rows of stored trees that are added, modified or removed."""
    rows = [
        {
            (tree.id, switch): mask
            for tree in trees
            for switch, mask in tree_ports(network, tree).items()
        }
        for trees in (before, after)
    ]
    return sum(rows[0].get(key) != rows[1].get(key) for key in rows[0].keys() | rows[1].keys())


def trees_for(
    network: Network, encoding: str, hosts: frozenset[str], stable: int
) -> list[VirtualTree]:
    """Returns the trees that an encoding stores for a receiver set; ``stable``: how many of it are
    in the tree of a hybrid stack."""
    (publisher,) = network.publishers()
    if encoding == ONE_TREE:
        return first_trees(network)
    if encoding == "tree":
        sets = [sorted(hosts)]
    elif encoding == "hybrid":
        sets = [sorted(hosts)[:stable]]
    else:
        return []
    edges = publisher_edges(network, publisher, [some for some in sets if some])
    return [VirtualTree(number, each, "set") for number, each in enumerate(edges, 1)]


def exchanged(
    random: Random, network: Network, hosts: frozenset[str], share: float
) -> frozenset[str]:
    """Returns the set with a share of it exchanged for others."""
    out = random.sample(sorted(hosts), min(len(hosts), round(share * len(hosts))))
    others = sorted(set(network.subscribers()) - hosts)
    return hosts - set(out) | set(random.sample(others, min(len(out), len(others))))


def _encodings(
    network: Network, hosts: frozenset[str], other: frozenset[str]
) -> Iterator[tuple[str, Taken | str, int, int]]:
    for encoding in (*ENCODINGS, ONE_TREE):
        try:
            own = relabelled(network, encoding.partition(",")[0])
        except NetworkError as error:
            yield encoding, error.what, 0, 0
            continue
        (publisher,) = own.publishers()
        stable = round(STABLE * len(hosts))
        trees = trees_for(own, encoding, hosts, stable)
        encoder = encoder_of(own, publisher, trees, own.labels.max_labels)
        found = encoder.encode(hosts)
        stacks = [each.labels for each in found]
        taken = by_stacks(own, network_tables(own, trees), publisher, stacks, DATAGRAM)
        assert taken.hosts == dict.fromkeys(hosts, 1), encoding
        labels = [e for e in switch_entries(own, trees, 1) if ".label_1." in e.table]
        rows = 0
        if encoding in ("tree", "hybrid"):
            rows = changed(own, trees, trees_for(own, encoding, other, stable))
        yield encoding, taken, len(labels), rows
        if encoding == "virtual_trees":
            cut = cut_to_subtrees(own, [(each.labels, each.edges) for each in found], taken)
            yield (
                "virtual_trees, copies reduced to their subtree (not implemented)",
                cut,
                len(labels),
                0,
            )


def _others(
    network: Network, name: str, hosts: frozenset[str], other: frozenset[str]
) -> Iterator[tuple[str, Taken | str, int, int]]:
    (publisher,) = network.publishers()
    paths = Paths(network, publisher)
    edges = list(rooted(paths.tree(hosts)))
    switches = len(network.switches)
    # A row of its group in each switch of the tree.
    group = {(u, v) for u, v in edges if u in network.switches}
    later = {(u, v) for u, v in rooted(paths.tree(other)) if u in network.switches}
    masks: list[dict[str, set[str]]] = [defaultdict(set), defaultdict(set)]
    for found, some in zip(masks, (group, later), strict=True):
        for u, v in some:
            found[u].add(v)
    rows = sum(masks[0].get(u) != masks[1].get(u) for u in masks[0].keys() | masks[1].keys())
    yield "OpenFlow multicast", by_edges(network, edges, DATAGRAM), len(masks[0]), rows
    with_hosts = sorted({network.hosts[host].switch for host in network.hosts})
    for bits in (256, 4096):
        for of, places in (("hosts", list(network.hosts)), ("leaves", with_hosts)):
            place = {each: at for at, each in enumerate(places)}
            sets: dict[int, list[str]] = defaultdict(list)
            for host in sorted(hosts):
                key = host if of == "hosts" else network.hosts[host].switch
                sets[place[key] // bits].append(host)
            header = ENCAPSULATION + bits // 8
            trees = [list(rooted(paths.tree(some))) for some in sets.values()]
            taken = together([by_edges(network, each, DATAGRAM, header) for each in trees])
            state = (
                0 if of == "hosts" else len({network.hosts[host].switch for host in hosts ^ other})
            )
            yield f"BIER, {bits} bits, to {of}", taken, len(places) * switches, state
    alone = [by_edges(network, paths.to(host), DATAGRAM) for host in sorted(hosts)]
    yield "unicast", together(alone), 0, 0
    yield "ALM, all nodes", by_edges(network, edges, DATAGRAM, broker=lambda s, n: True), 0, 0
    grouped = by_edges(network, edges, DATAGRAM, broker=lambda s, n: True, groups=True)
    yield "ALM, multicast groups", grouped, 0, 0
    everybody = list(rooted(paths.tree(network.subscribers())))
    yield "broadcast", by_edges(network, everybody, DATAGRAM), 0, 0
    yield "ALM, fork nodes", by_edges(network, edges, DATAGRAM, broker=lambda s, n: n > 1), 0, 0
    if name.startswith("fabric"):
        header = elmo(network, publisher, hosts).total
        yield "Elmo, R = 0 (header only)", by_edges(network, edges[:1], 0, header), 0, 0


def _one(task: tuple[str, int]) -> list[dict[str, object]]:
    name, seed = task
    network = network_of(name)
    found: list[dict[str, object]] = []
    for share in SHARES:
        random = Random(f"encodings {name} {seed} {share}")
        hosts = drawn(network, random, share)
        other = exchanged(random, network, hosts, CHURN)
        for way, taken, entries, rows in (
            *_encodings(network, hosts, other),
            *_others(network, name, hosts, other),
        ):
            line: dict[str, object] = {"network": name, "share": share, "way": way}
            if isinstance(taken, str):
                found.append(line | {"refused": taken})
            else:
                counted = {each: getattr(taken, each) for each in COUNTED}
                found.append(line | counted | {"entries": entries, "churn": rows})
    return found


def run(runs: int, processes: int, names: Sequence[str] = NAMES) -> None:
    """Measures ``runs`` drawings of receivers for each network and share."""
    lines = Lines("encodings", "networks")
    for name in names:
        collected: dict[tuple[float, str], list[dict[str, object]]] = defaultdict(list)
        for _, rows in in_parallel(_one, [(name, seed) for seed in range(runs)], processes):
            for row in rows:
                collected[float(str(row["share"])), str(row["way"])].append(row)
        for (share, way), rows in collected.items():
            line = {"network": name, "share": share, "way": way}
            if "refused" in rows[0]:
                lines.say("way", **line, refused=rows[0]["refused"])
                continue
            means = {
                key: fmean(float(str(row[key])) for row in rows)
                for key in (*COUNTED, "entries", "churn")
                # Queues are simulated of stacks alone.
                if row_has(rows[0], key)
            }
            lines.say("way", **line, runs=len(rows), **means)


def row_has(row: Mapping[str, object], key: str) -> bool:
    return row[key] == row[key]
