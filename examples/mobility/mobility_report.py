"""The report of the mobility use case: figures as JSON, a table, and a page with two maps."""

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
    """Content of the page.

    Attributes:
        verdict: a `verdict.Verdict` as a mapping.
        network: the network of the lab.
        scanners: scanners by name.
        runs_on: host of each edge's tracker, and of the ``controller``.
        status: counters of the network.
        settings: settings of the run.
        seconds: duration of the run.
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
        """A sentence that says whether all is right, or else which parts are wrong."""
        replicas, movements = self.verdict["replicas"], self.verdict["movements"]
        wrong = sum(not row["held"] for row in replicas)
        counts = {k: sum(row[k] for row in movements) for k in ("missing", "extra", "wrong")}
        if self.verdict["exact"]:
            others = sum(not row["own"] for row in replicas)
            total = sum(row["expected"] for row in movements)
            return (
                f"Converged: all {others} replicas are identical to the expected states, and all "
                f"{total:,} movements are correct."
            )
        faults = [f"{count:,} movements {fault}" for fault, count in counts.items() if count]
        if wrong:
            faults.insert(0, f"{wrong} replicas differ from the expected states")
        return (
            f"Not converged: {', '.join(faults) or 'a replica did not receive an update in time'}."
        )

    def summary(self) -> dict[str, Any]:
        """Return the content of ``report.json``."""
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
    """Print the table, and write ``report.json`` and ``report.html``."""
    write_json(folder / "report.json", report.summary())
    write_whole(folder / "report.html", render_html(report))
    print_table(report, stream)
    print(f"report: {folder / 'report.html'}", file=stream)


def render_html(report: MobilityReport) -> str:
    """Return the page as text."""
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
            edge: _update_links(network, tree, report.runs_on, edge, names)
            for edge, names in holders.items()
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


def _update_links(
    network: Network,
    tree: Mapping[str, set[str]],
    runs_on: Mapping[str, str],
    edge: str,
    holders: list[str],
) -> list[list[str]]:
    """Return the links of the tree of states that an update passes from the host of its tracker."""
    start = network.host(runs_on[edge])
    parents = {start.switch: ""}
    for switch in (order := [start.switch]):
        for child in sorted(tree.get(switch, ())):
            if child not in parents:
                parents[child] = switch
                order.append(child)
    links = {(start.name, start.switch)}
    for name in {runs_on[holder] for holder in (*holders, "controller")} - {start.name}:
        switch = network.host(name).switch
        links.add((switch, name))
        while parents[switch]:
            links.add((parents[switch], switch))
            switch = parents[switch]
    return [list(link) for link in sorted(links)]


def print_table(report: MobilityReport, stream: TextIO | None = None) -> None:
    """Print a line per tracker and the result, in colour on a terminal, as plain text otherwise."""
    stream = sys.stdout if stream is None else stream
    terminal = stream.isatty()
    console = Console(
        file=stream, highlight=False, soft_wrap=True, width=None if terminal else _ANY_WIDTH
    )
    table = Table(box=box.SIMPLE_HEAD if terminal else None, pad_edge=False, padding=(0, 2, 0, 0))
    heads = ("tracker", "host", "replicas", "correct", "updates", "p50 ms", "p99 ms")
    for head in (*heads, "movements", "missing", "extra", "wrong"):
        table.add_column(head, justify="left" if head in ("tracker", "host") else "right")
    for row in report.verdict["movements"]:
        replicas = [
            r for r in report.verdict["replicas"] if r["holder"] == row["who"] and not r["own"]
        ]
        waits = [max((r[key] for r in replicas), default=0.0) for key in ("p50_ms", "p99_ms")]
        cells = [
            row["who"],
            report.runs_on.get(row["who"], "Spark"),
            *(str(len(replicas)), str(sum(r["held"] for r in replicas))),
            str(sum(r["updates"] for r in replicas)),
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
