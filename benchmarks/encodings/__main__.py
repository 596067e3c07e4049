"""All encodings beside BIER, Elmo, unicast, application-layer and OpenFlow multicast.

    ./spark-submit.sh bench encodings [PART ...] [--runs N] [--groups N] [--processes N]

One line of JSON a measurement; lines named ``floor`` have what must be held beside what was seen,
lines named ``finding`` what WERNECKE found. PARTs are networks, clos, large and figures; all
without one.
Lines are kept under ``var/bench``; ``document`` writes the tables of docs/encodings.md and draws
its pictures from the last run of each part.
"""

from __future__ import annotations

import os

from benchmarks.encodings import clos, document, figures, large, networks
from benchmarks.support.parts import Parts, parser_of, run

PARTS: Parts = {
    "networks": lambda options: networks.run(options.runs, options.processes),
    "clos": lambda options: clos.run(options.groups, options.processes),
    "large": lambda options: large.run(min(options.runs, large.RUNS), options.processes),
    "figures": lambda options: figures.run(options.runs, options.processes),
    "document": lambda _: document.write(),
}


def main() -> None:
    parser = parser_of("encodings", PARTS)
    parser.add_argument("--runs", type=int, default=10, help="drawings of receivers a point")
    parser.add_argument(
        "--groups", type=int, default=1_000_000, help="groups of each placement in Elmo's network"
    )
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    run(parser, parser.parse_args(), PARTS)


if __name__ == "__main__":
    main()
