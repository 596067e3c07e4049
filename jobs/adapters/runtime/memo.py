"""Results that are computed again only for new keys."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Memo(Generic[T]):
    """The results for the last few keys. For one thread.

    Args:
        size: number of keys whose results are kept.
    """

    def __init__(self, size: int = 1) -> None:
        self._size = size
        self._results: dict[Hashable, T] = {}

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the result for a key, which is computed if it is not kept."""
        if key in self._results:
            self._results[key] = self._results.pop(key)
        else:
            self._results[key] = compute()
            if len(self._results) > self._size:
                del self._results[next(iter(self._results))]
        return self._results[key]
