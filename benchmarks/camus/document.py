"""The pictures and the tables of docs/results/camus*.md, generated from the last runs.

A table is between ``<!-- table camus NAME -->`` and ``<!-- end -->``. Tables of parts that never
ran stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.camus.queue import KNOWN
from benchmarks.camus.sockets import BY_SWITCH, COMPARED, DIRECT
from benchmarks.camus.told import TOLD
from benchmarks.support.plot import Curve, Panel, svg
from benchmarks.support.results import ROOT, Line, load, named
from benchmarks.support.tables import DOCS, fill_pages, number, table

PICTURES = ROOT / "docs" / "pictures"
PARTS = ("sockets", "queue", "compile")
MARK = re.compile(
    r"(<!-- table camus ([a-z]+)(?: ([a-z0-9.]+))? -->\n).*?(<!-- end -->)", re.DOTALL
)
DRAWN_LOAD = 0.9


def write(docs: Path = DOCS, pictures: Path = PICTURES) -> None:
    """Draw the pictures and write the tables."""
    lines = [line for part in PARTS for line in load("camus", part)]
    fill_pages("camus", lambda text: filled(text, lines), docs)
    for name, (draw, _) in DRAWINGS.items():
        if drawn := draw(lines):
            (pictures / f"camus-{name}.svg").write_text(drawn, "utf-8")


def filled(text: str, lines: Sequence[Line]) -> str:
    """Return a page with its tables generated from these lines."""

    def replaced(match: re.Match[str]) -> str:
        made = TABLES[match[2]](lines, match[3] or "")
        return match[1] + made + match[4] if made else match[0]

    return MARK.sub(replaced, text)


def claims(lines: Sequence[Line], _: str) -> str:
    """Return the claims of the paper, with the results of the model and of the sockets."""
    if not named(lines, "compared") or not named(lines, "one host"):
        return ""
    rows = []
    for workload, told in TOLD.items():
        rows.append(
            (
                f"{told.source}: {workload}: {told.measure}",
                _measure(told.value, told.same_time),
                _list(named(lines, "one host", workload=workload), "seen", told.same_time),
                _list(named(lines, "predicted", workload=workload), "seen", told.same_time)
                if workload != KNOWN
                else "",
                *_by_sockets(lines, workload, "seen", told.same_time),
                WHY[workload],
            )
        )
    rows.append(
        (
            "slides: worst case: time until 99 % are delivered with the host's "
            "filter, relative to the switch's filter",
            "plot only",
            "",
            _worst(lines),
            *_by_sockets(lines, "worst case", "ratio", False),
            WHY["worst case"],
        )
    )
    return table(
        (
            "claim",
            "the paper",
            "model, fitted to this point",
            "model, not fitted",
            "sockets, filter before the wire",
            "sockets, software switch",
            "explanation",
        ),
        rows,
    )


WHY = {
    "synthetic, 5 %": "In both setups, a burst first waits for the link, and the "
    "queue of the host adds to this time. The fitted host takes 1.4 times as long per "
    "packet as the link; a real host takes many times as long, so its latency is mostly "
    "time in the queue. The software switch is slower than the host, so the burst waits "
    "for the filter in the switch",
    "synthetic, 1 %": "Delivery takes 500 µs instead of 20 µs only if the host is "
    "almost fully loaded, and then the ratio has no upper bound. At the rate of Fig. 7, "
    "the model predicts a far smaller ratio; the rate in the slides is "
    "unknown. With the software switch, the queue only moves from the host to the switch",
    "Nasdaq, 0.5 %": "The maximum of a small sample depends on a single burst. The fit "
    "requires bursts that are five times as long as those of the synthetic feed; the paper "
    "does not state their length. With sockets, the maximum includes pauses during which a process "
    "is not scheduled",
    "Nasdaq, 0.1 %": "Only a fifth as many messages are of interest, so their "
    "maximum varies even more; a run with sockets contains few of these messages",
    "worst case": "A filter that forwards everything does not reduce the work of the "
    "host, so both curves of the model are equal by construction. With sockets, a filter "
    "before the host is an additional server, and the software switch needs one pass per "
    "message of a packet",
}
"""By workload: why the figures differ."""


def capacity(lines: Sequence[Line], _: str) -> str:
    rows = named(lines, "capacity")
    return table(
        ("setup", "workload", "messages per packet", "packets/s", "messages/s"),
        (
            (
                row["way"],
                row["workload"],
                f"{row['messages_a_packet']:.2f}",
                number(row["packets_per_second"], ""),
                number(row["messages_per_second"], ""),
            )
            for row in rows
        ),
    )


def sockets(lines: Sequence[Line], load: str) -> str:
    """Return the times of all setups at one load, in µs."""
    rows = named(lines, "run", load=float(load))
    return table(
        (
            "workload",
            "setup",
            "packets/s",
            "delivered",
            "p50",
            "p99",
            "maximum",
            "p99: on the wire",
            "p99: in the host's queue",
            "p99: predicted queue",
            "p99: filtering",
        ),
        (
            (
                row["workload"],
                row["way"],
                number(row["offered"], ""),
                f"{row['came']:,} of {row['of_interest']:,}",
                *(_us(row["took"], key) for key in ("p50", "p99", "max")),
                *(_us(row.get(part, {}), "p99") for part in ("way_there", "queued", "predicted")),
                _us(row["looked"], "p99"),
            )
            for row in rows
        ),
    )


def fits(lines: Sequence[Line], _: str) -> str:
    """Return the burst and the host that fit the paper's points, by load of the link."""
    return _loads(named(lines, "fit"))


def one_host(lines: Sequence[Line], _: str) -> str:
    """Return the rates at which a single host fits all points."""
    return _loads(named(lines, "one host"))


def predicted(lines: Sequence[Line], _: str) -> str:
    """Return what the parameters of the first workload predict for the others."""
    return table(
        ("workload", "filter in the switch", "the paper", "filter at the host", "the paper"),
        (
            (
                row["workload"],
                *(
                    cell
                    for way, (share, us) in (("switch", told.switch), ("host", told.host))
                    for cell in (
                        f"{row[f'{way}_within']:.1%} within {us:g} µs",
                        f"{100 * share:g} %",
                    )
                ),
            )
            for row in named(lines, "predicted")
            for told in (TOLD[row["workload"]],)
            if row["workload"] != KNOWN
        ),
    )


def _loads(rows: Sequence[Line]) -> str:
    return table(
        (
            "workload",
            "link load",
            "packets/s",
            "packets per burst",
            "host, ns per packet",
            "host load if the host filters",
            "filter in the switch",
            "filter at the host",
        ),
        (
            (
                row["workload"],
                f"{row['link']:.0%}",
                f"{row['packets_per_second'] / 1e6:.2f} M",
                f"{row['burst']:.0f}",
                f"{row['packet_ns']:.0f}",
                f"{row['host']:.0%}",
                f"{row['switch_within']:.1%} within {TOLD[row['workload']].switch[1]:g} µs",
                f"{row['host_within']:.1%} within {TOLD[row['workload']].host[1]:g} µs",
            )
            for row in rows
        ),
    )


def closed(lines: Sequence[Line], _: str) -> str:
    return table(
        ("load", "mean wait, simulated", "mean wait, formula", "p50", "p99"),
        (
            (
                f"{row['load']:.0%}",
                f"{row['mean']:.3f}",
                f"{row['wanted']:.3f}",
                *(f"{dict((s, t) for t, s in row['curve'])[share]:.2f}" for share in (0.5, 0.99)),
            )
            for row in named(lines, "closed form")
        ),
    )


def shape(lines: Sequence[Line], _: str) -> str:
    """Return the curves with and without the queue of the host."""
    rows = named(lines, "curve")
    return table(
        ("workload", "filter", "messages", "mean, µs", "p50, µs", "p99, µs", "maximum, µs"),
        (
            (
                row["workload"],
                QUEUE_WAYS[row["way"]],
                f"{row['messages']:,}",
                f"{row['mean_us']:.2f}",
                *(
                    f"{times[share]:.2f}" if share in times else ""
                    for times in ({share: us for us, share in row["curve"]},)
                    for share in (0.5, 0.99, 1.0)
                ),
            )
            for row in rows
        ),
    )


QUEUE_WAYS = {
    "host": "at the host",
    "switch": "in the switch",
    "host without a queue": "at a host without processing time",
}


def compiled(lines: Sequence[Line], _: str) -> str:
    rows = named(lines, "compiled")
    body = []
    for ours in named(rows, "compiled", way="ours"):
        theirs = (named(rows, "compiled", way=way, rules=ours["rules"]) for way in PACKAGES)
        body.append(
            (
                f"{ours['rules']:,}",
                f"{ours['seconds']:.3f}",
                f"{ours['read']:.3f}",
                f"{ours['entries']:,}",
                *(f"{each[0]['seconds']:.2f}" if each else "" for each in theirs),
            )
        )
    return table(
        ("rules", "Stackcast, s", "parsing, s", "entries", *(f"{p}, s" for p in PACKAGES)), body
    )


PACKAGES = ("dd.cudd", "dd.autoref")


def tied(lines: Sequence[Line], _: str) -> str:
    return table(
        ("", "entries", "multicast groups", "seconds"),
        (
            row
            for line in named(lines, "tied")
            for row in (
                (
                    "Stackcast",
                    f"{line['entries']:,}",
                    f"{line['groups']:,}",
                    f"{line['seconds']:.2f}",
                ),
                (
                    "the paper",
                    f"{line['text_entries']:,}",
                    f"{line['text_groups']:,}",
                    "plot only",
                ),
            )
        ),
    )


def picture(lines: Sequence[Line], name: str) -> str:
    """Return a link to the picture that ``write`` draws from these lines."""
    draw, words = DRAWINGS[name]
    return f"![{words}](../pictures/camus-{name}.svg)\n" if draw(lines) else ""


TABLES = {
    "claims": claims,
    "capacity": capacity,
    "sockets": sockets,
    "fits": fits,
    "onehost": one_host,
    "predicted": predicted,
    "closed": closed,
    "shape": shape,
    "compile": compiled,
    "tied": tied,
    "picture": picture,
}


def _by_sockets(lines: Sequence[Line], workload: str, key: str, share: bool) -> list[str]:
    """Return the figures of all loads, for both groups of setups."""
    return [
        _list(named(lines, "compared", workload=workload, host=host.name), key, share)
        for host, _ in COMPARED
    ]


def _measure(value: float, share: bool) -> str:
    return f"{100 * value:.1f} %" if share else f"{value:.3g} x"


def _list(rows: Sequence[Line], key: str, share: bool) -> str:
    """Return the figures of all loads in ascending order."""
    ordered = sorted(rows, key=lambda row: row.get("load", 0))
    return ", ".join(_measure(row[key], share) for row in ordered if key in row)


def _worst(lines: Sequence[Line]) -> str:
    """Return the ratio of the p99 of the two filters in the model."""
    times = {
        row["way"]: us
        for row in named(lines, "curve", workload="worst case")
        for us, share in row["curve"]
        if share == 0.99
    }
    return f"{times['host'] / times['switch']:.3g} x" if times else ""


def _us(part: dict[str, float], key: str) -> str:
    return f"{part[key]:,.0f}" if key in part else ""


def _draw_queue(lines: Sequence[Line]) -> str:
    panels = []
    for workload in dict.fromkeys(row["workload"] for row in named(lines, "curve")):
        curves: dict[str, Curve] = {
            QUEUE_WAYS[row["way"]]: _points(row["curve"])
            for row in named(lines, "curve", workload=workload)
        }
        told = TOLD.get(workload)
        if told is not None:
            for name, (share, us) in (("switch", told.switch), ("host", told.host)):
                curves[f"the paper, {name}"] = [(us, share)]
        panels.append(Panel(workload, "µs", "share delivered", curves, "x", "bottom right", False))
    return _picture("Latency with a queue at the host", panels)


def _draw_sockets(lines: Sequence[Line]) -> str:
    panels = []
    runs = named(lines, "run", load=DRAWN_LOAD)
    for ways in (DIRECT, BY_SWITCH):
        for workload in dict.fromkeys(row["workload"] for row in runs):
            curves: dict[str, Curve] = {
                row["way"]: _points(row["curve"])
                for way in ways
                for row in named(runs, "run", workload=workload, way=way.name)
                if row["curve"]
            }
            if curves:
                panels.append(
                    Panel(workload, "µs", "share delivered", curves, "x", "bottom right", False)
                )
    return _picture("Latency with sockets", panels)


def _draw_compile(lines: Sequence[Line]) -> str:
    rows = named(lines, "compiled")
    curves: dict[str, Curve] = {
        way: [(row["rules"], row["seconds"]) for row in named(rows, "compiled", way=way)]
        for way in dict.fromkeys(row["way"] for row in rows)
    }
    panels = [Panel("Compiling (Fig. 5c)", "rules", "seconds", curves, log=True)] if curves else []
    return _picture("Compile time by number of rules", panels)


def _points(curve: Sequence[Any]) -> Curve:
    return [(us, share) for us, share in curve if us > 0]


def _picture(title: str, panels: Sequence[Panel]) -> str:
    text = f"{title}; each line is one setup, named next to its markers."
    return svg(title, text, panels, 2) if panels else ""


DRAWINGS = {
    "queue": (_draw_queue, "Latency curves with a queue at the host"),
    "sockets": (_draw_sockets, f"Latency curves with sockets, at {DRAWN_LOAD:.0%} load"),
    "compile": (_draw_compile, "Compile time by number of rules"),
}
