"""Command line of ``retune_trees.py``."""

from __future__ import annotations

import argparse
import datetime as dt
import re

from stackcast.command_line import ArgumentParser
from stackcast.installation import var_folder
from stackcast.udfs.errors import SettingsError

OBJECTIVES = ("bytes", "labels", "latency")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parser(description: str | None = None) -> argparse.ArgumentParser:
    """Return a parser for the arguments of the job, with its docstring as the description."""
    parser = ArgumentParser(prog="retune_trees.py", description=description)
    add = parser.add_argument
    add(
        "--objective",
        choices=OBJECTIVES,
        default="bytes",
        help="cost to reduce: bytes on links, labels or latency",
    )
    add(
        "--window",
        metavar="TIME",
        type=_span,
        help="period of records to use, such as 90m, 1h or 2d (default: all records)",
    )
    add(
        "--as-of",
        metavar="VERSION",
        type=_natural,
        help="version of delivery_statistics to read (default: the newest)",
    )
    add(
        "--publications",
        metavar="NUMBER",
        type=_positive,
        default=5_000,
        help="largest number of publications to replay, those with the most traffic",
    )
    add(
        "--strategies",
        metavar="NAME,...",
        default="",
        help="strategies to compare (default: all)",
    )
    add(
        "--strategy-seconds",
        metavar="SECONDS",
        type=_positive,
        default=600,
        help="longest time in seconds for a strategy; a slower one is left out",
    )
    add("--seed", metavar="NUMBER", type=int, default=0, help="seed of random strategies")
    add(
        "--max-rules",
        metavar="NUMBER",
        type=_natural,
        default=40,
        help="largest number of trees on a switch",
    )
    add(
        "--max-changed-rules",
        metavar="NUMBER",
        type=_natural,
        help="largest number of changed rules, each of which is one tree on one switch (default: "
        "no limit)",
    )
    add(
        "--min-saving",
        metavar="SHARE",
        type=_share,
        default=0.01,
        help="smallest share of the cost that a change must save",
    )
    add(
        "--quarantine",
        metavar="TIME",
        type=_span,
        default="1d",
        help="time before the id of a retired tree may be used again",
    )
    add(
        "--wait",
        metavar="SECONDS",
        type=_natural,
        default=0,
        help="longest time in seconds to wait for the switches between two steps",
    )
    add(
        "--every",
        metavar="TIME",
        type=_span,
        help="run until stopped, and plan again at most once in this time, such as 90s, 15m or 1h",
    )
    add("--dry-run", action="store_true", help="write no table, only the report")
    add("--exit-code", action="store_true", help="report the result as exit code")
    add(
        "--report",
        metavar="FOLDER",
        default=str(var_folder() / "retune"),
        help="folder of retune.html and retune.json",
    )
    return parser


def _natural(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("must be 0 or more")
    return number


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def _span(text: str) -> dt.timedelta:
    """Read ``90m``, ``1h`` or ``2d``: a number and s, m, h, d or w."""
    match = re.fullmatch(r"([1-9]\d{0,5})([smhdw])", text)
    if match is None:
        error = SettingsError(
            "BAD_VALUE",
            f"time span {text!r} must be a number followed by s, m, h, d or w, such as 1d",
        )
        raise argparse.ArgumentTypeError(str(error))
    return dt.timedelta(**{_UNITS[match[2]]: int(match[1])})


def _share(text: str) -> float:
    share = float(text)
    if not 0 <= share < 1:
        raise argparse.ArgumentTypeError("must be at least 0 and less than 1, such as 0.01")
    return share
