"""Table definitions and message format specifications, as shipped with the package."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def read_text(relative: str) -> str:
    """Return the text of a file of this package, for example ``messages/itch.spec``."""
    return files(__name__).joinpath(relative).read_text(encoding="utf-8")
