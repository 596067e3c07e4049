"""Pictures, and the marked tables of docs/camus.md, from the last run of each part.

A mark is ``<!-- table camus NAME -->``, and ``<!-- end -->`` after the table. What is of parts that
never ran stays as it is.
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
from benchmarks.support.tables import number, table

DOCUMENT = ROOT / "docs" / "camus.md"
PICTURES = ROOT / "docs" / "pictures"
PARTS = ("sockets", "queue", "compile")
MARK = re.compile(
    r"(<!-- table camus ([a-z]+)(?: ([a-z0-9.]+))? -->\n).*?(<!-- end -->)", re.DOTALL
)
DRAWN_LOAD = 0.9


def write(document: Path = DOCUMENT, pictures: Path = PICTURES) -> None:
    """Draws, and writes the tables."""
    lines = [line for part in PARTS for line in load("camus", part)]
    document.write_text(filled(document.read_text("utf-8"), lines), "utf-8")
    for name, (draw, _) in DRAWINGS.items():
        if drawn := draw(lines):
            (pictures / f"camus-{name}.svg").write_text(drawn, "utf-8")


def filled(text: str, lines: Sequence[Line]) -> str:
    """Returns the text with its marked tables made from these lines."""

    def replaced(match: re.Match[str]) -> str:
        made = TABLES[match[2]](lines, match[3] or "")
        return match[1] + made + match[4] if made else match[0]

    return MARK.sub(replaced, text)


def claims(lines: Sequence[Line], _: str) -> str:
    """What the text found, and what the queue and the sockets say of it."""
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
            "slides: worst case: time until 99 % came, host's filter to switch's",
            "a picture alone",
            "",
            _worst(lines),
            *_by_sockets(lines, "worst case", "ratio", False),
            WHY["worst case"],
        )
    )
    return table(
        (
            "claim",
            "the text",
            "queue, fitted to this point",
            "queue, nothing fitted",
            "sockets, before the wire",
            "sockets, software switch",
            "why",
        ),
        rows,
    )


WHY = {
    "synthetic, 5 %": "On both ways a burst waits for the link, which no filter spares it, and the "
    "host's queue comes on top. With the host that the fit asks for, a packet takes it 1.4 times "
    "as long as the link; ours takes many times as long, so of our times the queue is nearly all. "
    "The software switch is slower than the host, so there the burst waits for the filter",
    "synthetic, 1 %": "500 µs instead of 20 ask for a host that is about fully loaded; the ratio "
    "is one of loads, and has no bound. At the rate of Fig. 7 the model gives far less, and which "
    "rate the slides had is open. In the software switch the queue only changes its place",
    "Nasdaq, 0.5 %": "The longest of few times: a single burst decides. Bursts as long as the fit "
    "wants, five times those of the synthetic feed, are assumed, not known. By sockets, pauses of "
    "processes are in it, too",
    "Nasdaq, 0.1 %": "As above, of a fifth of the messages, so that the longest time is even more "
    "a matter of luck: a run by sockets has few of them",
    "worst case": "A filter that lets all pass spares the host nothing: the model gives the same "
    "curve twice by its making. By sockets whoever filters before is one more server in the way, "
    "and the software switch passes a packet once for each of its messages",
}
"""By workload: why figures differ."""


def capacity(lines: Sequence[Line], _: str) -> str:
    rows = named(lines, "capacity")
    return table(
        ("way", "workload", "messages a packet", "packets/s", "messages/s"),
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
    """All ways at one load, in µs."""
    rows = named(lines, "run", load=float(load))
    return table(
        (
            "workload",
            "way",
            "packets/s",
            "of interest, came",
            "half within",
            "99 % within",
            "all within",
            "99 %: on the way",
            "in the host's queue",
            "by Lindley",
            "looked at",
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
    """Which burst and host go through the text's points, by how busy the link is."""
    return _loads(named(lines, "fit"))


def one_host(lines: Sequence[Line], _: str) -> str:
    """At which rates one host goes through all of them."""
    return _loads(named(lines, "one host"))


def predicted(lines: Sequence[Line], _: str) -> str:
    """What the first workload's burst, host and link say of the others."""
    return table(
        ("workload", "by the switch's filter", "the text", "by the host's", "the text"),
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
            "link busy",
            "packets/s",
            "packets a burst",
            "host, ns a packet",
            "host busy, if it filters",
            "by the switch's filter",
            "by the host's",
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
        ("busy", "mean wait, simulated", "by the formula", "half within", "99 % within"),
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
    """What is left of the host's curve without its queue."""
    rows = named(lines, "curve")
    return table(
        ("workload", "filter", "messages", "mean, µs", "half within", "99 % within", "all within"),
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
    "host without a queue": "at a host that takes no time",
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
        ("rules", "ours, s", "of it reading", "entries", *(f"{p}, s" for p in PACKAGES)), body
    )


PACKAGES = ("dd.cudd", "dd.autoref")


def tied(lines: Sequence[Line], _: str) -> str:
    return table(
        ("", "entries", "multicast groups", "seconds"),
        (
            row
            for line in named(lines, "tied")
            for row in (
                ("ours", f"{line['entries']:,}", f"{line['groups']:,}", f"{line['seconds']:.2f}"),
                (
                    "the text",
                    f"{line['text_entries']:,}",
                    f"{line['text_groups']:,}",
                    "a picture alone",
                ),
            )
        ),
    )


def picture(lines: Sequence[Line], name: str) -> str:
    """A link to what ``write`` draws of these lines."""
    draw, words = DRAWINGS[name]
    return f"![{words}](pictures/camus-{name}.svg)\n" if draw(lines) else ""


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
    """Of both groups of ways: the figures of all loads."""
    return [
        _list(named(lines, "compared", workload=workload, host=host.name), key, share)
        for host, _ in COMPARED
    ]


def _measure(value: float, share: bool) -> str:
    return f"{100 * value:.1f} %" if share else f"{value:.3g} x"


def _list(rows: Sequence[Line], key: str, share: bool) -> str:
    """Figures of all loads, ascending."""
    ordered = sorted(rows, key=lambda row: row.get("load", 0))
    return ", ".join(_measure(row[key], share) for row in ordered if key in row)


def _worst(lines: Sequence[Line]) -> str:
    """Times that 99 % came within, of the queue."""
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
                curves[f"the text, {name}"] = [(us, share)]
        panels.append(Panel(workload, "µs", "share that came", curves, "x", "bottom right", False))
    return _picture("Latency by a queue at the host", panels)


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
                    Panel(workload, "µs", "share that came", curves, "x", "bottom right", False)
                )
    return _picture("Latency by sockets", panels)


def _draw_compile(lines: Sequence[Line]) -> str:
    rows = named(lines, "compiled")
    curves: dict[str, Curve] = {
        way: [(row["rules"], row["seconds"]) for row in named(rows, "compiled", way=way)]
        for way in dict.fromkeys(row["way"] for row in rows)
    }
    panels = [Panel("Compiling (Fig. 5c)", "rules", "seconds", curves, log=True)] if curves else []
    return _picture("Compile time against rules", panels)


def _points(curve: Sequence[Any]) -> Curve:
    return [(us, share) for us, share in curve if us > 0]


def _picture(title: str, panels: Sequence[Panel]) -> str:
    text = f"{title}: each line is one way, as the names beside the marks say."
    return svg(title, text, panels, 2) if panels else ""


DRAWINGS = {
    "queue": (_draw_queue, "Latency curves of a queue at the host"),
    "sockets": (_draw_sockets, f"Latency curves by sockets, at {DRAWN_LOAD:.0%}"),
    "compile": (_draw_compile, "Compile time against rules"),
}
