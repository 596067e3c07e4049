"""Lines of JSON that benchmarks print, and keep for their pictures and tables."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("STACKCAST_VAR") or ROOT / "var") / "bench"

Line = dict[str, Any]
_Task = TypeVar("_Task")
_Answer = TypeVar("_Answer")


class Lines:
    """The lines of one part, printed and written to ``var/bench/BENCHMARK_PART.jsonl``.

    digits: that floats are rounded to.
    """

    def __init__(self, benchmark: str, part: str, folder: Path = FOLDER, digits: int = 5) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._part = part
        self._digits = digits
        self._file = _path(benchmark, part, folder).open("w", encoding="utf-8")

    def say(self, name: str, **values: Any) -> None:
        """Writes one measurement."""
        line = {"part": self._part, "name": name} | self._short(values)
        text = json.dumps(line)
        print(text, flush=True)
        self._file.write(text + "\n")
        self._file.flush()

    def floor(self, what: str, value: float, floor: float, unit: str, least: bool = False) -> None:
        """Writes a figure beside its floor, which it must not exceed, or with ``least`` reach."""
        held = value >= floor if least else value <= floor
        self.say("floor", what=what, value=value, floor=floor, unit=unit, least=least, held=held)

    def finding(self, source: str, text: str, held: bool, seen: str) -> None:
        """Writes a finding of the text, and whether it is so here."""
        self.say("finding", source=source, text=text, held=bool(held), seen=seen)

    def _short(self, value: Any) -> Any:
        if isinstance(value, float):
            return float(f"{value:.{self._digits}g}")
        if isinstance(value, list | tuple):
            return [self._short(each) for each in value]
        if isinstance(value, dict):
            return {key: self._short(each) for key, each in value.items()}
        return value


def load(benchmark: str, part: str, folder: Path = FOLDER) -> list[Line]:
    """Returns the lines of a part's last run; none if it never ran."""
    path = _path(benchmark, part, folder)
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def named(lines: Iterable[Line], name: str, **values: Any) -> list[Line]:
    """Returns the lines of this name with these values."""
    return [
        line
        for line in lines
        if line["name"] == name and all(line.get(key) == each for key, each in values.items())
    ]


def in_parallel(
    work: Callable[[_Task], _Answer], tasks: Sequence[_Task], processes: int
) -> Iterator[tuple[_Task, _Answer]]:
    """Yields answers in the order of the tasks, and says on the error stream how many there are by
    now; a single process works in this one."""
    with ProcessPoolExecutor(processes) if processes > 1 else nullcontext() as pool:
        answers = pool.map(work, tasks) if pool else map(work, tasks)
        for number, (task, answer) in enumerate(zip(tasks, answers, strict=True), 1):
            if 100 * number // len(tasks) > 100 * (number - 1) // len(tasks):
                print(f"{number} of {len(tasks)}", file=sys.stderr, flush=True)
            yield task, answer


def _path(benchmark: str, part: str, folder: Path) -> Path:
    return folder / f"{benchmark}_{part}.jsonl"
