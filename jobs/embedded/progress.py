"""Progress of an embedded run for people: one line per stage, and a bar on a terminal."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from stackcast.jobs.adapters.app.logs import hide_stops
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS, Poll, Threads

#: Seconds between two lines on a stage in progress, if the output is not a terminal.
LINE_SECONDS = 5.0


@dataclass
class Stage:
    """A stage in progress.

    Attributes:
        text: what the stage is doing, such as "starting Spark".
        finished: what the stage has done, such as "started Spark".
        began: monotonic time at which it began.
        done: number of items that are done.
        total: number of all items; 0 if they are not counted.
    """

    text: str
    finished: str
    began: float
    done: int = 0
    total: int = 0
    printed: float = 0.0
    bar: TaskID | None = None

    def words(self, *, finished: bool = False) -> str:
        """Return what the stage is doing or, if it is finished, has done, with its count."""
        text = self.finished if finished else self.text
        return f"{text}: {self.done:,} of {self.total:,}" if self.total else text


class Parts:
    """The parts of a run, which follow each other without a gap, and the seconds of each."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._begun: list[tuple[str, float]] = []

    def begin(self, name: str) -> None:
        """End the part before, and begin the next one."""
        self._begun.append((name, self._clock.monotonic()))

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each part, in their order; the last one ends now."""
        if not self._begun:
            return {}
        ends = [*(at for _, at in self._begun[1:]), self._clock.monotonic()]
        return {name: end - at for (name, at), end in zip(self._begun, ends, strict=True)}


class Progress:
    """Prints each stage when it ends, and draws a bar for stages in progress on a terminal.

    A context manager, and while it is one, log lines below WARNING go to the file of `log_to`
    alone.

    Args:
        stream: output; by default standard error.
        interval: seconds between two lines on a stage in progress.
        threads: threads of the job.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        interval: float = LINE_SECONDS,
        threads: Threads = SYSTEM_THREADS,
    ) -> None:
        self._threads = threads
        self._clock = threads.clock
        self._stream = sys.stderr if stream is None else stream
        self._console = Console(file=self._stream, highlight=False, soft_wrap=True)
        self._bars: Bars | None = None
        if self._stream.isatty():
            self._bars = Bars(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=30),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
        self._interval = interval
        self._began = self._clock.monotonic()
        self._stages: list[Stage] = []
        #: Parts of the run in progress.
        self.parts = Parts()
        self._lock = threading.Lock()
        self._reminder: Poll | None = None
        self._handler = _LogLines(self)
        hide_stops(self._handler)
        self._file: logging.FileHandler | None = None
        self._before: list[logging.Handler] = []

    def __enter__(self) -> Progress:
        root = logging.getLogger()
        self._before, root.handlers = root.handlers, [self._handler]
        if self._bars is not None:
            self._bars.start()
        else:
            self._reminder = self._threads.poll("progress", self._remind)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._reminder is not None:
            self._reminder.close()
        if self._bars is not None:
            self._bars.stop()
        logging.getLogger().handlers = self._before
        if self._file is not None:
            self._file.close()

    def log_to(self, path: Path) -> None:
        """Has all log lines written to a file, too, and no more to one before it."""
        if self._file is not None:
            logging.getLogger().removeHandler(self._file)
            self._file.close()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = logging.FileHandler(path, mode="w", encoding="utf-8")
        self._file.setFormatter(self._handler.formatter)
        hide_stops(self._file)
        logging.getLogger().addHandler(self._file)
        self.say(f"log: {path}")

    def leave_to_file(self, name: str) -> None:
        """Has warnings of a logger written to the file alone; its errors are shown as all are."""
        self._handler.addFilter(
            lambda record: record.name != name or record.levelno >= logging.ERROR
        )

    def say(self, text: str) -> None:
        """Prints a line, with the seconds since the run began."""
        self.print(f"{self._clock.monotonic() - self._began:5.1f} s  {text}")

    def print(self, line: str) -> None:
        """Prints a line as it is, above what is under way."""
        with self._lock:
            self._console.print(line, markup=False)

    @contextmanager
    def stage(self, text: str, finished: str = "") -> Iterator[Stage]:
        """Run a stage, and print it with its duration unless it fails.

        Args:
            text: what the stage is doing.
            finished: what it has done, printed at its end; empty: ``text``.

        Yields:
            The stage; its texts may be changed while it runs.
        """
        stage = Stage(text, finished or text, self._clock.monotonic())
        stage.printed = stage.began
        if self._bars is not None:
            stage.bar = self._bars.add_task(text, total=None)
        self._stages.append(stage)
        try:
            yield stage
            seconds = self._clock.monotonic() - stage.began
            self.say(f"{stage.words(finished=True)} ({seconds:.1f} s)")
        finally:
            self._stages.remove(stage)
            if self._bars is not None and stage.bar is not None:
                self._bars.remove_task(stage.bar)

    def count(self, stage: Stage, done: int, total: int) -> None:
        """Says how far a stage is."""
        stage.done, stage.total = done, total
        if self._bars is not None and stage.bar is not None:
            self._bars.update(
                stage.bar, description=stage.words(), completed=done, total=total or None
            )

    def _remind(self) -> float:
        """Print the stages that have run for an interval since their last line."""
        for stage in tuple(self._stages):
            if self._clock.monotonic() - stage.printed >= self._interval:
                stage.printed = self._clock.monotonic()
                self.say(f"still {stage.words()}")
        return self._interval / 10


class _LogLines(logging.Handler):
    """Warnings and errors, above what is under way."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(logging.WARNING)
        self._progress = progress
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self._progress.print(self.format(record))
