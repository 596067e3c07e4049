"""The command line of a benchmark of several parts."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from stackcast.command_line import ArgumentParser

Parts = Mapping[str, Callable[[argparse.Namespace], Any]]


def parser_of(name: str, parts: Parts) -> argparse.ArgumentParser:
    """Returns the parser of ``bench NAME [PART ...]``, for options to be added."""
    made = ArgumentParser(prog=f"./spark-submit.sh bench {name}")
    made.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    return made


def run(parser: argparse.ArgumentParser, options: argparse.Namespace, parts: Parts) -> None:
    """Runs the parts that are asked for, all but the last by default, and prints what each took."""
    unknown = sorted(set(options.parts) - set(parts))
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(parts)}")
    for part in options.parts or list(parts)[:-1]:
        began = time.monotonic()
        parts[part](options)
        seconds = round(time.monotonic() - began)
        print(json.dumps({"part": part, "name": "seconds", "value": seconds}), flush=True)
