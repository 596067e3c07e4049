"""Ids, names and texts that people write: one validation for pages, tables and commands.

Terminals, logs and pages show these texts, people compare them, and tables store them as UTF-8.
They must not contain characters that a terminal executes, that change the direction of a line, or
that UTF-8 cannot encode.
"""

from __future__ import annotations

import re

from stackcast.udfs.errors import MAX_NAME, printable

MOST_NAME = 255
"""Bytes of a name in UTF-8."""

#: Control characters except tabs and ends of lines, separators, marks of direction, surrogates.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def name_fault(name: str) -> str | None:
    """Returns the fault of an id or a name, or None.

    A name has 1 to `MOST_NAME` bytes in UTF-8, consists of characters that print, and is not blank.
    """
    # Nearly all names of a large table take this path.
    if name.isprintable() and 4 * len(name) <= MOST_NAME and not name.isspace():
        return None if name else "is empty"
    if name.isspace():
        return "is blank"
    for place, character in enumerate(name, 1):
        if not character.isprintable():
            return (
                f"contains the non-printable character '{printable(character)}' at position {place}"
            )
    size = len(name.encode())
    if size > MOST_NAME:
        return f"has {size} bytes, but at most {MOST_NAME} are allowed: '{name[:MAX_NAME]}...'"
    return None


def unsafe_character(text: str) -> int | None:
    """Returns the position of the first unsafe character of a text, or None.

    Tabs and ends of lines are safe, because texts of rules have several lines.
    """
    match = _UNSAFE.search(text)
    return match and match.start()
