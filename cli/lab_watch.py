"""Lines of ``stackcast lab status --watch``: counters of a host, a switch or a link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

#: Number of hosts and of links that an error gives as examples.
_EXAMPLES = 3


def check(name: str, counters: Mapping[str, Any]) -> None:
    """Check that a lab has a host, switch or link of this name.

    Args:
        name: the name; a link is written as ``FROM,TO``.
        counters: counters of the lab.

    Raises:
        typer.BadParameter: there is none.
    """
    if name in counters["deliveries"] or any(_links(name, counters).values()):
        return
    hosts, links = list(counters["deliveries"]), list(counters["link_bytes"])
    link_names = ", ".join(link.replace("->", ",") for link in links[-_EXAMPLES:])
    raise typer.BadParameter(
        f"the lab has no host ({', '.join(hosts[:_EXAMPLES])}, ...), no switch, and no link "
        f"({link_names}, ...) named {name!r}"
    )


def line(name: str, before: Mapping[str, Any], after: Mapping[str, Any], seconds: float) -> str:
    """Return the counts of a host, switch or link, and their growth per second.

    Args:
        name: name of a host or switch, or a direction of a link as ``FROM,TO``.
        before: previous reading of ``Lab.status()``.
        after: current reading.
        seconds: time between the readings.
    """

    def counted(label: str, counts: tuple[int, int]) -> str:
        return f"{label} {counts[1]:,} (+{(counts[1] - counts[0]) / seconds:,.0f}/s)"

    parts = []
    if name in after["deliveries"]:
        parts.append(counted("deliveries", (before["deliveries"][name], after["deliveries"][name])))
    for label, links in _links(name, after).items():
        if links:
            sums = (
                sum(reading["link_bytes"][link] for link in links) for reading in (before, after)
            )
            parts.append(counted(label, tuple(sums)))
    drops = after["switch_drops"].get(name, {})
    parts += [f"dropped {count:,} {reason}" for reason, count in drops.items()]
    return f"{name}: {', '.join(parts)}"


def _links(name: str, counters: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the links of a name, by the label of the bytes that they carried."""
    links = counters["link_bytes"]
    return {
        "bytes": [link for link in links if link == name.replace(",", "->")],
        "bytes in": [link for link in links if link.split("->")[1] == name],
        "bytes out": [link for link in links if link.split("->")[0] == name],
    }
