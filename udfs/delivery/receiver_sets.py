"""Receiver sets by delivery: those of the plan, and unions that only events bring about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.filters.compiler.outcomes import receiver_order
from stackcast.udfs.filters.predicate_index import kernels
from stackcast.udfs.filters.predicate_index.predicate_index import PredicateIndex
from stackcast.udfs.filters.predicate_index.stateful_index import StatefulIndex
from stackcast.udfs.trees.header_stacks import Receivers

_PAIRS = 1024


class ReceiverSets(Sequence[Receivers]):
    """Lists distinct sets; the first ``planned`` are the plan's, those behind them were met here.

    A set keeps its number; those of sets that were met differ from worker to worker. It pickles as
    the driver made it.
    """

    def __init__(self, planned: Sequence[Receivers]) -> None:
        self.planned = len(planned)
        self._sets = list(planned)
        self._numbers: dict[Receivers, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_sets": self._sets[: self.planned], "_numbers": {}}

    def __len__(self) -> int:
        return len(self._sets)

    @overload
    def __getitem__(self, index: int) -> Receivers: ...
    @overload
    def __getitem__(self, index: slice) -> list[Receivers]: ...
    def __getitem__(self, index: int | slice) -> Receivers | list[Receivers]:
        return self._sets[index]

    def number(self, receivers: Receivers) -> int:
        """Returns the number of a set, which is known or new."""
        if not self._numbers:
            self._numbers = {each: at for at, each in enumerate(self._sets)}
        found = self._numbers.setdefault(receivers, len(self._sets))
        if found == len(self._sets):
            self._sets.append(receivers)
        return found


class Events(Protocol):
    """The columns of `stackcast.udfs.messages.moldudp64.Messages` that are matched."""

    @property
    def message_type(self) -> NDArray[np.uint8]: ...
    @property
    def values(self) -> NDArray[np.uint64]: ...
    @property
    def present(self) -> NDArray[np.bool_] | None: ...
    @property
    def message_reason(self) -> NDArray[np.uint8]: ...


class IndexDelivery:
    """Unites the receivers that a diagram finds with those that indexes find.

    sets: by delivery. index: of rules without state, if there is one, and columns: rows of the
    messages' values that it takes. stateful: the hosts of the index of rules with state, by bit;
    None without it. Each distinct union costs Python statements once, an event none. Pickles
    without what it remembers.
    """

    def __init__(
        self,
        sets: ReceiverSets,
        index: PredicateIndex | None,
        columns: Sequence[int],
        stateful: StatefulIndex | None = None,
    ) -> None:
        self._sets = sets
        self._index = index
        first = list(range(len(columns)))
        # The first rows are a view, any others a copy.
        self._columns = slice(len(columns)) if list(columns) == first else list(columns)
        parts = [each for each in (index, stateful) if each is not None]
        self._width = sum(each.words for each in parts)
        # By bit of a result; None where there is no host.
        self._hosts: list[str | None] = []
        for each in parts:
            self._hosts += [*each.hosts, *[None] * (64 * each.words - len(each.hosts))]
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: self.__dict__[name]
            for name in ("_sets", "_index", "_columns", "_width", "_hosts")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._forget()

    def _forget(self) -> None:
        self._known = 0
        self._slot = np.full(2 * _PAIRS, -1, np.int32)
        self._delivery = np.zeros(_PAIRS, np.int32)
        self._words = np.zeros((_PAIRS, self._width), np.uint64)
        self._united = np.zeros(0, np.int32)

    def unite(
        self,
        delivery: NDArray[np.int32],
        messages: Events,
        stateful: NDArray[np.uint64] | None = None,
    ) -> NDArray[np.int32]:
        """Returns the delivery of each message, int32[m].

        ``delivery``: int32[m], by the diagram. ``stateful``: uint64[m, words], by the index of
        rules with state, if there is one. What could not be read is nobody's.
        """
        parts = [] if stateful is None else [stateful]
        if self._index is not None:
            present = None if messages.present is None else messages.present[self._columns]
            values = messages.values[self._columns]
            plain = self._index.match(messages.message_type, values, present)
            plain[messages.message_reason != 0] = 0
            parts.insert(0, plain)
        found = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        entry = self._entries(np.require(delivery, np.int32, ["C", "W"]), found)
        if self._known > self._united.size:
            new = [self._union(at) for at in range(self._united.size, self._known)]
            self._united = np.concatenate((self._united, np.array(new, np.int32)))
        return np.where(entry < 0, delivery, self._united[entry] if self._known else 0)

    def _entries(self, delivery: NDArray[np.int32], found: NDArray[np.uint64]) -> NDArray[np.int32]:
        entry = np.empty(len(delivery), np.int32)
        while True:
            known = kernels.look_up(
                delivery, found, self._slot, self._delivery, self._words, self._known, entry
            )
            if known >= 0:
                self._known = known
                return entry
            self._known = -1 - known
            self._grow()

    def _grow(self) -> None:
        size = 2 * len(self._delivery)
        kept, words = self._delivery[: self._known], self._words[: self._known]
        self._slot = np.full(2 * size, -1, np.int32)
        self._delivery = np.zeros(size, np.int32)
        self._words = np.zeros((size, self._width), np.uint64)
        # They get the numbers that they had.
        kernels.look_up(
            kept,
            words,
            self._slot,
            self._delivery,
            self._words,
            0,
            np.empty(len(kept), np.int32),
        )

    def _union(self, entry: int) -> int:
        bits = int.from_bytes(self._words[entry].astype("<u8").tobytes(), "little")
        told = {host for at, host in enumerate(self._hosts) if host is not None and bits >> at & 1}
        told.update(self._sets[int(self._delivery[entry])])
        return self._sets.number(tuple(sorted(told, key=receiver_order)))
