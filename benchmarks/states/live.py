"""What STARE leaves out: how long subscribing, publishing and recovering take, by the clock.

On one machine: software switches in a process, a middleware a host and the replica controller in
one each, programs in this one. Seconds are of this lab; what they can be compared with is the same
lab's unicast and its Kafka topic, measured beside.
"""

from __future__ import annotations

import select
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import program_switches
from kafka import KafkaConsumer, KafkaProducer

from benchmarks.states.carry import long_lived
from benchmarks.support.results import Lines
from stackcast.jobs.adapters.states.links import TunnelLink
from stackcast.jobs.adapters.states.replica import Replica
from stackcast.jobs.adapters.wire.udp import parse_endpoint
from stackcast.jobs.embedded.replication import ReplicationLab
from stackcast.lab.traffic.publisher import connect, ensure_topic
from stackcast.lab.up.broker import free_ports
from stackcast.lab.up.lab import Lab
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.states.frames import pack_frame
from stackcast.udfs.states.messages import MessageKind, StateHeader, group_of
from stackcast.udfs.switches.state_entries import state_entries

PROGRAM = "state_replication"
REPLICAS = 3
UPDATES = 1000
RATE = 100
BYTES = 1000
LOSSES = (0, 1, 2, 5, 10)
SUBSCRIPTIONS = 50
PATIENCE_S = 60.0
_TOPIC = "bench.states"


def network(hosts: int = REPLICAS) -> Network:
    """Returns a small fabric whose hosts all publish: one more for the controller, and the
    publisher ``feed1``."""
    return fabric(2, 2, 1, 1, 1, hosts + 2)


def run(updates: int = UPDATES) -> None:
    """Measures the data plane alone, then programs through middlewares, then where links lose
    frames."""
    lines = Lines("states", "latency")
    _wire(lines, updates)
    with _replicating() as up:
        _subscribing(lines, up)
        _publishing(lines, up, updates)
        _topic(lines, up.lab.bootstrap_servers, updates)
        _recovering(Lines("states", "recovery"), up, updates // 2)


def _recovering(lines: Lines, up: ReplicationLab, updates: int) -> None:
    """Where links lose frames."""
    lost = 0
    for percent in LOSSES:
        up.lab.ask({"command": "loss", "share": percent / 100})
        waits, stale, converged = _published(up, updates, f"lossy{percent}")
        before, lost = lost, up.lab.status()["drops"].get("loss", 0)
        lines.say(
            "recovery",
            loss=percent,
            updates=updates,
            came=len(waits) / (updates * REPLICAS),
            **_spread(waits),
            lost_frames=lost - before,
            mean_staleness_ms=stale[0],
            max_staleness_ms=stale[1],
            converged_ms=converged,
        )


@contextmanager
def _replicating() -> Iterator[ReplicationLab]:
    made = network()
    *hosts, controller = made.publishers()
    with (
        tempfile.TemporaryDirectory() as folder,
        ReplicationLab(Path(folder) / "lab", made, hosts, controller) as up,
    ):
        up.lab.up()
        _fill(up.lab, made)
        up.begin()
        up.ready()
        yield up


def _fill(lab: Lab, made: Network) -> None:
    entries = state_entries(made)
    for switch in made.switches.values():
        program_switches.fill(lab.p4runtime, switch, entries, PROGRAM)


# The data plane alone


def _wire(lines: Lines, updates: int) -> None:
    """Hosts that are sockets: register to ack, and an update to all, by the switches and by
    unicast."""
    made = network()
    publisher, *others, _ = made.publishers()
    names = (publisher, *others)
    ports = iter(free_ports(len(names)))
    ends = {name: f"127.0.0.1:{next(ports)}" for name in names}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        lab = stack.enter_context(Lab(Path(folder) / "lab", made, broker=False, tunnels=ends))
        lab.up()
        _fill(lab, made)
        links = {}
        wire = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        wire.bind(parse_endpoint(ends[publisher]))
        wire.connect(parse_endpoint(lab.tunnels[publisher]))
        for name in others:
            near, far = parse_endpoint(ends[name]), parse_endpoint(lab.tunnels[name])
            address = str(_dotted(made.host(name).ipv4))
            links[name] = stack.enter_context(closing(TunnelLink(address, near, far)))
        waits = []
        for state in range(1, SUBSCRIPTIONS + 1):
            for number, name in enumerate(others):
                links[name].join(group_of(MessageKind.ACK, state))
                began = time.perf_counter_ns()
                datagram = StateHeader(number + 1, state).pack()
                links[name].send(group_of(MessageKind.REGISTER, state), datagram)
                _hear(links[name])
                waits.append((time.perf_counter_ns() - began) / 1e6)
        lines.say("wire", what="register to ack", copies=1, **_spread(waits))
        group = group_of(MessageKind.PUBLISH, 1)
        for name in others:
            links[name].join(group)
        payload = bytes(BYTES)

        own = made.host(publisher).ipv4
        datagram = StateHeader(9, 1, 1, 1).pack() + payload

        def multicast() -> None:
            wire.send(pack_frame(own, group, datagram))

        def unicast() -> None:
            for name in others:
                wire.send(long_lived(pack_frame(own, made.host(name).ipv4, datagram)))

        for name in others:
            links[name].join(made.host(name).ipv4)
        for what, send in (("update by the switches", multicast), ("update by unicast", unicast)):
            waits = []
            for _ in range(updates):
                began = time.perf_counter_ns()
                send()
                for name in others:
                    _hear(links[name])
                waits.append((time.perf_counter_ns() - began) / 1e6)
            lines.say("wire", what=what, copies=len(others), **_spread(waits))


def _dotted(address: int) -> str:
    return ".".join(str(byte) for byte in address.to_bytes(4))


def _hear(link: TunnelLink) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not any(True for _ in link.receive()):
        assert time.monotonic() < deadline, "a frame was lost on loopback"
        select.select([link], [], [], 1.0)


# Programs


def _subscribing(lines: Lines, up: ReplicationLab) -> None:
    """From a program's start to the value of a state that is published: with the middleware, the
    controller, and the switches."""
    publisher, *others = up.middlewares
    waits = []
    with Replica("known", "publisher", up.middlewares[publisher], subscribes=False) as known:
        known.publish(b"1")
        known.flush()
        for number in range(SUBSCRIPTIONS):
            place = up.middlewares[others[number % len(others)]]
            began = time.perf_counter_ns()
            with Replica("known", f"reader{number}", place) as reader:
                _until(lambda reader=reader: reader.value == b"1")
                waits.append((time.perf_counter_ns() - began) / 1e6)
    lines.say("programs", what="subscribe to first value", **_spread(waits))


def _publishing(lines: Lines, up: ReplicationLab, updates: int) -> None:
    waits, stale, _ = _published(up, updates, "steady")
    lines.say(
        "programs", what="publish to replica", came=len(waits) / (updates * REPLICAS),
        mean_staleness_ms=stale[0], max_staleness_ms=stale[1], **_spread(waits),
    )  # fmt: skip


def _published(
    up: ReplicationLab, updates: int, state: str
) -> tuple[list[float], tuple[float, float], float]:
    """Publishes ``updates`` at a steady rate. Returns how long each took to each replica,
    milliseconds; mean and largest staleness; and from the last until all replicas have it."""
    publisher, *others = up.middlewares
    came: dict[str, list[tuple[int, int]]] = {name: [] for name in others}
    over = threading.Event()

    def follow(name: str, replica: Replica) -> None:
        while not over.is_set():
            for update in replica.updates(0.2):
                came[name].append((int.from_bytes(update.data[:8]), time.time_ns()))

    with ExitStack() as stack:
        for name in others:
            replica = stack.enter_context(Replica(state, name, up.middlewares[name]))
            threading.Thread(target=follow, args=(name, replica), daemon=True).start()
        own = stack.enter_context(
            Replica(state, publisher, up.middlewares[publisher], subscribes=False)
        )
        stack.callback(over.set)
        first = time.time_ns()
        own.publish(first.to_bytes(8))
        _until(lambda: all(came.values()))
        for each in came.values():
            each.clear()
        sent = []
        began = time.monotonic()
        for number in range(updates):
            time.sleep(max(0.0, began + number / RATE - time.monotonic()))
            sent.append(time.time_ns())
            own.publish(sent[-1].to_bytes(8) + bytes(BYTES - 8))
        last = time.time_ns()
        _until(lambda: all(each and each[-1][0] == sent[-1] for each in came.values()))
        converged = max(each[-1][1] for each in came.values()) - last
    waits = [(here - at) / 1e6 for each in came.values() for at, here in each]
    return waits, _staleness(sent, came), max(0.0, converged / 1e6)


def _staleness(sent: list[int], came: dict[str, list[tuple[int, int]]]) -> tuple[float, float]:
    """Mean and largest age of the oldest update that a replica lacks, milliseconds, looked at every
    millisecond."""
    points = np.arange(sent[0], sent[-1], 1_000_000)
    times = np.array([*sent, np.iinfo(np.int64).max], np.int64)
    ages = []
    for each in came.values():
        heard = np.array([here for _, here in each], np.int64)
        newest = np.maximum.accumulate(np.array([0, *(at for at, _ in each)], np.int64))
        has = newest[np.searchsorted(heard, points, "right")]
        lacks = times[np.searchsorted(times, has, "right")]
        ages.append(np.maximum(0, points - lacks) / 1e6)
    return float(np.mean(ages)), float(np.max(ages))


def _topic(lines: Lines, servers: str, updates: int) -> None:
    """The same updates in a Kafka topic, read by as many consumers."""
    ensure_topic(servers, _TOPIC, 1)
    waits: list[float] = []
    consumers: list[Any] = []
    over = threading.Event()

    def follow(consumer: Any) -> None:
        while not over.is_set():
            for records in consumer.poll(200).values():
                now = time.time_ns()
                waits.extend((now - int.from_bytes(each.value[:8])) / 1e6 for each in records)

    with ExitStack() as stack:
        stack.callback(lambda: [each.close() for each in consumers])
        threads = []
        for _ in range(REPLICAS):
            consumer = connect(
                KafkaConsumer, servers, auto_offset_reset="earliest", fetch_max_wait_ms=500
            )
            consumer.subscribe([_TOPIC])
            consumers.append(consumer)
            threads.append(threading.Thread(target=follow, args=(consumer,), daemon=True))
            threads[-1].start()
        producer: Any = stack.enter_context(
            closing(connect(KafkaProducer, servers, acks="all", linger_ms=0))
        )
        producer.send(_TOPIC, time.time_ns().to_bytes(8))
        _until(lambda: len(waits) >= REPLICAS)
        waits.clear()
        began = time.monotonic()
        for number in range(updates):
            time.sleep(max(0.0, began + number / RATE - time.monotonic()))
            producer.send(_TOPIC, time.time_ns().to_bytes(8) + bytes(BYTES - 8))
        _until(lambda: len(waits) >= updates * REPLICAS)
        over.set()
        for thread in threads:
            thread.join()
    lines.say(
        "programs", what="Kafka topic", came=len(waits) / (updates * REPLICAS), **_spread(waits)
    )


def _spread(waits: list[float]) -> dict[str, float]:
    half, most = np.percentile(waits, [50, 99])
    return {"p50_ms": float(half), "p99_ms": float(most), "max_ms": max(waits)}


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.0005)
