"""Command line of ``rerequest.py``, which has no options."""

from __future__ import annotations

import argparse

from stackcast.command_line import ArgumentParser


def parser(description: str | None = None) -> argparse.ArgumentParser:
    """Return a parser for the arguments of the job, with its docstring as the description."""
    return ArgumentParser(prog="rerequest.py", description=description)
