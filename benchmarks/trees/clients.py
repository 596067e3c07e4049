"""Clients of the scenarios of WERNECKE 5.4, 6.5 and 6.6, drawn with a seed, at rest or moving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random

from benchmarks.trees.networks import Zoo
from stackcast.udfs.network.network import Network
from stackcast.udfs.trees.publications import Clients, Publication, Statistics

PAYLOAD = 50
DATAGRAM = 20 + 8 + PAYLOAD
"""Bytes of a notification as an IPv4 datagram: headers of IPv4 and UDP, and the payload."""


@dataclass(frozen=True)
class Crowd:
    """Publishers, each with its subscribers, and how likely each host wants a notification.

    frequency: host → 0.01..1, fixed while the scenario runs (WERNECKE 5.4.1).
    """

    subscribers: Mapping[str, tuple[str, ...]]
    frequency: Mapping[str, float]

    def clients(self) -> Clients:
        return Clients(
            {name: frozenset(hosts) for name, hosts in self.subscribers.items()},
            {
                name: frozenset(host for host in hosts if self.frequency[host] >= 1.0)
                for name, hosts in self.subscribers.items()
            },
        )

    def draw(self, random: Random, notifications: int) -> list[Publication]:
        """Returns ``notifications`` of each publisher, without those that nobody wants."""
        drawn = []
        for publisher, hosts in self.subscribers.items():
            for _ in range(notifications):
                wanted = frozenset(h for h in hosts if random.random() < self.frequency[h])
                if wanted:
                    drawn.append(Publication(publisher, wanted, 1, DATAGRAM))
        return drawn


def frequencies(network: Network, random: Random) -> dict[str, float]:
    """For every host a likelihood, uniform over 1 % to 100 %."""
    return {host: random.randint(1, 100) / 100 for host in network.hosts}


def by_rank(who: Crowd, random: Random) -> Crowd:
    """Returns the same clients, whose likelihoods follow Zipf's law: 1 for one host, drawn at
    random, 1/2 for the next, and so on."""
    hosts = list(who.frequency)
    random.shuffle(hosts)
    return replace(who, frequency={host: 1 / rank for rank, host in enumerate(hosts, 1)})


def crowd(
    network: Network,
    random: Random,
    publishers: float,
    subscribers: float,
    weights: Mapping[str, float] | None = None,
) -> Crowd:
    """``publishers`` (a share of all hosts) publish, each to a share ``subscribers`` of all hosts.

    ``weights``: how likely a host is drawn, compared with others; all alike without.
    """
    hosts = list(network.hosts)
    likely = weights or dict.fromkeys(hosts, 1.0)
    chosen = sample(random, hosts, likely, round(publishers * len(hosts)))
    return Crowd(
        {
            name: tuple(
                sample(
                    random,
                    [host for host in hosts if host != name],
                    likely,
                    round(subscribers * len(hosts)),
                )
            )
            for name in chosen
        },
        frequencies(network, random),
    )


def sample(
    random: Random, names: Sequence[str], weights: Mapping[str, float], count: int
) -> list[str]:
    """Returns ``count`` different names, each draw in proportion to the weights of those left."""
    left = list(names)
    taken = []
    for _ in range(min(count, len(left))):
        sums = list(accumulate(weights[name] for name in left))
        point = random.random() * sums[-1]
        place = next((n for n, end in enumerate(sums) if point < end), len(left) - 1)
        taken.append(left.pop(place))
    return taken


def recorded(who: Crowd, random: Random, notifications: int) -> Statistics:
    """Returns statistics of ``notifications`` of each publisher."""
    return Statistics(who.draw(random, notifications))


MIGRATIONS = ("uniform", "nearby", "distant")


def migration(place: Zoo, name: str) -> tuple[dict[str, float] | None, dict[str, float] | None]:
    """Returns the weights by which hosts are drawn before and after (WERNECKE 6.6.1)."""
    if name == "uniform":
        return None, None
    if name == "nearby":
        return place.weights(), place.weights()
    old, new = place.apart()
    return place.weights(old), place.weights(new)


class Moving:
    """Clients that move from host to host (WERNECKE 6.6.1).

    The number of publishers, and of the subscribers of each, never changes.
    """

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
