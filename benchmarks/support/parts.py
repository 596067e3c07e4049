"""The command line of a benchmark with several parts."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from stackcast.command_line import ArgumentParser

Parts = Mapping[str, Callable[[argparse.Namespace], Any]]


def parser_of(name: str, parts: Parts) -> argparse.ArgumentParser:
    """Return a parser for ``bench NAME [PART ...]``. Callers can add options."""
    parser = ArgumentParser(prog=f"./spark-submit.sh bench {name}")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    return parser


def run(parser: argparse.ArgumentParser, options: argparse.Namespace, parts: Parts) -> None:
    """Run the given parts, by default all except the last, and print the time of each."""
    unknown = sorted(set(options.parts) - set(parts))
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}: choose from {', '.join(parts)}")
    for part in options.parts or list(parts)[:-1]:
        began = time.monotonic()
        parts[part](options)
        seconds = round(time.monotonic() - began)
        print(json.dumps({"part": part, "name": "seconds", "value": seconds}), flush=True)
