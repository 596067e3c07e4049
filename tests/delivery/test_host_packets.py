"""Where switches match, the stream knows of each packet what a host should have, sends none of it,
and sums it up for the host.

Oracles: rules by rows and columns of plain Python, the reference writer of packets, and the digest
in plain integers.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pytest
from delivery_cases import (
    ADDRESSING,
    HOSTS,
    ITCH,
    NETWORK,
    TOPIC,
    TREES,
    VERSIONS,
    ListSink,
    Row,
    batches_of,
    handle,
    room_for,
    rooms,
    scenes,
)
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from lossy_network import summary_bytes

from stackcast.lab.fabric.hosts import udp_payload
from stackcast.udfs.delivery.deliver import deliver
from stackcast.udfs.delivery.plan import Compilation, Planner
from stackcast.udfs.errors import MessageError
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.messages.readers import Packets
from stackcast.udfs.messages.reference import build_packet, read_message, read_packet
from stackcast.udfs.messages.sequence import session_id
from stackcast.udfs.network.ingresses import Ingresses
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.replay.notifications import Notifications, collect, recompute
from stackcast.udfs.stacks.dissect import dissect
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.unit

PORT = 26401


def compilation_of(subscriptions: list[Subscription], **changes: int) -> Compilation:
    addressing = dataclasses.replace(ADDRESSING, in_network=True, **changes)
    return Planner(Packets(ITCH), addressing).plan(subscriptions, NETWORK, TREES, VERSIONS)


def owed(
    subscriptions: list[Subscription],
    rows: list[Row],
    hosts: Collection[str] = HOSTS,
    publisher: str = "feed1",
) -> dict[tuple[str, int, int], bytes]:
    """By host, partition and offset: the packet without the messages that the host did not ask
    for."""
    rules, _ = check(subscriptions, ITCH, set(hosts), publisher)
    found = {}
    for partition, offset, value in rows:
        try:
            messages = read_packet(value or b"")[2]
        except MessageError:
            continue
        wanted: dict[str, list[bytes]] = defaultdict(list)
        for message in messages:
            try:
                event = read_message(ITCH, message)
            except MessageError:
                continue
            hit = [rule.receivers for rule in rules if matches(rule.condition, event)]
            for host in {host for receivers in hit for host in receivers}:
                wanted[host].append(message)
        for host, mine in wanted.items():
            packet = build_packet(session_id(TOPIC, partition), offset << 26, mine)
            found[host, partition, offset] = packet
    return found


@examples(60)
@given(scenes(), st.lists(st.integers(0, 25), max_size=3), rooms)
def test_nothing_is_sent_but_to_each_host_what_it_should_have_of_the_packets(scene, cuts, room):
    subscriptions, rows = scene
    with room_for(room):
        compilation = compilation_of(subscriptions, summary_port=PORT)
        sink = ListSink()
        task = deliver(
            handle(compilation.plan),
            handle(compilation.header_stacks),
            TOPIC,
            lambda: sink,
            0,
        )
        report = [row for b in task(batches_of(rows, cuts, False)) for row in b.to_pylist()]
    mine = owed(subscriptions, rows)
    hosts = {host for rule in compilation.rules for host in rule.receivers}
    expected = set()
    for partition in {partition for partition, _, _ in rows}:
        offsets = [offset for p, offset, _ in rows if p == partition]
        for host in hosts:
            sent = {
                offset << 26: int.from_bytes(packet[18:20])
                for (h, p, offset), packet in mine.items()
                if (h, p) == (host, partition)
            }
            session = session_id(TOPIC, partition)
            told = summary_bytes(session, min(offsets) << 26, max(offsets) + 1 << 26, sent)
            expected.add((NETWORK.hosts[host].ipv4, told))
    got = [dissect(frame) for frame in sink.frames]
    # Plain frames, which the routes of switches that match take to one host each.
    assert all(not parts.labels and parts.udp.destination_port == PORT for parts in got)
    payloads = [udp_payload(frame) for frame in sink.frames]
    assert len(got) == len(expected)
    assert {(p.ipv4.destination, d) for p, d in zip(got, payloads, strict=True)} == expected
    assert sum(r["frames"] for r in report if r["kind"] == "partition") == len(mine)
    assert not compilation.unknown() and not compilation.stack_rows("feed1")


TWO = fabric(pods=2, racks=2, hosts=2, planes=1, spines=1, publishers=2)
FEEDS = ("feed1", "feed2")
#: Publishers that receive, too: what the other sends.
FEEDBACK = [
    Subscription("both", "feed1", "price > 100 : fwd(feed1, feed2, h1)"),
    Subscription("own", "feed2", "shares > 10"),
]


class Ways:
    """A sink for each publisher."""

    def __init__(self) -> None:
        self.sinks = {name: ListSink() for name in FEEDS}

    def way(self, ingresses: Ingresses, publisher: str, switch: str) -> str:
        return publisher

    def __call__(self, way: str) -> ListSink:
        return self.sinks[way]


@examples(60)
@given(scenes(), st.lists(st.integers(0, 25), max_size=3), rooms)
def test_of_several_publishers_none_gets_its_own_and_all_are_told_by_its_partitions_one(
    scene, cuts, room
):
    subscriptions, rows = [*FEEDBACK, *scene[0]], [(p % 2, o, value) for p, o, value in scene[1]]
    rows = list({(p, o): (p, o, value) for p, o, value in rows}.values())
    addressing = dataclasses.replace(
        ADDRESSING, in_network=True, publisher=",".join(FEEDS), summary_port=PORT
    )
    with room_for(room):
        planner = Planner(Packets(ITCH), addressing)
        compilation = planner.plan(subscriptions, TWO, broadcast_trees(TWO), VERSIONS)
        plan = handle(compilation.plan)
        ways = Ways()
        task = deliver(plan, handle(compilation.header_stacks), TOPIC, ways, 0)
        report = [row for b in task(batches_of(rows, cuts, False)) for row in b.to_pylist()]
    mine = {
        (host, partition, offset): packet
        for (host, partition, offset), packet in owed(subscriptions, rows, TWO.hosts, "").items()
        if host != FEEDS[partition]
    }
    hosts = {host for rule in compilation.rules for host in rule.receivers}
    expected = set()
    for partition in {partition for partition, _, _ in rows}:
        offsets = [offset for p, offset, _ in rows if p == partition]
        feed = TWO.hosts[FEEDS[partition]]
        for host in hosts:
            sent = {
                offset << 26: int.from_bytes(packet[18:20])
                for (h, p, offset), packet in mine.items()
                if (h, p) == (host, partition)
            }
            session = session_id(TOPIC, partition)
            told = summary_bytes(session, min(offsets) << 26, max(offsets) + 1 << 26, sent)
            # No switch sends out of the port that a frame came in by.
            entry = FEEDS[1 - partition] if host == feed.name else feed.name
            expected.add((entry, feed.ipv4, TWO.hosts[host].ipv4, told))
    got = [(way, frame) for way, sink in ways.sinks.items() for frame in sink.frames]
    assert len(got) == len(expected)
    assert {
        (way, parts.ipv4.source, parts.ipv4.destination, udp_payload(frame))
        for way, frame in got
        for parts in [dissect(frame)]
    } == expected
    assert sum(r["frames"] for r in report if r["kind"] == "partition") == len(mine)


@examples(40)
@given(scenes(), rooms)
def test_what_is_computed_again_for_a_host_is_the_very_packet_that_switches_left_it(scene, room):
    subscriptions, rows = scene
    rows = [row for row in rows if row[0] == 0]
    with room_for(room):
        compilation = compilation_of(subscriptions)
        again = recompute(
            handle(compilation.plan),
            handle(compilation.header_stacks),
            TOPIC,
            {},
            None,
            (0, 1 << 37),
        )
        table = pa.Table.from_batches(again(batches_of(rows, (), False)))
    found, _ = collect(table, compilation.receiver_sets, (0, 1 << 37), None)
    mine = owed(subscriptions, rows)
    for host in HOSTS:
        packets = [packet for (h, _, _), packet in sorted(mine.items()) if h == host]
        assert datagrams(found, host) == packets


def datagrams(found: Notifications, host: str) -> list[bytes]:
    places = found.places(host)
    assert (np.diff(found.sequence[places].astype(np.int64)) > 0).all()
    return found.datagrams(places)
