"""Routes by number: the pairs of a sender and a receiver set that notifications use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.delivery import kernels
from stackcast.udfs.delivery.receiver_sets import ReceiverSets
from stackcast.udfs.trees.header_stacks import Receivers

_PAIRS = 1024


class Route(NamedTuple):
    """Sender and receivers of notifications.

    Attributes:
        publisher: number of the sender, see `stackcast.udfs.delivery.publishers.Publishers`.
        receivers: receiver set.
    """

    publisher: int
    receivers: Receivers


class Routes(Sequence[Route]):
    """The numbers of pairs of a publisher and a delivery, which is the number of a receiver set.

    If there is one publisher, a route has the number of its delivery. If there are several, routes
    are numbered from 1 on as events use them, and 0 has no receivers. These routes are not pickled,
    so their numbers differ between workers.

    Args:
        sets: receiver sets by delivery.
        several: whether there are several publishers.
    """

    def __init__(self, sets: ReceiverSets, several: bool) -> None:
        self._sets = sets
        self._several = several
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        return {"_sets": self._sets, "_several": self._several}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._forget()

    def _forget(self) -> None:
        self._count = 1
        size = _PAIRS if self._several else 1
        self._slot = np.full(2 * size, -1, np.int32)
        self._publisher = np.zeros(size, np.int32)
        self._delivery = np.zeros(size, np.int32)

    def __len__(self) -> int:
        return self._count if self._several else len(self._sets)

    @property
    def planned(self) -> int:
        """Number of deliveries of the plan. Later ones were added by events of this worker."""
        return self._sets.planned

    @overload
    def __getitem__(self, index: int) -> Route: ...
    @overload
    def __getitem__(self, index: slice) -> list[Route]: ...
    def __getitem__(self, index: int | slice) -> Route | list[Route]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not self._several:
            return Route(0, self._sets[index])
        return Route(int(self._publisher[index]), self._sets[int(self._delivery[index])])

    def numbers(
        self, publisher: NDArray[np.int32], delivery: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """Return the number of each pair, int32[m]; 0 if its publisher is unknown.

        Args:
            publisher: int32[m], sender of each pair, or -1.
            delivery: int32[m], delivery of each pair.
        """
        route = np.empty(len(delivery), np.int32)
        pairs = np.ascontiguousarray(publisher, np.int32), np.ascontiguousarray(delivery, np.int32)
        while True:
            count = self._number(*pairs, route)
            if count > 0:
                self._count = count
                return route
            self._count = -count
            self._grow()

    def pairs(self, route: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return publisher and delivery of routes, int32[m] each."""
        if not self._several:
            return np.zeros(len(route), np.int32), route
        return self._publisher[route], self._delivery[route]

    def _number(
        self,
        publisher: NDArray[np.int32],
        delivery: NDArray[np.int32],
        route: NDArray[np.int32],
    ) -> int:
        table = self._slot, self._publisher, self._delivery
        return int(kernels.number_routes(publisher, delivery, *table, self._count, route))

    def _grow(self) -> None:
        size = 2 * len(self._delivery)
        pairs = self._publisher[1 : self._count], self._delivery[1 : self._count]
        self._slot = np.full(2 * size, -1, np.int32)
        self._publisher = np.zeros(size, np.int32)
        self._delivery = np.zeros(size, np.int32)
        # They keep their numbers.
        self._count = 1
        self._count = self._number(*pairs, np.empty(len(pairs[0]), np.int32))
