"""Command line of ``deliver_from.py``."""

from __future__ import annotations

import argparse
import datetime as dt

from stackcast.command_line import ArgumentParser


def parser(description: str | None = None) -> argparse.ArgumentParser:
    """Return a parser for the arguments of the job, with its docstring as the description."""
    parser = ArgumentParser(prog="deliver_from.py", description=description)
    parser.add_argument("id", metavar="ID", help="id of the subscription")
    parser.add_argument(
        "--from",
        dest="begin",
        metavar="OFFSET|TIME",
        type=bound,
        required=True,
        help="first record to deliver: earliest, an offset in each partition, or a time of records "
        "in Kafka, such as 2026-03-01T09:30:00Z, in UTC unless it names a time zone (required)",
    )
    parser.add_argument(
        "--until",
        metavar="OFFSET|TIME",
        type=bound,
        help="first record that is no longer delivered (default: the first one that the running "
        "stream has delivered with the subscription)",
    )
    return parser


def bound(text: str) -> int | dt.datetime | None:
    """Returns an offset or a time; None for ``earliest``. Raises ValueError."""
    if text == "earliest":
        return None
    if text.isdecimal():
        return int(text)
    time = dt.datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=dt.UTC)
