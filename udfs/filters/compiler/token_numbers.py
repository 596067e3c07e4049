"""The numbers that an edited filter's tokens have in its sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from udfs.filters.compiler.outcomes import Token, token_order


class TokenNumbers:
    """A number for each token, which it keeps until it is forgotten; then another gets it."""

    def __init__(self) -> None:
        self._numbers: dict[Token, int] = {}
        self._free: list[int] = []
        self._ranked: tuple[Sequence[Token], Sequence[int]] | None = None

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def room(self) -> int:
        """All numbers are below this."""
        return len(self._numbers) + len(self._free)

    def number(self, token: Token) -> int:
        """The number of a token that has one."""
        return self._numbers[token]

    def add(self, tokens: Iterable[Token]) -> None:
        """Have numbers for these tokens."""
        for token in tokens:
            if token not in self._numbers:
                self._numbers[token] = self._free.pop() if self._free else self.room
                self._ranked = None

    def keep(self, numbers: NDArray[np.int64]) -> None:
        """Forget all tokens but those of these numbers. No set that counts may have another."""
        kept = frozenset(numbers.tolist())
        room = self.room
        self._numbers = {token: n for token, n in self._numbers.items() if n in kept}
        self._free = sorted(frozenset(range(room)).difference(kept), reverse=True)
        self._ranked = None

    def ranked(self) -> tuple[Sequence[Token], Sequence[int]]:
        """All tokens in their order, and the position in it of each number (-1: of none)."""
        if self._ranked is None:
            tokens = sorted(self._numbers, key=token_order)
            ranks = [-1] * self.room
            for position, token in enumerate(tokens):
                ranks[self._numbers[token]] = position
            self._ranked = tokens, ranks
        return self._ranked
