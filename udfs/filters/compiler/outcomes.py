"""Outcomes of leaves: sets of tokens, kept as the diagram has them until somebody asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.filters.meaning.state import update_order
from stackcast.udfs.filters.nodes import Call, CellUpdate, Outcome

Token = str | Call | CellUpdate
"""A receiver, a named action, or an update of state."""


def receiver_order(name: str) -> tuple[bool, int, str]:
    """Returns a key to sort receivers by: port numbers by value, then names."""
    number = name.isascii() and name.isdigit()
    return not number, int(name) if number else 0, name


def token_order(token: Token) -> tuple[int, Any]:
    """Returns a key to sort tokens by: receivers, calls, updates."""
    if isinstance(token, str):
        return 0, receiver_order(token)
    if isinstance(token, Call):
        return 1, token
    return 2, update_order(token)


def outcome_of(tokens: Iterable[Token]) -> Outcome:
    """Makes the outcome of these ``tokens``, sorted by ``token_order``, without repeats."""
    receivers: list[str] = []
    calls: list[Call] = []
    updates: list[CellUpdate] = []
    for token in tokens:
        if isinstance(token, str):
            receivers.append(token)
        elif isinstance(token, Call):
            calls.append(token)
        else:
            updates.append(token)
    return Outcome(tuple(receivers), tuple(calls), tuple(updates))


def united(one: Outcome, other: Outcome) -> Outcome:
    """Returns the outcome of an event that has both."""
    both: set[Token] = {*one.receivers, *other.receivers, *one.calls, *other.calls}
    both |= {*one.updates, *other.updates}
    return outcome_of(sorted(both, key=token_order))


class Outcomes(Mapping[int, Outcome]):
    """Maps leaf states to their ``Outcome``, ascending; made when asked for, then remembered.

    A million leaves of ten thousand receivers would not fit the memory as tuples. As sets that
    share their parts, as in ``stackcast.udfs.filters.diagrams.pool``, they do. Picklable.

    states: int32[n], ascending. sets: int32[n], number of each one's set. keys: uint64, by number
    of a set: 64 tokens, or the numbers of two halves; 0 is empty. height: of the n sets; those
    of height 0 are words. tokens: in their order; ``rank``: position in that order of each
    bit, None if the bits are in order.
    """

    def __init__(
        self,
        states: NDArray[np.int32],
        sets: NDArray[np.int32],
        keys: NDArray[np.uint64],
        height: int,
        tokens: Sequence[Token],
        rank: Sequence[int] | None = None,
    ) -> None:
        self._states = states
        self._sets = sets
        self._keys = keys
        self._height = height
        self._tokens = tokens
        self._rank = rank
        self._made: dict[int, Outcome] = {}

    def __getitem__(self, state: int) -> Outcome:
        found = self._made.get(state)
        if found is None:
            at = int(np.searchsorted(self._states, state))
            if at == len(self._states) or self._states[at] != state:
                raise KeyError(state)
            bits = self._bits(int(self._sets[at]))
            if self._rank is not None:
                bits = sorted(self._rank[bit] for bit in bits)
            found = self._made[state] = outcome_of(self._tokens[bit] for bit in bits)
        return found

    def __iter__(self) -> Iterator[int]:
        yield from self._states.tolist()

    def __len__(self) -> int:
        return len(self._states)

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self._states, self._sets, self._keys, self._height, self._tokens, self._rank)
        return type(self), arguments

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays."""
        return self._states.nbytes + self._sets.nbytes + self._keys.nbytes

    def _bits(self, number: int) -> list[int]:
        """Returns the tokens of a set, ascending."""
        found: list[int] = []
        waiting = [(number, self._height, 0)]
        while waiting:
            one, height, base = waiting.pop()
            key = int(self._keys[one])
            if height:
                half = 64 << (height - 1)
                right = key & 0xFFFFFFFF
                if right:
                    waiting.append((right, height - 1, base + half))
                if key >> 32:
                    waiting.append((key >> 32, height - 1, base))
            else:
                while key:
                    lowest = key & -key
                    found.append(base + lowest.bit_length() - 1)
                    key ^= lowest
        return found
