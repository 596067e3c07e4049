"""Tables of the documentation, generated from the lines of the last run of each benchmark.

A page contains a table between ``<!-- table BENCHMARK NAME -->`` and ``<!-- end -->``. A table
without measured lines stays as it is. A page may be in any folder of docs/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.support.results import ROOT, Line, named

DOCS = ROOT / "docs"


def pages(benchmark: str, folder: Path = DOCS) -> list[Path]:
    """Return the pages that contain tables of a benchmark."""
    mark = f"<!-- table {benchmark} "
    return [page for page in sorted(folder.rglob("*.md")) if mark in page.read_text("utf-8")]


def fill_pages(benchmark: str, fill: Callable[[str], str], folder: Path = DOCS) -> None:
    """Replace the tables of a benchmark in all pages. ``fill`` returns the new text of a page."""
    for page in pages(benchmark, folder):
        page.write_text(fill(page.read_text("utf-8")), "utf-8")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = [f"| {' | '.join(row)} |" for row in rows]
    if not body:
        return ""
    return "\n".join([f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *body, ""])


def floors(lines: Sequence[Line], part: str) -> str:
    """Return the table of targets and whether they are met, of one part or of all parts."""
    rows = [row for row in named(lines, "floor") if part in ("", row["part"])]
    return table(
        ("measurement", "result", "target", ""),
        (
            (
                cell(row["what"]),
                number(row["value"], row["unit"]),
                ("≥ " if row["least"] else "≤ ") + number(row["floor"], row["unit"]),
                "met" if row["held"] else "**missed**",
            )
            for row in rows
        ),
    )


def findings(lines: Sequence[Line], part: str) -> str:
    return table(
        ("WERNECKE", "finding", "verdict", "result"),
        (
            (
                row["source"],
                cell(row["text"]),
                "confirmed" if row["held"] else "**refuted**",
                cell(row["seen"]),
            )
            for row in named(lines, "finding", part=part)
        ),
    )


def number(value: float, unit: str) -> str:
    text = f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
    return f"{text} {unit}".strip()


def cell(text: str) -> str:
    return text.replace("|", "\\|")
