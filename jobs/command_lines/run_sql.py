"""Command line of ``run_sql.py``."""

from __future__ import annotations

import argparse

from stackcast.command_line import ArgumentParser


def parser(description: str | None = None) -> argparse.ArgumentParser:
    """Return a parser for the arguments of the job, with its docstring as the description."""
    parser = ArgumentParser(prog="run_sql.py", description=description)
    parser.add_argument("statements", nargs="*", metavar="SQL", help="statement to run")
    parser.add_argument(
        "-f",
        "--file",
        metavar="FILE",
        help="file of statements to run after those of the command line, or - for standard input",
    )
    parser.add_argument("--all", action="store_true", help="print all rows of an answer")
    return parser
