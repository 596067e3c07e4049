"""Software switches that run a program of ``p4/``, and entries for tests to write to them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable
from contextlib import contextmanager

from paths import COMPILED_P4

from stackcast.jobs.adapters.switches.credentials import Credentials
from stackcast.jobs.adapters.switches.program import P4Program
from stackcast.jobs.adapters.switches.results import SwitchTarget
from stackcast.jobs.adapters.switches.session import SwitchSession
from stackcast.udfs.network.network import Switch
from stackcast.udfs.switches.entry import SwitchEntry
from stackcast.udfs.switches.ports import FAN_OUT, NARROW_PORTS, SUBSET, port_groups
from stackcast.udfs.switches.sources import trusted_ports


@contextmanager
def holding(switch, entries):
    """The switch with these entries, and without them afterwards."""
    switch.apply({entry.key: entry for entry in entries})
    try:
        yield switch
    finally:
        switch.apply(dict.fromkeys(entry.key for entry in entries))


def dropped(reasons, switch):
    """How many frames the switch's program has dropped, by reason."""
    return [switch.counter("ingress.dropped", index)[0] for index in range(len(reasons))]


def told(reasons, switch, port, frame):
    """The copies, sorted, and the names of the reasons that were counted."""
    before = dropped(reasons, switch)
    copies = sorted(switch.process(port, frame))
    counts = zip(reasons, before, dropped(reasons, switch), strict=True)
    return copies, [name for name, old, new in counts for _ in range(new - old)]


def crossings(network, switches, switch, port, frame, between=lambda link, copy: copy):
    """Yields each link that a copy crosses, and the copy. between: makes of it what arrives."""
    ends = {(link.switch, link.port): link for link in network.links}
    waiting = deque([(switch, port, frame)])
    crossed = 0
    while waiting:
        name, entered, data = waiting.popleft()
        for out, copy in switches[name].process(entered, data):
            crossed += 1
            assert crossed <= 1000, "copies multiply"
            link = ends[name, out]
            yield link, copy
            if link.neighbor_port is not None:
                waiting.append((link.neighbor, link.neighbor_port, between(link, copy)))


def sent(network, switches, switch, port, frame):
    """Returns the frames that hosts receive, and each link that a copy crosses."""
    got, links = Counter(), []
    for link, copy in crossings(network, switches, switch, port, frame):
        links.append((link.switch, link.neighbor))
        if link.neighbor_port is None:
            got[link.neighbor, copy] += 1
    return got, links


_WITHIN = (1 << SUBSET) - 1


def group_of(mask: int) -> int | None:
    """Returns the group that sends to the ports of ``mask`` (bit p - 1 is port p); None for no
    port.

    `FAN_OUT` where they are of several subsets.
    """
    if not mask:
        return None
    subset = ((mask & -mask).bit_length() - 1) // SUBSET
    within = mask >> SUBSET * subset
    return FAN_OUT if within > _WITHIN else subset << SUBSET | within


#: Ingress ports of tests: each egress port of the programs, and some higher ones.
OPEN = (*range(NARROW_PORTS + 1), 100, 257, 300, 511)


def open_ports(
    switch: str, ports: Collection[int], entered: Iterable[int] = range(1, NARROW_PORTS + 1)
) -> list[SwitchEntry]:
    """The groups of these ports, and entries that take everything from those ``entered``."""
    return [*port_groups(switch, ports), *trusted_ports(switch, entered)]


def fill(
    address: str,
    switch: Switch,
    entries: Iterable[SwitchEntry],
    program: str = "virtual_trees",
    credentials: Credentials | None = None,
) -> None:
    """Set a switch's program if it runs another, and make it hold those ``entries`` that are its
    own."""
    desired = [entry for entry in entries if entry.switch == switch.name]
    target = SwitchTarget(switch.name, address, switch.device_id)
    with SwitchSession(target, credentials) as session:
        outcome = session.refresh(desired, P4Program.read(COMPILED_P4, program))
    assert outcome.in_sync, outcome.errors
    assert outcome.installed == len(desired) > 0
