"""Costs of attribute/value events: bytes of headers, entries of switches, frames a second.

    ./spark-submit.sh bench attributes [headers] [entries] [codecs] [--pictures]

Prints one line of JSON per measurement; ``ratio`` compares with the measurement named in ``to``, of
the same run. Without a part, all three parts run. ``--pictures`` draws
docs/pictures/attribute_headers.svg and attribute_entries.svg from the parts that run.
"""

from __future__ import annotations

from benchmarks.attributes import entries, headers
from benchmarks.support.measuring import one_core
from stackcast.command_line import ArgumentParser

PARTS = ("headers", "entries", "codecs")


def main() -> None:
    parser = ArgumentParser(prog="./spark-submit.sh bench attributes")
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument(
        "--pictures", action="store_true", help="draw pictures of headers and entries"
    )
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {min(unknown)!r}: choose from {', '.join(PARTS)}")
    parts = options.parts or PARTS
    one_core()
    if "headers" in parts:
        sizes = headers.headers()
        if options.pictures:
            headers.draw(sizes)
    if "codecs" in parts:
        from benchmarks.attributes import codecs  # noqa: PLC0415

        codecs.codecs()
    if "entries" in parts:
        found = entries.entries()
        if options.pictures:
            entries.draw(found)


if __name__ == "__main__":
    main()
