"""Pictures, and the marked tables of docs/states.md, from the last run of each part.

A mark is ``<!-- table states NAME -->``, and ``<!-- end -->`` after the table. What is of parts
that never ran stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.support.plot import Panel, svg
from benchmarks.support.results import ROOT, Line, load, named

DOCUMENT = ROOT / "docs" / "states.md"
PICTURES = ROOT / "docs" / "pictures"
PARTS = ("memory", "bmv2", "carry", "latency", "recovery")
MARK = re.compile(r"(<!-- table states ([a-z0-9]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def write(document: Path = DOCUMENT, pictures: Path = PICTURES) -> None:
    """Draws, and writes the tables."""
    lines = [line for part in PARTS for line in load("states", part)]
    document.write_text(filled(document.read_text("utf-8"), lines), "utf-8")
    for name, picture in (("memory", _memory(lines)), ("recovery", _recovery(lines))):
        if picture:
            (pictures / f"states-{name}.svg").write_text(picture, "utf-8")


def filled(text: str, lines: Sequence[Line]) -> str:
    """Returns the text with its marked tables made from these lines."""

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
    return _table(
        ("bytes a rule", "the software switch", "bits by arithmetic", "the text, BMv2"), rows
    )


def of_bmv2(lines: Sequence[Line]) -> str:
    """Table III again, of BMv2 as it is now."""
    rows = [
        (row["kind"], f"{row['bytes']:.0f} ± {row['half']:.0f}", str(row["text"]))
        for row in named(lines, "bmv2")
    ]
    return _table(("bytes a rule of BMv2", "measured here", "the text"), rows)


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
    return _table(("way", "in-net, best", "out-net, best", "in-net, worst", "out-net, worst"), rows)


def bytes_of(lines: Sequence[Line]) -> str:
    """Bytes on links of an update, by each way."""
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
            "bytes on links of an update",
            "states",
            "virtual trees",
            "unicast",
            "Kafka topic, at least",
            "labels",
            "registers, each 30 s",
            "if each went everywhere",
        ),
        rows,
    )


def latency(lines: Sequence[Line]) -> str:
    rows = [
        (
            f"{row['what']}, {row['copies']} host{'s' * (row['copies'] > 1)}, sockets alone",
            *_of(row),
        )
        for row in named(lines, "wire")
    ]
    rows += [(f"{row['what']}, programs", *_of(row)) for row in named(lines, "programs")]
    return _table(("milliseconds", "half within", "99 % within", "all within"), rows)


def recovered(lines: Sequence[Line]) -> str:
    return _table(
        (
            "loss of each link",
            "frames lost",
            "updates that came",
            "half within, ms",
            "99 % within, ms",
            "all within, ms",
            "staleness, mean, ms",
            "stalest, ms",
            "after the last update, ms",
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
    """Fig. 8: how a switch's process grows."""
    panels = []
    for kind, title, x in (
        ("registers", "Registers (Fig. 8a)", "states that there is room for"),
        ("table", "Table (Fig. 8b)", "rows"),
    ):
        points = [(row["rules"], row["grown"] / 1000) for row in named(lines, "memory", kind=kind)]
        if points:
            panels.append(Panel(title, x, "kB more resident", {"": points}))
    if not panels:
        return ""
    text = "Resident memory of the software switch against rules, mean of five processes."
    return svg("Memory by rules", text, panels)


def _recovery(lines: Sequence[Line]) -> str:
    rows = named(lines, "recovery")
    if not rows:
        return ""
    curves = {
        name: [(row["loss"], row[key]) for row in rows]
        for name, key in (("half within", "p50_ms"), ("99 % within", "p99_ms"))
    }
    stale = {"mean": [(row["loss"], row["mean_staleness_ms"]) for row in rows]}
    return svg(
        "Recovery",
        "Publish to replica, and staleness, against the share of frames that each link loses.",
        [
            Panel("Publish to replica", "% of frames lost by each link", "ms", curves),
            Panel("Staleness", "% of frames lost by each link", "ms", stale),
        ],
    )
