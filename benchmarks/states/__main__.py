"""Replicated state: Tables III and IV and Fig. 8 of STARE, and what it leaves out.

    ./spark-submit.sh bench states [PART ...]

One line of JSON a measurement. PARTs are memory (bytes a rule), carry (messages and bytes on
links) and latency (subscribing, publishing, and where links lose frames, beside unicast and a Kafka
topic); all without one. With ``--bmv2 FILE``, BMv2's ``simple_switch`` with its CLI beside it, only
its bytes a rule are measured. Lines are kept under ``var/bench``; ``document`` draws
``docs/pictures/states-*.svg`` and writes the tables of docs/states.md from the last run of each
part.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from benchmarks.states import bmv2, carry, document, live, memory

PARTS = {
    "memory": memory.run,
    "carry": carry.run,
    "latency": live.run,
    "document": document.write,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="./spark-submit.sh bench states")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument(
        "--bmv2", metavar="FILE", type=Path, help="simple_switch: its bytes a rule alone"
    )
    options = parser.parse_args()
    if options.bmv2:
        bmv2.run(options.bmv2.resolve())
        return
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    for part in options.parts or list(PARTS)[:-1]:
        began = time.monotonic()
        PARTS[part]()
        seconds = round(time.monotonic() - began)
        print(json.dumps({"part": part, "name": "seconds", "value": seconds}), flush=True)


if __name__ == "__main__":
    main()
