"""Receiver sets by delivery: those of the plan, and unions that events add."""

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
    """Distinct receiver sets by number.

    The numbers of added sets differ between workers. Only the sets of the plan are pickled.

    Attributes:
        planned: number of sets of the plan, which come first.
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
        """Return the number of a set, and add it if it is new."""
        if not self._numbers:
            self._numbers = {members: number for number, members in enumerate(self._sets)}
        number = self._numbers.setdefault(receivers, len(self._sets))
        if number == len(self._sets):
            self._sets.append(receivers)
        return number


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
    """Unites the receivers that a diagram returns with those that indexes return.

    Only a new union runs Python statements, not each event. Known unions are not pickled.

    Args:
        sets: receiver sets by delivery.
        index: index of rules without state, or None.
        columns: rows of the values of messages that ``index`` takes.
        stateful: index of rules with state, or None.
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
        parts = [part for part in (index, stateful) if part is not None]
        self._width = sum(part.words for part in parts)
        #: The host of each bit of a result; None if the bit is not used.
        self._hosts: list[str | None] = []
        for part in parts:
            self._hosts += [*part.hosts, *[None] * (64 * part.words - len(part.hosts))]
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
        self._count = 0
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
        """Return the delivery of each message, int32[m]. Unreadable messages have no receivers.

        Args:
            delivery: int32[m], delivery of each message by the diagram.
            messages: the messages.
            stateful: uint64[m, words], result of the index of rules with state, if there is one.
        """
        parts = [] if stateful is None else [stateful]
        if self._index is not None:
            present = None if messages.present is None else messages.present[self._columns]
            values = messages.values[self._columns]
            plain = self._index.match(messages.message_type, values, present)
            plain[messages.message_reason != 0] = 0
            parts.insert(0, plain)
        bits = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        entry = self._entries(np.require(delivery, np.int32, ["C", "W"]), bits)
        if self._count > self._united.size:
            new = [self._union(number) for number in range(self._united.size, self._count)]
            self._united = np.concatenate((self._united, np.array(new, np.int32)))
        return np.where(entry < 0, delivery, self._united[entry] if self._count else 0)

    def _entries(self, delivery: NDArray[np.int32], bits: NDArray[np.uint64]) -> NDArray[np.int32]:
        entry = np.empty(len(delivery), np.int32)
        while True:
            count = kernels.look_up(
                delivery, bits, self._slot, self._delivery, self._words, self._count, entry
            )
            if count >= 0:
                self._count = count
                return entry
            self._count = -1 - count
            self._grow()

    def _grow(self) -> None:
        size = 2 * len(self._delivery)
        delivery, words = self._delivery[: self._count], self._words[: self._count]
        self._slot = np.full(2 * size, -1, np.int32)
        self._delivery = np.zeros(size, np.int32)
        self._words = np.zeros((size, self._width), np.uint64)
        # They keep their numbers.
        entry = np.empty(len(delivery), np.int32)
        kernels.look_up(delivery, words, self._slot, self._delivery, self._words, 0, entry)

    def _union(self, entry: int) -> int:
        bits = int.from_bytes(self._words[entry].astype("<u8").tobytes(), "little")
        receivers = {
            host for bit, host in enumerate(self._hosts) if host is not None and bits >> bit & 1
        }
        receivers.update(self._sets[int(self._delivery[entry])])
        return self._sets.number(tuple(sorted(receivers, key=receiver_order)))
