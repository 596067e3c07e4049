"""The report of the use case of mobility: figures as JSON, a table, and a page with two maps."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from movements import Scanner
from stackcast.lab.report.page import write_json
from stackcast.lab.up.folder import write_whole
from stackcast.udfs.network.drawing import drawing
from stackcast.udfs.network.network import Network
from stackcast.udfs.report.page import render
from stackcast.udfs.switches.bridge import spanning_links

_ANY_WIDTH = 1000


@dataclass(frozen=True)
class MobilityReport:
    """All that the page shows.

    verdict: as a mapping, of `verdict.Verdict`. runs_on: edge, or
    ``controller``, to its host. status: what the network counted. settings: by key. seconds: that
    the run took.
    """

    verdict: Mapping[str, Any]
    network: Network
    scanners: Mapping[str, Scanner]
    runs_on: Mapping[str, str]
    status: Mapping[str, Any]
    settings: Mapping[str, Any]
    seconds: float

    @property
    def sentence(self) -> str:
        """One sentence: all is right, or what is wrong."""
        replicas, movements = self.verdict["replicas"], self.verdict["movements"]
        wrong = sum(not row["held"] for row in replicas)
        counts = {k: sum(row[k] for row in movements) for k in ("missing", "extra", "wrong")}
        if self.verdict["exact"]:
            others = sum(not row["own"] for row in replicas)
            total = sum(row["expected"] for row in movements)
            return (
                f"Converged: all {others} replicas are what they should be, and all {total:,} "
                "movements are right."
            )
        faults = [f"{count:,} movements {what}" for what, count in counts.items() if count]
        if wrong:
            faults.insert(0, f"{wrong} replicas are not what they should be")
        return f"Not converged: {', '.join(faults) or 'a replica lacked an update for too long'}."

    def summary(self) -> dict[str, Any]:
        """Returns what ``report.json`` has."""
        replicas = [row for row in self.verdict["replicas"] if not row["own"]]
        return {
            "exact": self.verdict["exact"],
            "replicas": len(replicas),
            "replicas_wrong": sum(not row["held"] for row in self.verdict["replicas"]),
            "updates": sum(row["updates"] for row in self.verdict["states"]),
            "updates_held": sum(row["updates"] for row in replicas),
            "movements": sum(row["expected"] for row in self.verdict["movements"]),
            **{
                f"movements_{key}": sum(row[key] for row in self.verdict["movements"])
                for key in ("missing", "extra", "wrong")
            },
            **self.verdict["latency"],
            "worst_staleness_ms": max(self.verdict["staleness"]["worst_ms"], default=0.0),
            "link_bytes": sum(self.status["link_bytes"].values()),
            "drops": self.status["drops"],
            "seconds": self.seconds,
        }


def write(folder: Path, report: MobilityReport, stream: TextIO | None = None) -> None:
    """Prints the table and writes ``report.json`` and ``report.html``."""
    write_json(folder / "report.json", report.summary())
    write_whole(folder / "report.html", render_html(report))
    print_table(report, stream)
    print(f"report: {folder / 'report.html'}", file=stream)


def render_html(report: MobilityReport) -> str:
    """Returns the page as text."""
    network = report.network
    tree: dict[str, set[str]] = {}
    for link in spanning_links(network):
        tree.setdefault(link.switch, set()).add(link.neighbor)
    holders = {row["edge"]: row["holders"] for row in report.verdict["states"]}
    content = {
        **drawing(network),
        "summary": report.summary(),
        "verdict": {"exact": report.verdict["exact"], "sentence": report.sentence},
        "found": report.verdict,
        "runsOn": report.runs_on,
        "ways": {
            edge: _ways(network, tree, report.runs_on, edge, each) for edge, each in holders.items()
        },
        "linkBytes": report.status["link_bytes"],
        "scanners": [vars(place) for place in report.scanners.values()],
        "run": {
            "began": (dt.datetime.now(dt.UTC) - dt.timedelta(seconds=report.seconds)).isoformat(
                timespec="seconds"
            ),
            "version": version("stackcast"),
            "network": network.words(),
            "settings": report.settings,
        },
    }
    body, script = (
        Path(__file__).with_name(name).read_text(encoding="utf-8")
        for name in ("mobility.html", "mobility.js")
    )
    return render("mobility by replicated state", body, script, content)


def _ways(
    network: Network,
    tree: Mapping[str, set[str]],
    runs_on: Mapping[str, str],
    edge: str,
    holders: list[str],
) -> list[list[str]]:
    """The links by which an update goes along the tree of states, away from its tracker's host."""
    start = network.host(runs_on[edge])
    before = {start.switch: ""}
    for switch in (order := [start.switch]):
        for following in sorted(tree.get(switch, ())):
            if following not in before:
                before[following] = switch
                order.append(following)
    found = {(start.name, start.switch)}
    for name in {runs_on[holder] for holder in (*holders, "controller")} - {start.name}:
        at = network.host(name).switch
        found.add((at, name))
        while before[at]:
            found.add((before[at], at))
            at = before[at]
    return [list(way) for way in sorted(found)]


def print_table(report: MobilityReport, stream: TextIO | None = None) -> None:
    """Prints a line a tracker and what was found; in colour on a terminal, else as plain text."""
    stream = sys.stdout if stream is None else stream
    terminal = stream.isatty()
    console = Console(
        file=stream, highlight=False, soft_wrap=True, width=None if terminal else _ANY_WIDTH
    )
    table = Table(box=box.SIMPLE_HEAD if terminal else None, pad_edge=False, padding=(0, 2, 0, 0))
    heads = ("tracker", "host", "replicas", "right", "updates", "p50 ms", "p99 ms")
    for head in (*heads, "movements", "missing", "extra", "wrong"):
        table.add_column(head, justify="left" if head in ("tracker", "host") else "right")
    for row in report.verdict["movements"]:
        of = [r for r in report.verdict["replicas"] if r["holder"] == row["who"] and not r["own"]]
        waits = [max((r[key] for r in of), default=0.0) for key in ("p50_ms", "p99_ms")]
        cells = [
            row["who"],
            report.runs_on.get(row["who"], "Spark"),
            *(str(len(of)), str(sum(r["held"] for r in of)), str(sum(r["updates"] for r in of))),
            *(f"{wait:.1f}" for wait in waits),
            *(f"{row[key]:,}" for key in ("expected", "missing", "extra", "wrong")),
        ]
        table.add_row(*map(Text, cells))
    with console.capture() as printed:
        console.print(table)
        console.print("")
        console.print(
            Text(report.sentence, style="bold green" if report.verdict["exact"] else "bold red")
        )
    stream.writelines(f"{line.rstrip()}\n" for line in printed.get().splitlines())
