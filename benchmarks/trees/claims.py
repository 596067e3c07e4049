"""What WERNECKE claims of virtual trees, judged by its own Algorithm 5.1 and by our encoder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmarks.support.results import Lines
from stackcast.udfs.trees.encode import Algorithm


@dataclass(frozen=True)
class Claim:
    """One claim, and what one algorithm made of it.

    source: section of the text. told: the text's figure. seen: ours beside it, in words.
    """

    source: str
    text: str
    told: str
    held: bool
    seen: str


def say(lines: Lines, by: Mapping[Algorithm, Iterable[Claim]]) -> None:
    """Writes each claim once, with the verdicts of both algorithms."""
    for plain, ours in zip(by["greedy"], by["refined"], strict=True):
        assert plain.text == ours.text
        lines.say(
            "claim",
            source=ours.source,
            text=ours.text,
            told=ours.told,
            greedy={"held": bool(plain.held), "seen": plain.seen},
            ours={"held": bool(ours.held), "seen": ours.seen},
        )
