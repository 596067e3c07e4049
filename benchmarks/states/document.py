"""The pictures and the tables of docs/results/states.md, generated from the last runs.

A table is between ``<!-- table states NAME -->`` and ``<!-- end -->``. Tables of parts that never
ran stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.support.plot import Panel, svg
from benchmarks.support.results import ROOT, Line, load, named
from benchmarks.support.tables import DOCS, fill_pages

PICTURES = ROOT / "docs" / "pictures"
PARTS = ("memory", "bmv2", "carry", "latency", "recovery")
MARK = re.compile(r"(<!-- table states ([a-z0-9]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def write(docs: Path = DOCS, pictures: Path = PICTURES) -> None:
    """Draw the pictures and write the tables."""
    lines = [line for part in PARTS for line in load("states", part)]
    fill_pages("states", lambda text: filled(text, lines), docs)
    for name, picture in (("memory", _memory(lines)), ("recovery", _recovery(lines))):
        if picture:
            (pictures / f"states-{name}.svg").write_text(picture, "utf-8")


def filled(text: str, lines: Sequence[Line]) -> str:
    """Return a page with its tables generated from these lines."""

    def replaced(match: re.Match[str]) -> str:
        table = TABLES[match[2]](lines)
        return match[1] + table + match[3] if table else match[0]

    return MARK.sub(replaced, text)


def rule(lines: Sequence[Line]) -> str:
    """Table III."""
    names = {"registers": "registers", "table": "a table, with a controller on the switch"}
    rows = [
        (
            names[row["kind"]],
            f"{row['bytes']:.1f} ± {row['half']:.1f}",
            f"{row['bits']} ({row['bits'] / 8:g} bytes)",
            str(row["text"]),
        )
        for row in named(lines, "rule")
    ]
    if rows:
        rows.append(("OpenFlow, Open vSwitch", "–", "–", "586"))
    return _table(("bytes per rule", "software switch", "computed bits", "the paper, BMv2"), rows)


def of_bmv2(lines: Sequence[Line]) -> str:
    """Table III again, for the current BMv2."""
    rows = [
        (row["kind"], f"{row['bytes']:.0f} ± {row['half']:.0f}", str(row["text"]))
        for row in named(lines, "bmv2")
    ]
    return _table(("bytes per rule of BMv2", "measured here", "the paper"), rows)


def messages(lines: Sequence[Line]) -> str:
    """Table IV."""
    rows = []
    for row in named(lines, "messages"):
        seen = [*row["best"], *row["worst"]]
        text = [number for each in row["text"] for number in each]
        rows.append(
            (
                row["way"],
                *(str(s) if s == t else f"**{s}** ({t})" for s, t in zip(seen, text, strict=True)),
            )
        )
    return _table(
        ("method", "in-net, best", "out-net, best", "in-net, worst", "out-net, worst"), rows
    )


def bytes_of(lines: Sequence[Line]) -> str:
    """Return the bytes on links of an update, by method."""
    rows = []
    for kept in named(lines, "kept"):
        of = {
            row["way"]: row["bytes"]
            for row in named(lines, "bytes", network=kept["network"], replicas=kept["replicas"])
        }
        rows.append(
            (
                f"{kept['network']}, {kept['replicas']} replicas",
                *(f"{of[w]:,.0f}" for w in ("states", "virtual trees", "unicast", "Kafka topic")),
                f"{kept['labels']:.1f}",
                f"{kept['register_bytes']:,.0f}, {100 * kept['share']:.0f} %",
                f"{kept['everywhere_bytes']:,.0f}, {100 * kept['everywhere_share']:.0f} %",
            )
        )
    return _table(
        (
            "bytes on links per update",
            "states",
            "virtual trees",
            "unicast",
            "Kafka topic, minimum",
            "labels",
            "registers, every 30 s",
            "registers on every link",
        ),
        rows,
    )


def latency(lines: Sequence[Line]) -> str:
    rows = [
        (
            f"{row['what']}, {row['copies']} host{'s' * (row['copies'] > 1)}, sockets only",
            *_of(row),
        )
        for row in named(lines, "wire")
    ]
    rows += [(f"{row['what']}, programs", *_of(row)) for row in named(lines, "programs")]
    return _table(("milliseconds", "p50", "p99", "maximum"), rows)


def recovered(lines: Sequence[Line]) -> str:
    return _table(
        (
            "loss per link",
            "frames lost",
            "updates delivered",
            "p50, ms",
            "p99, ms",
            "maximum, ms",
            "mean staleness, ms",
            "maximum staleness, ms",
            "converged after, ms",
        ),
        (
            (
                f"{row['loss']} %",
                f"{row['lost_frames']:,}",
                f"{100 * row['came']:.1f} %",
                *_of(row),
                f"{row['mean_staleness_ms']:.1f}",
                f"{row['max_staleness_ms']:,.0f}",
                f"{row['converged_ms']:,.0f}",
            )
            for row in named(lines, "recovery")
        ),
    )


TABLES = {
    "rule": rule,
    "bmv2": of_bmv2,
    "messages": messages,
    "bytes": bytes_of,
    "latency": latency,
    "recovery": recovered,
}


def _of(row: Line) -> tuple[str, str, str]:
    half, most, last = (f"{row[key]:,.1f}" for key in ("p50_ms", "p99_ms", "max_ms"))
    return half, most, last


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = [f"| {' | '.join(row)} |" for row in rows]
    if not body:
        return ""
    return "\n".join([f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *body, ""])


def _memory(lines: Sequence[Line]) -> str:
    """Draw Fig. 8: the growth of a switch's process."""
    panels = []
    for kind, title, x in (
        ("registers", "Registers (Fig. 8a)", "states with reserved registers"),
        ("table", "Table (Fig. 8b)", "rows"),
    ):
        points = [(row["rules"], row["grown"] / 1000) for row in named(lines, "memory", kind=kind)]
        if points:
            panels.append(Panel(title, x, "resident memory, kB", {"": points}))
    if not panels:
        return ""
    text = "Resident memory of the software switch by number of rules, mean of five processes."
    return svg("Memory by rules", text, panels)


def _recovery(lines: Sequence[Line]) -> str:
    rows = named(lines, "recovery")
    if not rows:
        return ""
    curves = {
        name: [(row["loss"], row[key]) for row in rows]
        for name, key in (("p50", "p50_ms"), ("p99", "p99_ms"))
    }
    stale = {"mean": [(row["loss"], row["mean_staleness_ms"]) for row in rows]}
    return svg(
        "Recovery",
        "Time from publishing to the replica, and staleness, by the loss of each link.",
        [
            Panel("Publish to replica", "% of frames lost by each link", "ms", curves),
            Panel("Staleness", "% of frames lost by each link", "ms", stale),
        ],
    )
