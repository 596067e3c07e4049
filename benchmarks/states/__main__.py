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
        "--bmv2", metavar="FILE", type=Path, help="simple_switch: its bytes a rule alone"
    )
    options = parser.parse_args()
    if options.bmv2:
        bmv2.run(options.bmv2.resolve())
        return
    run(parser, options, PARTS)


if __name__ == "__main__":
    main()
