"""Packets by host, as switches that match leave them: of each packet a host has the messages that
it wants, under the packet's own number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.delivery import kernels
from stackcast.udfs.delivery.receiver_sets import ReceiverSets
from stackcast.udfs.delivery.routes import Routes
from stackcast.udfs.stacks.frame import MessagePositions


@dataclass(frozen=True)
class _Positions:
    packet: NDArray[np.int32]
    index: NDArray[np.int32]
    start: NDArray[np.int64]
    length: NDArray[np.int32]


class HostPackets:
    """Repeats messages for each of their receivers, so that frames are made a host at a time.

    sets: by delivery; among them each host alone. routes: of messages. publishers: by number, where
    there are several: none gets what it sends itself, as no switch sends out of the port that an
    event came in by. It pickles without what it remembers.
    """

    def __init__(self, sets: ReceiverSets, routes: Routes, publishers: Sequence[str] = ()) -> None:
        self._sets = sets
        self._routes = routes
        self._publishers = tuple(publishers)
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("_sets", "_routes", "_publishers")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._forget()

    def _forget(self) -> None:
        self._alone: dict[str, int] = {}
        # int32[p]: the delivery of each publisher alone, -1 of one that receives nothing.
        self._own = np.zeros(0, np.int32)
        # The hosts of delivery d are those alone of ``_pool[_start[d]:_start[d + 1]]``.
        self._start = np.zeros(1, np.int64)
        self._pool = np.zeros(0, np.int32)

    def split(
        self, route: NDArray[np.int32], messages: MessagePositions
    ) -> tuple[NDArray[np.int32], MessagePositions]:
        """Returns the route to each receiver alone and the positions of its messages, by packet.

        route: int32[m]. A host's messages of a packet have the number of the packet, whichever they
        are: switches leave the number as it is.
        """
        self._learn()
        sender, delivery = self._routes.pairs(route)
        message, alone = kernels.by_receiver(delivery, self._start, self._pool)
        if self._publishers:
            sender = sender[message]
            others = alone != self._own[sender]
            message, alone = message[others], alone[others]
            alone = self._routes.numbers(sender[others], alone)
        return alone, _Positions(
            messages.packet[message],
            np.zeros(message.size, np.int32),
            messages.start[message],
            messages.length[message],
        )

    def _learn(self) -> None:
        new = self._sets[self._start.size - 1 :]
        if not new:
            return
        if not self._alone:
            self._alone = {each[0]: at for at, each in enumerate(self._sets) if len(each) == 1}
            own = [self._alone.get(name, -1) for name in self._publishers]
            self._own = np.array(own, np.int32)
        places = [self._alone[host] for receivers in new for host in receivers]
        ends = self._start[-1] + np.cumsum([len(receivers) for receivers in new])
        self._start = np.concatenate((self._start, ends))
        self._pool = np.concatenate((self._pool, np.array(places, np.int32)))
