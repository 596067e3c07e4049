"""What a run of the lab leaves for its reader: JSON, a table on the terminal, one HTML page.

The page stands alone: style, script, cytoscape.js and data are inside it, and its
Content-Security-Policy forbids every load from elsewhere.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

_PARTS = Path(__file__).parent

# Two words or more a line: what the reader of the table calls each key of the summary.
_SUMMARY_LINES: tuple[tuple[str, str], ...] = (
    ("messages_in", "messages in"),
    ("messages_matched", "messages matched"),
    ("frames_sent", "frames sent"),
    ("rejected_subscriptions", "subscriptions rejected"),
    ("deliveries_expected", "deliveries expected"),
    ("deliveries_received", "deliveries received"),
    ("missing", "missing"),
    ("extra", "extra"),
    ("duplicates", "duplicates"),
    ("dead_letters", "dead letters"),
    ("batches", "micro-batches"),
    ("seconds", "seconds"),
)
_BYTES_LINES: tuple[tuple[str, str], ...] = (
    ("link_bytes", "Stackcast"),
    ("unicast_bytes", "unicast would have taken"),
    ("broadcast_bytes", "broadcast would have taken"),
)
_HOST_COLUMNS = ("host", "expected", "received", "missing", "extra", "duplicates")


@dataclass
class ReportData:
    """All that the page shows. Everything in it must be JSON; texts may hold any character.

    summary: the keys of ``report.json``; ``out_of_order`` and ``misnumbered`` count against the
        verdict if they are there.
    hosts: ``Outcome.rows()``: host, expected, received, missing, extra, duplicates, ...
    batches: ``{batch_id, rows, seconds, versions}``; ``versions`` is a mapping table -> version.
    nodes: ``{id, kind, layer}``; kind is ``switch``, ``host`` or ``publisher``; layer is a
        switch's (``rack``, ``spine``, ...) or None. If every switch has one, the map is drawn in
        rows, hosts at the bottom; otherwise by forces.
    links: ``{u, v}``, each once.
    subscriptions: ``{id, host, filter}``.
    notifications: samples: ``{id, partition, offset, message, event, subscriptions, receivers,
        labels, edges}``: ``message`` is the index in its packet, ``event`` maps field -> readable
        value, ``subscriptions`` holds ids, ``labels`` holds ``{text, kind, id}`` with kind
        ``tree``, ``hop`` or ``stop``, ``edges`` holds ``[u, v]`` as the notification flows.
    """

    summary: Mapping[str, Any]
    hosts: Sequence[Mapping[str, Any]] = field(default_factory=list)
    batches: Sequence[Mapping[str, Any]] = field(default_factory=list)
    nodes: Sequence[Mapping[str, Any]] = field(default_factory=list)
    links: Sequence[Mapping[str, Any]] = field(default_factory=list)
    subscriptions: Sequence[Mapping[str, Any]] = field(default_factory=list)
    notifications: Sequence[Mapping[str, Any]] = field(default_factory=list)


def verdict(summary: Mapping[str, Any]) -> tuple[bool, str]:
    """(is the delivery exact?, one sentence that says so or says what is wrong)."""
    faults = [
        f"{summary[key]:,} {words}"
        for key, words in (
            ("missing", "missing"),
            ("extra", "extra"),
            ("duplicates", "duplicated"),
            ("out_of_order", "out of order"),
            ("misnumbered", "misnumbered"),
            ("records_unprocessed", "records not taken from the topic"),
        )
        if summary.get(key)
    ]
    if faults:
        return False, f"Not delivered exactly: {', '.join(faults)}."
    received = summary.get("deliveries_received", 0)
    return True, f"Delivered exactly: all {received:,} deliveries, none missing, extra or doubled."


def write_json(path: Path, summary: Mapping[str, Any]) -> None:
    """Write ``summary`` as JSON. The file is there whole or not at all."""
    _write(Path(path), json.dumps(summary, indent=2, default=str) + "\n")


def write_html(path: Path, data: ReportData) -> None:
    """Write the page. It takes no other file and no network to read it."""
    _write(Path(path), render_html(data))


def render_html(data: ReportData) -> str:
    """The page as text."""
    exact, sentence = verdict(data.summary)
    content = asdict(data) | {"verdict": {"exact": exact, "sentence": sentence}}
    page = (_PARTS / "page.html").read_text(encoding="utf-8")
    for mark, text in (
        ("/*{style}*/", (_PARTS / "page.css").read_text(encoding="utf-8")),
        ("/*{cytoscape}*/", (_PARTS / "cytoscape.min.js").read_text(encoding="utf-8")),
        ("/*{script}*/", (_PARTS / "page.js").read_text(encoding="utf-8")),
        # Last, so that no mark inside a user's text is ever filled in.
        ("/*{data}*/", _script_safe(content)),
    ):
        page = page.replace(mark, text, 1)
    return page


def _script_safe(content: Any) -> str:
    """JSON that cannot end, or start anything inside, the script element it is put into."""
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"), default=str)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def print_table(
    summary: Mapping[str, Any],
    per_host: Sequence[Mapping[str, Any]],
    stream: TextIO | None = None,
) -> None:
    """Print the summary and one line a host; in colour on a terminal, else as plain text.

    per_host: ``Outcome.rows()``. stream: standard output if None.
    """
    stream = sys.stdout if stream is None else stream
    if stream.isatty():
        _print_rich(summary, per_host, stream)
    else:
        _print_plain(summary, per_host, stream)


def _pairs(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [(words, _number(summary[key])) for key, words in _SUMMARY_LINES if key in summary]
    own = summary.get("link_bytes")
    for key, words in _BYTES_LINES:
        if key in summary:
            times = f" ({summary[key] / own:.2f} x)" if own and key != "link_bytes" else ""
            rows.append((f"bytes on links, {words}", _number(summary[key]) + times))
    return rows


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _print_plain(
    summary: Mapping[str, Any], per_host: Sequence[Mapping[str, Any]], stream: TextIO
) -> None:
    rows = [list(_HOST_COLUMNS)]
    rows += [[_number(row.get(column, "")) for column in _HOST_COLUMNS] for row in per_host]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows if per_host else []:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *cells]), file=stream)
    pairs = _pairs(summary)
    width = max((len(words) for words, _ in pairs), default=0)
    print(file=stream)
    for words, value in pairs:
        print(f"{words.ljust(width)}  {value}", file=stream)
    print(f"\n{verdict(summary)[1]}", file=stream)


def _print_rich(
    summary: Mapping[str, Any], per_host: Sequence[Mapping[str, Any]], stream: TextIO
) -> None:
    from rich import box  # noqa: PLC0415  only a terminal needs it
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(file=stream)
    hosts = Table(*_HOST_COLUMNS[:1], box=box.SIMPLE_HEAD)
    for column in _HOST_COLUMNS[1:]:
        hosts.add_column(column, justify="right")
    for row in per_host:
        wrong = row.get("missing") or row.get("extra") or row.get("duplicates")
        cells = [Text(_number(row.get(column, ""))) for column in _HOST_COLUMNS]
        hosts.add_row(*cells, style="bold red" if wrong else None)
    totals = Table(box=None, show_header=False, padding=(0, 2))
    totals.add_column(style="dim")
    for words, value in _pairs(summary):
        totals.add_row(words, Text(value))
    exact, sentence = verdict(summary)
    console.print(hosts, totals)
    console.print(Text(f"\n{sentence}", style="bold green" if exact else "bold red"))
