"""Command lines of jobs and programs."""

from __future__ import annotations

import argparse
from typing import Any


class ArgumentParser(argparse.ArgumentParser):
    """A parser that takes options by their whole names only.

    An abbreviation of one option may be another one in a later version, and a typing error that is
    an abbreviation would pass.
    """

    def __init__(self, prog: str | None = None, **options: Any) -> None:
        super().__init__(prog, allow_abbrev=False, **options)
