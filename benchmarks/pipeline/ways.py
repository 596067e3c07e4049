"""Ways as processes that stand ready, and what a turn of one takes, by clock and of the cores."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from benchmarks.pipeline import processor
from benchmarks.pipeline.processor import Cores, Used
from benchmarks.pipeline.wire import Wire
from stackcast.lab.up.process import Child

#: Seconds between two looks at a way; until one begins, and until it goes on.
LOOK, PATIENCE = 0.25, 240.0
#: A way is warm once two turns in a row differ by no more than this part.
STEADY = 0.03


class Topic(NamedTuple):
    """A topic as ways are told of it."""

    name: str
    partitions: int
    records: int


@dataclass
class Turn:
    """Adds up what was measured of a way: records, frames, seconds, and seconds of cores."""

    records: int = 0
    frames: int = 0
    frame_bytes: int = 0
    seconds: float = 0.0
    cores: Cores = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records / self.seconds

    def add(self, before: Seen, after: Seen) -> None:
        # Cores and frames are of the time between the looks, records of that between batches.
        share = (after.ended - before.ended) / (after.looked - before.looked)
        self.records += after.records - before.records
        self.seconds += after.ended - before.ended
        self.frames += round(share * (after.frames - before.frames))
        self.frame_bytes += round(share * (after.frame_bytes - before.frame_bytes))
        spent = processor.between(before.used, after.used)
        scaled = {name: share * seconds for name, seconds in spent.items()}
        self.cores = processor.added((self.cores, scaled))


class Seen(NamedTuple):
    """A look at a way; ended: when so many records were done; looked: when it was looked."""

    turn: int
    records: int
    ended: float
    looked: float
    frames: int
    frame_bytes: int
    used: Used


class Way:
    """A way in a process, or in one a partition, that are started once and take turns.

    A context manager: they have started when it is entered.
    """

    def __init__(
        self,
        name: str,
        commands: Sequence[Sequence[str]],
        folder: Path,
        wire: Wire,
        broker: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        word = "".join(letter if letter.isalnum() else "-" for letter in name)
        self._children = [
            Child(name, command, folder / f"{word}-{n}.log", environment)
            for n, command in enumerate(commands)
        ]
        self._wire = wire
        self._broker = broker
        self._open = ExitStack()

    def __enter__(self) -> Way:
        with ExitStack() as opened:
            for child in self._children:
                opened.enter_context(child)
                child.start(PATIENCE)
            self._open = opened.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def once(self, topic: Topic) -> None:
        """Has every record of a topic delivered, and returns when they are."""
        before = sum(records for _, records, _ in self._answers())
        self._tell(f"go {topic.name} {topic.partitions} {topic.records} 1 all")
        deadline = time.monotonic() + PATIENCE
        while (done := sum(each[1] for each in self._answers()) - before) < topic.records:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name}: {done} of {topic.records} records")
            time.sleep(LOOK)
        self._tell("halt")

    def turn(
        self, topic: Topic, seconds: float, work: str = "all", wire: Wire | None = None
    ) -> Turn:
        """Measures so many seconds, or a little more, over as many passes as that takes.

        wire: that frames leave by, if it is not the usual one.
        """
        turn = Turn()
        usual, self._wire = self._wire, wire or self._wire
        self._tell(f"go {topic.name} {topic.partitions} {topic.records} 0 {work}")
        begin = last = self._look()
        deadline = time.monotonic() + PATIENCE
        while turn.seconds + (last.ended - begin.ended) < seconds:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name}: nothing to measure for {PATIENCE:g} s")
            time.sleep(LOOK)
            seen = self._look()
            if not seen.turn or seen.turn != begin.turn:
                if last.ended > begin.ended:
                    turn.add(begin, last)
                begin = last = seen
            elif seen.records != last.records:
                deadline = time.monotonic() + PATIENCE
                last = seen
        turn.add(begin, last)
        self._tell("halt")
        self._wire = usual
        return turn

    def warm(self, topic: Topic, seconds: float, most: int) -> list[float]:
        """Takes turns until the rate is steady, so many at most; returns the rates."""
        rates = [self.turn(topic, seconds).rate]
        while len(rates) < most:
            rates.append(self.turn(topic, seconds).rate)
            if abs(rates[-1] / rates[-2] - 1) <= STEADY:
                break
        return rates

    def _tell(self, line: str) -> None:
        for child in self._children:
            child.ask(line, PATIENCE)

    def _answers(self) -> list[tuple[int, int, float]]:
        found = []
        for child in self._children:
            words = child.ask("look", PATIENCE).split(maxsplit=1)
            if words[0] == "failed":
                raise RuntimeError(f"{self.name}: {words[1]}")
            records, seconds = words[1].split()
            found.append((int(words[0]), int(records), float(seconds)))
        return found

    def _look(self) -> Seen:
        answers = self._answers()
        turns, records, ended = zip(*answers, strict=True)
        # Of the benchmark is all the rest, ways that wait for their turns among it.
        roots = {child.pid or 0: processor.DRIVER for child in self._children}
        roots |= {self._broker: "broker", os.getpid(): "benchmark"}
        return Seen(
            sum(turns) if all(turns) else 0,
            sum(records),
            max(ended),
            time.time(),
            self._wire.sent(),
            self._wire.sent_bytes(),
            processor.used(roots),
        )
