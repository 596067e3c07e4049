"""The workload of Elmo (Shahbaz et al., SIGCOMM 2019, 5.1): 27,648 hosts and groups of tenants.

12 pods of 48 leaves of 48 hosts. 3,000 tenants of 10 to 5,000 virtual machines, 179 on average; at
most ``together`` of a tenant (the paper's P) under one leaf, filling a pod before the next. Groups
belong to tenants in proportion to their size, and have 5 members or more by the paper's WVE
distribution, 60 on average. Each group has one notification, from one of its members to the others.

The network is the same for every group, so a tree is counted from its leaves and pods, not
searched.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from random import Random

from benchmarks.support.results import Lines, in_parallel
from benchmarks.trees.other_encodings import ENCAPSULATION
from stackcast.udfs.network.stored_routes import BLOCK

PODS, LEAVES, HOSTS = 12, 48, 48
PLACEMENTS = (12, 1)
PAYLOAD = 100
PLAIN = 14 + 20 + 8 + PAYLOAD
"""Bytes of a notification on a link without any header of labels."""
COUNT = 2
MOST_LABELS = {"port_bitmaps": 512}
NAMES = {"header": "header", "links": "bytes on links"}
#: Elmo: rules of leaves that fit its header, and leaves or pods that share a rule at most.
RULES, SHARED = 30, 2
#: Groups that one process draws at a time.
PART = 10_000
_MACHINES = 20

Masks = Mapping[int, int]
"""Leaf → bit h for each of its hosts that receive."""


def tenants(random: Random, number: int = 3000) -> list[int]:
    """Returns how many virtual machines each has."""
    return [
        random.randint(10, 5000)
        if random.random() < 0.02
        else int(random.expovariate(4.05) / 10 * 4990) % 4990 + 10
        for _ in range(number)
    ]


def placed(random: Random, sizes: list[int], together: int) -> list[list[int]]:
    """Returns the host of each machine of each tenant."""
    room = [_MACHINES * HOSTS] * (PODS * LEAVES)
    found = []
    for size in sizes:
        hosts: list[int] = []
        for pod in random.sample(range(PODS), PODS):
            for at in random.sample(range(LEAVES), LEAVES):
                leaf = pod * LEAVES + at
                some = min(together, size - len(hosts), HOSTS, room[leaf])
                room[leaf] -= some
                hosts += [leaf * HOSTS + h for h in random.sample(range(HOSTS), some)]
            if len(hosts) == size:
                break
        # Where a tenant has more machines than that leaves room for, the rest are anywhere.
        hosts += [random.randrange(PODS * LEAVES * HOSTS) for _ in range(size - len(hosts))]
        found.append(hosts)
    return found


def members(random: Random, size: int) -> int:
    """Returns the size of a group of a tenant of ``size`` machines (WVE)."""
    if random.random() < 0.02:
        drawn = size - int(random.gammavariate(2, 0.1) * size / 15) % size
    else:
        drawn = int(random.gammavariate(2, 0.2) * size / 15 + 4) % size + 1
    return min(size, max(drawn, 5))


@lru_cache(maxsize=1)
def _world(together: int) -> tuple[list[int], list[list[int]]]:
    """Returns the tenants that all groups of a placement belong to."""
    random = Random(f"clos {together}")
    sizes = tenants(random)
    return sizes, placed(random, sizes, together)


def groups(together: int, part: int, number: int) -> Iterator[tuple[int, Masks]]:
    """Yields ``number`` publications, others for each ``part``: the publisher's host, and who
    receives."""
    sizes, hosts = _world(together)
    random = Random(f"clos {together} {part}")
    for tenant in random.choices(range(len(sizes)), sizes, k=number):
        source, *others = random.sample(hosts[tenant], members(random, sizes[tenant]))
        masks: dict[int, int] = defaultdict(int)
        for host in others:
            if host != source:
                masks[host // HOSTS] |= 1 << host % HOSTS
        if masks:
            yield source // HOSTS, masks


class _Tally:
    """Adds up what ways take."""

    def __init__(self) -> None:
        self.sums: dict[str, Counter[str]] = defaultdict(Counter)

    def add(self, way: str, header: float, links: float, frames: int = 1, state: int = 0) -> None:
        self.sums[way].update({"header": header, "links": links, "frames": frames, "state": state})
        self.sums[way]["several"] += frames > 1


def _carried(home: int, sizes: Mapping[int, float], fixed: float) -> tuple[int, float]:
    """Returns the links that carry headers, and the bytes of these, where each copy has of
    ``sizes`` those of the leaves behind it. fixed: bytes of each header beside."""
    away = {leaf: size for leaf, size in sizes.items() if leaf != home}
    links, total = 1, fixed + sum(sizes.values())
    if away:
        pod = home // LEAVES
        far = {leaf: size for leaf, size in away.items() if leaf // LEAVES != pod}
        links += 1 + len(away)
        total += fixed * (1 + len(away)) + 2 * sum(away.values())
        if far:
            pods = {leaf // LEAVES for leaf in far}
            links += 1 + len(pods)
            total += fixed * (1 + len(pods)) + 2 * sum(far.values())
    return links, total


def port_bitmaps(masks: Masks) -> dict[int, int]:
    """Returns the labels for each leaf in encoding ``port_bitmaps``."""
    block = (1 << BLOCK) - 1
    return {
        leaf: min(
            mask.bit_count(),
            1 + sum(1 for at in range(0, HOSTS, BLOCK) if mask >> at & block),
        )
        for leaf, mask in masks.items()
    }


def _hops(home: int, masks: Masks, ports: int) -> int:
    """Returns the labels of virtual trees without stored trees, each for ``ports`` neighbouring
    ports of a switch."""
    block = (1 << ports) - 1

    def blocks(mask: int) -> int:
        return sum(1 for at in range(0, LEAVES, ports) if mask >> at & block)

    pods: dict[int, int] = defaultdict(int)
    for leaf in masks:
        if leaf != home:
            pods[leaf // LEAVES] |= 1 << leaf % LEAVES
    far = sum(1 << pod for pod in pods if pod != home // LEAVES)
    found = sum(map(blocks, masks.values())) + sum(map(blocks, pods.values()))
    return found + (1 if pods else 0) + (1 + blocks(far) if far else 0)


def _merged(masks: Masks, redundancy: int) -> list[tuple[list[int], int]]:
    """Returns Elmo's rules: switches that share a bitmap, each with at most ``redundancy`` bits
    too many; like ones first, then greedily the nearest."""
    left = sorted(masks.items(), key=lambda item: (item[1], item[0]))
    rules = []
    while left:
        leaf, mask = left.pop(0)
        some = [leaf]
        best = None
        for at, (_, other) in enumerate(left[:64]):
            union = mask | other
            extra = max((union ^ mask).bit_count(), (union ^ other).bit_count())
            if extra <= redundancy and (best is None or extra < best[0]):
                best = extra, at
                if not extra:
                    break
        if best is not None and len(some) < SHARED:
            other_leaf, other = left.pop(best[1])
            some.append(other_leaf)
            mask |= other
        rules.append((some, mask))
    return rules


def elmo(home: int, masks: Masks, redundancy: int) -> tuple[float, float, int]:
    """Returns bytes at the source and on links with headers and redundant copies, and rows of the
    group in leaves: those of rules for which its header has no room."""
    away = {leaf: mask for leaf, mask in masks.items() if leaf != home}
    pods: dict[int, int] = defaultdict(int)
    for leaf in away:
        pods[leaf // LEAVES] |= 1 << leaf % LEAVES
    far = {pod: mask for pod, mask in pods.items() if pod != home // LEAVES}
    up_leaf, up_spine = HOSTS + 1, LEAVES + 1
    core = PODS
    of_pods = _merged(far, 0)
    spine = sum(LEAVES + 1 + 5 * len(some) for some, _ in of_pods)
    rules = sorted(_merged(away, redundancy), key=lambda rule: -len(rule[0]))
    kept, rest = rules[:RULES], rules[RULES:]
    leaf_bits = sum(HOSTS + 1 + 11 * len(some) for some, _ in kept)
    state = sum(len(some) for some, _ in rest)
    copies = masks.get(home, 0).bit_count()
    for some, mask in kept:
        copies += mask.bit_count() * len(some)
    copies += sum(away[leaf].bit_count() for some, _ in rest for leaf in some)
    bits = [up_leaf + (up_spine if away else 0) + (core if far else 0) + spine + leaf_bits]
    if away:
        bits += [up_spine + (core if far else 0) + spine + leaf_bits]
        bits += [leaf_bits] * len(away)
        if far:
            bits += [core + spine + leaf_bits, *([spine + leaf_bits] * len(far))]
    sizes = [-(-each // 8) for each in bits]
    return sizes[0], sum(sizes) + PLAIN * (len(sizes) + copies), state


def _one(task: tuple[int, int, int]) -> dict[str, Counter[str]]:
    tally = _Tally()
    for home, masks in groups(*task):
        receivers = sum(mask.bit_count() for mask in masks.values())
        tally.add("receivers", receivers, len(masks))
        labels = port_bitmaps(masks)
        for way, each in (
            ("port_bitmaps", labels),
            ("destinations", {leaf: mask.bit_count() for leaf, mask in masks.items()}),
        ):
            most = MOST_LABELS.get(way, 64)
            frames = -(-sum(each.values()) // most)
            links, total = _carried(home, {leaf: 2 * n for leaf, n in each.items()}, COUNT)
            # Where frames are several, each takes at most all links but those to leaves once more.
            away = sum(leaf != home for leaf in masks)
            again = (frames - 1) * (PLAIN + COUNT) * (links - away)
            header = 2 * sum(each.values()) + COUNT * frames
            tally.add(way, header, total + PLAIN * (links + receivers) + again, frames)
        links, _ = _carried(home, labels, 0)
        for way, ports, size in (
            ("virtual_trees, 32 bits, hops only", 1, 4),
            ("virtual_trees, labels of 32 bits for 16 ports (not implemented)", 16, 4),
            ("virtual_trees, labels of 24 bits for 8 ports (not implemented)", 8, 3),
        ):
            count = _hops(home, masks, ports)
            header = size * count + COUNT
            tally.add(way, header, 0.0, -(-count // 64))
        for redundancy in (0, 12):
            header, total, state = elmo(home, masks, redundancy)
            tally.add(f"Elmo, R = {redundancy}", header, total, 1, state)
        for bits in (256, 4096):
            sets: dict[int, set[int]] = defaultdict(set)
            for leaf in masks:
                sets[leaf // bits].add(leaf)
            header = ENCAPSULATION + bits // 8
            total = PLAIN * receivers
            for leaves in sets.values():
                carried, heads = _carried(home, dict.fromkeys(leaves, 0), header)
                total += heads + carried * PLAIN
            tally.add(
                f"BIER, {bits} bits, to leaves", header * len(sets), total, len(sets), len(masks)
            )
        tally.add(
            "unicast",
            0,
            PLAIN
            * sum(
                mask.bit_count()
                * (2 if leaf == home else 4 if leaf // LEAVES == home // LEAVES else 6)
                for leaf, mask in masks.items()
            ),
            receivers,
        )
        tally.add("OpenFlow multicast", 0, PLAIN * (links + receivers), 1, links)
    return dict(tally.sums)


def run(number: int, processes: int) -> None:
    """Measures ``number`` groups of each placement, the same by however many processes."""
    lines = Lines("encodings", "clos")
    for together in PLACEMENTS:
        sums: dict[str, Counter[str]] = defaultdict(Counter)
        tasks = [
            (together, part, min(PART, number - begin))
            for part, begin in enumerate(range(0, number, PART))
        ]
        for _, found in in_parallel(_one, tasks, processes):
            for way, each in found.items():
                sums[way].update(each)
        number_of = sums.pop("receivers")
        counted = number_of["frames"]
        for way, each in sums.items():
            lines.say(
                "way",
                together=together,
                way=way,
                groups=counted,
                header=each["header"] / counted,
                links=each["links"] / counted,
                frames=each["frames"] / counted,
                one_frame=1 - each["several"] / counted,
                state=each["state"] / counted,
            )
        ours = sums["port_bitmaps"]
        for redundancy in (0, 12):
            theirs = sums[f"Elmo, R = {redundancy}"]
            for what in ("header", "links"):
                lines.floor(
                    f"P = {together}: {NAMES[what]}, compared with Elmo for R = {redundancy}",
                    ours[what] / counted,
                    theirs[what] / counted,
                    "B",
                )
        lines.floor(
            f"P = {together}: share sent in one frame",
            1 - ours["several"] / counted,
            1.0,
            "",
            least=True,
        )
        lines.say(
            "workload",
            together=together,
            groups=counted,
            receivers=number_of["header"] / counted,
            leaves=number_of["links"] / counted,
        )
