"""The claims of WERNECKE on virtual trees, judged with Algorithm 5.1 and Stackcast's encoder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmarks.support.results import Lines
from stackcast.udfs.trees.encode import Algorithm


@dataclass(frozen=True)
class Claim:
    """A claim, and the verdict with one algorithm.

    Attributes:
        source: section of the thesis.
        text: the claim.
        told: the figure in the thesis.
        held: whether the claim is confirmed.
        seen: the result, in words.
    """

    source: str
    text: str
    told: str
    held: bool
    seen: str


def say(lines: Lines, by: Mapping[Algorithm, Iterable[Claim]]) -> None:
    """Write each claim once, with the verdicts of both algorithms."""
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
