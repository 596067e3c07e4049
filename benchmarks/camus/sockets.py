"""Filtering in a switch, at a host, and before the wire, by real UDP sockets on one machine.

As in CAMUS 4 the publisher stamps what it sends and a host on the same machine tells when each
order of interest was found. The kernel stamps every packet, too, when it puts it into the host's
queue, so a time falls into three: on the way there, in the queue, and in the host's own hands. What
Lindley's recursion makes of the stamps and of the host's times stands beside the queue that was
seen.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.camus.host import Filter, Receiver, Seen
from benchmarks.camus.queueing import waits
from benchmarks.camus.switch import SUBSCRIBER, SwitchProcess, network
from benchmarks.camus.told import TOLD, curve, quantile
from benchmarks.camus.workloads import (
    HEADERS,
    WORKLOADS,
    Drawn,
    bursts,
    frames_of,
    is_wanted,
    joined,
    orders_of,
    read_orders,
)
from benchmarks.p4.workloads import PUBLISHER
from benchmarks.support.results import Lines
from stackcast.jobs.adapters.wire.sendmmsg import FrameSender
from stackcast.jobs.adapters.wire.udp import parse_endpoint
from stackcast.lab.up.broker import free_ports
from stackcast.udfs.messages.reference import build_packet, read_packet

BURST = 32.0
"""Packets that a publisher hands over at once, in the mean; what programs of DPDK usually take."""
LOADS = (0.3, 0.6, 0.9)
"""Rates, of what the slowest of the ways that are compared can take."""
SECONDS = 4.0
MOST = 150_000
"""Packets of a run."""
FLOOD = {"direct": 20_000, "switch": 2_000}
GROUP, PORT = int(IPv4Address("239.1.1.1")), 26_400
_PLAIN_PORT = 26_401
_PATIENCE = 5.0
_QUIET_S = 0.5

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Way:
    """Where filters stand. switch: a software switch is on the way. filters: ``host``, ``switch``,
    or ``publisher``, which matches before the wire by our compiled loops. kernels: the host looks
    by them, too."""

    name: str
    switch: bool
    filters: str
    kernels: bool = False


HOST = Way("host", False, "host")
KERNELS = Way("host, compiled loops", False, "host", kernels=True)
BEFORE = Way("before the wire", False, "publisher")
FORWARD = Way("switch forwards, host filters", True, "host")
SWITCH = Way("switch filters", True, "switch")
DIRECT, BY_SWITCH = (HOST, KERNELS, BEFORE), (FORWARD, SWITCH)
COMPARED = ((HOST, BEFORE), (FORWARD, SWITCH))
"""Who filters at the host, and who before it, on the same way."""


class Feed:
    """Packets of a workload as frames: to the group, which switches filter, and to the host."""

    def __init__(self, name: str, drawn: Drawn, orders: Sequence[bytes]) -> None:
        self.name, self.drawn, self.orders = name, drawn, orders
        self._network = network()

    @cached_property
    def _events(self) -> list[bytes]:
        publisher = self._network.hosts[PUBLISHER]
        return frames_of(self.drawn, self.orders, publisher, GROUP, PORT)

    @cached_property
    def _plain(self) -> list[bytes]:
        hosts = self._network.hosts
        to = hosts[SUBSCRIBER].ipv4
        return frames_of(self.drawn, self.orders, hosts[PUBLISHER], to, _PLAIN_PORT)

    def frames(self, way: Way) -> list[bytes]:
        """Returns the frames of a way, one a packet."""
        return self._plain if way is FORWARD else self._events


class Publisher:
    """Sends frames by bursts at given times, and stamps each burst as it hands it over."""

    def __init__(self, wire: socket.socket, way: Way) -> None:
        self._sender = FrameSender(wire, "the experiment's wire", _PATIENCE)
        self._filter = Filter() if way.filters == "publisher" else None

    def send(self, frames: Sequence[bytes], first: Numbers, due: NDArray[np.float64]) -> Numbers:
        """Returns ns since 1970 of each burst: int64[b].

        first: int64[b + 1], the first frame of each burst and the end. due: float64[b], seconds
        after the beginning.
        """
        data, borders = joined(frames)
        stamps = np.zeros(len(due), np.int64)
        spans = list(zip(first[:-1].tolist(), first[1:].tolist(), strict=True))
        began = time.monotonic()
        for number, (begin, end) in enumerate(spans):
            ahead = began + due[number] - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
            stamps[number] = time.time_ns()
            if self._filter is None:
                self._sender.send(data, borders[begin : end + 1])
            else:
                self._send_wanted(frames[begin:end])
        return stamps

    def _send_wanted(self, frames: Sequence[bytes]) -> None:
        """Sends what is of interest in a burst: a packet of each that has some, cut to that."""
        assert self._filter is not None
        before = HEADERS - 20
        data, borders = joined(frame[before:] for frame in frames)
        counts, _, packets = self._filter(data, borders)
        if not len(packets):
            return
        numbers, kept = np.unique(packets, return_counts=True)
        out = [
            frames[at]
            if some == counts[at]
            else frames[at][:before] + wanted_packet(frames[at][before:])
            for at, some in zip(numbers.tolist(), kept.tolist(), strict=True)
        ]
        self._sender.send(*joined(out))


def wanted_packet(packet: bytes) -> bytes:
    """Returns a MoldUDP64 packet with the orders of interest of another."""
    session, sequence, orders = read_packet(packet)
    return build_packet(session, sequence, [each for each in orders if is_wanted(each)])


class Stage:
    """Publisher, host, and the switch between them where a way has one."""

    def __init__(self, publisher: Publisher, host: Receiver) -> None:
        self._publisher, self._host = publisher, host

    def run(
        self, frames: Sequence[bytes], first: Numbers, due: NDArray[np.float64]
    ) -> tuple[Numbers, Seen]:
        """Returns the stamps of bursts, and what the host saw by the time that no more came."""
        self._host.taken()
        stamps = self._publisher.send(frames, first, due)
        parts = [self._host.taken()]
        while True:
            time.sleep(_QUIET_S)
            parts.append(self._host.taken())
            if not len(parts[-1].arrived):
                return stamps, _together(parts)


def _together(parts: Sequence[Seen]) -> Seen:
    before = np.cumsum([0, *(len(each.arrived) for each in parts)])
    moved = [each._replace(packet=each.packet + b) for each, b in zip(parts, before, strict=False)]
    return Seen(*(np.concatenate(columns) for columns in zip(*moved, strict=True)))


@contextmanager
def stage(way: Way) -> Iterator[Stage]:
    """Brings up the processes of a way."""
    ends = [f"127.0.0.1:{port}" for port in free_ports(4)]
    publisher, host, near, far = ends
    with ExitStack() as stack:
        receiver = stack.enter_context(Receiver(host, way.kernels))
        wire = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        wire.bind(parse_endpoint(publisher))
        wire.connect(parse_endpoint(near if way.switch else host))
        if way.switch:
            stack.enter_context(SwitchProcess((near, far), (publisher, host)))
        yield Stage(Publisher(wire, way), receiver)


@dataclass(frozen=True)
class Outcome:
    """A run: ns of each order of interest that came, and what they are made of."""

    took: Numbers
    way_there: Numbers
    queued: Numbers
    looked: Numbers
    seen: Seen


def outcome(drawn: Drawn, first: Numbers, stamps: Numbers, seen: Seen) -> Outcome:
    """Joins what was sent and what came by the numbers of orders."""
    sent = np.repeat(stamps, np.diff(first))[drawn.packet[seen.reference]]
    arrived, read, done = (each[seen.packet] for each in (seen.arrived, seen.read, seen.done))
    return Outcome(done - sent, arrived - sent, read - arrived, done - read, seen)


def run(quick: bool = False, itch: str | None = None) -> None:
    """Measures; ``quick`` a tenth as long and at one load. itch: a BinaryFILE, as a workload."""
    lines = Lines("camus", "sockets")
    seconds, loads = (SECONDS / 10, LOADS[1:2]) if quick else (SECONDS, LOADS)
    feeds = [_feed(each.name, each.draw(MOST // (10 if quick else 1))) for each in WORKLOADS]
    if itch is not None:
        drawn, orders = read_orders(itch, MOST // (10 if quick else 1))
        lines.say("file", orders=len(orders), share=float(drawn.wanted.mean()))
        if drawn.wanted.any():
            feeds.append(Feed("file", drawn, orders))
    for ways in (DIRECT, BY_SWITCH):
        measured = _compared(lines, feeds, ways, seconds, loads)
        _comparisons(lines, measured)


def _feed(name: str, drawn: Drawn) -> Feed:
    return Feed(name, drawn, orders_of(drawn))


Key = tuple[str, float, str]
"""Workload, load, way."""


def _compared(
    lines: Lines, feeds: Sequence[Feed], ways: Sequence[Way], seconds: float, loads: Sequence[float]
) -> dict[Key, NDArray[np.float64]]:
    """Measures ways that have a wire in common at the same rates: shares of what the host takes, or
    the switch that filters."""
    slowest = next(way for way in ways if way in (HOST, SWITCH))
    with stage(slowest) as up:
        most = {feed.name: _capacity(lines, up, slowest, feed) for feed in feeds}
    found: dict[Key, NDArray[np.float64]] = {}
    for way in ways:
        with stage(way) as up:
            for feed in feeds:
                for load in loads:
                    rate = load * most[feed.name]
                    done = _run(lines, up, way, feed, load, rate, seconds)
                    found[feed.name, load, way.name] = done.took.astype(np.float64)
    return found


def _capacity(lines: Lines, up: Stage, way: Way, feed: Feed) -> float:
    """Returns packets a second that a way is through with while more wait."""
    count = min(FLOOD["switch" if way.switch else "direct"], len(feed.drawn.sizes))
    frames = feed.frames(way)[:count]
    # The last is of interest, so that it tells when the switch is through.
    frames = [*frames[:-1], _of_interest(feed, way)]
    stamps, seen = up.run(frames, np.array([0, count]), np.zeros(1))
    if way.switch:
        a_second = (count - 1) / max(1, int(seen.arrived.max() - stamps[0])) * 1e9
    else:
        a_second = (len(seen.done) - 1) / max(1, int(seen.done[-1] - seen.done[0])) * 1e9
    sizes = feed.drawn.sizes[:count]
    lines.say(
        "capacity",
        way=way.name,
        workload=feed.name,
        packets_per_second=a_second,
        messages_a_packet=float(sizes.mean()),
        messages_per_second=a_second * float(sizes.mean()),
    )
    return float(a_second)


def _of_interest(feed: Feed, way: Way) -> bytes:
    """Returns a frame of the feed that has an order of interest."""
    return feed.frames(way)[int(np.argmax(feed.drawn.kept > 0))]


def _run(
    lines: Lines,
    up: Stage,
    way: Way,
    feed: Feed,
    load: float,
    rate: float,
    seconds: float,
) -> Outcome:
    count = max(100, min(len(feed.drawn.sizes), int(rate * seconds)))
    random = np.random.default_rng([count, round(load * 100)])
    first = bursts(count, BURST, random.random)
    due = np.cumsum(random.exponential(count / rate / (len(first) - 1), len(first) - 1))
    stamps, seen = up.run(feed.frames(way)[:count], first, due)
    wanted = int(feed.drawn.kept[:count].sum())
    found = outcome(feed.drawn, first, stamps, seen)
    more: dict[str, Any] = {}
    if not way.kernels and len(seen.arrived) > 1:
        more = {"predicted": _spread(predicted_queue(seen)[seen.packet])}
    lines.say(
        "run",
        way=way.name,
        workload=feed.name,
        load=load,
        rate=rate,
        offered=(count - 1) / max(1, int(stamps[-1] - stamps[0])) * 1e9,
        packets=count,
        of_interest=wanted,
        came=len(found.took),
        reached_host=len(seen.arrived) / count,
        took=_spread(found.took),
        way_there=_spread(found.way_there),
        queued=_spread(found.queued),
        looked=_spread(found.looked),
        curve=[(ns / 1000, share) for ns, share in curve(found.took.astype(np.float64))]
        if len(found.took)
        else [],
        **more,
    )
    return found


def predicted_queue(seen: Seen, seed: int = 1) -> NDArray[np.float64]:
    """Returns the ns that each packet would wait by Lindley's recursion: float64[p].

    Arrivals are those that the kernel stamped. What the host takes for a packet is drawn from what
    it was seen to take for those with as many messages while another waited, in any order.
    """
    random = np.random.default_rng(seed)
    between = np.diff(seen.read)
    busy = np.append(seen.arrived[1:] <= seen.done[:-1], False)
    services = np.zeros(len(seen.read))
    for size in np.unique(seen.messages):
        alike = seen.messages == size
        some = between[(alike & busy)[:-1]]
        if not len(some):
            some = (seen.done - seen.read)[alike]
        services[alike] = random.choice(some, np.count_nonzero(alike))
    return waits((seen.arrived - seen.arrived[0]).astype(np.float64), services)


def _spread(ns: NDArray[Any]) -> dict[str, float]:
    """µs."""
    if not len(ns):
        return {}
    values = np.asarray(ns, np.float64) / 1000
    return {
        "mean": float(values.mean()),
        "p50": quantile(values, 0.5),
        "p99": quantile(values, 0.99),
        "max": float(values.max()),
    }


def _comparisons(lines: Lines, measured: dict[Key, NDArray[np.float64]]) -> None:
    for host, switch in COMPARED:
        for (workload, load, way), took in measured.items():
            if way != host.name or not len(took):
                continue
            other = measured[workload, load, switch.name]
            if not len(other):
                continue
            told = TOLD.get(workload)
            lines.say(
                "compared",
                workload=workload,
                load=load,
                host=host.name,
                switch=switch.name,
                ratio=quantile(took, 0.99) / quantile(other, 0.99),
                **({"text": told.value, "seen": told.seen(other, took)} if told else {}),
            )
