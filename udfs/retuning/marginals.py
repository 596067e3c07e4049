"""Publications as they may have been, where only counts by subscriber are on record."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from udfs.trees.publications import Publication

#: Receiver sets drawn for a publisher.
_DRAWS = 1_000


@dataclass(frozen=True)
class Marginal:
    """What one publisher sent to one subscriber: frames, and their bytes."""

    publisher: str
    subscriber: str
    notifications: int
    bytes: int


def sample(
    marginals: Iterable[Marginal], sent: Mapping[str, int], seed: int = 0
) -> list[Publication]:
    """Publications with these counts by subscriber, on average, as if subscribers were independent.

    sent: notifications of a publisher in all, as far as known; at least those of its busiest
    subscriber count. The same input gives the same draw on any machine.
    """
    by_publisher: dict[str, dict[str, Marginal]] = {}
    for each in marginals:
        if each.notifications > 0:
            by_publisher.setdefault(each.publisher, {})[each.subscriber] = each
    found = []
    for publisher, rows in sorted(by_publisher.items()):
        received = sum(each.notifications for each in rows.values())
        most = max(each.notifications for each in rows.values())
        total = min(max(most, sent.get(publisher, 0)), received)
        size = round(sum(each.bytes for each in rows.values()) / received)
        lots = random.Random(f"{seed} {publisher}")
        draws = min(total, _DRAWS)
        for number in range(draws):
            # Together they stand for all that was sent.
            weight = total * (number + 1) // draws - total * number // draws
            receivers = frozenset(
                name for name in sorted(rows) if lots.random() * total < rows[name].notifications
            )
            if receivers:
                found.append(Publication(publisher, receivers, weight, weight * size))
    return found
