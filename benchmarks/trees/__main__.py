"""Virtual trees: headers, load, the automatic choice, churn, speed, and other encodings.

    ./spark-submit.sh bench trees [PART ...] [--runs N] [--networks NAMES] [--zoo FOLDER]
        [--publishers SHARE] [--processes N]

Prints one line of JSON per measurement. Lines named ``floor`` compare a result with its target, and
lines named ``claim`` judge a claim of WERNECKE. Lines are stored under ``var/bench``; ``document``
draws ``docs/pictures/evaluation-*.svg`` and writes the tables of docs/results/virtual-trees*.md
from the last run of each part. Without a part, all parts except ``document`` run.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from types import ModuleType

from benchmarks.support.parts import Parts, parser_of, run
from benchmarks.trees import (
    automatic,
    best,
    builders,
    churn,
    document,
    fabric,
    labels,
    optimum,
    retuned,
    speed,
    variants,
    zoo,
)

RUNS = {"fabric": 25, "variants": 25, "zoo": 25, "churn": 10}
"""Drawings of clients a point, where nothing else is asked for; 1 of other parts."""

Options = argparse.Namespace


def _runs(options: Options, part: str) -> int:
    return options.runs or RUNS.get(part, 1)


def _fabric(options: Options) -> None:
    fabric.run(_runs(options, "fabric"), options.processes, options.publishers)


def _zoo(part: str, module: ModuleType) -> Callable[[Options], None]:
    """Returns a part over networks of the Topology Zoo."""
    return lambda each: module.run(_runs(each, part), each.processes, each.zoo, each.networks)


PARTS: Parts = {
    "fabric": _fabric,
    "variants": lambda each: variants.run(_runs(each, "variants"), each.processes),
    "zoo": _zoo("zoo", zoo),
    "automatic": _zoo("automatic", automatic),
    "churn": _zoo("churn", churn),
    "best": _zoo("best", best),
    "retuned": _zoo("retuned", retuned),
    "speed": lambda _: speed.run(),
    "labels": lambda each: labels.run(each.processes),
    "optimum": lambda each: optimum.run(each.processes, each.runs),
    "builders": lambda each: builders.run(each.processes),
    "index": lambda each: speed.index(each.processes),
    "large": lambda _: speed.large(),
    "strategies": lambda _: speed.strategies(),
    "document": lambda each: document.write(each.zoo),
}


def main() -> None:
    parser = parser_of("trees", PARTS)
    parser.add_argument(
        "--runs",
        type=int,
        help="drawings of clients per point, or publications per optimum (default: "
        f"{', '.join(f'{count} for {part}' for part, count in RUNS.items())})",
    )
    parser.add_argument(
        "--zoo", help="folder with the GraphML files of the Topology Zoo, for all 29 networks"
    )
    parser.add_argument(
        "--networks",
        default=[],
        type=lambda text: text.split(","),
        help="comma-separated networks of Table 6.1 (default: all)",
    )
    parser.add_argument(
        "--publishers",
        type=float,
        default=fabric.PUBLISHERS,
        help="share of the fabric's hosts that publish",
    )
    cores = len(os.sched_getaffinity(0))
    parser.add_argument(
        "--processes", type=int, default=cores, help="parallel processes (default: one per core)"
    )
    run(parser, parser.parse_args(), PARTS)


if __name__ == "__main__":
    main()
