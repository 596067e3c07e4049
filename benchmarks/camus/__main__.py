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
    parser.add_argument("--itch", metavar="FILE", help="a Nasdaq BinaryFILE, .gz or not")
    parser.add_argument("--quick", action="store_true", help="a tenth of it, for a first look")
    run(parser, parser.parse_args(), PARTS)


if __name__ == "__main__":
    main()
