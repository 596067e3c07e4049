"""Command line of ``check_delivery.py``."""

from __future__ import annotations

import argparse
from pathlib import Path

from stackcast.command_line import ArgumentParser

#: Records of a partition that are checked at a time.
WINDOW = 10_000


def parser(description: str | None = None) -> argparse.ArgumentParser:
    """Return a parser for the arguments of the job, with its docstring as the description."""
    parser = ArgumentParser(prog="check_delivery.py", description=description)
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="folder of the receipts, or of a lab"
    )
    parser.add_argument(
        "--since", type=int, default=0, metavar="BATCH", help="first batch to check"
    )
    parser.add_argument(
        "--any-order",
        action="store_true",
        help="ignore the order of notifications, and copies of them, for example because the "
        "network lost frames for some time",
    )
    parser.add_argument(
        "--window",
        type=_positive,
        default=WINDOW,
        metavar="RECORDS",
        help="records of a partition that are checked at a time; memory grows with this number and "
        "with the number of hosts, and the verdict does not depend on it",
    )
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(f"{number} is not positive")
    return number
