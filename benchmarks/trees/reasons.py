"""Why claims of WERNECKE hold or do not, by the text's algorithm and by ours.

Each reason was written for the verdicts that it names; where a later run finds others, the document
says so instead.
"""

from __future__ import annotations

from typing import NamedTuple

UNKNOWN = "**to be explained**"


class Reason(NamedTuple):
    """by_its_own, by_ours: whether the claim held when ``words`` were written."""

    by_its_own: bool
    by_ours: bool
    words: str


REASONS: dict[str, Reason] = {}


def why(claim: str, by_its_own: bool, by_ours: bool) -> str:
    """Returns the reason of these verdicts on a claim, or `UNKNOWN`."""
    found = REASONS.get(claim)
    if found is None or (found.by_its_own, found.by_ours) != (by_its_own, by_ours):
        return UNKNOWN
    return found.words
