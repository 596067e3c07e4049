"""Command line of ``itch_stream.py``."""

from __future__ import annotations

import argparse

from stackcast.jobs.command_lines.streams import stream_parser
from stackcast.jobs.embedded.options import add_arguments


def parser(description: str | None = None) -> argparse.ArgumentParser:
    """Return a parser for the arguments of the job, with its docstring as the description."""
    parser = stream_parser(description)
    add_arguments(parser)
    return parser
