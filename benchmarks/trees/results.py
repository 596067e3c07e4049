"""Lines of JSON that the benchmark of trees prints, and keeps for pictures and tables."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("STACKCAST_VAR") or ROOT / "var") / "bench"

Line = dict[str, Any]
_Task = TypeVar("_Task")
_Answer = TypeVar("_Answer")


class Lines:
    """The lines of one part, printed and written to ``var/bench/trees_PART.jsonl``."""

    def __init__(self, part: str) -> None:
        FOLDER.mkdir(parents=True, exist_ok=True)
        self._part = part
        self._file = (FOLDER / f"trees_{part}.jsonl").open("w", encoding="utf-8")

    def say(self, name: str, **values: Any) -> None:
        """One measurement; floats are rounded to five digits."""
        line = {"part": self._part, "name": name} | {key: _short(v) for key, v in values.items()}
        text = json.dumps(line)
        print(text, flush=True)
        self._file.write(text + "\n")
        self._file.flush()

    def floor(self, what: str, value: float, floor: float, unit: str, least: bool = False) -> None:
        """A figure beside its floor, which it must not exceed, or with ``least`` must reach."""
        held = value >= floor if least else value <= floor
        self.say("floor", what=what, value=value, floor=floor, unit=unit, least=least, held=held)

    def finding(self, source: str, text: str, held: bool, seen: str) -> None:
        """What the text found, and whether it is so here."""
        self.say("finding", source=source, text=text, held=bool(held), seen=seen)


def load(part: str) -> list[Line]:
    """The lines of a part's last run; none if it never ran."""
    path = FOLDER / f"trees_{part}.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def named(lines: Iterable[Line], name: str, **values: Any) -> list[Line]:
    """Lines of this name with these values."""
    return [
        line
        for line in lines
        if line["name"] == name and all(line.get(key) == each for key, each in values.items())
    ]


def in_parallel(
    work: Callable[[_Task], _Answer], tasks: Sequence[_Task], processes: int
) -> Iterator[tuple[_Task, _Answer]]:
    """Answers in the order of the tasks; a single process works in this one."""
    if processes == 1:
        yield from ((task, work(task)) for task in tasks)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from zip(tasks, pool.map(work, tasks), strict=True)


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, list | tuple):
        return [_short(each) for each in value]
    return value
