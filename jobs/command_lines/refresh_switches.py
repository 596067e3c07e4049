"""Command line of ``refresh_switches.py``."""

from __future__ import annotations

import argparse

from stackcast.command_line import ArgumentParser

MODES = {
    "--once": "end after the first pass",
    "--reconcile": "end after the first pass, which takes over from a refresher that is running",
    "--dry-run": "write nothing, and print entries and programs that would change: + new, "
    "- deleted, ~ changed",
}


def parser(description: str | None = None) -> argparse.ArgumentParser:
    """Return a parser for the arguments of the job, with its docstring as the description."""
    parser = ArgumentParser(prog="refresh_switches.py", description=description)
    modes = parser.add_mutually_exclusive_group()
    for mode, text in MODES.items():
        modes.add_argument(
            mode, dest="mode", action="store_const", const=mode, default="", help=text
        )
    return parser
