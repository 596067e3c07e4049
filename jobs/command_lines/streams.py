"""Options of the jobs that run a stream."""

from __future__ import annotations

import argparse

from stackcast.command_line import ArgumentParser


def stream_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser for the command line of a stream's job, with the fields of `Consent`."""
    parser = ArgumentParser(description=description)
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="end the stream that delivers the topic, and take its place",
    )
    parser.add_argument(
        "--accept-truncation",
        action="store_true",
        help="continue in new sessions at the offset to which Kafka truncated the log",
    )
    return parser
