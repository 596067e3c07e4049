"""At the end of a task each host is told what it should have, in a datagram of its own.

Oracles: the forwarding model says whom each frame reaches, the lab's network card reads datagrams,
and the reference of the digest is in plain integers. None shares code with the path under test.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from delivery_cases import (
    ADDRESSING,
    GOOGL,
    HOSTS,
    ITCH,
    MODEL,
    NETWORK,
    TOPIC,
    TREES,
    VERSIONS,
    ListSink,
    Row,
    batches_of,
    complete,
    handle,
    scenes,
)
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.lab.fabric.hosts import udp_payload
from stackcast.udfs.delivery import receiver_summaries
from stackcast.udfs.delivery.deliver import deliver
from stackcast.udfs.delivery.plan import Compilation, Planner
from stackcast.udfs.delivery.receiver_summaries import ENOUGH, MOST
from stackcast.udfs.delivery.summary_progress import (
    SummaryAssignment,
    SummaryChannel,
    SummaryProgress,
)
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages.readers import Packets
from stackcast.udfs.messages.reference import build_packet
from stackcast.udfs.messages.sequence import OFFSET_SHIFT, session_id
from stackcast.udfs.messages.summaries import Summary, unpack
from stackcast.udfs.messages.summary_keys import HostKeys, SummaryKey
from stackcast.udfs.network.network import Network
from stackcast.udfs.stacks.dissect import dissect

pytestmark = pytest.mark.unit

PORT = 26401
KEY = SummaryKey(7, b"\x5a" * 32)
LIMIT = 1 << 64


def compilation_of(
    subscriptions: Sequence[Subscription], key: SummaryKey | None = None, **changes: int
) -> Compilation:
    addressing = dataclasses.replace(ADDRESSING, summary_port=PORT, **changes)
    planner = Planner(Packets(ITCH), addressing, summary_key=key)
    return planner.plan(subscriptions, NETWORK, TREES, VERSIONS)


def run(
    compilation: Compilation,
    rows: Sequence[Row],
    cuts: Sequence[int] = (),
    assignment: SummaryAssignment | None = None,
) -> tuple[list[bytes], dict[tuple[str, bytes], Summary]]:
    """Frames of notifications, and the summaries by host and session."""
    return run_and_read(compilation, rows, cuts, assignment)[:2]


def run_and_read(
    compilation: Compilation,
    rows: Sequence[Row],
    cuts: Sequence[int] = (),
    assignment: SummaryAssignment | None = None,
    claims: Sequence[int] = (),
) -> tuple[list[bytes], dict[tuple[str, bytes], Summary], dict[int, SummaryProgress]]:
    """Frames of notifications, summaries by host and session, and the progress after them."""
    notifications, datagrams, progress = bytes_of(compilation, rows, cuts, assignment, claims)
    return notifications, {key: unpack(each) for key, each in datagrams.items()}, progress


def bytes_of(
    compilation: Compilation,
    rows: Sequence[Row],
    cuts: Sequence[int] = (),
    assignment: SummaryAssignment | None = None,
    claims: Sequence[int] = (),
) -> tuple[list[bytes], dict[tuple[str, bytes], bytes], dict[int, SummaryProgress]]:
    """As `run_and_read`, with the datagrams of the summaries."""
    sink = ListSink()
    assignment = assignment or SummaryAssignment({})

    def source(batches: Any, channel: SummaryChannel) -> Any:
        for partition in claims:
            channel.claim(partition)
        return batches

    task = deliver(
        handle(compilation.plan),
        handle(compilation.header_stacks),
        TOPIC,
        lambda: sink,
        100,
        assignment=assignment,
        source=source,
    )
    report = [row for batch in task(batches_of(rows, cuts, False)) for row in batch.to_pylist()]
    progress = dict(assignment.progress) | {
        row["partition"]: SummaryProgress.unpacked(json.loads(row["progress"]))
        for row in report
        if row["kind"] == "summaries"
    }
    last = [port_of(frame) == PORT for frame in sink.frames]
    assert last == sorted(last), "summaries leave after the notifications"
    summaries = {}
    for frame in (frame for frame in sink.frames if port_of(frame) == PORT):
        summary = udp_payload(plain(frame))
        (host,) = MODEL.deliver("feed1", labels(frame)).hosts
        assert (host, summary[:10]) not in summaries
        summaries[host, summary[:10]] = summary
    return [frame for frame in sink.frames if port_of(frame) != PORT], summaries, progress


def labels(frame: bytes) -> list[int]:
    count = int.from_bytes(frame[14:16])
    return [int.from_bytes(frame[16 + 2 * n : 18 + 2 * n]) for n in range(count)]


def plain(frame: bytes) -> bytes:
    """The frame as the last switch hands it to a host."""
    return frame[:12] + b"\x08\x00" + frame[16 + 2 * int.from_bytes(frame[14:16]) :]


def port_of(frame: bytes) -> int:
    return int.from_bytes(plain(frame)[36:38])


def splitmix64(z: int) -> int:
    z = (z + 0x9E3779B97F4A7C15) % LIMIT
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % LIMIT
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % LIMIT
    return z ^ (z >> 31)


def owed(frames: Sequence[bytes]) -> dict[tuple[str, bytes], dict[int, int]]:
    """By host and session: messages by sequence number."""
    found: dict[tuple[str, bytes], dict[int, int]] = defaultdict(dict)
    for parts in map(dissect, frames):
        for host in MODEL.deliver("feed1", parts.labels).hosts:
            found[host, parts.session][parts.sequence] = len(parts.messages)
    return found


@examples(40)
@given(scenes(), st.lists(st.integers(0, 25), max_size=3), st.booleans(), st.booleans())
def test_every_host_is_told_how_many_notifications_it_should_have_and_which(
    scene: tuple[list[Subscription], list[Row]], cuts: list[int], ahead: bool, short: bool
):
    subscriptions, rows = scene
    # Short stacks: receiver sets are split, and a frame reaches a part of its set.
    compilation = compilation_of(subscriptions, **({"max_labels": 4} if short else {}))
    if ahead:
        compilation = complete(compilation)
    frames, summaries = run(compilation, rows, cuts)
    found = owed(frames)
    named = {host for receivers in compilation.receivers for host in receivers}
    named = {host for host in named if compilation.header_stacks.of((host,)).parts}
    sessions = {session_id(TOPIC, partition): partition for partition, _, _ in rows}
    assert set(summaries) == {(host, session) for host in named for session in sessions}
    for (host, session), summary in summaries.items():
        mine = found.get((host, session), {})
        offsets = [o for p, o, _ in rows if p == sessions[session]]
        assert summary == Summary(
            session,
            from_=min(offsets) << OFFSET_SHIFT,
            until=(max(offsets) + 1) << OFFSET_SHIFT,
            notifications=len(mine),
            last=max(mine, default=0),
            digest=sum(splitmix64(s + count) for s, count in mine.items()) % LIMIT,
        )
        assert all(summary.from_ <= number < summary.until for number in mine)


def test_ranges_follow_each_other_where_offsets_have_a_hole():
    # As with transactions: their markers take offsets and are no records.
    packet = build_packet(b"SOURCE    ", 1, [GOOGL])
    compilation = compilation_of([Subscription("s", "h3", "stock == GOOGL")])
    _, first = run(compilation, [(0, 5, packet), (0, 7, packet)])
    before = {0: SummaryProgress.complete(8), 3: SummaryProgress.complete(100)}
    _, second = run(compilation, [(0, 9, packet)], assignment=SummaryAssignment(before))
    (one,), (other,) = first.values(), second.values()
    assert one.until == 8 << OFFSET_SHIFT == other.from_
    assert other.until == 10 << OFFSET_SHIFT


@examples(40)
@given(st.lists(st.tuples(scenes(), st.booleans()), min_size=1, max_size=4))
def test_a_batch_sends_summaries_to_hosts_with_enough_notifications_and_ranges_leave_no_gap(
    batches: list[tuple[tuple[list[Subscription], list[Row]], bool]],
):
    subscriptions = batches[0][0][0]
    compilation = compilation_of(subscriptions)
    named = {host for receivers in compilation.receivers for host in receivers}
    ends: dict[int, int] = {}
    reached: dict[tuple[str, bytes], int] = {}
    #: Sequence numbers and messages of notifications that no summary has announced yet.
    waiting: defaultdict[tuple[str, bytes], dict[int, int]] = defaultdict(dict)
    progress: dict[int, SummaryProgress] = {}
    for (_, scene), everyone in batches:
        # Later batches are of later offsets.
        rows = [(p, ends.get(p, 0) + offset, value) for p, offset, value in scene]
        before = dict(ends)
        for p, offset, _ in rows:
            ends[p] = max(ends.get(p, 0), offset + 1)
        known = {p: progress.get(p, SummaryProgress.complete(before.get(p, 0))) for p in ends}
        assignment = SummaryAssignment(known, everyone)
        frames, summaries, progress = run_and_read(compilation, rows, assignment=assignment)
        for pair, mine in owed(frames).items():
            waiting[pair] |= mine
        due = {pair for pair, mine in waiting.items() if len(mine) >= ENOUGH}
        for (host, session), summary in summaries.items():
            mine = waiting.pop((host, session), {})
            assert (summary.notifications, summary.last) == (len(mine), max(mine, default=0))
            assert summary.digest == sum(splitmix64(s + n) for s, n in mine.items()) % LIMIT
            assert summary.from_ == reached.get((host, session), 0)
            reached[host, session] = summary.until
        for p in {p for p, _, _ in rows}:
            session = session_id(TOPIC, p)
            these = {host for host, s in summaries if s == session}
            enough = {host for host, s in due if s == session}
            assert these == (named if everyone or len(enough) >= MOST * len(named) else enough)
            assert progress[p].is_complete == (these == named)


def test_if_too_many_hosts_have_pending_notifications_they_get_summaries_at_once(monkeypatch):
    packet = build_packet(b"SOURCE    ", 1, [GOOGL])
    rules = [Subscription(f"s{host}", host, "stock == GOOGL") for host in HOSTS[:3]]
    rules += [Subscription(f"n{host}", host, "stock == AAAA") for host in HOSTS[3:8]]
    assignment = SummaryAssignment({0: SummaryProgress.complete(5)}, everyone=False)
    for most, informed in ((3, set()), (2, set(HOSTS[:3]))):
        monkeypatch.setattr(receiver_summaries, "MOST_PENDING", most)
        _, summaries = run(compilation_of(rules), [(0, 7, packet)], assignment=assignment)
        assert {host for host, _ in summaries} == informed


def test_hosts_that_lack_a_summary_of_an_idle_partition_get_one():
    packet = build_packet(b"SOURCE    ", 1, [GOOGL])
    rules = [Subscription(f"s{n}", host, "stock == GOOGL") for n, host in enumerate(("h1", "h2"))]
    rules += [Subscription(f"n{n}", host, "stock == AAAA") for n, host in enumerate(("h3", "h4"))]
    compilation = compilation_of(rules)
    assignment = SummaryAssignment({0: SummaryProgress.complete(5)}, everyone=False)
    rows = [(0, offset, packet) for offset in range(7, 7 + ENOUGH)]
    until = 7 + ENOUGH
    _, summaries, progress = run_and_read(compilation, rows[:-1], assignment=assignment)
    assert not summaries and progress[0].pending.keys() == {"h1", "h2"}
    assignment = SummaryAssignment(progress, everyone=False)
    _, summaries = run(compilation, rows[-1:], assignment=assignment)
    assert {host for host, _ in summaries} == {"h1", "h2"}
    progress = {0: SummaryProgress(until, 5, {until: ["h1", "h2"]}, {})}
    for everyone, hosts in ((False, set()), (True, {"h3", "h4"}), (True, set())):
        assignment = SummaryAssignment(progress, everyone)
        # The progress of partition 1 is unknown.
        _, summaries, progress = run_and_read(compilation, [], (), assignment, claims=[0, 1])
        assert {host for host, _ in summaries} == hosts
        for summary in summaries.values():
            span = summary.from_ >> OFFSET_SHIFT, summary.until >> OFFSET_SHIFT
            assert (*span, summary.notifications, summary.digest) == (5, until, 0, 0)
    assert progress == {0: SummaryProgress.complete(until)}


def test_summaries_change_no_notification_and_leave_by_another_port():
    packet = build_packet(b"SOURCE    ", 1, [GOOGL] * 3)
    subscriptions = [Subscription(f"s{h}", h, "stock == GOOGL") for h in HOSTS[:4]]
    with_them, summaries = run(compilation_of(subscriptions), [(0, 1, packet)])
    without, none = run(
        Planner(Packets(ITCH), ADDRESSING).plan(subscriptions, NETWORK, TREES, VERSIONS),
        [(0, 1, packet)],
    )
    assert with_them == without
    assert len(summaries) == 4
    assert not none


@examples(20)
@given(scenes(), st.booleans())
def test_with_a_key_each_summary_has_a_tag_of_its_host_behind_it_and_all_else_is_the_same(
    scene: tuple[list[Subscription], list[Row]], ahead: bool
):
    subscriptions, rows = scene
    with_key, without = (compilation_of(subscriptions, key) for key in (KEY, None))
    if ahead:
        with_key, without = complete(with_key), complete(without)
    frames, signed, _ = bytes_of(with_key, rows)
    plain_frames, bare, _ = bytes_of(without, rows)
    assert frames == plain_frames
    assert {key: datagram[:52] for key, datagram in signed.items()} == bare
    for (host, _), datagram in signed.items():
        believing = [h for h in HOSTS if HostKeys([KEY.for_host(h)]).proves(datagram)]
        assert believing == [host]
        assert len(datagram) == 72


def test_workers_get_the_hosts_keys_and_never_the_master_key():
    plan = compilation_of([Subscription("s", "h3", "stock == GOOGL")], KEY).plan
    carried = pickle.dumps(plan)
    assert KEY.secret not in carried and KEY.for_host("h3").secret in carried
    assert KEY.for_host("h3").secret.hex() not in repr(plan)
    assert repr(KEY.for_host("h3").secret) not in repr(plan)


def test_a_host_that_nothing_leads_to_costs_the_others_no_summary():
    links = [dataclasses.replace(link, up=link.neighbor != "h3") for link in NETWORK.links]
    cut = Network(NETWORK.switches.values(), NETWORK.hosts.values(), links)
    subscriptions = [Subscription(f"s{h}", h, "stock == GOOGL") for h in ("h3", "h4")]
    addressing = dataclasses.replace(ADDRESSING, summary_port=PORT)
    planner = Planner(Packets(ITCH), addressing, summary_key=KEY)
    compilation = planner.plan(subscriptions, cut, TREES, VERSIONS)
    packet = build_packet(b"SOURCE    ", 1, [GOOGL])
    _, summaries, _ = bytes_of(compilation, [(0, 1, packet)])
    (((host, _), summary),) = summaries.items()
    assert host == "h4" and HostKeys([KEY.for_host("h4")]).proves(summary)


def test_a_captured_summary_is_taken_apart_as_what_it_is():
    packet = build_packet(b"SOURCE    ", 1, [GOOGL, GOOGL])
    sink = ListSink()
    plan = compilation_of([Subscription("s", "h3", "stock == GOOGL")])
    task = deliver(handle(plan.plan), handle(plan.header_stacks), TOPIC, lambda: sink, 100)
    list(task(batches_of([(0, 5, packet)], [], False)))
    notification, told = map(dissect, sink.frames)
    assert notification.summary is None
    assert told.messages == ()
    assert told.udp.destination_port == PORT
    summary = told.summary
    assert summary is not None
    assert (summary.notifications, summary.last) == (1, notification.sequence)
    assert told.sequence == summary.until == 6 << OFFSET_SHIFT


def test_the_hosts_of_a_template_are_those_of_the_plan_in_use():
    # Plans with the same rules share what is known of hosts, and number their templates apart.
    rules = [Subscription(f"s{n}", host, f"shares > {n}") for n, host in enumerate(HOSTS)]
    bare = compilation_of(rules)
    deliveries = np.arange(len(bare.receiver_sets), dtype=np.int32)[::-1]
    for delivery in deliveries:
        bare.plan.headers.templates_for(delivery.reshape(1), handle(bare.header_stacks))
    whole = complete(bare)
    hosts = bare.plan.summaries
    assert hosts is not None and hosts is whole.plan.summaries
    found = []
    for headers in (bare.plan.headers, whole.plan.headers, bare.plan.headers):
        all_templates = np.arange(headers.templates.templates)
        start, end, pool = hosts.reach(headers, all_templates)
        found.append(
            [[hosts.names[at] for at in pool[a:b]] for a, b in zip(start, end, strict=True)]
        )
        assert found[-1] == [list(headers.receivers(t)) for t in all_templates.tolist()]
    assert found[0] == found[2] != found[1]
