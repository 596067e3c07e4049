"""Figures 3.10 to 3.15 and 4.5 to 4.8 of WERNECKE, and what the text says of them.

The text does not give the degree of its Jellyfish. Three links a switch and trees of shortest paths
bring the lines of `port` and `bitmask` to cross where the text has it: the header of `port` has 2
bytes for each of the S - 1 links between the S switches of a tree and for each of r receivers, that
of `bitmask` 3 for each switch, so they cross where S = 2r - 2.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from random import Random
from statistics import fmean

from benchmarks.encodings.networks import changed, drawn, relabelled
from benchmarks.encodings.ways import ETHERNET, Edge, Paths, by_edges, by_stacks, rooted, together
from benchmarks.support.results import Lines, in_parallel
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import jellyfish
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.stacks.forwarding import network_tables
from stackcast.udfs.trees.encoders import encoder_of
from stackcast.udfs.trees.publisher_trees import publisher_edges

SWITCHES, DEGREE = 255, 3
SHARES = tuple(percent / 100 for percent in range(10, 100, 10))
PAYLOADS = (50, 500)
HEADERS = 20 + 8
#: Bytes of a label; and whether a switch takes one for each of its links.
SIZES = {
    "port": (2, True),
    "port_reactive": (2, True),
    "bitmask": (3, False),
    "mc_group": (3, False),
}
MIXES = ((80, 20), (70, 30), (50, 50), (30, 70), (20, 80))
"""Percent of the receivers that hops lead to, and that a stored tree leads to (Fig. 4.5 to 4.7)."""

Row = dict[str, float | str]


def headers_of(
    edges: Sequence[Edge], size: int, each: bool, reactive: bool = False
) -> dict[Edge, int]:
    """Returns the bytes of header on each link: with ``each`` those of the subtree behind it alone
    or, reactive, of all links that come later in preorder, else those of all switches that do."""
    children: dict[str, list[str]] = defaultdict(list)
    for u, v in edges:
        children[u].append(v)
    order: list[Edge] = []
    waiting = [edges[0]]
    while waiting:
        edge = waiting.pop()
        order.append(edge)
        waiting += reversed([(edge[1], v) for v in children.get(edge[1], ())])
    below: Counter[str] = Counter()
    for u, v in reversed(order):
        below[u] += below[v] + (1 if u != edges[0][0] else 0)
    found: dict[Edge, int] = {}
    seen = 0
    inner = [edge for edge in order if edge[1] in children]
    place = {edge[1]: at for at, edge in enumerate(inner)}
    for number, (u, v) in enumerate(order, 1):
        if v not in children:
            found[u, v] = 0
        elif reactive:
            found[u, v] = 2 + size * (len(order) - number)
        elif each:
            found[u, v] = 2 + size * below[v]
        else:
            # A copy of a switch takes along all that stands behind its own label.
            seen = len(inner) if u == edges[0][0] else len(inner) - place[u] - 1
            found[u, v] = 2 + size * seen
    return found


def chapter_3(task: tuple[int, float]) -> list[Row]:
    seed, share = task
    network = jellyfish(SWITCHES, DEGREE, seed=seed)
    (publisher,) = network.publishers()
    hosts = drawn(network, Random(f"3 {seed} {share}"), share)
    paths = Paths(network, publisher)
    edges = list(rooted(paths.tree(hosts)))
    switches = len({v for _, v in edges if v in network.switches})
    rows: list[Row] = []
    copies = Counter(u for u, _ in edges[1:])
    for way, (size, each) in SIZES.items():
        carried = headers_of(edges, size, each, reactive=way == "port_reactive")
        first = carried[edges[0]]
        want = 2 * (switches - 1 + len(hosts)) if each else 3 * switches
        assert first == 2 + want, (way, first, want)
        # The text's look-ups: of port one an entry and one for each clone that it makes; of a
        # bitmask one, and one more for each further bit.
        sent = sum(copies.values())
        lookups = {"port": 2 * sent, "bitmask": sent, "mc_group": len(copies)}
        row: Row = {"way": way, "header": want, "packets": len(edges)}
        if way in lookups:
            row["lookups"] = lookups[way]
        for payload in PAYLOADS:
            row[f"load_{payload}"] = sum(carried.values()) + len(edges) * (
                ETHERNET + HEADERS + payload
            )
        rows.append(row)
    alone = [by_edges(network, paths.to(host), HEADERS + 50) for host in sorted(hosts)]
    for way, taken in (
        ("P4, OpenFlow multicast", by_edges(network, edges, HEADERS + 50)),
        ("unicast", together(alone)),
        ("ALM, all nodes", by_edges(network, edges, HEADERS + 50, broker=lambda s, n: True)),
        ("ALM, fork nodes", by_edges(network, edges, HEADERS + 50, broker=lambda s, n: n > 1)),
    ):
        rows.append(
            {"way": way, "packets": taken.packets, "load_50": taken.load, "delay": taken.delay}
        )
    return rows


def _of_mix(network: Network, hosts: Sequence[str], stored: int) -> tuple[list[VirtualTree], int]:
    (publisher,) = network.publishers()
    edges = publisher_edges(network, publisher, [hosts[:stored]]) if stored else []
    trees = [VirtualTree(number, each, "set") for number, each in enumerate(edges, 1)]
    return trees, changed(network, [], trees)


def chapter_4(task: tuple[int, float]) -> list[Row]:
    seed, share = task
    plain = jellyfish(256, DEGREE, seed=seed)
    (publisher,) = plain.publishers()
    hosts = sorted(drawn(plain, Random(f"4 {seed} {share}"), share))
    Random(f"mix {seed}").shuffle(hosts)
    ways: list[tuple[str, str, int]] = [("hops", "hops", 0), ("tree", "tree", len(hosts))]
    ways.append(("destinations", "destinations", 0))
    ways += [
        (f"hybrid {hops}:{stored}", "hybrid", round(stored / 100 * len(hosts)))
        for hops, stored in MIXES
    ]
    rows: list[Row] = []
    for way, encoding, stored in ways:
        network = relabelled(plain, encoding)
        trees, kept = _of_mix(network, hosts, stored)
        encoder = encoder_of(network, publisher, trees, network.labels.max_labels)
        stacks = [each.labels for each in encoder.encode(frozenset(hosts))]
        tables = network_tables(network, trees)
        rules = sum(len(held.trees) + len(held.hops) + len(held.own) for held in tables.values())
        row: Row = {"way": way, "rules": rules, "of_trees": kept}
        for payload in (50, 250, 500):
            taken = by_stacks(network, tables, publisher, stacks, HEADERS + payload)
            row |= {"header": taken.header, "frames": taken.frames, f"load_{payload}": taken.load}
        rows.append(row)
    return rows


CHANGES = tuple(percent / 100 for percent in range(0, 110, 10))


def churn(seed: int) -> list[Row]:
    """Figure 4.8: rows of the stored tree that change, where 70 % of the receivers are in it."""
    network = relabelled(jellyfish(256, DEGREE, seed=seed), "hybrid")
    random = Random(f"churn {seed}")
    everybody = list(network.subscribers())
    random.shuffle(everybody)
    hosts, fresh = everybody[:77], everybody[77:154]
    stored = round(0.7 * len(hosts))
    before, _ = _of_mix(network, hosts, stored)
    orders = {
        "HEAD": [*range(stored, len(hosts)), *range(stored)],
        "RULE": list(range(len(hosts))),
        "RAND": random.sample(range(len(hosts)), len(hosts)),
    }
    rows: list[Row] = []
    for change in CHANGES:
        for name, order in orders.items():
            now = list(hosts)
            for at, place in enumerate(order[: round(change * len(hosts))]):
                now[place] = fresh[at]
            after, _ = _of_mix(network, now, stored)
            rows.append({"way": name, "change": change, "rows": changed(network, before, after)})
    return rows


def _means(rows: Iterable[Row]) -> dict[str, float]:
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for key, value in row.items():
            if not isinstance(value, str):
                found[key].append(value)
    return {key: fmean(values) for key, values in found.items()}


def run(runs: int, processes: int) -> None:
    """Draws ``runs`` networks and sets of receivers for each point."""
    lines = Lines("encodings", "figures")
    _of_chapter_3(lines, runs, processes)
    _of_chapter_4(lines, runs, processes)


def _collect(lines: Lines, name: str, chapter, runs: int, shares, processes):  # type: ignore[no-untyped-def]
    tasks = [(seed, share) for share in shares for seed in range(runs)]
    collected: dict[tuple[str, float], list[Row]] = defaultdict(list)
    for (_, share), rows in in_parallel(chapter, tasks, processes):
        for row in rows:
            collected[str(row["way"]), share].append(row)
    means = {key: _means(rows) for key, rows in collected.items()}
    for (way, share), values in means.items():
        lines.say(name, way=way, share=share, runs=runs, **values)
    return means


def _of_chapter_3(lines: Lines, runs: int, processes: int) -> None:
    at = _collect(lines, "chapter 3", chapter_3, runs, SHARES, processes)

    def of(way: str, key: str) -> list[float]:
        return [at[way, share][key] for share in SHARES]

    port, mask = of("port", "header"), of("bitmask", "header")
    crossed = next(
        (share for share, p, m in zip(SHARES, port, mask, strict=True) if p > m), float("nan")
    )
    lines.finding(
        "3.5.2, Fig. 3.10",
        "headers of port and bitmask have the same size at 30 % receivers",
        abs(port[2] / mask[2] - 1) < 0.05,
        f"at 30 %: {port[2]:.0f} and {mask[2]:.0f} B; port is longer from {crossed:.0%} on",
    )
    lines.finding(
        "3.5.2, Fig. 3.11",
        "port has the fewest bytes on links for every share of receivers",
        all(p < m for p, m in zip(of("port", "load_500"), of("bitmask", "load_500"), strict=True)),
        f"500 B, at 30 %: {of('port', 'load_500')[2]:.0f} and {of('bitmask', 'load_500')[2]:.0f} B",
    )
    predictive, reactive = of("port", "load_50"), of("port_reactive", "load_50")
    lines.finding(
        "3.3.1, Fig. 3.4",
        "predictive pruning needs fewer bytes on links than reactive pruning",
        all(p < r for p, r in zip(predictive, reactive, strict=True)),
        f"50 B, at 30 %: port {predictive[2]:.0f} and {reactive[2]:.0f} B",
    )
    lookups = [of(way, "lookups") for way in ("port", "bitmask", "mc_group")]
    lines.finding(
        "3.5.3, Fig. 3.12",
        "port needs more lookups than bitmask, and bitmask more than mc_group",
        all(p >= m > g for p, m, g in zip(*lookups, strict=True)),
        "at 30 %: " + ", ".join(f"{each[2]:.0f}" for each in lookups),
    )
    packets = {way: of(way, "packets") for way in ("unicast", "ALM, all nodes", "ALM, fork nodes")}
    less = [
        share
        for share, u, a in zip(SHARES, packets["unicast"], packets["ALM, all nodes"], strict=True)
        if u < a
    ]
    lines.finding(
        "3.5.4, Fig. 3.13",
        "with less than 80 % receivers, unicast needs fewer packets than ALM at all nodes",
        less == [share for share in SHARES if share < 0.8],
        f"fewer at {', '.join(f'{share:.0%}' for share in less) or 'none'}",
    )
    delay = [of(way, "delay") for way in ("unicast", "ALM, all nodes", "ALM, fork nodes")]
    lines.finding(
        "3.5.5, Fig. 3.15",
        "with less than 50 % receivers, unicast is faster than any kind of ALM",
        all(u < min(a, f) for s, u, a, f in zip(SHARES, *delay, strict=True) if s < 0.5),
        "unicast / all / fork, ms, at 10, 40, 50, 80 %: "
        + "; ".join(" / ".join(f"{each[n]:.1f}" for each in delay) for n in (0, 3, 4, 7)),
    )
    lines.finding(
        "3.5.5",
        "at 80 % receivers, the publisher sends 204 unicast packets in 20.4 ms",
        round(0.8 * SWITCHES) == 204,
        f"{round(0.8 * SWITCHES)} packets; the last arrives after {delay[0][7]:.1f} ms",
    )


def _of_chapter_4(lines: Lines, runs: int, processes: int) -> None:
    shares = (0.1, 0.3, 0.6)
    at = _collect(lines, "chapter 4", chapter_4, runs, shares, processes)
    hybrids = [f"hybrid {hops}:{stored}" for hops, stored in MIXES]

    def of(way: str, key: str) -> list[float]:
        return [at[way, share][key] for share in shares]

    lines.finding(
        "4.4.1, Fig. 4.5",
        "hops has the longest header, the header of tree has a constant size, and "
        "the headers of hybrid and destinations have sizes between these two",
        all(
            min(values) == of("tree", "header")[n] and max(values) == of("hops", "header")[n]
            for n in range(3)
            for values in [
                [of(way, "header")[n] for way in ("hops", "tree", "destinations", *hybrids)]
            ]
        ),
        "at 30 %: "
        + ", ".join(
            f"{way} {of(way, 'header')[1]:.0f}"
            for way in ("hops", "tree", "destinations", *hybrids)
        ),
    )
    lines.finding(
        "4.4.2, Fig. 4.6",
        "destinations needs 65,536 rows, one for each pair of a switch and a host (256 of each)",
        round(of("destinations", "rules")[0]) == 256 * 257,
        f"{of('destinations', 'rules')[0]:.0f} including the publisher's; "
        f"hops {of('hops', 'rules')[0]:.0f}",
    )
    loads = {way: of(way, "load_50")[1] for way in ("hops", "tree", "destinations", *hybrids)}
    lines.finding(
        "4.4.3, Fig. 4.7",
        "at 30 % receivers, hops needs about as many bytes as tree and destinations, "
        "and hybrid 80:20 needs the most bytes",
        max(loads, key=lambda way: loads[way]) == "hybrid 80:20",
        ", ".join(f"{way} {value:.0f}" for way, value in loads.items()),
    )
    collected: dict[tuple[str, float], list[Row]] = defaultdict(list)
    for _, rows in in_parallel(churn, range(runs), processes):
        for row in rows:
            collected[str(row["way"]), float(row["change"])].append(row)
    rows_of = {key: _means(rows)["rows"] for key, rows in collected.items()}
    for (way, change), value in rows_of.items():
        lines.say("churn", way=way, change=change, rows=value, runs=runs)
    head = [rows_of["HEAD", change] for change in CHANGES]
    rule = [rows_of["RULE", change] for change in CHANGES]
    rand = [rows_of["RAND", change] for change in CHANGES]
    lines.finding(
        "4.4.4, Fig. 4.8",
        "HEAD changes no rows up to 30 %, RULE changes rows from the start, RAND is "
        "between these two, and all three end with the same number of changes",
        max(head[:4]) == 0
        and rule[1] > 0
        and all(h <= 1.05 * m <= 1.1 * r for h, m, r in zip(head, rand, rule, strict=True))
        and max(head[-1], rule[-1], rand[-1]) <= 1.1 * min(head[-1], rule[-1], rand[-1])
        and all(a <= b for a, b in pairwise(head)),
        "rows at 10, 30, 50, 100 %: "
        + "; ".join(
            f"{name} {', '.join(f'{values[n]:.0f}' for n in (1, 3, 5, 10))}"
            for name, values in (("HEAD", head), ("RAND", rand), ("RULE", rule))
        ),
    )
