"""From Kafka records to frames: every host gets exactly what its subscriptions say, no more.

Oracles: the plain reader of packets, brute force on the syntax trees, the forwarding model of the
switches and the plain dissector of frames. None shares code with the path under test.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from delivery_cases import (
    ADDRESSING,
    FILTERS,
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
    message,
    reached,
    received,
    room_for,
    rooms,
    scenes,
)
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.delivery.deliver import REPORT, deliver
from stackcast.udfs.delivery.plan import Addressing, Compilation, Planner
from stackcast.udfs.delivery.task import SAMPLE_BYTES
from stackcast.udfs.errors import MessageError, NetworkError, StreamError
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages import record_batches
from stackcast.udfs.messages.readers import Packets
from stackcast.udfs.messages.record_batches import Records
from stackcast.udfs.messages.reference import build_packet, read_message, read_packet
from stackcast.udfs.messages.sequence import MAX_OFFSET, sequence_number, session_id, split_sequence
from stackcast.udfs.network.network import Network
from stackcast.udfs.stacks.dissect import dissect
from stackcast.udfs.stacks.forwarding import ForwardingModel, network_tables
from stackcast.udfs.trees.encode import Encoder, Encoding

pytestmark = pytest.mark.unit


def compilation_of(subscriptions: Sequence[Subscription]) -> Compilation:
    return Planner(Packets(ITCH), ADDRESSING).plan(subscriptions, NETWORK, TREES, VERSIONS)


def test_a_publisher_that_switches_would_take_nothing_from_is_refused():
    name = NETWORK.subscribers()[0]
    planner = Planner(Packets(ITCH), dataclasses.replace(ADDRESSING, publisher=name))
    with pytest.raises(NetworkError, match=rf"NO_PUBLISHER.*'{name}'.*spark\.stackcast\.publisher"):
        planner.plan([], NETWORK, TREES, VERSIONS)


def run(
    compilation: Compilation,
    rows: Sequence[Row],
    cuts: Sequence[int] = (),
    samples: int = 1000,
    large: bool = False,
) -> tuple[ListSink, list[dict[str, object]]]:
    """What one task sends and reports. The plan travels as it does to a worker."""
    sink = ListSink()
    task = deliver(
        handle(compilation.plan), handle(compilation.header_stacks), TOPIC, lambda: sink, samples
    )
    report = list(task(batches_of(rows, cuts, large)))
    assert all(batch.schema == REPORT for batch in report)
    assert sink.calls[-2:] == ["flush", "close"]
    return sink, [row for batch in report for row in batch.to_pylist()]


def owed(
    subscriptions: Sequence[Subscription], rows: Sequence[Row]
) -> tuple[dict[str, Counter[tuple[int, int, bytes]]], Counter[str], int, int]:
    """By brute force: what every host is owed, dead letters, messages read, messages matched."""
    rules = [(s, parse_rule(s.filter, ITCH)) for s in subscriptions]
    hosts: dict[str, Counter[tuple[int, int, bytes]]] = {host: Counter() for host in HOSTS}
    dead: Counter[str] = Counter()
    read = matched = 0
    for partition, offset, value in rows:
        try:
            messages = read_packet(value or b"")[2]
        except MessageError as error:
            dead[error.what.lower()] += 1
            continue
        read += len(messages)
        for content in messages:
            try:
                event = read_message(ITCH, content)
            except MessageError as error:
                dead[error.what.lower()] += 1
                continue
            receivers = {
                host
                for subscription, rule in rules
                if matches(rule.condition, event)
                for host in rule.receivers or (subscription.subscriber,)
            }
            matched += bool(receivers)
            for host in receivers:
                hosts[host][partition, offset, content] += 1
    return hosts, dead, read, matched


@examples(50)
@given(scenes(), st.lists(st.integers(0, 25), max_size=3), st.booleans(), st.booleans(), rooms)
def test_every_host_gets_exactly_what_it_subscribed_to(
    scene: tuple[list[Subscription], list[Row]],
    cuts: list[int],
    large: bool,
    ahead: bool,
    room: int | None,
):
    subscriptions, rows = scene
    with room_for(room):
        compilation = compilation_of(subscriptions)
    if ahead:
        compilation = complete(compilation)
    assert not compilation.rejections
    sink, report = run(compilation, rows, cuts, large=large)
    hosts, dead, read, matched = owed(subscriptions, rows)
    assert received(sink.frames) == hosts

    # The report says the same.
    by_kind = {
        kind: [r for r in report if r["kind"] == kind] for kind in {r["kind"] for r in report}
    }
    partitions = by_kind.get("partition", [])
    templates = by_kind.get("template", [])
    total = {
        name: sum(p[name] for p in partitions)
        for name in ("packets", "messages", "matched", "frames", "bytes")
    }
    assert total == {
        "packets": len(rows),
        "messages": read,
        "matched": matched,
        "frames": len(sink.frames),
        "bytes": sum(map(len, sink.frames)),
    }
    for name in ("frames", "bytes"):
        assert sum(t[name] for t in templates) == total[name]
    assert sum(t["messages"] * len(reached(compilation, t)) for t in templates) == sum(
        counter.total() for counter in hosts.values()
    )
    assert sum(t["datagram_bytes"] for t in templates) == sum(
        int.from_bytes(frame[at + 2 : at + 4])
        for frame in sink.frames
        for at in [16 + 2 * len(dissect(frame).labels)]
    )
    assert {r["reason"]: r["count"] for r in by_kind.get("reason", [])} == dead
    assert len(by_kind.get("sample", [])) == dead.total()
    for p in partitions:
        mine = [offset for partition, offset, _ in rows if partition == p["partition"]]
        assert (p["from_offset"], p["until_offset"]) == (mine[0], mine[-1] + 1)
        session = session_id(TOPIC, p["partition"])
        numbers = [d.sequence for d in map(dissect, sink.frames) if d.session == session]
        assert len(numbers) == p["frames"]
        ends = (numbers[0], numbers[-1]) if numbers else (None, None)
        assert (p["first_sequence"], p["last_sequence"]) == ends


@examples(10)
@given(scenes(), st.lists(st.integers(0, 25), max_size=3))
def test_the_same_records_become_the_same_bytes_however_they_are_cut(
    scene: tuple[list[Subscription], list[Row]], cuts: list[int]
):
    # So that a batch that is tried again repeats sequence numbers, and receivers can drop it.
    subscriptions, rows = scene
    compilation = compilation_of(subscriptions)
    whole, pieces = run(compilation, rows), run(compilation, rows, cuts)
    assert whole[0].frames == pieces[0].frames
    assert sorted(map(repr, whole[1])) == sorted(map(repr, pieces[1]))


@examples(20)
@given(scenes(), st.integers(1, 9))
def test_records_that_a_task_fetched_become_what_those_of_the_connector_do(
    scene: tuple[list[Subscription], list[Row]], most: int
):
    subscriptions, rows = scene
    compilation = compilation_of(subscriptions)
    for partition in {row[0] for row in rows}:
        mine = [row for row in rows if row[0] == partition]
        values = [value or b"" for _, _, value in mine]
        records = Records(
            offset=np.array([offset for _, offset, _ in mine], np.int64),
            time=np.zeros(len(mine), np.int64),
            borders=np.cumsum([0, *map(len, values)]),
            content=np.frombuffer(b"".join(values), np.uint8),
            next=mine[-1][1] + 1,
        )
        sink, report = run(compilation, mine)
        fetching = ListSink()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(record_batches, "_ROWS", most)
            task = deliver(
                handle(compilation.plan),
                handle(compilation.header_stacks),
                TOPIC,
                lambda sink=fetching: sink,
                1000,
                source=lambda _, __, r=records, p=partition: r.batches(p),
            )
            told = [row for batch in task(iter([])) for row in batch.to_pylist()]
        assert fetching.frames == sink.frames
        assert sorted(map(repr, told)) == sorted(map(repr, report))


TO_H3 = [Subscription("s", "h3", "stock == GOOGL")]


def test_dead_letters_say_where_they_come_from():
    noise = bytes(range(256)) * 300
    rows: list[Row] = [
        (2, 70, build_packet(b"SOURCE    ", 1, [GOOGL, b"?unknown", GOOGL])),
        (2, 71, None),
        (1, 9, noise),
        (1, 10, build_packet(b"SOURCE    ", 1, [])),
        (1, 11, b"SOURCE    " + bytes(8) + b"\xff\xff"),
    ]
    sink, report = run(compilation_of(TO_H3), rows)
    samples = [r for r in report if r["kind"] == "sample"]
    names = ("partition", "from_offset", "message_index", "reason", "field", "length", "sample")
    assert sorted(tuple(s[n] for n in names) for s in samples) == [
        (1, 9, None, "record_too_large", None, len(noise), noise[:SAMPLE_BYTES]),
        (2, 70, 1, "unknown_message_type", "type ?", 8, b"?unknown"),
        (2, 71, None, "empty_record", None, 0, b""),
    ]
    (frame,) = map(dissect, sink.frames)
    assert frame.messages == (GOOGL, GOOGL)
    assert (frame.session, frame.sequence) == (session_id(TOPIC, 2), sequence_number(70, 0))


def test_records_of_which_nothing_can_be_read_are_counted_by_their_first_byte():
    json = b'{"temp": 25.5}'
    rows: list[Row] = [
        (0, 0, json),
        (0, 1, build_packet(b"SOURCE    ", 1, [GOOGL, b"?unknown"])),
        (0, 2, build_packet(b"SOURCE    ", 1, [b"?unknown", GOOGL[:-1]])),
        (0, 3, build_packet(b"SOURCE    ", 1, [])),
        (0, 4, b""),
        (1, 0, json),
    ]
    _, report = run(compilation_of(TO_H3), rows, [2])
    (dead,) = [r for r in report if r["kind"] == "dead"]
    assert (dead["count"], dead["length"], dead["sample"]) == (4, 2, b"{")
    _, report = run(compilation_of(TO_H3), rows[1:2] + rows[3:4])
    assert not [r for r in report if r["kind"] == "dead"]


def test_a_message_of_a_wrong_length_names_its_type():
    _, report = run(compilation_of(TO_H3), [(0, 0, build_packet(b"S" * 10, 1, [GOOGL[:-1]]))])
    (sample,) = [r for r in report if r["kind"] == "sample"]
    assert (sample["reason"], sample["field"]) == ("wrong_message_length", "add_order")


def test_samples_are_limited_and_counts_are_not():
    _, report = run(compilation_of(TO_H3), [(0, n, b"damaged") for n in range(50)], [20], samples=3)
    assert [r["from_offset"] for r in report if r["kind"] == "sample"] == [0, 1, 2]
    assert [r["count"] for r in report if r["kind"] == "reason"] == [50]


def test_a_sample_is_taken_of_messages_too_while_there_is_room():
    unknown = build_packet(b"SOURCE    ", 1, [b"?"] * 4)
    rows = [(0, 0, b"damaged"), (0, 1, unknown), (0, 2, b"damaged")]
    for samples, kept in ((0, []), (1, [0]), (4, [0, 2, 1, 1]), (9, [0, 2, 1, 1, 1, 1])):
        _, report = run(compilation_of(TO_H3), rows, [3], samples=samples)
        assert [r["from_offset"] for r in report if r["kind"] == "sample"] == kept
        counts = {r["reason"]: r["count"] for r in report if r["kind"] == "reason"}
        assert counts == {"truncated_header": 2, "unknown_message_type": 4}


def test_messages_that_exceed_a_frame_go_on_in_the_next():
    packet = build_packet(b"SOURCE    ", 1, [GOOGL] * 100)
    sink, _ = run(compilation_of(TO_H3), [(0, 5, packet)])
    frames = [dissect(frame) for frame in sink.frames]
    assert len(frames) == 3 and sum(len(f.messages) for f in frames) == 100
    first = 0
    for f in frames:
        assert split_sequence(f.sequence) == (5, first)
        first += len(f.messages)


def test_a_task_without_records_sends_and_reports_nothing():
    for batches in ([], list(batches_of([], [], False))):
        sink = ListSink()
        compilation = compilation_of(TO_H3)
        handles = handle(compilation.plan), handle(compilation.header_stacks)
        assert list(deliver(*handles, TOPIC, lambda s=sink: s, 1)(iter(batches))) == []
        assert not sink.frames and sink.calls[-2:] == ["flush", "close"]


def test_a_broken_sink_fails_the_task_and_is_closed():
    sink = ListSink(broken=True)
    compilation = compilation_of(TO_H3)
    handles = handle(compilation.plan), handle(compilation.header_stacks)
    packet = build_packet(b"SOURCE    ", 1, [GOOGL])
    with pytest.raises(OSError, match="unplugged"):
        list(deliver(*handles, TOPIC, lambda: sink, 1)(batches_of([(0, 1, packet)], [], False)))
    assert sink.calls == ["close"]


# --- the plan ------------------------------------------------------------------------------------


def test_what_does_not_compile_is_rejected_with_its_place_and_the_rest_is_live():
    rows = [
        *TO_H3,
        Subscription("typo", "h1", "stok == GOOGL"),
        Subscription("nobody", "h99", "price > 1"),
        Subscription("cut", "h1", "price >"),
        Subscription("\x1b[2J", "h3", "price > 1"),
        Subscription("turned", "h3", "price > 1 # \u202e"),
    ]
    compilation = compilation_of(rows)
    rejected = {r["id"]: r for r in compilation.rejection_rows()}
    assert set(rejected) == {"typo", "nobody", "cut", "\x1b[2J", "turned"}
    for row in rejected.values():
        assert row["code"].startswith("SUBSCRIPTION.") and row["subscriptions_version"] == 3
        assert row["line"] >= 1 and row["column"] >= 1 and row["message"]
    assert compilation.receivers == [(), ("h3",)]


def test_the_rows_that_explain_a_plan_agree_with_it():
    subscriptions = [Subscription(f"s{n}", HOSTS[n % 8], f) for n, f in enumerate(FILTERS)]
    compilation = compilation_of(subscriptions)
    entries, leaves = compilation.filter_rows()
    assert entries and all(row["subscriptions_version"] == 3 for row in entries + leaves)
    named = {row["leaf"]: tuple(row["receivers"]) for row in leaves}
    assert all(compilation.receivers[leaf] == receivers for leaf, receivers in named.items())
    assert compilation.stack_rows("feed1") == []
    compilation = complete(compilation)
    stacks = compilation.stack_rows("feed1")
    assert [tuple(row["part_receivers"]) for row in stacks] == [
        receivers for parts in compilation.reached for receivers in parts or ()
    ]
    for row in stacks:
        assert set(MODEL.deliver("feed1", tuple(row["labels"])).hosts) == set(row["part_receivers"])
        assert row["versions"] == {"hosts": 1} and row["publisher"] == "feed1"
    keys = [(tuple(row["receivers"]), row["part"]) for row in stacks]
    assert len(set(keys)) == len(keys)
    parts = Counter((tuple(row["receivers"]), h) for row in stacks for h in row["part_receivers"])
    assert parts == Counter((r, h) for r in compilation.receivers for h in r)


def test_an_edit_is_in_the_next_plan_and_an_undone_edit_gives_the_old_bytes():
    planner = Planner(Packets(ITCH), ADDRESSING)
    row: list[Row] = [(0, 1, build_packet(b"SOURCE    ", 1, [GOOGL]))]
    texts = ["stock == GOOGL", "stock == GOOGL and price > 1", "stock == GOOGL"]
    sent = [
        run(planner.plan([Subscription("s", "h3", t)], NETWORK, TREES, VERSIONS), row)[0].frames
        for t in texts
    ]
    assert len(sent[0]) == 1 and sent[1] == [] and sent[2] == sent[0]


def test_a_tree_that_is_gone_is_in_no_stack_of_the_next_plan():
    planner = Planner(Packets(ITCH), ADDRESSING)
    everyone = [Subscription("s", "h1", f"price > 0 : fwd({', '.join(HOSTS)})")]
    with_tree, without = (
        complete(planner.plan(everyone, NETWORK, trees, VERSIONS)).stack_rows("feed1")
        for trees in (TREES, [])
    )
    bare = ForwardingModel(NETWORK, network_tables(NETWORK, []))
    assert len(with_tree[0]["labels"]) < len(without[0]["labels"])
    for row in without:
        assert set(bare.deliver("feed1", tuple(row["labels"])).hosts) == set(HOSTS)


def test_a_publisher_that_the_network_lacks_is_named():
    planner = Planner(Packets(ITCH), Addressing("feed9", 0xE9360C01, 26400, 1500, 64))
    with pytest.raises(NetworkError, match="feed9"):
        planner.plan(TO_H3, NETWORK, TREES, VERSIONS)


def test_a_host_behind_a_failed_link_costs_no_other_host_anything():
    host = NETWORK.host("h3")
    links = [
        dataclasses.replace(link, up=False)
        if (link.switch, link.neighbor) == (host.switch, "h3")
        else link
        for link in NETWORK.links
    ]
    broken = Network.from_rows(NETWORK.switches.values(), NETWORK.hosts.values(), links)
    rules = [Subscription("both", "h1", "price > 0 : fwd(h1, h3)")]
    compilation = Planner(Packets(ITCH), ADDRESSING).plan(rules, broken, TREES, VERSIONS)
    order = message("A", price=5)
    model = ForwardingModel(broken, network_tables(broken, TREES))
    known = complete(compilation)
    assert known.cut_off.keys() == {"h3"} and "UNREACHABLE" in known.cut_off["h3"]
    for made in (compilation, known):
        sink, report = run(made, [(0, 7, build_packet(b"SOURCE0001", 1, [order]))])
        (frame,) = sink.frames
        assert model.deliver("feed1", dissect(frame).labels).hosts == {"h1": 1}
        assert [reached(made, r) for r in report if r["kind"] == "template"] == [("h1",)]


def test_a_plan_waits_for_no_stack_and_a_batch_only_for_its_own(monkeypatch):
    worked_out: list[frozenset[str]] = []
    encode = Encoder.encode

    def counted(self: Encoder, receivers: frozenset[str]) -> list[Encoding]:
        worked_out.append(receivers)
        return encode(self, receivers)

    monkeypatch.setattr(Encoder, "encode", counted)
    subscriptions = [
        Subscription(f"s{n}", host, f"price > {n * 10}") for n, host in enumerate(HOSTS)
    ]
    planner = Planner(Packets(ITCH), ADDRESSING)
    compilation = planner.plan(subscriptions, NETWORK, TREES, VERSIONS)
    assert len(compilation.unknown()) == len(HOSTS) and not worked_out
    plan, stacks = handle(compilation.plan), handle(compilation.header_stacks)
    packet = build_packet(b"SOURCE0001", 1, [message("A", price=150_000)])
    frames = []
    for offset in (1, 1, 2):
        sink = ListSink()
        task = deliver(plan, stacks, TOPIC, lambda s=sink: s, 1)
        (report,) = (
            r
            for b in task(batches_of([(0, offset, packet)], [], False))
            for r in b.to_pylist()
            if r["kind"] == "template"
        )
        assert reached(compilation, report) == tuple(HOSTS[:2])
        frames += sink.frames
    assert worked_out == [frozenset(HOSTS[:2])], "a worker does not forget"
    assert frames[0] == frames[1]
    # What is known is in the next plan, and only what an edit brings is to be worked out.
    known = complete(compilation)
    worked_out.clear()
    edited = planner.plan(
        [*subscriptions, Subscription("new", HOSTS[-1], "price < 5")],
        NETWORK,
        TREES,
        VERSIONS | {"subscriptions": 4},
    )
    assert edited.unknown() == [(HOSTS[-1],), (HOSTS[0], HOSTS[-1])]
    assert run(known, [(0, 1, packet)])[0].frames == frames[:1]
    assert run(edited, [(0, 1, packet)])[0].frames == frames[:1]
    assert not worked_out


def test_another_version_of_the_same_network_costs_no_stack_and_another_tree_costs_all():
    planner = Planner(Packets(ITCH), ADDRESSING)
    first = complete(planner.plan(TO_H3, NETWORK, TREES, VERSIONS))
    again = pickle.loads(pickle.dumps(NETWORK))
    same = planner.plan(TO_H3, again, list(TREES), VERSIONS | {"hosts": 2})
    assert same.header_stacks is first.header_stacks and not same.unknown()
    assert same.stack_rows("feed1")[0]["versions"] == {"hosts": 2}
    other = planner.plan(TO_H3, NETWORK, [], VERSIONS)
    assert other.unknown() == [("h3",)]


def test_a_stack_leaves_room_for_the_longest_message_in_a_frame():
    longest = max(header.length for header in ITCH.headers)
    mtu = 2 + 28 + 20 + 2 + longest + 2 * 6
    planner = Planner(Packets(ITCH), dataclasses.replace(ADDRESSING, mtu=mtu))
    everyone = [Subscription("s", "h1", f"price > 0 : fwd({', '.join(HOSTS)})")]
    compilation = complete(planner.plan(everyone, NETWORK, [], VERSIONS))
    rows = compilation.stack_rows("feed1")
    assert len(rows) > 1 and all(len(row["labels"]) <= 6 for row in rows)
    sink, _ = run(compilation, [(0, 1, build_packet(b"SOURCE0001", 1, [message("A", price=5)]))])
    assert all(len(frame) <= 14 + mtu for frame in sink.frames)
    hosts = [
        host
        for frame in sink.frames
        for host in MODEL.deliver("feed1", dissect(frame).labels).hosts
    ]
    assert sorted(hosts) == HOSTS


def test_an_offset_that_numbers_do_not_hold_ends_the_task_before_its_frame_leaves():
    packet = build_packet(b"SOURCE    ", 1, [GOOGL])
    compilation = complete(compilation_of(TO_H3))
    sink, _ = run(compilation, [(0, MAX_OFFSET, packet)])
    (frame,) = map(dissect, sink.frames)
    assert split_sequence(frame.sequence) == (MAX_OFFSET, 0)
    sink = ListSink()
    task = deliver(
        handle(compilation.plan), handle(compilation.header_stacks), TOPIC, lambda: sink, 1
    )
    with pytest.raises(StreamError, match="OFFSETS_EXHAUSTED"):
        list(task(batches_of([(0, MAX_OFFSET + 1, packet)], (), False)))
    assert not sink.frames
