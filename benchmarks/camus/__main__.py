"""The experiments of CAMUS: filtering in switches and at hosts, and the time to compile.

    ./spark-submit.sh bench camus [PART ...] [--itch FILE] [--quick]

Prints one line of JSON per measurement. The parts are sockets (filtering in a switch, at a host and
before the wire, with real sockets), queue (a queueing model of the paper's curves) and compile
(Fig. 5c, compared with a package for decision diagrams); without a part, all of them run.
``--itch`` names a Nasdaq BinaryFILE, whose new orders become another workload. ``--quick`` measures
a tenth. Lines are stored under ``var/bench``; ``document`` draws ``docs/pictures/camus-*.svg`` and
writes the tables of docs/results/camus*.md from the last run of each part.
"""

from __future__ import annotations

from benchmarks.camus import compiling, document, queue, sockets
from benchmarks.support.parts import Parts, parser_of, run

PARTS: Parts = {
    "sockets": lambda options: sockets.run(options.quick, options.itch),
    "queue": lambda options: queue.run(options.quick, options.itch),
    "compile": lambda options: compiling.run(options.quick),
    "document": lambda _: document.write(),
}


def main() -> None:
    parser = parser_of("camus", PARTS)
    parser.add_argument(
        "--itch", metavar="FILE", help="a Nasdaq BinaryFILE, optionally compressed (.gz)"
    )
    parser.add_argument("--quick", action="store_true", help="measure a tenth, for rough figures")
    run(parser, parser.parse_args(), PARTS)


if __name__ == "__main__":
    main()
