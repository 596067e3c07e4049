"""A process beside the measurement that says when it is ready."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self


class ReadyProcess:
    """A process that is ready when ``__enter__`` returns, at ``began``, and killed at the end; a
    context manager.

    work: takes the arguments and a pipe, on which it says that it is ready, and may then answer
    each question.
    """

    def __init__(self, work: Callable[..., None], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(*arguments, theirs), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        self._pipe.recv()
        self.began = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.join()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def _answer(self) -> Any:
        self._pipe.send("taken")
        return self._pipe.recv()
