"""Command line of ``create_tables.py``."""

from __future__ import annotations

import argparse
from pathlib import Path

from stackcast.command_line import ArgumentParser


def parser(description: str | None = None) -> argparse.ArgumentParser:
    """Return a parser for the arguments of the job, with its docstring as the description."""
    parser = ArgumentParser(prog="create_tables.py", description=description)
    parser.add_argument(
        "folders", nargs="*", type=Path, metavar="FOLDER", help="folder with rows for the tables"
    )
    return parser
