"""The whole path, from Kafka to the wire: how fast, how soon, from when on, at what growth.

    ./spark-submit.sh bench pipeline [PART ...] [--quick] [--pictures]

One line of JSON a measurement; lines named ``floor`` have what must be held beside what was seen.
PARTs are throughput, peers, latency, realtime, start, memory and growth; all without one, a
quarter of an hour; ``--quick`` takes fewer records and points, three minutes. Lines are kept under
``var/bench``; ``--pictures`` draws docs/pictures/pipeline-*.svg from the last run of each part.
docs/benchmarks.md says what is compared with what.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from importlib import import_module

import pipeline_wire
from pipeline_results import Lines
from pipeline_world import World

PARTS = ("throughput", "peers", "latency", "realtime", "start", "memory", "growth")


def main() -> None:
    parser = argparse.ArgumentParser(prog="./spark-submit.sh bench pipeline")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="fewer records and fewer points")
    parser.add_argument("--pictures", action="store_true", help="draw what was found")
    options = parser.parse_args()
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    pipeline_wire.enter_namespace()
    with World(options.quick) as world:
        print(json.dumps({"wire": world.wire.kind, "quick": options.quick}), flush=True)
        for part in options.parts or PARTS:
            began = time.monotonic()
            run: Callable[[World, Lines], None] = import_module(f"pipeline_{part}").run
            run(world, Lines(part))
            seconds = round(time.monotonic() - began)
            print(json.dumps({"part": part, "name": "seconds", "value": seconds}), flush=True)
    if options.pictures:
        import_module("pipeline_pictures").draw()


if __name__ == "__main__":
    main()
