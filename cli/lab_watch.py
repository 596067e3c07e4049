"""What ``stackcast lab status --watch`` says of a host, a switch or a link, from look to look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

_SOME = 3


def check(name: str, counters: Mapping[str, Any]) -> None:
    """Raises ``typer.BadParameter`` if a lab with these counters has nothing of the name."""
    if name in counters["deliveries"] or any(_links(name, counters).values()):
        return
    hosts, links = list(counters["deliveries"]), list(counters["link_bytes"])
    shown = ", ".join(link.replace("->", ",") for link in links[-_SOME:])
    raise typer.BadParameter(
        f"{name!r} is no host ({', '.join(hosts[:_SOME])}, ...), no switch, "
        f"and no link ({shown}, ...)"
    )


def line(name: str, before: Mapping[str, Any], now: Mapping[str, Any], seconds: float) -> str:
    """Returns the counts of what bears a name, and what they grew by in each second.

    name: a host, a switch, or a link's direction as ``FROM,TO``. before, now: ``Lab.status()``.
    """

    def told(words: str, counts: tuple[int, int]) -> str:
        return f"{words} {counts[1]:,} (+{(counts[1] - counts[0]) / seconds:,.0f}/s)"

    parts = []
    if name in now["deliveries"]:
        parts.append(told("deliveries", (before["deliveries"][name], now["deliveries"][name])))
    for words, links in _links(name, now).items():
        if links:
            counts = (sum(each["link_bytes"][link] for link in links) for each in (before, now))
            parts.append(told(words, tuple(counts)))
    drops = now["switch_drops"].get(name, {})
    parts += [f"dropped {count:,} {reason}" for reason, count in drops.items()]
    return f"{name}: {', '.join(parts)}"


def _links(name: str, counters: Mapping[str, Any]) -> dict[str, list[str]]:
    """Its links, by what is said of their bytes."""
    links = counters["link_bytes"]
    return {
        "bytes": [link for link in links if link == name.replace(",", "->")],
        "bytes in": [link for link in links if link.split("->")[1] == name],
        "bytes out": [link for link in links if link.split("->")[0] == name],
    }
