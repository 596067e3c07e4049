"""The experiments of CAMUS: where filters stand, what compiling takes.

    ./spark-submit.sh bench camus [PART ...] [--itch FILE] [--quick]

One line of JSON a measurement. PARTs are sockets (filtering in a switch, at a host, and before the
wire, by real sockets), queue (the text's curves as those of a queue) and compile (Fig. 5c, beside a
package of decision diagrams); all without one. ``--itch`` names a Nasdaq BinaryFILE, whose new
orders are one more workload. ``--quick`` measures a tenth. Lines are kept under ``var/bench``;
``document`` draws ``docs/pictures/camus-*.svg`` and writes the tables of docs/camus.md from the
last run of each part.
"""

from __future__ import annotations

import argparse
import json
import time

from benchmarks.camus import compiling, document, queue, sockets

PARTS = ("sockets", "queue", "compile", "document")


def main() -> None:
    parser = argparse.ArgumentParser(prog="./spark-submit.sh bench camus")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--itch", metavar="FILE", help="a Nasdaq BinaryFILE, .gz or not")
    parser.add_argument("--quick", action="store_true", help="a tenth of it, for a first look")
    options = parser.parse_args()
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    for part in options.parts or PARTS[:-1]:
        began = time.monotonic()
        if part == "sockets":
            sockets.run(options.quick, options.itch)
        elif part == "queue":
            queue.run(options.quick, options.itch)
        elif part == "compile":
            compiling.run(options.quick)
        else:
            document.write()
        seconds = round(time.monotonic() - began)
        print(json.dumps({"part": part, "name": "seconds", "value": seconds}), flush=True)


if __name__ == "__main__":
    main()
