"""All encodings beside BIER, Elmo, unicast, application-layer and OpenFlow multicast.

    ./spark-submit.sh bench encodings [PART ...] [--runs N] [--groups N] [--processes N]

One line of JSON a measurement; lines named ``floor`` have what must be held beside what was seen,
lines named ``finding`` what WERNECKE found. PARTs are networks, clos and figures; all without one.
Lines are kept under ``var/bench``; ``document`` writes the tables of docs/encodings.md and draws
its pictures from the last run of each part.
"""

from __future__ import annotations

import argparse
import json
import os
import time

from benchmarks.encodings import clos, document, figures, networks

PARTS = ("networks", "clos", "figures", "document")


def main() -> None:
    parser = argparse.ArgumentParser(prog="./spark-submit.sh bench encodings")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--runs", type=int, default=10, help="drawings of receivers a point")
    parser.add_argument(
        "--groups", type=int, default=1_000_000, help="groups of each placement in Elmo's network"
    )
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    for part in options.parts or PARTS[:-1]:
        began = time.monotonic()
        if part == "networks":
            networks.run(options.runs, options.processes)
        elif part == "clos":
            clos.run(options.groups, options.processes)
        elif part == "figures":
            figures.run(options.runs, options.processes)
        else:
            document.write()
        seconds = round(time.monotonic() - began)
        print(json.dumps({"part": part, "name": "seconds", "value": seconds}), flush=True)


if __name__ == "__main__":
    main()
