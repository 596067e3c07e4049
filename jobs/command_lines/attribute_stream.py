"""Command line of ``attribute_stream.py``."""

from __future__ import annotations

import argparse

from stackcast.jobs.command_lines.streams import stream_parser
from stackcast.jobs.embedded.options import add_arguments


def parser(description: str | None = None) -> argparse.ArgumentParser:
    """Return a parser for the arguments of the job, with its docstring as the description."""
    parser = stream_parser(description)
    add_arguments(
        parser,
        without=("symbols", "session"),
        texts={
            "speed": "publishing speed: full (no limit), or events per second (default: 2,000, or "
            "full if switches match)"
        },
    )
    return parser
