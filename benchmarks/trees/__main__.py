"""Virtual trees: headers, load, the automatic choice, churn, speed, and other encodings.

    ./spark-submit.sh bench trees [PART ...] [--runs N] [--networks NAMES] [--automatic NAMES]
        [--zoo FOLDER] [--processes N]

One line of JSON a measurement; lines named ``floor`` have what must be held beside what was seen,
lines named ``finding`` what WERNECKE found. PARTs are fabric, zoo, churn, speed, labels, optimum,
builders, index, large and strategies; all without one. Lines are kept under ``var/bench``;
``document`` draws the pictures ``docs/pictures/evaluation-*.svg`` and writes the tables of
docs/evaluation.md from the last run of each part.
"""

from __future__ import annotations

import argparse
import json
import os
import time

from benchmarks.trees import builders, churn, document, fabric, labels, optimum, speed, zoo

PARTS = (
    "fabric",
    "zoo",
    "churn",
    "speed",
    "labels",
    "optimum",
    "builders",
    "index",
    "large",
    "strategies",
    "document",
)
RUNS = {"fabric": 25, "zoo": 1, "churn": 1}


def main() -> None:
    parser = argparse.ArgumentParser(prog="./spark-submit.sh bench trees")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument(
        "--runs",
        type=int,
        help=f"drawings of clients a point ({RUNS}), or publications of each optimum",
    )
    parser.add_argument("--zoo", help="folder with the Topology Zoo's GraphML files, for all 28")
    parser.add_argument(
        "--networks", default="", help="names of Table 6.1, with commas; all without"
    )
    parser.add_argument(
        "--automatic",
        help="networks that the automatic choice, which takes long, is made in; - none",
    )
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    only = [name for name in options.networks.split(",") if name]
    automatic = options.automatic.split(",") if options.automatic else None
    for part in options.parts or PARTS[:-1]:
        began = time.monotonic()
        runs = options.runs or RUNS.get(part, 1)
        if part == "fabric":
            fabric.run(runs, options.processes)
        elif part == "zoo":
            zoo.run(runs, options.processes, options.zoo, only, automatic)
        elif part == "churn":
            churn.run(runs, options.processes, options.zoo, only, automatic)
        elif part == "labels":
            labels.run(options.processes)
        elif part == "optimum":
            optimum.run(options.processes, options.runs)
        elif part == "builders":
            builders.run(options.processes)
        elif part in speed.PARTS:
            speed.PARTS[part]()
        else:
            document.write(options.zoo)
        seconds = round(time.monotonic() - began)
        print(json.dumps({"part": part, "name": "seconds", "value": seconds}), flush=True)


if __name__ == "__main__":
    main()
