"""Faults of rules as commands print them."""

from __future__ import annotations

import re

_PLACE = re.compile(r"^line \d+, column \d+: ")


def without_place(message: str) -> str:
    """Return the message of an error in a rule without line and column at its beginning."""
    return _PLACE.sub("", message)


def fault_text(name: str, code: str, message: str, *, line: int, column: int) -> str:
    """Return a fault as text: name and place first, then the line and a caret.

    Args:
        name: name of the file, or another name of the text.
        code: code of the error.
        message: message of the error.
        line: line of the fault, from 1.
        column: column of the fault, from 1.
    """
    return f"{name}:{line}:{column}: {code}: {without_place(message)}"
