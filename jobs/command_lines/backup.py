"""Command line of ``backup.py``."""

from __future__ import annotations

import argparse
from pathlib import Path

from stackcast.command_line import ArgumentParser


def parser(description: str | None = None) -> argparse.ArgumentParser:
    """Return a parser for the arguments of the job, with its docstring as the description."""
    parser = ArgumentParser(prog="backup.py", description=description)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder of the backup")
    parser.add_argument(
        "--restore", action="store_true", help="restore from FOLDER instead of writing it"
    )
    parser.add_argument(
        "--take-over", action="store_true", help="end the stream that delivers the topic first"
    )
    return parser
