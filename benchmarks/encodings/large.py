"""One notification to 1,000 of the hosts of 10,000 switches, one host a switch.

Rows of destinations would be a hundred million, so frames of encodings that have such are not
followed from switch to switch: what links carry is counted along the edges that a stack takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from statistics import fmean

from benchmarks.encodings.networks import DATAGRAM
from benchmarks.encodings.ways import COUNT, ETHERNET, Edge, by_stacks, rooted
from benchmarks.support.results import Lines, in_parallel
from benchmarks.trees.other_encodings import ENCAPSULATION
from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.encodings import ENCODINGS, WIDE_FORMS, label_format
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import jellyfish
from stackcast.udfs.stacks.forwarding import network_tables
from stackcast.udfs.trees.encode import Encoding
from stackcast.udfs.trees.encoders import encoder_of

SWITCHES, DEGREE, RECEIVERS = 10_000, 8, 1_000
#: Drawings of receivers at most: each takes minutes.
RUNS = 3
COUNTED = ("header", "header_links", "load", "frames", "packets")
#: Encodings that choose trees by the receivers say nothing of a set that comes once.
WAYS = tuple(name for name in ENCODINGS if name not in ("tree", "hybrid"))


def headers_on_links(network: Network, stack: Encoding) -> int:
    """Returns bytes of header on all links, where there is a label a host and a copy carries those
    of the hosts behind it."""
    behind = Counter(v for _, v in stack.edges if v in network.hosts)
    total = 0
    for u, v in reversed(stack.edges):
        behind[u] += behind[v]
        if v in network.switches:
            total += COUNT + network.labels.size * behind[v]
    return total


def _one(seed: int) -> list[dict[str, object]]:
    return list(_ways(seed))


def _ways(seed: int) -> Iterator[dict[str, object]]:
    for encoding in WAYS:
        try:
            labels = label_format(encoding, 32 if encoding in WIDE_FORMS else 16)
            network = jellyfish(SWITCHES, DEGREE, labels=labels)
        except NetworkError as error:
            yield {"way": encoding, "refused": error.what}
            continue
        (publisher,) = network.publishers()
        hosts = Random(f"large {seed}").sample(network.subscribers(), RECEIVERS)
        encoder = encoder_of(network, publisher, (), network.labels.max_labels)
        stacks = encoder.encode(frozenset(hosts))
        assert sorted(host for stack in stacks for host in stack.receivers) == sorted(hosts)
        if not network.labels.to_hosts:
            tables, found = network_tables(network, ()), [stack.labels for stack in stacks]
            whole = by_stacks(network, tables, publisher, found, DATAGRAM)
            yield {"way": encoding} | {key: getattr(whole, key) for key in COUNTED}
            continue
        header = sum(COUNT + network.labels.size * len(stack.labels) for stack in stacks)
        links = sum(headers_on_links(network, stack) for stack in stacks)
        yield _taken(encoding, header, links, [stack.edges for stack in stacks])
    # The last network is that of all: hosts and links are the same for any labels.
    tree = list(rooted(list(dict.fromkeys(edge for stack in stacks for edge in stack.edges))))
    number = {host: at for at, host in enumerate(network.hosts)}
    for bits in (256, 4096):
        header = ENCAPSULATION + bits // 8
        parts = []
        for some in range(-(-len(number) // bits)):
            wanted = {host for host in hosts if number[host] // bits == some}
            if wanted:
                parts.append(_to(tree, wanted))
        inner = sum(v in network.switches for part in parts for _, v in part)
        yield _taken(f"BIER, {bits} bits, to hosts", header * len(parts), header * inner, parts)
    yield _taken("OpenFlow multicast", 0, 0, [tree])


def _to(tree: Sequence[Edge], hosts: set[str]) -> list[Edge]:
    """Returns the edges of a tree that lead to some of its hosts."""
    needed, found = set(hosts), []
    for u, v in reversed(tree):
        if v in needed:
            needed.add(u)
            found.append((u, v))
    return found


def _taken(way: str, header: int, links: int, parts: Sequence[Sequence[Edge]]) -> dict[str, object]:
    packets = sum(map(len, parts))
    load = links + packets * (ETHERNET + DATAGRAM)
    counted = (header, links, load, len(parts), packets)
    return {"way": way} | dict(zip(COUNTED, counted, strict=True))


def run(runs: int, processes: int) -> None:
    """Measures ``runs`` drawings of receivers."""
    lines = Lines("encodings", "large")
    found: dict[str, list[dict[str, object]]] = {}
    for _, rows in in_parallel(_one, range(runs), processes):
        for row in rows:
            found.setdefault(str(row["way"]), []).append(row)
    for way, rows in found.items():
        if "refused" in rows[0]:
            lines.say("large", way=way, refused=rows[0]["refused"])
            continue
        means = {key: fmean(float(str(row[key])) for row in rows) for key in COUNTED}
        lines.say("large", way=way, runs=len(rows), **means)
