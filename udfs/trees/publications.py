"""Use of a network, as strategies and retuning know it: possible receivers of each publisher, and
publications on record (WERNECKE 5.3.4, 5.3.6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Publication:
    """Notifications of one publisher to one set of receivers.

    ``datagram_bytes``: of the IPv4 datagrams of all ``notifications`` together.
    """

    publisher: str
    receivers: frozenset[str]
    notifications: int = 1
    datagram_bytes: int = 0


def by_entry(publications: Iterable[Publication], publishers: Sequence[str]) -> list[Publication]:
    """Returns publications as they enter the network: what a publisher gets of its own by the link
    of the next of ``publishers``, in turn. Those of others stay as they are."""
    following = dict(zip(publishers, [*publishers[1:], *publishers[:1]], strict=True))
    made = []
    for each in publications:
        own = each.receivers & {each.publisher} & following.keys()
        if own:
            made.append(replace(each, publisher=following[each.publisher], receivers=own))
        made.append(replace(each, receivers=each.receivers - own))
    return [each for each in made if each.receivers]


@dataclass(frozen=True)
class Clients:
    """Holds the receivers of each publisher by the filters alone, without traffic (WERNECKE 5.3.4).

    potential: publisher → hosts that may receive what it publishes, those of ``permanent`` among
    them. permanent: publisher → hosts that receive all of it. Publishers without an entry, and
    hosts that no publisher can match, take no part.
    """

    potential: Mapping[str, frozenset[str]]
    permanent: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def publishers(self) -> tuple[str, ...]:
        """Returns the publishers, sorted."""
        return tuple(sorted(self.potential))

    def hosts(self) -> frozenset[str]:
        """Returns all hosts that publish or may receive."""
        return frozenset(self.potential).union(*self.potential.values())


class Statistics:
    """Holds publications on record, those of equal publisher and receivers added up.

    ``publications`` are in an order of their own, so the order of the input has no effect.
    """

    def __init__(self, publications: Iterable[Publication] = ()) -> None:
        notifications: Counter[tuple[str, frozenset[str]]] = Counter()
        size: Counter[tuple[str, frozenset[str]]] = Counter()
        for each in publications:
            notifications[each.publisher, each.receivers] += each.notifications
            size[each.publisher, each.receivers] += each.datagram_bytes
        self.publications: tuple[Publication, ...] = tuple(
            Publication(*key, notifications[key], size[key])
            for key in sorted(notifications, key=lambda key: (key[0], sorted(key[1])))
        )
        self._of_publisher: Counter[str] = Counter()
        self._of_pair: Counter[tuple[str, str]] = Counter()
        for each in self.publications:
            self._of_publisher[each.publisher] += each.notifications
            for receiver in each.receivers:
                self._of_pair[each.publisher, receiver] += each.notifications

    def notifications(self, publisher: str) -> int:
        return self._of_publisher[publisher]

    def frequency(self, publisher: str, subscriber: str) -> float:
        """Returns the share of the publisher's notifications that the subscriber received, 0..1."""
        of_all = self._of_publisher[publisher]
        return self._of_pair[publisher, subscriber] / of_all if of_all else 0.0
