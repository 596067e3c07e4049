"""Replicated state: Tables III and IV and Fig. 8 of STARE, latency and recovery.

    ./spark-submit.sh bench states [PART ...]

Prints one line of JSON per measurement. The parts are memory (bytes per rule), carry (messages and
bytes on links) and latency (subscribing, publishing and lossy links, compared with unicast and a
Kafka topic); without a part, all of them run. ``--bmv2 FILE`` names BMv2's ``simple_switch``, with
its CLI in the same folder, and measures only its bytes per rule. Lines are stored under
``var/bench``; ``document`` draws ``docs/pictures/states-*.svg`` and writes the tables of
docs/results/states.md from the last run of each part.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.states import bmv2, carry, document, live, memory
from benchmarks.support.parts import Parts, parser_of, run

PARTS: Parts = {
    "memory": lambda _: memory.run(),
    "carry": lambda _: carry.run(),
    "latency": lambda _: live.run(),
    "document": lambda _: document.write(),
}


def main() -> None:
    parser = parser_of("states", PARTS)
    parser.add_argument(
        "--bmv2",
        metavar="FILE",
        type=Path,
        help="path of simple_switch, to measure only its bytes per rule",
    )
    options = parser.parse_args()
    if options.bmv2:
        bmv2.run(options.bmv2.resolve())
        return
    run(parser, options, PARTS)


if __name__ == "__main__":
    main()
