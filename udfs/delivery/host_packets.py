"""Packets per host if switches match events: a host gets only those messages of a packet that it
subscribes to, and the packet keeps its sequence number."""

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
    """Repeats messages for each of their receivers, so that frames are built per host.

    Args:
        sets: receiver sets by delivery, including a set for each single host.
        routes: routes of messages.
        publishers: names of the publishers by number, if there are several. A publisher does not
            receive its own messages, because a switch does not send an event back to its port.
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
        # int32[p]: the delivery to each publisher, or -1 if it receives nothing.
        self._own = np.zeros(0, np.int32)
        # Delivery d is split into the deliveries ``_pool[_start[d]:_start[d + 1]]`` to one host.
        self._start = np.zeros(1, np.int64)
        self._pool = np.zeros(0, np.int32)

    def split(
        self, route: NDArray[np.int32], messages: MessagePositions
    ) -> tuple[NDArray[np.int32], MessagePositions]:
        """Return the route to each single receiver, and the positions of its messages.

        The messages of a host keep the sequence number of their packet, which switches do not
        change.

        Args:
            route: int32[m], route of each message.
            messages: positions of the messages.
        """
        self._learn()
        sender, delivery = self._routes.pairs(route)
        message, alone = kernels.by_receiver(delivery, self._start, self._pool)
        if self._publishers:
            sender = sender[message]
            foreign = alone != self._own[sender]
            message, alone = message[foreign], alone[foreign]
            alone = self._routes.numbers(sender[foreign], alone)
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
            self._alone = {
                receivers[0]: number
                for number, receivers in enumerate(self._sets)
                if len(receivers) == 1
            }
            own = [self._alone.get(name, -1) for name in self._publishers]
            self._own = np.array(own, np.int32)
        places = [self._alone[host] for receivers in new for host in receivers]
        ends = self._start[-1] + np.cumsum([len(receivers) for receivers in new])
        self._start = np.concatenate((self._start, ends))
        self._pool = np.concatenate((self._pool, np.array(places, np.int32)))
