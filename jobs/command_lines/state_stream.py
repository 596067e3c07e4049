"""Command line of ``state_stream.py``."""

from __future__ import annotations

import argparse

from stackcast.command_line import ArgumentParser


def parser(description: str | None = None) -> argparse.ArgumentParser:
    """Return a parser for the arguments of the job, with its docstring as the description."""
    parser = ArgumentParser(prog="state_stream.py", description=description)
    parser.add_argument("source", metavar="table:NAME|topic:NAME", help="table or topic to publish")
    parser.add_argument(
        "--state",
        metavar="NAME",
        default="",
        help="name of the state (default: the name of the table or topic)",
    )
    parser.add_argument(
        "--by",
        metavar="COLUMN,...",
        default="",
        help="columns of the table or topic; publish a state for each of their values",
    )
    parser.add_argument(
        "--columns",
        metavar="DDL",
        default="",
        help="columns of the JSON in a topic, such as 'scanner INT, rssi INT'",
    )
    return parser
