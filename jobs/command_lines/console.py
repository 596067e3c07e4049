"""Command line of ``console.py``."""

from __future__ import annotations

import argparse
from pathlib import Path

from stackcast.command_line import ArgumentParser
from stackcast.jobs.embedded.options import add_arguments

#: Largest number of connections from one address.
PER_ADDRESS = 64


def parser(description: str | None = None) -> argparse.ArgumentParser:
    """Return a parser for the arguments of the job, with its docstring as the description."""
    parser = ArgumentParser(prog="console.py", description=description)
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=endpoint,
        default="127.0.0.1:8380",
        help="address to listen on; port 0 means a free port",
    )
    parser.add_argument(
        "--stream",
        metavar="URL",
        help="address of the HTTP server of the stream, such as http://stream1:9400 (default: that "
        "of spark.stackcast.metrics.host and .port)",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help="file with the token in its first line, which users enter in view Subscriptions "
        "(default: a new token at each start, which is printed in the address)",
    )
    parser.add_argument(
        "--per-address",
        metavar="NUMBER",
        type=positive,
        default=PER_ADDRESS,
        help="largest number of connections from one address; a page uses up to six, and behind a "
        "proxy all users have the same address",
    )
    parser.add_argument(
        "--topology",
        metavar="NAME",
        help="network of topohub, or GraphML file, with the longitudes and latitudes for the map",
    )
    parser.add_argument(
        "--demo",
        action="store_true",
        help="start the embedded lab with continuous traffic, and show it",
    )
    add_arguments(parser)
    return parser


def endpoint(text: str) -> tuple[str, int]:
    """Returns host and port. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not 0 <= int(port) < 1 << 16:
        raise ValueError(port)
    return host.strip("[]"), int(port)


def positive(text: str) -> int:
    """Returns a whole number from 1 on. Raises ValueError."""
    if int(text) < 1:
        raise ValueError(text)
    return int(text)
