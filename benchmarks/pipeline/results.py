"""Lines of JSON that the benchmark of the whole path prints, and keeps for its pictures."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("STACKCAST_VAR") or ROOT / "var") / "bench"

Line = dict[str, Any]


class Lines:
    """The lines of one part, printed and written to ``var/bench/pipeline_PART.jsonl``."""

    def __init__(self, part: str, folder: Path = FOLDER) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._part = part
        self._file = (folder / f"pipeline_{part}.jsonl").open("w", encoding="utf-8")

    def say(self, name: str, **values: Any) -> None:
        """One measurement; floats are rounded to four digits."""
        line = {"part": self._part, "name": name} | {k: _short(v) for k, v in values.items()}
        text = json.dumps(line)
        print(text, flush=True)
        self._file.write(text + "\n")
        self._file.flush()

    def floor(self, what: str, value: float, floor: float, unit: str, least: bool = False) -> None:
        """A figure beside its floor, which it must not exceed, or with ``least`` must reach."""
        held = value >= floor if least else value <= floor
        self.say("floor", what=what, value=value, floor=floor, unit=unit, least=least, held=held)


def load(part: str, folder: Path = FOLDER) -> list[Line]:
    """The lines of a part's last run; none if it never ran."""
    path = folder / f"pipeline_{part}.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def worse_than_linear(sizes: Sequence[float], costs: Sequence[float]) -> list[str]:
    """The steps ``from→to`` on which the cost grew by more than the size did.

    A tenth more is allowed, as no two measurements are alike.
    """
    steps = zip(sizes, sizes[1:], costs, costs[1:], strict=False)
    return [
        f"{small:g}→{large:g}"
        for small, large, before, after in steps
        if after / before > 1.1 * large / small
    ]


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, list | tuple):
        return [_short(each) for each in value]
    if isinstance(value, dict):
        return {key: _short(each) for key, each in value.items()}
    return value
