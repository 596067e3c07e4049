"""Several publishers in one stream: each record leaves as its publisher's, by its way, to exactly
the hosts that subscribed to it.

Oracles: brute force on the syntax trees, a plain account of whose each record is, and the
forwarding model, which every frame enters by the link of the way that it was sent on.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from delivery_cases import (
    ADDRESSING,
    FILTERS,
    GOOGL,
    ITCH,
    TOPIC,
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

from stackcast.lab.fabric.hosts import udp_payload
from stackcast.udfs.delivery.deliver import deliver
from stackcast.udfs.delivery.plan import Compilation, Planner
from stackcast.udfs.errors import MessageError, NetworkError
from stackcast.udfs.filters.advertisements import Advertisement
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages.readers import Packets
from stackcast.udfs.messages.reference import build_packet, read_message, read_packet
from stackcast.udfs.messages.sequence import session_id, split_sequence
from stackcast.udfs.messages.summaries import unpack
from stackcast.udfs.network.ingresses import Ingresses
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.replay.match_counts import MatchCounts
from stackcast.udfs.stacks.dissect import dissect
from stackcast.udfs.stacks.forwarding import ForwardingModel, network_tables
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.unit

NETWORK = fabric(pods=2, racks=2, hosts=2, planes=1, spines=1, publishers=3)
TREES = broadcast_trees(NETWORK)
HOSTS = sorted(NETWORK.hosts)
MODEL = ForwardingModel(NETWORK, network_tables(NETWORK, TREES))
#: feed9 is no host, and h1 no publisher.
LISTED = ("feed2", "feed9", "feed1", "h1", "feed3")
PUBLISHERS = {name for name in LISTED if name in NETWORK.publishers()}
ADDRESS = {host.ipv4: host.name for host in NETWORK.hosts.values()}
PORT = 26401


class Ways:
    """Sinks by way, which is the name of the publisher, or the same for all if ``shared``.

    entering: host through whose link all frames of this place enter, if there is one.
    """

    def __init__(self, shared: bool = False, entering: str = "") -> None:
        self._shared = shared
        self.entering = entering
        self.sinks: dict[str, ListSink] = {}

    def place(self) -> str:
        return f"at {self.entering}"

    def way(self, ingresses: Ingresses, publisher: str, switch: str) -> str:
        assert NETWORK.hosts[publisher].switch == switch
        return "everywhere" if self._shared else publisher

    def __call__(self, way: str) -> ListSink:
        assert way not in self.sinks, "a way was opened twice"
        return self.sinks.setdefault(way, ListSink())


def compilation_of(
    subscriptions: Sequence[Subscription],
    by: str,
    advertised: Sequence[Advertisement] = (),
    listed: Sequence[str] = LISTED,
    ingresses: tuple[str, ...] = (),
) -> Compilation:
    addressing = dataclasses.replace(
        ADDRESSING,
        publisher=",".join(listed),
        publisher_by=by,
        summary_port=PORT,
    )
    planner = Planner(Packets(ITCH), addressing)
    return planner.plan(
        *(subscriptions, NETWORK, TREES, VERSIONS),
        advertisements=advertised,
        ingresses=Ingresses({(f"at {host}", host): "" for host in ingresses}),
    )


def records_of(
    rows: Sequence[Row], cuts: Sequence[int], headers: Sequence[str | None] | None
) -> list[pa.RecordBatch]:
    batches = list(batches_of(rows, cuts, False))
    if headers is not None and batches:
        told = [None if name is None else name.encode() for name in headers]
        whole = pa.Table.from_batches(batches)
        batches = whole.append_column("publisher", pa.array(told, pa.binary())).to_batches()
    return batches


def run(
    compilation: Compilation,
    rows: Sequence[Row],
    cuts: Sequence[int] = (),
    headers: Sequence[str | None] | None = None,
    ways: Ways | None = None,
) -> tuple[Ways, list[dict[str, Any]]]:
    ways = ways or Ways()
    task = deliver(handle(compilation.plan), handle(compilation.header_stacks), TOPIC, ways, 1000)
    batches = records_of(rows, cuts, headers)
    report = [row for batch in task(iter(batches)) for row in batch.to_pylist()]
    for sink in ways.sinks.values():
        assert sink.calls[-2:] == ["flush", "close"]
    return ways, report


def sender_of(by: str, partition: int, header: str | None, event: dict[str, int]) -> str | None:
    """The publisher that a message names; None where it names none."""
    if by == "partition":
        return LISTED[partition % len(LISTED)]
    if by == "header:from":
        return header
    told = (raw for name, raw in event.items() if name.partition(".")[2] == by.partition(":")[2])
    place = next(told, None)
    if place is None:
        return None
    return LISTED[place - 1] if 0 < place <= len(LISTED) else "nobody's place"


def owed(
    subscriptions: Sequence[Subscription],
    rows: Sequence[Row],
    by: str,
    headers: Sequence[str | None],
    announced: dict[str, str],
) -> tuple[dict[str, Counter[Any]], Counter[str], Counter[int]]:
    """What each host is owed, what is dead by reason, and the messages that each rule matches."""
    rules = [(s, parse_rule(s.filter, ITCH)) for s in subscriptions]
    gates = {name: parse_rule(text, ITCH).condition for name, text in announced.items()}
    hosts: dict[str, Counter[Any]] = {host: Counter() for host in HOSTS}
    dead: Counter[str] = Counter()
    matched: Counter[int] = Counter()
    for (partition, offset, value), header in zip(rows, headers, strict=True):
        try:
            messages = read_packet(value or b"")[2]
        except MessageError as error:
            dead[error.what.lower()] += 1
            continue
        if by.partition(":")[0] != "field" and messages:
            name = sender_of(by, partition, header, {})
            if name not in PUBLISHERS:
                dead["no_publisher" if name is None else "unknown_publisher"] += 1
                continue
        for content in messages:
            try:
                event = read_message(ITCH, content)
            except MessageError as error:
                dead[error.what.lower()] += 1
                continue
            sender = sender_of(by, partition, header, dict(event))
            if sender not in PUBLISHERS:
                dead["no_publisher" if sender is None else "unknown_publisher"] += 1
                continue
            if sender in gates and not matches(gates[sender], event):
                dead["outside_advertisement"] += 1
                continue
            fired = [n for n, (_, rule) in enumerate(rules) if matches(rule.condition, event)]
            matched.update(fired)
            for host in {
                host
                for subscription, rule in map(rules.__getitem__, fired)
                for host in rule.receivers or (subscription.subscriber,)
            }:
                hosts[host][sender, partition, offset, content] += 1
    return hosts, dead, matched


def plain(frame: bytes) -> bytes:
    return frame[:12] + b"\x08\x00" + frame[16 + 2 * int.from_bytes(frame[14:16]) :]


def received(ways: Ways) -> tuple[dict[str, Counter[Any]], list[tuple[str, str, bytes]]]:
    """What reaches the hosts, and the summaries: host, sender and session."""
    partitions = {session_id(TOPIC, p): p for p in range(4)}
    hosts: dict[str, Counter[Any]] = {host: Counter() for host in HOSTS}
    numbers: set[tuple[str, bytes, int]] = set()
    summaries = []
    for entry, sink in ways.sinks.items():
        for frame in sink.frames:
            ip = plain(frame)
            sender = ADDRESS[int.from_bytes(ip[26:30])]
            labels = tuple(
                int.from_bytes(frame[16 + 2 * n : 18 + 2 * n])
                for n in range(int.from_bytes(frame[14:16]))
            )
            went = MODEL.deliver(entry, labels)
            assert not went.loop and set(went.hosts.values()) == {1}
            # By its own link, or that of the place, but for what would go back there.
            link = ways.entering or sender
            assert entry == link or set(went.hosts) == {link}
            if int.from_bytes(ip[36:38]) == PORT:
                (host,) = went.hosts
                summaries.append((host, sender, unpack(udp_payload(ip)).session))
                continue
            parts = dissect(frame)
            offset, _ = split_sequence(parts.sequence)
            for place, content in enumerate(parts.messages):
                for host in went.hosts:
                    hosts[host][sender, partitions[parts.session], offset, content] += 1
                    number = (host, parts.session, parts.sequence + place)
                    assert number not in numbers, "a sequence number was used twice"
                    numbers.add(number)
    return hosts, summaries


@examples(40)
@given(
    scenes(),
    st.lists(st.integers(0, 25), max_size=3),
    st.sampled_from(["partition", "header:from", "field:order_reference_number"]),
    st.lists(st.sampled_from([*LISTED, None, "feed"]), min_size=25, max_size=25),
    st.lists(st.sampled_from(["feed1", "feed2", "feed3"]), max_size=3),
    st.dictionaries(st.sampled_from(LISTED[:3]), st.sampled_from(FILTERS[:3]), max_size=2),
    rooms,
    st.sampled_from(["", "", "feed1", "feed3"]),
)
def test_each_record_leaves_as_its_publishers_and_reaches_who_subscribed_to_it(
    scene: tuple[list[Subscription], list[Row]],
    cuts: list[int],
    by: str,
    names: list[str | None],
    subscribing: list[str],
    announced: dict[str, str],
    room: int | None,
    entering: str,
):
    subscriptions, rows = scene
    subscriptions = subscriptions + [
        Subscription(f"p{n}", name, FILTERS[n]) for n, name in enumerate(subscribing)
    ]
    headers = names[: len(rows)]
    with room_for(room):
        compilation = compilation_of(
            subscriptions,
            by,
            [Advertisement(*each) for each in announced.items()],
            ingresses=("feed3", "feed1") if entering else (),
        )
    assert {each.code for each in compilation.rejections} <= {"SUBSCRIPTION.UNKNOWN_HOST"}
    ways, report = run(compilation, rows, cuts, headers, Ways(entering=entering))
    hosts, dead, matched = owed(subscriptions, rows, by, headers, announced)
    found, _ = received(ways)
    assert found == hosts
    assert (
        Counter({row["reason"]: row["count"] for row in report if row["kind"] == "reason"}) == dead
    )
    # Who sent how much, by the report, which knows sets by the plan's numbers.
    counted: Counter[Any] = Counter()
    for row in (row for row in report if row["kind"] == "template"):
        sender = compilation.plan.publishers.by_sender[row["publisher"]]
        receivers = row["receivers"] or row["receiver_set"]
        for host in receivers or compilation.receiver_sets[row["delivery"]]:
            counted[sender, host] += row["messages"]
    sent: Counter[Any] = Counter()
    for host, messages in found.items():
        for (sender, *_), count in messages.items():
            sent[sender, host] += count
    assert counted == sent
    # Rules are counted over what publishers may send, too.
    texts = [each.filter for each in subscriptions]
    counts = handle(MatchCounts(Packets(ITCH), texts, compilation.plan.senders)).value
    since = {partition: np.zeros(len(texts), np.int64) for partition in range(4)}
    by_rule: Counter[int] = Counter()
    for batch in counts.run(since)(iter(records_of(rows, cuts, headers))):
        by_rule.update({row["rule"]: row["messages"] for row in batch.to_pylist()})
    assert by_rule == matched


def test_a_dead_letter_says_which_publisher_is_unknown():
    packet = build_packet(b"SOURCE    ", 1, [GOOGL])
    rows = [(0, n, packet) for n in range(3)]
    compilation = compilation_of([Subscription("s", "h2", "stock == GOOGL")], "header:from")
    ways, report = run(compilation, rows, (), ["feed9", None, "feed1"])
    samples = [row for row in report if row["kind"] == "sample"]
    assert [(row["reason"], row["sender"]) for row in samples] == [
        ("unknown_publisher", "feed9"),
        ("no_publisher", None),
    ]
    assert list(ways.sinks) == ["feed1", "feed2"], "the summaries of partition 0 are by feed2"


def test_every_subscriber_has_one_summary_a_partition_from_the_publisher_of_the_partition():
    packet = build_packet(b"SOURCE    ", 1, [GOOGL])
    named = ["h2", "h5", "feed1", "feed2"]
    compilation = compilation_of(
        [Subscription(name, name, "stock == GOOGL") for name in named], "partition"
    )
    ways, _ = run(compilation, [(partition, 7, packet) for partition in range(3)])
    _, summaries = received(ways)
    # Partition 1 is of feed9, which is no host, so nothing of it is sent.
    senders = {0: "feed2", 1: "feed2", 2: "feed1"}
    assert sorted(summaries) == sorted(
        (name, sender, session_id(TOPIC, p)) for name in named for p, sender in senders.items()
    )


def test_one_publisher_enters_where_each_executor_is():
    """Hosts get the same bytes behind the stack by any link, and the report says by which."""
    packet = build_packet(b"SOURCE    ", 1, [GOOGL])
    rows = [(partition, n, packet) for n in range(3) for partition in (0, 1)]
    names = ("h1", "h2", "h7")
    subscriptions = [Subscription(name, name, "stock == GOOGL") for name in names]
    one = {"by": "partition", "listed": ["feed1"]}
    compilation = compilation_of(subscriptions, **one, ingresses=("feed2", "feed3"))
    alone = compilation_of(subscriptions, **one)
    sink = ListSink()
    task = deliver(handle(alone.plan), handle(alone.header_stacks), TOPIC, lambda: sink, 1000)
    list(task(iter(records_of(rows, (), None))))
    stacks = set()
    for entering in ("", "feed2", "feed3"):
        ways, report = run(compilation, rows, (2,), None, Ways(entering=entering))
        assert list(ways.sinks) == [entering or "feed1"]
        frames = ways.sinks[entering or "feed1"].frames
        assert Counter(map(plain, frames)) == Counter(map(plain, sink.frames))
        found, summaries = received(ways)
        assert {host for host, had in found.items() if had} == set(names)
        assert {sender for _, sender, _ in summaries} == {"feed1"} and len(summaries) == 6
        assert {row["sender"] for row in report if row["kind"] == "partition"} == {entering or None}
        stacks.add(frames[0][14 : 16 + 2 * int.from_bytes(frames[0][14:16])])
    assert len(stacks) == 3
    with pytest.raises(NetworkError, match=r"NO_PUBLISHER.*'h1' in table ingresses"):
        compilation_of([], **one, ingresses=("h1",))


def test_ways_that_are_one_need_one_sink():
    packet = build_packet(b"SOURCE    ", 1, [GOOGL])
    compilation = compilation_of([Subscription("s", "h2", "stock == GOOGL")], "partition")
    ways, _ = run(compilation, [(p, 7, packet) for p in range(3)], ways=Ways(shared=True))
    assert list(ways.sinks) == ["everywhere"]


def test_frames_of_one_way_keep_their_order():
    compilation = compilation_of([Subscription("s", "h2", "stock == GOOGL")], "header:from")
    packet = build_packet(b"SOURCE    ", 1, [GOOGL])
    names = ["feed1", "feed2", "feed3", "feed2"] * 200
    ways, _ = run(compilation, [(0, n, packet) for n in range(800)], (300,), names)
    for way, sink in ways.sinks.items():
        frames = [frame for frame in sink.frames if int.from_bytes(plain(frame)[36:38]) != PORT]
        offsets = [split_sequence(dissect(frame).sequence)[0] for frame in frames]
        assert offsets == [n for n, name in enumerate(names) if name == way]


def test_a_worker_has_headers_of_pairs_in_use_alone():
    compilation = compilation_of(
        [Subscription(f"s{n}", f"h{n}", FILTERS[n]) for n in range(1, 5)], "partition"
    )
    plan = pickle.loads(pickle.dumps(compilation.plan))
    assert plan.headers.templates.templates == 0
    assert len(plan.routes) == 1
    worker = handle(compilation.plan)
    task = deliver(worker, handle(compilation.header_stacks), TOPIC, Ways(), 10)
    packet = build_packet(b"SOURCE    ", 1, [GOOGL])
    list(task(batches_of([(0, 1, packet), (2, 1, packet)], (), False)))
    used = defaultdict(set)
    for route in worker.value.routes[1:]:
        used[route.publisher].add(route.receivers)
    # What is sent, and the summaries of each host alone.
    assert len(worker.value.routes) - 1 == sum(map(len, used.values()))
    assert set(used) == {0, 1}


def test_a_stream_without_any_of_its_publishers_is_refused():
    planner = Planner(Packets(ITCH), dataclasses.replace(ADDRESSING, publisher="feed8,h1"))
    with pytest.raises(NetworkError, match=r"NO_PUBLISHER.*'feed8,h1'"):
        planner.plan([], NETWORK, TREES, VERSIONS)


def test_all_publishers_of_the_network_may_be_meant():
    planner = Planner(Packets(ITCH), dataclasses.replace(ADDRESSING, publisher="*"))
    plan = planner.plan([], NETWORK, TREES, VERSIONS).plan
    assert plan.publishers is not None
    assert plan.publishers.names == ("feed1", "feed2", "feed3")
