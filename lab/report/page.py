"""The report of a run of the lab: JSON, a table on the terminal, one HTML page."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stackcast.lab.up.folder import write_whole
from stackcast.udfs.errors import printable
from stackcast.udfs.report.page import render

# Names of the keys of the summary in the printed table.
_SUMMARY_LINES: tuple[tuple[str, str], ...] = (
    ("messages_in", "messages in"),
    ("messages_matched", "messages matched"),
    ("frames_sent", "frames sent"),
    ("rejected_subscriptions", "subscriptions rejected"),
    ("deliveries_expected", "deliveries expected"),
    ("deliveries_received", "deliveries received"),
    ("summaries", "summaries received"),
    ("missing", "missing"),
    ("extra", "extra"),
    ("duplicates", "duplicates"),
    ("dead_letters", "dead letters"),
    ("batches", "batches"),
    ("messages_per_second", "messages published per second"),
)
_LATENCIES = (("p50_ms", "median"), ("p99_ms", "99th percentile"), ("max_ms", "maximum"))
#: Longest latency that is printed with a tenth of a millisecond.
_PRECISE_MS = 100
_BYTES_LINES: tuple[tuple[str, str], ...] = (
    ("link_bytes", "Stackcast"),
    ("unicast_bytes", "with unicast"),
    ("broadcast_bytes", "with broadcast"),
)
_HOST_COLUMNS = ("host", "expected", "received", "missing", "extra", "duplicates")
#: Of lines that go into a file: a table there is never narrowed to fit.
_ANY_WIDTH = 1000


@dataclass
class ReportData:
    """All that the page shows. Everything in it must be JSON; texts may hold any character.

    summary: the keys of ``report.json``; ``out_of_order`` and ``misnumbered`` count against the
        verdict if they are there. ``parts`` maps each part of the run to its seconds.
    hosts: ``Tallies.rows()``: host, expected, received, missing, extra, duplicates, ...
    batches: ``{batch_id, rows, seconds, versions}``; ``versions`` is a mapping table -> version.
    nodes, links: the map, as `stackcast.udfs.network.drawing.drawing` makes it.
    subscriptions: ``{id, host, filter, matched}``; ``matched`` counts messages.
    notifications: samples: ``{id, partition, offset, message, event, subscriptions, receivers,
        labels, edges}``: ``message`` is the index in its packet, ``event`` maps field -> readable
        value, ``subscriptions`` holds ids, ``labels`` holds ``{text, kind, id, wire, link}`` with
        kind ``tree``, ``hop`` or ``stop``, hexadecimal digits and ``[u, v]`` (empty for a tree),
        ``edges`` holds ``[u, v]`` as the notification flows.
    run: ``{began, version, network, labels, settings}``; ``settings`` maps key -> value.
    """

    summary: Mapping[str, Any]
    hosts: Sequence[Mapping[str, Any]] = field(default_factory=list)
    batches: Sequence[Mapping[str, Any]] = field(default_factory=list)
    nodes: Sequence[Mapping[str, Any]] = field(default_factory=list)
    links: Sequence[Mapping[str, Any]] = field(default_factory=list)
    subscriptions: Sequence[Mapping[str, Any]] = field(default_factory=list)
    notifications: Sequence[Mapping[str, Any]] = field(default_factory=list)
    run: Mapping[str, Any] = field(default_factory=dict)


def verdict(summary: Mapping[str, Any]) -> tuple[bool, str]:
    """Returns (is the delivery exact?, one sentence that says so or says what is wrong)."""
    faults = [
        f"{summary[key]:,} {words}"
        for key, words in (
            ("missing", "missing"),
            ("extra", "extra"),
            ("duplicates", "duplicated"),
            ("out_of_order", "out of order"),
            ("misnumbered", "misnumbered"),
            ("records_unprocessed", "records not read from the topic"),
        )
        if summary.get(key)
    ]
    if faults:
        return False, f"Not delivered exactly: {', '.join(faults)}."
    received = summary.get("deliveries_received", 0)
    return (
        True,
        f"Delivered exactly: all {received:,} deliveries, none missing, extra or duplicated.",
    )


def write_json(path: Path, summary: Mapping[str, Any]) -> None:
    """Writes ``summary`` as JSON. The file is there whole or not at all."""
    write_whole(path, json.dumps(summary, indent=2, default=str) + "\n")


def write_html(path: Path, data: ReportData) -> None:
    """Writes the page. It takes no other file and no network to read it."""
    write_whole(path, render_html(data))


def render_html(data: ReportData) -> str:
    """Returns the page as text."""
    exact, sentence = verdict(data.summary)
    content = asdict(data) | {"verdict": {"exact": exact, "sentence": sentence}}
    body, script = (
        files("stackcast.lab.report").joinpath(name).read_text(encoding="utf-8")
        for name in ("run.html", "run.js")
    )
    return render("run report", body, script, content)


def print_table(
    summary: Mapping[str, Any],
    per_host: Sequence[Mapping[str, Any]],
    stream: TextIO | None = None,
) -> None:
    """Prints one line a host, then the summary; in colour on a terminal, else as plain text.

    per_host: ``Tallies.rows()``. stream: standard output if None.
    """
    stream = sys.stdout if stream is None else stream
    terminal = stream.isatty()
    console = Console(file=stream, highlight=False, width=None if terminal else _ANY_WIDTH)
    hosts = Table(box=box.SIMPLE_HEAD if terminal else None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in _HOST_COLUMNS:
        left = column == "host"
        hosts.add_column(column, justify="left" if left else "right", no_wrap=not left)
    for row in per_host:
        wrong = row.get("missing") or row.get("extra") or row.get("duplicates")
        cells = [Text(printable(_number(row.get(column, "")))) for column in _HOST_COLUMNS]
        hosts.add_row(*cells, style="bold red" if wrong else None)
    totals = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    totals.add_column(style="dim")
    for words, value in _pairs(summary):
        totals.add_row(words, Text(value))
    exact, sentence = verdict(summary)
    with console.capture() as printed:
        if per_host:
            console.print(hosts)
        console.print("", totals, "", sep="\n")
        console.print(Text(sentence, style="bold green" if exact else "bold red"))
    # A table fills its last column with blanks.
    stream.writelines(f"{line.rstrip()}\n" for line in printed.get().splitlines())


def _pairs(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [(words, _number(summary[key])) for key, words in _SUMMARY_LINES if key in summary]
    latency = summary.get("latency", {})
    if latency.get("count"):
        rows.append(("event to wire", _times(latency)))
        if "after_first_second" in latency:
            rows.append(("  after the first second", _times(latency["after_first_second"])))
    own = summary.get("link_bytes")
    for key, words in _BYTES_LINES:
        if key in summary:
            times = f" ({summary[key] / own:.2f} x)" if own and key != "link_bytes" else ""
            rows.append((f"bytes on links, {words}", _number(summary[key]) + times))
    if "seconds" in summary:
        rows.append(("seconds", _number(summary["seconds"])))
    parts = summary.get("parts", {})
    rows += [(f"  {name}", _number(seconds)) for name, seconds in parts.items()]
    return rows


def _times(latency: Mapping[str, Any]) -> str:
    return ", ".join(f"{words} {_milliseconds(latency[key])}" for key, words in _LATENCIES)


def _milliseconds(value: float) -> str:
    return f"{value:,.1f} ms" if value < _PRECISE_MS else f"{value:,.0f} ms"


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
