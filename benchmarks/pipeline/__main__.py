"""The whole pipeline from Kafka to the wire: throughput, latency, start, memory and scaling.

    ./spark-submit.sh bench pipeline [PART ...] [--quick]

Prints one line of JSON per measurement; lines named ``floor`` compare a result with its target. The
parts are throughput, cases, peers, latency, realtime, spark_realtime, start, memory, proof, source
and growth; without a part, all of them run. ``--minutes`` sets how long the throughput of each
program is measured, in runs of a minute; the default is five. ``--quick`` uses fewer records and
points, and a quarter of a minute. Lines are stored under ``var/bench``; ``document`` draws
docs/pictures/pipeline-*.svg and writes the tables of docs/results/pipeline-*.md from the last run
of each part.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module

from benchmarks.pipeline import document, makers, wire
from benchmarks.pipeline.world import World
from benchmarks.support.results import Lines
from stackcast.command_line import ArgumentParser

PARTS = (
    "throughput",
    "cases",
    "peers",
    "latency",
    "realtime",
    "spark_realtime",
    "start",
    "memory",
    "proof",
    "source",
    "growth",
    "document",
)


def _run_of(part: str) -> Callable[[World, Lines], None]:
    run: Callable[[World, Lines], None] = import_module(f"benchmarks.pipeline.{part}").run
    return run


def main() -> None:
    parser = ArgumentParser(prog="./spark-submit.sh bench pipeline")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="use fewer records and points")
    parser.add_argument(
        "--minutes", type=float, help="minutes per program of throughput (default: 5)"
    )
    options = parser.parse_args()
    minutes = options.minutes or (0.25 if options.quick else 5.0)
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}: choose from {', '.join(PARTS)}")
    parts = options.parts or PARTS[:-1]
    failed = []
    if measured := [part for part in parts if part != "document"]:
        if "peers" in measured:
            makers.fetch()
        wire.enter_namespace()
        with World(options.quick, minutes) as world:
            print(json.dumps({"wire": world.wire.kind, "quick": options.quick}), flush=True)
            for part in measured:
                began = time.monotonic()
                run = _run_of(part)
                lines = Lines("pipeline", part, digits=4)
                try:
                    run(world, lines)
                except Exception as error:
                    # The other parts still run.
                    traceback.print_exc()
                    lines.say("failed", why=f"{type(error).__name__}: {error}"[:500])
                    failed.append(part)
                lines.say("seconds", value=round(time.monotonic() - began))
    if "document" in parts:
        document.run()
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
