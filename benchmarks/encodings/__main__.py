"""Encodings compared with BIER, Elmo, unicast, application-layer and OpenFlow multicast.

    ./spark-submit.sh bench encodings [PART ...] [--runs N] [--groups N] [--processes N]

Prints one line of JSON per measurement. Lines named ``floor`` compare a result with its target, and
lines named ``finding`` compare it with a finding of WERNECKE. The parts are networks, clos, large
and figures; without a part, all of them run. Lines are stored under ``var/bench``; ``document``
writes the tables and pictures of docs/results/encodings*.md from the last run of each part.
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
    parser.add_argument(
        "--runs", type=int, default=10, help="drawings of receivers per point (default: 10)"
    )
    parser.add_argument(
        "--groups",
        type=int,
        default=1_000_000,
        help="groups per placement in the network of Elmo (default: 1,000,000)",
    )
    cores = len(os.sched_getaffinity(0))
    parser.add_argument(
        "--processes", type=int, default=cores, help="parallel processes (default: one per core)"
    )
    run(parser, parser.parse_args(), PARTS)


if __name__ == "__main__":
    main()
