"""Tables of documents, written between marks from the lines of benchmarks' last runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.support.results import Line, named


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = [f"| {' | '.join(row)} |" for row in rows]
    if not body:
        return ""
    return "\n".join([f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *body, ""])


def floors(lines: Sequence[Line], part: str) -> str:
    """Returns the table of floors: of one part, or of all."""
    rows = [row for row in named(lines, "floor") if part in ("", row["part"])]
    return table(
        ("what", "seen", "floor", ""),
        (
            (
                cell(row["what"]),
                number(row["value"], row["unit"]),
                ("≥ " if row["least"] else "≤ ") + number(row["floor"], row["unit"]),
                "held" if row["held"] else "**missed**",
            )
            for row in rows
        ),
    )


def findings(lines: Sequence[Line], part: str) -> str:
    return table(
        ("WERNECKE", "finding", "here", "seen"),
        (
            (
                row["source"],
                cell(row["text"]),
                "held" if row["held"] else "**refuted**",
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
