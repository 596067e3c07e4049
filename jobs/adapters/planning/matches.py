"""Rows of table ``matches``: permanent, potential and no match (WERNECKE 5.3.4, Fig. 5.7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from udfs.delivery.plan import Compilation
from udfs.filters.subscriptions import Subscription
from udfs.network.network import Network
from udfs.retuning.relations import clients_of

_SOURCES = ("subscriptions", "advertisements", "attributes")


def match_rows(
    compilation: Compilation,
    subscriptions: Sequence[Subscription],
    network: Network,
    publisher: str,
) -> list[dict[str, Any]]:
    """A row for each host that subscribes, by name; none where nothing is advertised.

    Errors: as of ``clients_of``.
    """
    if not compilation.announced:
        return []
    specification = compilation.plan.specification
    # The order that the stream's own tables are in costs as little here.
    order = [field.qualified for field in compilation.plan.matcher.definitions]
    found = clients_of(
        compilation.announced, subscriptions, network, specification, [publisher], order
    )
    versions = {name: v for name, v in compilation.versions.items() if name in _SOURCES}
    hosts = sorted({name for rule in compilation.rules for name in rule.receivers})
    return [
        {
            "publisher": publisher,
            "subscriber": host,
            "match": "permanent"
            if host in found.permanent[publisher]
            else "potential"
            if host in found.potential[publisher]
            else "none",
            "versions": versions,
        }
        for host in hosts
    ]
