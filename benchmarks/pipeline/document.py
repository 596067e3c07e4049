"""Pictures, and the marked tables of docs/benchmarks.md, from the last run of each part.

A mark is ``<!-- table pipeline NAME -->``, and ``<!-- end -->`` after the table, or the link to a
picture. What is of parts that never ran stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.pipeline import pictures as pipeline_pictures
from benchmarks.support.results import ROOT, Line, load

DOCUMENT = ROOT / "docs" / "benchmarks.md"
MARK = re.compile(r"(<!-- table pipeline ([a-z]+) -->\n).*?(<!-- end -->)", re.DOTALL)
PARTS = ("throughput", "peers", "latency", "realtime", "start", "memory", "growth")


def run(document: Path = DOCUMENT, pictures: Path = pipeline_pictures.PICTURES) -> None:
    """Draw, and write the tables."""
    pipeline_pictures.draw(pictures)
    lines = {part: load("pipeline", part) for part in PARTS}
    document.write_text(filled(document.read_text("utf-8"), lines), "utf-8")


def filled(text: str, lines: dict[str, list[Line]]) -> str:
    """Returns the text with its marked tables made from these lines, by part."""

    def replaced(match: re.Match[str]) -> str:
        name = match[2]
        # Floors and the other figures come from several parts.
        parts = TABLES_OF_ALL.get(name, (name,))
        table = TABLES[name]([line for part in parts for line in lines[part]])
        return match[1] + table + match[3] if table else match[0]

    return MARK.sub(replaced, text)


def floors(lines: Sequence[Line]) -> str:
    return _table(
        ("what", "seen", "floor", ""),
        (
            (
                line["what"],
                _with_unit(line["value"], line["unit"]),
                ("≥ " if line["least"] else "≤ ") + _with_unit(line["floor"], line["unit"]),
                "held" if line["held"] else "**missed**",
            )
            for line in _named(lines, "floor")
        ),
    )


def throughput(lines: Sequence[Line]) -> str:
    limits = {
        (line["case"], line["processes"]): line
        for line in _named(lines, "sendmmsg in C")
        if "case" in line
    }

    def of_limit(line: Line) -> str:
        limit = limits.get((line["case"], 2))
        return f"{100 * limit['ours']:.2g} %" if limit else "no compiler"

    return _table(
        (
            "case",
            "bytes a record",
            "records/s",
            "messages/s",
            "frames/s",
            "of sendmmsg in C",
            "to mapInArrow",
            "to foreachBatch",
            "to mapInArrow, Kafka's own fetch sizes",
        ),
        (
            (
                line["case"],
                f"{line['bytes_a_record']:.0f}",
                _number(line["records_per_second"]),
                _number(line["messages_per_second"]),
                _number(line["frames_per_second"]),
                of_limit(line),
                f"**{line['ratio']:.2f}**",
                f"{line['ratio_foreachBatch']:.2f}",
                f"{line['ratio_plain']:.2f}",
            )
            for line in _named(lines, "throughput")
        ),
    )


def peers(lines: Sequence[Line]) -> str:
    return _table(
        ("way", "records/s", "frames a record", "ours is"),
        (
            (
                line["way"],
                _number(line["records_per_second"]),
                f"{line['frames_a_record']:.2f}"
                if line["frames_a_record"]
                else f"{line['copies_a_record']:.2f} copies",
                f"{line['ours_is_times']:.3g} x" if "ours_is_times" in line else "",
            )
            for line in _named(lines, "peer")
        ),
    )


def latency(lines: Sequence[Line]) -> str:
    best: dict[tuple[float, str], Line] = {}
    for line in _named(lines, "run"):
        key = line["records_per_second"], line["what"]
        if key not in best or line["p50_ms"] < best[key]["p50_ms"]:
            best[key] = line
    rows = [(what, line) for (_, what), line in best.items()]
    rows += [(line["name"], line) for line in _named(lines, "event to wire, real-time")]
    return _table(
        ("what", "records/s", "p50", "p99"),
        (
            (
                what,
                _number(line["records_per_second"]),
                _milliseconds(line["p50_ms"]),
                _milliseconds(line["p99_ms"]),
            )
            for what, line in rows
        ),
    )


def start(lines: Sequence[Line]) -> str:
    rows = [
        (f"start to first frame, {line['kernels']} kernels", f"{line['seconds']:.1f} s", "", "")
        for line in _named(lines, "start to first frame")
    ]
    rows += [
        (
            f"memory of the {line['what']}",
            *(f"{line[f'mb_at_{part}_percent']:.0f} MB" for part in (10, 50, 100)),
        )
        for line in _named(lines, "memory")
    ]
    return _table(("what", "at 10 % of the events", "50 %", "all"), rows)


def growth(lines: Sequence[Line]) -> str:
    worse = {
        (line["axis"], line["step"]): ", ".join(line["worse"]) or "none"
        for line in _named(lines, "linear")
    }
    rows = []
    for axis in pipeline_pictures.AXES:
        mine = [line for line in _named(lines, "growth") if line["axis"] == axis]
        for step, name in pipeline_pictures.STEPS.items():
            if mine:
                sizes = " / ".join(_number(line["size"]) for line in mine)
                seconds = " / ".join(f"{line[step]:.2g}" for line in mine)
                rows.append((f"{sizes} {axis}", name, seconds, worse.get((axis, step), "")))
    return _table(("work", "what", "seconds", "steps worse than linear"), rows)


def rates(lines: Sequence[Line]) -> str:
    text = "![Records a second by share of matching messages, and by way](%s)\n"
    return _picture("pipeline-rates.svg", text, _named(lines, "throughput"))


def curves(lines: Sequence[Line]) -> str:
    text = "![Seconds of plan, first batch and batch as work grows](%s)\n"
    return _picture("pipeline-growth.svg", text, _named(lines, "growth"))


def _picture(name: str, text: str, lines: Sequence[Line]) -> str:
    """A link to a picture that `pipeline_pictures.draw` made of these lines."""
    return text % f"pictures/{name}" if lines else ""


TABLES: dict[str, Callable[[Sequence[Line]], str]] = {
    "floors": floors,
    "throughput": throughput,
    "peers": peers,
    "latency": latency,
    "start": start,
    "growth": growth,
    "rates": rates,
    "curves": curves,
}
TABLES_OF_ALL = {
    "floors": PARTS,
    "latency": ("latency", "realtime"),
    "start": ("start", "memory"),
    "rates": ("throughput", "peers"),
    "curves": ("growth",),
}


def _named(lines: Iterable[Line], name: str) -> list[Line]:
    return [line for line in lines if line["name"] == name]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown; empty without rows."""
    body = [f"| {' | '.join(row)} |\n" for row in rows]
    if not body:
        return ""
    return f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n" + "".join(body)


def _number(value: float) -> str:
    """Two or three digits, and K or M."""
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    if value >= 1e4:
        return f"{value / 1e3:.3g} K"
    return f"{value:,.0f}"


def _milliseconds(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"


def _with_unit(value: float, unit: str) -> str:
    return f"{value:.3g} {unit}"
