"""The tables of docs/results/virtual-trees*.md, generated from the lines of the last runs.

A table is between ``<!-- table trees NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from benchmarks.support.results import Line, load, named
from benchmarks.support.tables import cell, fill_pages, floors, table
from benchmarks.trees import pictures
from benchmarks.trees.automatic import AUTOMATIC
from benchmarks.trees.fabric import STRATEGIES as FABRIC_STRATEGIES
from benchmarks.trees.networks import CANDIDATES, DIVISOR
from benchmarks.trees.reasons import why
from benchmarks.trees.zoo import RULES, SHOWN, UNIFORM, ZIPF

PARTS = (
    "fabric",
    "variants",
    "zoo",
    "automatic",
    "churn",
    "best",
    "retuned",
    "speed",
    "large",
    "labels",
    "optimum",
    "builders",
    "index",
    "strategies",
)
MARK = re.compile(r"(<!-- table trees ([a-z0-9 -]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def write(folder: str | None) -> None:
    """Draw the pictures and write the tables. A table without lines stays as it is."""
    lines = [line for part in PARTS for line in load("trees", part)]
    fill_pages("trees", lambda text: filled(text, lines))
    pictures.draw(folder)


def filled(text: str, lines: Sequence[Line]) -> str:
    """Return a page with its tables generated from these lines."""

    def fill(match: re.Match[str]) -> str:
        kind, _, argument = match[2].partition(" ")
        rows = TABLES[kind](lines, argument)
        return f"{match[1]}{rows}{match[3]}" if rows else match[0]

    return MARK.sub(fill, text)


def claims(lines: Sequence[Line], part: str) -> str:
    """Return the claims of the thesis, judged with its algorithm and with Stackcast's encoder."""
    return table(
        (
            "WERNECKE",
            "claim",
            "figure in the thesis",
            "with Algorithm 5.1",
            "with Stackcast's encoder",
            "explanation",
        ),
        (
            (
                row["source"],
                cell(row["text"]),
                row["told"],
                *(
                    f"{'confirmed' if row[of]['held'] else '**refuted**'}: {cell(row[of]['seen'])}"
                    for of in ("greedy", "ours")
                ),
                why(row["text"], row["greedy"]["held"], row["ours"]["held"]),
            )
            for row in named(lines, "claim", part=part)
        ),
    )


def variants(lines: Sequence[Line], _: str) -> str:
    """Return the headers of ``topo`` with other publishers and subscribers."""
    rows = named(lines, "variant")
    return table(
        (
            f"`topo`, Algorithm 5.1{_drawings(rows)}",
            "header at 10 rules, 30 % / 70 %",
            "notifications for 50 KB / 120 KB",
        ),
        (
            (
                row["variant"],
                " / ".join(f"{each:.1f} B" for each in row["header"].values()),
                " / ".join(f"{each:.1f}" for each in row["notifications"].values()),
            )
            for row in rows
        ),
    )


def fabric(lines: Sequence[Line], percent: str) -> str:
    """Return header and load by strategy and number of rules, for both encoders."""
    rows = named(lines, "fabric", subscribers=int(percent or 0))
    rules = sorted({row["rules"] for row in rows})
    of = {(row["strategy"], row["rules"]): row for row in rows}
    names = (
        [each.name for each in FABRIC_STRATEGIES if (each.name, rules[0]) in of] if rules else []
    )
    return table(
        (
            f"header, B{_drawings(rows)}",
            *(f"{rule} rules" for rule in rules),
            "load of one notification, 20 rules, B",
        ),
        (
            (
                words.format(name),
                *(figure(of[name, rule]) for rule in rules),
                f"{of[name, 20][load]:.0f}",
            )
            for name in names
            for words, figure, load in (
                ("{}", _header, "load_bytes"),
                (
                    "{}, Algorithm 5.1",
                    lambda row: f"{row['header_bytes_greedy']:.1f}",
                    "load_bytes_greedy",
                ),
            )
        ),
    )


def _header(row: Line) -> str:
    return f"{row['header_bytes']:.1f}{_apart(row['header_bytes_apart'])}"


def _apart(value: float | None) -> str:
    """Return the standard deviation over several drawings."""
    return f" ± {value:.1f}" if value is not None else ""


def thresholds(lines: Sequence[Line], _: str) -> str:
    out = []
    for row in named(lines, "fabric", rules=10):
        match = re.fullmatch(r"threshold-(\d+)(-hops)?", row["strategy"])
        if match:
            kind = "hops" if match[2] else "paths"
            out.append((row["subscribers"], kind, int(match[1]), row))
    keys = sorted(
        {(percent, kind) for percent, kind, *_ in out}, key=lambda k: (k[0], k[1] == "hops")
    )
    steps = sorted({threshold for *_, threshold, _ in out})
    of = {(percent, kind, threshold): row for percent, kind, threshold, row in out}
    return table(
        (
            f"header, B / load, B{_drawings(row for *_, row in out)}",
            *(f"{step} %" for step in steps),
        ),
        (
            (
                f"{percent} % subscribers, {kind}",
                *(
                    f"{row['header_bytes']:.1f} / {row['load_bytes']:.0f}"
                    for row in (of[percent, kind, step] for step in steps)
                ),
            )
            for percent, kind in keys
        ),
    )


def networks(lines: Sequence[Line], _: str) -> str:
    """Return the networks, with the figures of the thesis, and the best strategy of each."""
    rows = []
    for row in named(lines, "network"):
        of = {
            z["strategy"]: z
            for z in named(lines, "zoo", network=row["network"], rules=40, likely=UNIFORM)
        }
        best = min(SHOWN, key=lambda name: of[name]["labels"])
        text = row["text"]
        chosen = named(lines, "chosen", network=row["network"], rules=40)
        rows.append(
            (
                row["network"],
                f"{row['switches']} ({text['switches']})",
                f"{row['links']} ({text['links']})",
                f"{row['diameter']} ({text['diameter']})",
                f"{row['fluctuation']:.2f}",
                f"{row['padded']:.2f} ({text['fluctuation']})",
                f"{of['hops']['labels']:.1f}",
                f"{best} {of[best]['labels']:.2f}{_apart(of[best]['labels_apart'])}",
                *(
                    [f"{chosen[0]['labels']:.2f}", f"{chosen[0]['to_best']:.3f}"]
                    if chosen
                    else "––"
                ),
            )
        )
    return table(
        (
            "network",
            "switches (thesis)",
            "links (thesis)",
            "diameter (thesis)",
            "fluctuation",
            f"over {DIVISOR} (thesis)",
            "hops",
            f"best strategy{_drawings(named(lines, 'zoo'))}",
            f"automatic{_drawings(named(lines, 'chosen'))}",
            "bytes relative to the best",
        ),
        rows,
    )


def zoo(lines: Sequence[Line], _: str) -> str:
    """Return labels by number of rules; for the largest number also the deviation and 5.1."""
    out = []
    for name in SHOWN:
        cells = []
        for network in CANDIDATES:
            of = {
                row["rules"]: row
                for row in named(lines, "zoo", network=network, strategy=name, likely=UNIFORM)
            }
            if of:
                last = of[RULES[-1]]
                cells.append(
                    " / ".join(f"{of[r]['labels']:.1f}" if r in of else "–" for r in RULES)
                    + f"{_apart(last['labels_apart'])}, 5.1: {last['labels_greedy']:.1f}"
                )
        if cells:
            out.append((name, *cells))
    drawn = _drawings(named(lines, "zoo"))
    return table((f"labels at {' / '.join(map(str, RULES))} rules{drawn}", *CANDIDATES), out)


def zipf(lines: Sequence[Line], _: str) -> str:
    """Return labels at the largest number of rules, by the distribution of likelihoods."""
    of = {
        (row["network"], row["likely"], row["strategy"]): row["labels"]
        for row in named(lines, "zoo", rules=RULES[-1])
    }
    known = [name for name in CANDIDATES if (name, ZIPF, SHOWN[0]) in of]
    return table(
        (f"labels at {RULES[-1]} rules, uniform / Zipf", *known),
        (
            (name, *(f"{of[n, UNIFORM, name]:.1f} / {of[n, ZIPF, name]:.1f}" for n in known))
            for name in (SHOWN if known else ())
        ),
    )


def automatic(lines: Sequence[Line], _: str) -> str:
    return table(
        ("automatic relative to best", "cells", "over 3 %", "minimum", "mean", "maximum"),
        (
            (
                row["what"],
                str(row["cells"]),
                str(row["over_3_percent"]),
                f"{row['least']:.3f}",
                f"{row['mean']:.3f}",
                f"{row['largest']:.3f} ({row['network']}, {row['rules']} rules)",
            )
            for row in named(lines, "automatic")
        ),
    )


def churn(lines: Sequence[Line], migration: str) -> str:
    """Return labels before, half way through and after the migration of all clients.

    After it, the deviation over drawings and the labels by Algorithm 5.1 follow.
    """
    rows = named(lines, "churn", migration=migration)
    of = {(row["strategy"], row["network"], row["churn"]): row for row in rows}
    networks = dict.fromkeys(row["network"] for row in rows)

    def figures(strategy: str, network: str) -> str:
        begin, half, end = (of[strategy, network, percent] for percent in (0, 50, 100))
        labels = " / ".join(f"{row['labels']:.1f}" for row in (begin, half, end))
        return f"{labels}{_apart(end['labels_apart'])}, 5.1: {end['labels_greedy']:.1f}"

    return table(
        (f"{migration}: labels at 0 / 50 / 100 % of churn{_drawings(rows)}", *networks),
        (
            (strategy, *(figures(strategy, network) for network in networks))
            for strategy in (SHOWN if rows else ())
        ),
    )


def retuned(lines: Sequence[Line], _: str) -> str:
    """Return headers relative to the optimum and the number of changed rules, by strategy."""
    rows = []
    for stale in named(lines, "before retuning"):
        name = stale["strategy"]
        changes = named(lines, "changes", strategy=name)
        after = [
            row["value"]
            for row in named(lines, "floor", part="retuned")
            if row["what"].startswith(f"{name}, retuned") and row["what"].endswith("mean")
        ]
        shares = [row["rules_changed"] / row["rules"] for row in changes if row["rules"]]
        rows.append(
            (
                "automatic (bytes on links)" if name == AUTOMATIC else name,
                *(f"{value:.3f}" for value in after),
                f"{stale['mean']:.3f}",
                f"{sum(row['rules_changed'] for row in changes) / len(changes):.0f}",
                f"{sum(row['rules'] for row in changes) / len(changes):.0f}",
                f"{sum(shares) / len(shares):.0%}",
            )
        )
    measured = dict.fromkeys(row["network"] for row in named(lines, "changes"))
    return table(
        (
            f"strategy, in {', '.join(measured)}",
            "header relative to the optimum, after retuning",
            "before retuning",
            "rules changed per retuning",
            "rules installed",
            "share changed",
        ),
        rows,
    )


def greedy(lines: Sequence[Line], _: str) -> str:
    rows = named(lines, "against greedy")
    columns = list(dict.fromkeys(row["network"] for row in rows))
    of = {(row["strategy"], row["network"]): row for row in rows}
    return table(
        ("labels saved, labels needed", *columns),
        (
            (
                name,
                *(
                    f"{of[name, network]['saving']:.0%}, {of[name, network]['labels']:.1f}"
                    for network in columns
                ),
            )
            for name in dict.fromkeys(row["strategy"] for row in rows)
        ),
    )


def optimum(lines: Sequence[Line], _: str) -> str:
    rows = named(lines, "against optimum")
    return table(
        (
            "network",
            "strategy",
            "publications",
            "Stackcast",
            "Algorithm 5.1",
            "optimum",
            "optimal publications",
        ),
        (
            (
                row["network"],
                row["strategy"],
                str(row["publications"]),
                f"{row['labels']:.2f}",
                f"{row['greedy']:.2f}",
                f"{row['optimum']:.2f}",
                str(row["at_optimum"]),
            )
            for row in rows
        ),
    )


def bounds(lines: Sequence[Line], _: str) -> str:
    """Return labels in large networks with lower bounds and proven optima."""
    rows = named(lines, "against bounds") + named(lines, "network against optimum")
    return table(
        (
            "network",
            "strategy",
            "Stackcast",
            "Algorithm 5.1",
            "shortest known",
            "lower bound",
            "proven optima",
            "relative to proven optima",
        ),
        (
            (
                row["network"],
                row.get("strategy", "**all**"),
                f"{row['labels']:.2f}",
                f"{row['greedy']:.2f}",
                f"{row['optimum']:.2f}",
                f"{row['least']:.2f}",
                f"{row['proven']} of {row['publications']}",
                f"{row['mean']:.3f}" if row["proven"] else "–",
            )
            for row in rows
        ),
    )


def encodings(lines: Sequence[Line], _: str) -> str:
    """Return mean and maximum header bytes of every encoding in every network."""
    others = named(lines, "other encoding")
    columns = list(dict.fromkeys(row["network"] for row in others))
    ours = named(lines, "against greedy")
    of: dict[tuple[str, str], str] = {}
    for row in others:
        key = row["encoding"], row["network"]
        of[key] = f"{row['header_bytes']:.1f}, {row['header_bytes_max']}"
    for network in columns:
        rows = [row for row in ours if row["network"] == network]
        if rows:
            best = min(rows, key=lambda row: row["ours_bytes"])
            of["virtual trees, best strategy", network] = (
                f"{best['ours_bytes']:.1f}, {best['ours_bytes_max']} ({best['strategy']})"
            )
            of["Algorithm 5.1, same trees", network] = (
                f"{best['greedy_bytes']:.1f}, {best['greedy_bytes_max']}"
            )
    names = ["virtual trees, best strategy", "Algorithm 5.1, same trees"] if of else []
    names += list(dict.fromkeys(row["encoding"] for row in others))
    return table(
        ("header, B: mean, maximum", *columns),
        ((name, *(of.get((name, network), "–") for network in columns)) for name in names),
    )


def builders(lines: Sequence[Line], _: str) -> str:
    rows = named(lines, "builder")
    return table(
        (
            "network",
            "algorithm, trees",
            "edges",
            "branch nodes",
            "links per subscriber",
            "trees in the fullest switch",
            "labels",
            "bytes on links",
        ),
        (
            (
                row["network"],
                f"{row['builder']}, {row['stored']}",
                f"{row['edges']:.1f}",
                f"{row['branches']:.1f}",
                f"{row['distance']:.2f}" if "distance" in row else "–",
                str(row["fullest"]),
                f"{row['labels']:.2f}",
                f"{row['load']:,.0f}",
            )
            for row in rows
        ),
    )


def speed(lines: Sequence[Line], _: str) -> str:
    rows = []
    for row in lines:
        if row["part"] == "speed" and "publications" in row:
            whole = row.get("seconds_extrapolated", row["seconds"])
            times = row.get("times_ours")
            rows.append(
                (
                    row["name"],
                    str(row["publications"]),
                    f"{row['seconds']:.3g} s",
                    f"{whole:,.3g} s" if whole < 1000 else f"{whole:,.0f} s",
                    f"{times:,.0f}" if times else "",
                    f"{row['labels']:.1f}",
                )
            )
    return table(
        ("", "publications", "time", "time for 1,000", "ratio", "labels per notification"), rows
    )


def large(lines: Sequence[Line], _: str) -> str:
    return table(
        ("median time", "maximum", "frames", "labels", "network", "encoder", "memory"),
        (
            (
                f"{row['milliseconds']:.1f} ms",
                f"{row['largest_milliseconds']:.1f} ms",
                f"{row['frames']:.1f}",
                f"{row['labels']:.0f}",
                f"{row['network_seconds']:.2f} s",
                f"{row['encoder_seconds']:.2f} s",
                f"{row['peak_megabytes']:.0f} MB",
            )
            for row in named(lines, "large")
        ),
    )


def _drawings(rows: Iterable[Line]) -> str:
    counts = {row["runs"] for row in rows}
    return f" ({', '.join(map(str, sorted(counts)))} drawings)" if counts - {1} else ""


TABLES: dict[str, Callable[[Sequence[Line], str], str]] = {
    "floors": floors,
    "claims": claims,
    "variants": variants,
    "fabric": fabric,
    "thresholds": thresholds,
    "networks": networks,
    "zoo": zoo,
    "zipf": zipf,
    "automatic": automatic,
    "churn": churn,
    "retuned": retuned,
    "greedy": greedy,
    "optimum": optimum,
    "bounds": bounds,
    "encodings": encodings,
    "builders": builders,
    "speed": speed,
    "large": large,
}
