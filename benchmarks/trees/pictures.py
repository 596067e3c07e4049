"""The pictures of docs/results/virtual-trees*.md, drawn from the lines of the last runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from benchmarks.support.bars import Bars, Dot, Scatter
from benchmarks.support.map import Map
from benchmarks.support.plot import Drawing, Legend, Panel, svg
from benchmarks.support.results import ROOT, Line, load, named
from benchmarks.trees.automatic import AUTOMATIC
from benchmarks.trees.best import QUANTITIES, SCALE_FREE
from benchmarks.trees.clients import MIGRATIONS, crowd, recorded
from benchmarks.trees.fabric import STRATEGIES as FABRIC_STRATEGIES
from benchmarks.trees.fabric import THRESHOLDS, TOGETHER
from benchmarks.trees.networks import CANDIDATES, Zoo, zoo
from benchmarks.trees.zoo import SHOWN, UNIFORM
from stackcast.udfs.network.labels import STOP, TREE
from stackcast.udfs.trees.encode import Encoder
from stackcast.udfs.trees.strategies.registry import STRATEGIES
from stackcast.udfs.trees.strategies.strategy import Situation, numbered, select, uniform

FOLDER = ROOT / "docs" / "pictures"
PARTS = ("trees", "stops", "hops")
#: Rules a switch on the maps, and how many receive (Fig. 6.10 to 6.12).
MAP_RULES = 20
MAPS = (
    ("Dfn", 7, ("hops", "freq-relation", "clusters", "partitions")),
    ("VtlWavenet2008", 13, ("random", "cycles")),
    ("Litnet", 6, ("freq-relation", "partitions")),
)


def draw(folder: str | None) -> list[str]:
    """Draw all pictures for which there are lines. Return their names."""
    drawn = []
    for name, (part, picture) in PICTURES.items():
        lines = load("trees", part)
        if lines:
            (FOLDER / f"evaluation-{name}.svg").write_text(picture(lines, folder), "utf-8")
            drawn.append(name)
    return drawn


def _fabric(lines: Sequence[Line], y: str, value: Callable[[Line], float]) -> list[Drawing]:
    names = [strategy.name for strategy in FABRIC_STRATEGIES]
    panels: list[Drawing] = []
    for percent in (30, 70):
        rows = named(lines, "fabric", subscribers=percent)
        curves = {
            name: sorted((row["rules"], value(row)) for row in rows if row["strategy"] == name)
            for name in names
        }
        title = f"{percent} % subscribers"
        panels.append(Panel(title, "rules per switch", y, curves, names="none"))
    return [*panels, Legend(names, 2)]


def _candidates(lines: Sequence[Line]) -> list[str]:
    """Return the networks that the thesis examines closely, if they were measured."""
    measured = {row.get("network") for row in lines}
    return [name for name in CANDIDATES if name in measured]


def header(lines: Sequence[Line], folder: str | None) -> str:
    return svg(
        "Header by rules per switch in the fabric",
        "Headers shrink as rules are added; trees of publishers have the smallest headers.",
        _fabric(lines, "header, bytes", lambda row: row["header_bytes"]),
        2,
    )


def load_of_links(lines: Sequence[Line], folder: str | None) -> str:
    return svg(
        "Load by rules per switch in the fabric",
        "Bytes on all links. Trees of publishers have the lowest load.",
        _fabric(
            lines,
            f"load of {TOGETHER} notifications, KB",
            lambda row: row["load_bytes"] * TOGETHER / 1000,
        ),
        2,
    )


def thresholds(lines: Sequence[Line], folder: str | None) -> str:
    panels: list[Drawing] = []
    keys = {
        f"{percent} %, {'paths' if paths else 'hops'}": (percent, "" if paths else "-hops")
        for paths in (True, False)
        for percent in (30, 50, 70)
    }
    for y, field, scale in (
        ("header, bytes", "header_bytes", 1.0),
        (f"load of {TOGETHER} notifications, KB", "load_bytes", TOGETHER / 1000),
    ):
        curves = {}
        for key, (percent, ending) in keys.items():
            rows = named(lines, "fabric", subscribers=percent, rules=10)
            of = {row["strategy"]: row[field] * scale for row in rows}
            curves[key] = [(float(t), of[f"threshold-{t}{ending}"]) for t in THRESHOLDS]
        panels.append(Panel(y.split(",")[0].capitalize(), "threshold, %", y, curves, names="none"))
    return svg(
        "Header and load by threshold, with 10 rules per switch",
        "Paths give shorter headers than hops, especially at high thresholds.",
        [*panels, Legend(list(keys), 2)],
        2,
    )


def rules(lines: Sequence[Line], folder: str | None) -> str:
    names = list(SHOWN)
    panels: list[Drawing] = []
    for network in _candidates(lines):
        rows = named(lines, "zoo", network=network, likely=UNIFORM)
        curves = {
            name: sorted((row["rules"], row["labels"]) for row in rows if row["strategy"] == name)
            for name in names
        }
        panels.append(Panel(network, "rules per switch", "labels", curves, names="none"))
    return svg(
        "Labels by rules per switch in three networks",
        "Hops need the most labels, and trees based on publications the fewest.",
        [*panels, Legend(names, 3)],
        3,
    )


def stacks(lines: Sequence[Line], folder: str | None) -> str:
    panels: list[Drawing] = []
    for network in _candidates(lines):
        of = {
            row["strategy"]: row
            for row in named(lines, "zoo", network=network, rules=40, likely=UNIFORM)
        }
        groups = {name: [tuple(of[name][part] for part in PARTS)] for name in SHOWN if name in of}
        panels.append(Bars(network, "labels", groups))
    return svg(
        "Labels of stacks by type, at 40 rules per switch",
        "Trees, stops and hops of each strategy.",
        [*panels, Legend(PARTS, 3, "areas")],
        3,
    )


def churn(lines: Sequence[Line], folder: str | None) -> str:
    rows = named(lines, "churn")
    most = max(row["labels"] for row in rows)
    panels: list[Drawing] = []
    for how in MIGRATIONS:
        for network in _candidates(rows):
            groups = {
                name: [
                    tuple(row[part] for part in PARTS)
                    for row in sorted(
                        named(rows, "churn", network=network, migration=how, strategy=name),
                        key=lambda row: row["churn"],
                    )
                ]
                for name in SHOWN
            }
            panels.append(Bars(f"{network}, {how}", "labels", groups, most, thin=True))
    return svg(
        "Labels while clients move and trees stay",
        "One bar per strategy for 0, 10, … 100 % of churn, from light to dark.",
        [*panels, Legend(PARTS, 3, "areas")],
        3,
    )


def retuned(lines: Sequence[Line], folder: str | None) -> str:
    measured = {row["strategy"] for row in named(lines, "retuned")}
    shown = [name for name in ("freq-relation", "hybrid", AUTOMATIC) if name in measured]
    keys = [f"{name}, {which}" for name in shown for which in ("kept", "retuned", "optimum")]
    panels: list[Drawing] = []
    for how in MIGRATIONS:
        curves = {}
        for name in shown:
            for which in ("kept", "retuned", "optimum"):
                points = []
                for percent in range(0, 101, 10):
                    values = [
                        row["header_bytes"]
                        for row in named(
                            lines,
                            "retuned",
                            migration=how,
                            strategy=name,
                            which=which,
                            churn=percent,
                        )
                    ]
                    points.append((float(percent), sum(values) / len(values)))
                curves[f"{name}, {which}"] = points
        panels.append(Panel(how, "churn, %", "header, bytes", curves, names="none"))
    return svg(
        "Headers while clients move, with and without retuning",
        "Means of the networks measured. Kept trees deteriorate; retuned ones stay near the "
        "optimum.",
        [*panels, Legend(keys, 3)],
        3,
    )


def best(lines: Sequence[Line], folder: str | None) -> str:
    names = [name for name in SHOWN if name != "hops"]
    panels: list[Drawing] = []
    for how in MIGRATIONS:
        for quantity in QUANTITIES:
            dots = [
                Dot(
                    row["diameter"],
                    max(row["fluctuation"], 0.05),
                    2 + row["labels"] * 0.8,
                    names.index(row["strategy"]) if row["strategy"] in names else 11,
                    f"{row['network']}: {row['strategy']}, {row['labels']:.1f} labels"
                    f"{_of_drawings(row)}",
                )
                for row in named(lines, "best", migration=how, subscribers=quantity)
            ]
            title = f"{how}, {quantity} % subscribers"
            panels.append(Scatter(title, "diameter", "fluctuation of degrees", dots))
    return svg(
        "The best strategy of each network after all clients moved",
        f"One dot per network, sized by labels. Networks above {SCALE_FREE:g} count as scale-free.",
        [*panels, Legend(names, 3, "marks")],
        3,
    )


def _of_drawings(row: Line) -> str:
    """Return the deviation over drawings, and in how many of them the strategy is the best."""
    if row["labels_apart"] is None:
        return ""
    return f" ± {row['labels_apart']:.1f}, best in {row['drawings']} of {row['runs']} drawings"


def migrations(lines: Sequence[Line], folder: str | None) -> str:
    place = zoo("Dfn", folder)
    panels: list[Drawing] = []
    _, new = place.apart()
    for how in MIGRATIONS:
        dots: dict[str, tuple[int, float]] = {}
        for number, members in enumerate(place.dense):
            if how != "uniform":
                colour = number if how == "nearby" else int(number in new)
                dots |= dict.fromkeys(members, (colour, 4.0))
                dots[place.centres[number]] = (colour, 7.0)
        said = {
            "uniform": "Clients are everywhere, before and after",
            "nearby": "Clients stay in four clusters",
            "distant": "Clients move from one colour to the other",
        }
        panels.append(Map(how, place.places, place.links, (), dots, {}, said[how]))
    return svg(
        "Where clients are dense in the three migrations",
        "The German research network; large dots are centres of clusters.",
        panels,
        3,
    )


def deliveries(lines: Sequence[Line], folder: str | None) -> str:
    panels = [
        _delivery(zoo(name, folder), count, strategy)
        for name, count, strategies in MAPS
        for strategy in strategies
    ]
    return svg(
        "The path of one notification under different strategies",
        "Coloured links belong to trees, dashed links to hops; dotted links are stopped.",
        panels,
        4,
    )


def _delivery(place: Zoo, count: int, strategy: str) -> Map:
    """Draw one notification on the map, from P to ``count`` subscribers."""
    network = place.network
    random = Random(f"map {place.name}")
    who = crowd(network, random, 0.3, 0.3, place.weights())
    situation = Situation(network, who.clients(), recorded(who, random, 40), 0)
    publisher = next(iter(who.subscribers))
    often = sorted(who.subscribers[publisher], key=lambda host: -who.frequency[host])
    receivers = frozenset(often[:count])
    trees = numbered(select(STRATEGIES[strategy], situation, uniform(network, MAP_RULES)), strategy)
    (stack,) = Encoder(network, publisher, trees).encode(receivers)
    kinds = [network.labels.split(label) for label in stack.labels]
    edges = {tree.id: tree.edges for tree in trees}
    chosen = [number for kind, number in kinds if kind == TREE]
    ways: list[tuple[str, str, int, str]] = []
    for u, v in stack.edges:
        if u in network.switches and v in network.switches:
            pair = (min(u, v), max(u, v))
            carried = [n for n, tree in enumerate(chosen) if pair in edges[tree]]
            ways += [(u, v, n, "") for n in carried] or [(u, v, 11, "dashed")]
    stops = 0
    for kind, number in kinds:
        if kind == STOP:
            stops += 1
            link = network.link_by_id[number]
            if link.neighbor in network.switches:
                ways.append((link.switch, link.neighbor, 11, "dotted"))
    hops = len(kinds) - len(chosen) - stops
    names = {network.hosts[host].switch: f"S{n}" for n, host in enumerate(sorted(receivers), 1)}
    dots = dict.fromkeys(names, (2, 4.0))
    source = network.hosts[publisher].switch
    names[source], dots[source] = "P", (1, 6.0)
    caption = f"{len(kinds)} labels: {len(chosen)} trees, {stops} stops, {hops} hops"
    return Map(f"{place.name}, {strategy}", place.places, place.links, ways, dots, names, caption)


Picture = Callable[[Sequence[Line], str | None], str]

PICTURES: Mapping[str, tuple[str, Picture]] = {
    "header": ("fabric", header),
    "load": ("fabric", load_of_links),
    "thresholds": ("fabric", thresholds),
    "rules": ("zoo", rules),
    "stacks": ("zoo", stacks),
    "deliveries": ("zoo", deliveries),
    "migrations": ("churn", migrations),
    "churn": ("churn", churn),
    "retuned": ("retuned", retuned),
    "best": ("best", best),
}
"""By name, the part whose lines it draws."""
