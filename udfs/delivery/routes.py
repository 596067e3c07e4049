"""Routes by number: from whom to whom notifications go, as far as they are in use."""

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
    """A sender, by number (`stackcast.udfs.delivery.publishers.Publishers`), and a receiver set."""

    publisher: int
    receivers: Receivers


class Routes(Sequence[Route]):
    """Numbers pairs of a publisher and a delivery, which is a receiver set by number.

    Of one publisher a route has the number of its delivery. Of several, those that events bring
    about are numbered as they come, from 1 on; 0 is nobody's. It pickles without these, so numbers
    differ from worker to worker.
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
        self._known = 1
        size = _PAIRS if self._several else 1
        self._slot = np.full(2 * size, -1, np.int32)
        self._publisher = np.zeros(size, np.int32)
        self._delivery = np.zeros(size, np.int32)

    def __len__(self) -> int:
        return self._known if self._several else len(self._sets)

    @property
    def planned(self) -> int:
        """The number of deliveries that the plan has; those from there on were met here."""
        return self._sets.planned

    @overload
    def __getitem__(self, index: int) -> Route: ...
    @overload
    def __getitem__(self, index: slice) -> list[Route]: ...
    def __getitem__(self, index: int | slice) -> Route | list[Route]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        if not self._several:
            return Route(0, self._sets[index])
        return Route(int(self._publisher[index]), self._sets[int(self._delivery[index])])

    def numbers(
        self, publisher: NDArray[np.int32], delivery: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """Returns the routes of pairs, int32[m]; that of an unknown publisher, -1, is nobody's."""
        route = np.empty(len(delivery), np.int32)
        pairs = np.ascontiguousarray(publisher, np.int32), np.ascontiguousarray(delivery, np.int32)
        while True:
            known = self._number(*pairs, route)
            if known > 0:
                self._known = known
                return route
            self._known = -known
            self._grow()

    def pairs(self, route: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Returns publisher and delivery of routes, int32[m] each."""
        if not self._several:
            return np.zeros(len(route), np.int32), route
        return self._publisher[route], self._delivery[route]

    def _number(
        self,
        publisher: NDArray[np.int32],
        delivery: NDArray[np.int32],
        route: NDArray[np.int32],
    ) -> int:
        kept = self._slot, self._publisher, self._delivery
        return int(kernels.number_routes(publisher, delivery, *kept, self._known, route))

    def _grow(self) -> None:
        size = 2 * len(self._delivery)
        pairs = self._publisher[1 : self._known], self._delivery[1 : self._known]
        self._slot = np.full(2 * size, -1, np.int32)
        self._publisher = np.zeros(size, np.int32)
        self._delivery = np.zeros(size, np.int32)
        # They get the numbers that they had.
        self._known = 1
        self._known = self._number(*pairs, np.empty(len(pairs[0]), np.int32))
