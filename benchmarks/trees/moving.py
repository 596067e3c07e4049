"""Clients that move from host to host: the migrations of WERNECKE 6.6.1."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from benchmarks.trees.clients import Crowd, sample
from benchmarks.trees.networks import Zoo
from udfs.network.network import Network

MIGRATIONS = ("uniform", "nearby", "distant")


def migration(place: Zoo, name: str) -> tuple[dict[str, float] | None, dict[str, float] | None]:
    """How likely hosts are drawn before and after (WERNECKE 6.6.1)."""
    if name == "uniform":
        return None, None
    if name == "nearby":
        return place.weights(), place.weights()
    old, new = place.apart()
    return place.weights(old), place.weights(new)


class Moving:
    """Clients on their way. The number of publishers and of subscribers of each never changes."""

    def __init__(
        self,
        network: Network,
        random: Random,
        who: Crowd,
        towards: Mapping[str, float] | None,
    ) -> None:
        self._random = random
        self._hosts = list(network.hosts)
        self._towards = towards or dict.fromkeys(self._hosts, 1.0)
        self._frequency = who.frequency
        self._publishers = list(who.subscribers)
        self._subscribers = [list(hosts) for hosts in who.subscribers.values()]
        slots = [(n, -1) for n in range(len(self._publishers))]
        slots += [(n, m) for n, hosts in enumerate(self._subscribers) for m in range(len(hosts))]
        random.shuffle(slots)
        self._slots = slots
        self._moved = 0

    def move(self, share: float) -> None:
        """On to where this share of all clients has moved."""
        until = round(share * len(self._slots))
        for publisher, subscriber in self._slots[self._moved : until]:
            if subscriber < 0:
                self._move_publisher(publisher)
            else:
                taken = {self._publishers[publisher], *self._subscribers[publisher]}
                self._subscribers[publisher][subscriber] = self._draw(taken)
        self._moved = until

    def crowd(self) -> Crowd:
        return Crowd(
            dict(zip(self._publishers, map(tuple, self._subscribers), strict=True)),
            self._frequency,
        )

    def _move_publisher(self, number: int) -> None:
        old, new = self._publishers[number], self._draw(set(self._publishers))
        hosts = self._subscribers[number]
        # A subscriber that the publisher finds on its new host changes places with it.
        self._subscribers[number] = [old if host == new else host for host in hosts]
        self._publishers[number] = new

    def _draw(self, taken: set[str]) -> str:
        free = [host for host in self._hosts if host not in taken]
        return sample(self._random, free, self._towards, 1)[0]
