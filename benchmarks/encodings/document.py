"""The tables and pictures of docs/results/encodings*.md, generated from the last runs.

A table is between ``<!-- table encodings NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import isnan
from pathlib import Path

from benchmarks.encodings.figures import MIXES
from benchmarks.encodings.large import COUNTED
from benchmarks.support.plot import Corner, Curve, Drawing, Panel, svg
from benchmarks.support.results import ROOT, Line, load, named
from benchmarks.support.tables import DOCS, fill_pages, findings, floors, number, table
from stackcast.udfs.network.encodings import ENCODINGS

FOLDER = ROOT / "docs" / "pictures"
PARTS = ("networks", "clos", "large", "figures")
MARK = re.compile(r"(<!-- table encodings ([a-zA-Z0-9 .-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

COLUMNS = (
    ("header", "header, B"),
    ("header_links", "headers on links, B"),
    ("load", "total on links, B"),
    ("frames", "frames"),
    ("packets", "packets"),
    ("lookups", "lookups"),
    ("passes", "passes"),
    ("delay", "delay, ms"),
    ("queued", "burst of ten, ms"),
    ("entries", "entries"),
    ("churn", "rows changed"),
)


def write(docs: Path = DOCS, folder: Path = FOLDER) -> None:
    """Draw the pictures and write the tables. A table without lines stays as it is."""
    lines = {part: load("encodings", part) for part in PARTS}
    fill_pages("encodings", lambda text: filled(text, lines), docs)
    if lines["figures"]:
        (folder / "encodings-source-routes.svg").write_text(chapter_3(lines["figures"]), "utf-8")
        (folder / "encodings-stored-routes.svg").write_text(chapter_4(lines["figures"]), "utf-8")


def filled(text: str, lines: Mapping[str, Sequence[Line]]) -> str:
    """Return a page with its tables generated from these lines, by part."""

    def fill(match: re.Match[str]) -> str:
        kind, _, argument = match[2].partition(" ")
        rows = TABLES[kind]([line for part in PARTS for line in lines[part]], argument)
        return f"{match[1]}{rows}{match[3]}" if rows else match[0]

    return MARK.sub(fill, text)


def networks(lines: Sequence[Line], of: str) -> str:
    """One network, and one share of its hosts: ``fabric 4x4x12 30``."""
    name, _, percent = of.rpartition(" ")
    rows = named(lines, "way", network=name, share=int(percent) / 100)
    return table(
        ("", *(words for _, words in COLUMNS)),
        ((_way(row["way"]), *(_figure(row, key) for key, _ in COLUMNS)) for row in rows),
    )


def _way(name: str) -> str:
    first, comma, rest = name.partition(",")
    return f"`{first}`{comma}{rest}" if first in ENCODINGS else name


def _figure(row: Line, key: str) -> str:
    if "refused" in row:
        return f"`{row['refused']}`" if key == "header" else ""
    value = row.get(key)
    if value is None or isnan(value) or (key != "header" and "header only" in row["way"]):
        return ""
    return f"{value:.1f}" if value < 100 and value % 1 else f"{value:,.0f}"


def best(lines: Sequence[Line], share: str) -> str:
    """Return the encodings with the fewest bytes on links in each network, by their needs."""
    found = []
    for name in dict.fromkeys(row["network"] for row in named(lines, "way") if "network" in row):
        rows = [
            row
            for row in named(lines, "way", network=name, share=int(share) / 100)
            if "refused" not in row and row["way"].partition(",")[0] in ENCODINGS
        ]
        rows.sort(key=lambda row: row["load"])
        free = [row for row in rows if row["churn"] == 0]
        few = [row for row in free if row["entries"] < 2000]
        found.append(
            (
                name,
                *(
                    f"{_way(some[0]['way'])}, {some[0]['load']:,.0f} B" if some else "–"
                    for some in (rows, free, few)
                ),
            )
        )
    return table(
        (
            "network",
            "fewest bytes",
            "without rows for receivers",
            "and under 2,000 entries",
        ),
        found,
    )


def clos(lines: Sequence[Line], together: str) -> str:
    """Elmo's workload, by how many machines of a tenant are under one leaf."""
    rows = [row for row in named(lines, "way") if row.get("together") == int(together)]
    return table(
        (
            "",
            "header at the source, B",
            "total on links, KB",
            "frames",
            "sent in one frame",
            "group state, rows",
        ),
        (
            (
                _way(row["way"]),
                f"{row['header']:.0f}",
                f"{row['links'] / 1000:.1f}" if row["links"] else "",
                f"{row['frames']:.2f}",
                f"{row['one_frame']:.1%}",
                f"{row['state']:.1f}" if row["state"] else "0",
            )
            for row in rows
        ),
    )


def workload(lines: Sequence[Line], _: str) -> str:
    return table(
        ("P", "groups", "receivers", "leaves"),
        (
            (
                str(row["together"]),
                number(row["groups"], ""),
                f"{row['receivers']:.1f}",
                f"{row['leaves']:.1f}",
            )
            for row in named(lines, "workload")
        ),
    )


def large(lines: Sequence[Line], _: str) -> str:
    """Return the table of 10,000 switches, without figures that need every frame followed."""
    some = [(key, words) for key, words in COLUMNS if key in COUNTED]
    return table(
        ("", *(words for _, words in some)),
        (
            (_way(row["way"]), *(_figure(row, key) for key, _ in some))
            for row in named(lines, "large")
        ),
    )


def _curves(
    rows: Sequence[Line], key: str, ways: Sequence[str], x: str = "share"
) -> dict[str, Curve]:
    return {
        way: sorted((row[x] * 100, row[key]) for row in rows if row["way"] == way)
        for way in ways
        if any(row["way"] == way and key in row for row in rows)
    }


def chapter_3(lines: Sequence[Line]) -> str:
    rows = named(lines, "chapter 3")
    ours = ("port", "bitmask", "mc_group")
    others = ("P4, OpenFlow multicast", "unicast", "ALM, all nodes", "ALM, fork nodes")
    pruned = (*ours[:2], "port_reactive")
    share = "receivers, % of the hosts"

    def panel(
        title: str, y: str, key: str, ways: Sequence[str], names: Corner = "top left"
    ) -> Drawing:
        return Panel(title, share, y, _curves(rows, key, ways), names=names)

    return svg(
        "Figures 3.10 to 3.15, measured again",
        "Source routes in a Jellyfish of 255 switches: the headers of port and bitmask cross at "
        "30 %; unicast needs more and more packets, and brokers add delay.",
        [
            panel("Header (3.10)", "bytes", "header", ("port", "bitmask")),
            panel("Bytes on links, 500 B (3.11)", "bytes", "load_500", pruned),
            panel("Lookups (3.12)", "entries and passes", "lookups", ours),
            panel("Packets (3.13)", "on all links", "packets", others),
            panel("Bytes on links, 50 B (3.14)", "bytes", "load_50", (*ours[:2], *others)),
            panel("Delay (3.15), markers as in 3.13", "ms", "delay", others, "none"),
        ],
        2,
    )


def chapter_4(lines: Sequence[Line]) -> str:
    rows = named(lines, "chapter 4")
    ways = ("hops", *(f"hybrid {hops}:{stored}" for hops, stored in MIXES), "destinations", "tree")
    share = "receivers, % of the hosts"
    changes = named(lines, "churn")
    rules = _curves(rows, "rules", ways)
    rules.pop("destinations", None)
    return svg(
        "Figures 4.5 to 4.8, measured again",
        "Stored routes in a Jellyfish of 256 switches: a tree has the shortest header, but its "
        "rows change with the receivers.",
        [
            Panel("Header (4.5)", share, "bytes", _curves(rows, "header", ways)),
            Panel("Rows, without destinations (4.6)", share, "in all switches", rules),
            Panel("Bytes on links, 50 B (4.7)", share, "bytes", _curves(rows, "load_50", ways)),
            Panel(
                "Rows that change (4.8)",
                "receivers exchanged, %",
                "added, modified or removed",
                _curves(changes, "rows", ("HEAD", "RAND", "RULE"), "change"),
            ),
        ],
        2,
    )


TABLES: dict[str, Callable[[Sequence[Line], str], str]] = {
    "networks": networks,
    "best": best,
    "clos": clos,
    "large": large,
    "workload": workload,
    "floors": floors,
    "findings": findings,
}
