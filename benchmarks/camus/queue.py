"""The text's curves as those of a queue: what its host would have had to be like, and what follows.

CAMUS 4 gives the link, the shares and the messages of a packet, but neither rates nor what its host
takes for a packet. So both are looked for: the burst by which the curve of the switch's filter goes
through the text's point, and the host's time by which that of the host's does, each at several
loads of the link. Then the host of one workload is put to the others: at which rate would it go
through their points? Two things are fitted to two points each time, so these fits show what would
be needed, and test nothing; what tests the model is one workload's answers put to the others as
they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from benchmarks.camus.queueing import Load, latencies, waits, within
from benchmarks.camus.told import TOLD, Told, curve
from benchmarks.camus.workloads import WORKLOADS, Drawn, Workload, read_orders
from benchmarks.support.results import Lines

LINKS = (0.02, 0.1, 0.3, 0.6)
"""Shares of the time that the link is busy."""
SHOWN = 0.3
"""The one that is drawn; chosen after the fits were seen, as three of four agree best there."""
LOADS = (0.5, 0.8, 0.95)
"""Shares of the time that the server of the closed form is busy."""
KNOWN = "synthetic, 5 %"
"""The workload whose host is put to the others."""
OF_INTEREST = 2000
"""Messages of interest that are aimed at."""
MOST = 600_000
NEARLY_ALL = 0.999
ROUNDS, STEPS = 2, 14
BOUNDS = {"burst": (1.0, 20_000.0), "packet_ns": (1.0, 20_000.0), "link": (0.002, 0.95)}


def run(quick: bool = False, itch: str | None = None) -> None:
    """Measures; ``quick`` with a tenth of the messages and one load. itch: a BinaryFILE."""
    lines = Lines("camus", "queue")
    links = (SHOWN,) if quick else LINKS
    _closed_form(lines, 100_000 if quick else 1_000_000)
    drawn = {each.name: each.draw(packets_of(each, quick)) for each in WORKLOADS}
    found: dict[str, Load] = {}
    for name, told in TOLD.items():
        for link in links:
            at = fitted(drawn[name], told, Load(1.0, 1.0, link))
            _say_fit(lines, name, told, drawn[name], at)
            if link == SHOWN:
                found[name] = at
                _curves(lines, name, drawn[name], at)
    for name, told in TOLD.items():
        at = fitted(drawn[name], told, replace(found[KNOWN], link=SHOWN), "link")
        _say_fit(lines, name, told, drawn[name], at, "one host")
        # And with nothing left to fit: the one place where the model can be wrong.
        switch, host = (latencies(drawn[name], found[KNOWN], way) for way in (True, False))
        lines.say(
            "predicted",
            workload=name,
            text=told.value,
            seen=told.seen(switch, host),
            switch_within=within(switch, told.switch[1] * 1000),
            host_within=within(host, told.host[1] * 1000),
        )
    _curves(lines, "worst case", drawn["worst case"], found["synthetic, 1 %"])
    if itch is not None:
        orders, _ = read_orders(itch, MOST)
        at = found["Nasdaq, 0.5 %"]
        lines.say(
            "file",
            orders=len(orders.sizes),
            share=float(orders.wanted.mean()),
            a_second=_own(orders),
        )
        if orders.wanted.any():
            _curves(lines, "file", orders, at)


def packets_of(workload: Workload, quick: bool) -> int:
    """Returns how many packets have enough messages of interest."""
    few = 10 if quick else 1
    mean = workload.draw(1000).sizes.mean()
    return int(min(MOST, max(60_000, OF_INTEREST / workload.share / mean)) / few)


def fitted(drawn: Drawn, told: Told, at: Load, open_: str = "packet_ns") -> Load:
    """Returns the load whose curves both go through the text's points, others as in ``at``.

    The burst is that of the switch's curve; ``open_``, ``packet_ns`` or ``link``, that of the
    host's. All is read as 99.9 %: how many messages "all" were the text does not say.
    """

    def late(at: Load, switch: bool) -> bool:
        share, us = told.switch if switch else told.host
        took = latencies(drawn, at, switch)
        return within(took, us * 1000) < min(share, NEARLY_ALL)

    for _ in range(ROUNDS):
        # What a switch lets through hardly keeps the host busy, so that either has an answer of
        # its own that moves the other's little.
        for name, switch in (("burst", True), (open_, False)):
            at = replace(
                at,
                **{
                    name: _least(
                        lambda x, at=at, name=name, switch=switch: late(
                            replace(at, **{name: x}), switch
                        ),
                        *BOUNDS[name],
                    )
                },
            )
    return at


def _least(too_much: Callable[[float], bool], low: float, high: float) -> float:
    """Returns about where it begins to be too much, by halving on a logarithmic scale."""
    for _ in range(STEPS):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if too_much(middle) else (middle, high)
    return (low * high) ** 0.5


def _closed_form(lines: Lines, packets: int) -> None:
    """M/D/1: the mean wait is load / (2 (1 - load)) services (Pollaczek and Khinchine)."""
    random = np.random.default_rng(1)
    ones = np.ones(packets)
    for load in LOADS:
        waited = waits(np.cumsum(random.exponential(1 / load, packets)), ones)
        lines.say(
            "closed form",
            load=load,
            mean=float(waited.mean()),
            wanted=load / (2 * (1 - load)),
            curve=curve(waited + 1),
        )


def _say_fit(
    lines: Lines, name: str, told: Told, drawn: Drawn, at: Load, line: str = "fit"
) -> None:
    switch, host = (latencies(drawn, at, way) for way in (True, False))
    lines.say(
        line,
        workload=name,
        link=at.link,
        host=at.host(drawn),
        burst=at.burst,
        packet_ns=at.packet_ns,
        packets_per_second=at.packets_per_second(drawn),
        text=told.value,
        seen=told.seen(switch, host),
        switch_within=within(switch, told.switch[1] * 1000),
        host_within=within(host, told.host[1] * 1000),
    )


def _curves(lines: Lines, name: str, drawn: Drawn, at: Load) -> None:
    """Both ways, and the host's filter as if looking took it no time: without its queue."""
    free = replace(at, packet_ns=0.0)
    ways = {
        "host": latencies(drawn, at, False),
        "switch": latencies(drawn, at, True),
        "host without a queue": latencies(drawn, free, False),
    }
    for way, took in ways.items():
        lines.say(
            "curve",
            workload=name,
            way=way,
            messages=len(took),
            mean_us=float(took.mean()) / 1000,
            curve=[(ns / 1000, share) for ns, share in curve(took)],
        )


def _own(orders: Drawn) -> float:
    """Returns new orders a second of a file, at its own times."""
    assert orders.times is not None
    return len(orders.times) / max(1e-9, float(orders.times[-1] - orders.times[0]) / 1e9)
