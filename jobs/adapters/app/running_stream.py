"""The methods of a running stream that jobs and their monitoring use."""

from __future__ import annotations

from typing import Any, Protocol


class RunningStream(Protocol):
    """A running stream: Spark's ``StreamingQuery``, or a class with the same methods."""

    @property
    def isActive(self) -> bool: ...  # noqa: N802 - Spark's names
    @property
    def status(self) -> Any: ...
    @property
    def lastProgress(self) -> Any: ...  # noqa: N802
    def awaitTermination(self, timeout: Any = None) -> Any: ...  # noqa: N802
    def exception(self) -> BaseException | None: ...
    def stop(self) -> None: ...
