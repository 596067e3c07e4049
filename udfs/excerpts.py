"""How an error shows its place in a text, and finds the name that was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MAX_NAME = 64
"""Characters of a name that are compared with others, and that a message shows."""
_EXCERPT = 72


def excerpt(text: str, line: int, column: int) -> str:
    """The line of a text, cut to 72 characters around the column, with a caret under the column.

    ``line`` and ``column`` are 1-based. Two lines, each indented by two blanks; characters that
    do not print are shown as blanks.
    """
    lines = text.split("\n", line)
    content = lines[line - 1] if 0 < line <= len(lines) else ""
    start = max(0, min(column - 1, len(content)) - _EXCERPT // 2)
    # One character stays one column, whatever it is, so that the caret stands right.
    shown = "".join(c if c.isprintable() else " " for c in content[start : start + _EXCERPT])
    return f"  {shown}\n  {' ' * (column - 1 - start)}^"


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name most like ``name``, or None if none is near."""
    by_lower = {candidate.lower(): candidate for candidate in sorted(names, reverse=True)}
    found = difflib.get_close_matches(name.lower()[:MAX_NAME], by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None
