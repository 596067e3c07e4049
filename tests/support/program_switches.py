"""Software switches that run a program of ``p4/`` with entries of a test's own."""

from __future__ import annotations

from collections import Counter, deque
from contextlib import contextmanager


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
    """What hosts receive, and every link that a copy crosses."""
    got, links = Counter(), []
    for link, copy in crossings(network, switches, switch, port, frame):
        links.append((link.switch, link.neighbor))
        if link.neighbor_port is None:
            got[link.neighbor, copy] += 1
    return got, links
