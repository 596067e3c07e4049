"""The proof that nothing was lost must be right both ways.

Whatever crashes leave (tries of a batch that broke off, and the batch again) passes; one datagram
removed, added or changed does not, nor does a ledger with a hole.
"""

from __future__ import annotations

import dataclasses
import itertools
import struct

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from whole_proof import whole_verdict

from stackcast.lab.proof.checking import check_receipts
from stackcast.lab.proof.ledger import Offsets, check_ledger
from stackcast.lab.proof.receipts import Receipt, packet_receipt, receipt_bytes, receipts
from stackcast.lab.proof.recorded import Recorded, Takers, Window, windows, with_state
from stackcast.lab.proof.verdict import SHOWN, DeliveryVerdict
from stackcast.lab.proof.verification import Batch, Expectation, expected
from stackcast.udfs.errors import LabError
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.messages.reference import build_packet
from stackcast.udfs.messages.sequence import Topic, session_id
from stackcast.udfs.messages.specification import Specification

pytestmark = pytest.mark.unit

TOPIC = Topic("itch.raw")
HOSTS = ("h1", "h2", "h3")
Rows = dict[str, list[Receipt]]


@dataclasses.dataclass(frozen=True)
class Sent:
    """One notification of a story: a frame, and the hosts that it is for."""

    receipt: Receipt
    hosts: frozenset[str]
    batch: int


@dataclasses.dataclass
class Story:
    """A topic, batches over it, and what a stream that crashes sends: tries of batches."""

    expectation: Expectation
    recorded: list[Recorded]
    offsets: dict[int, list[int]]
    #: By session, in the order of sending, without tries that broke off.
    sent: dict[bytes, list[Sent]]
    received: Rows

    def verdict(self, received: Rows | None = None, **how: object) -> DeliveryVerdict:
        rows = self.received if received is None else received
        verdict = check_receipts(self.expect, self.recorded, rows, TOPIC, **how)
        topic = {p: Offsets((o, o + 1) for o in offsets) for p, offsets in self.offsets.items()}
        check_ledger(verdict, self.recorded, topic)
        return verdict

    def expect(self, window: Window) -> Expectation:
        """What a window's batches took, and nothing else."""
        session = session_id(TOPIC, window.partition)
        taken = {
            (session, offset)
            for batch in window.batches()
            for offset in range(*batch.offsets[window.partition])
        }
        return Expectation(
            packets={k: v for k, v in self.expectation.packets.items() if k in taken},
            receivers={k: v for k, v in self.expectation.receivers.items() if k in taken},
        )


@st.composite
def stories(draw: st.DrawFn, crashes: bool = True) -> Story:
    """Two partitions; each message is owed to any set of hosts, drawn, in batches, drawn."""
    expectation = Expectation()
    offsets: dict[int, list[int]] = {}
    sent: dict[bytes, list[Sent]] = {}
    batches = draw(st.integers(1, 3))
    ranges: list[dict[int, tuple[int, int]]] = [{} for _ in range(batches)]
    for partition in (0, 1):
        session = session_id(TOPIC, partition)
        sent[session] = []
        at = 0
        for batch in range(batches):
            count = draw(st.integers(0 if partition else 1, 3))
            if count:
                ranges[batch][partition] = (at, at + count)
            for offset in range(at, at + count):
                messages = tuple(
                    draw(st.lists(st.binary(min_size=1, max_size=2), min_size=1, max_size=4))
                )
                owed = [
                    frozenset(draw(st.sets(st.sampled_from(HOSTS), min_size=not (offset or i))))
                    for i in range(len(messages))
                ]
                expectation.packets[session, offset] = messages
                expectation.receivers[session, offset] = owed
                fit = draw(st.integers(1, 3))  # messages that a frame has room for
                frames = []
                for hosts in set(owed) - {frozenset()}:
                    places = [i for i, each in enumerate(owed) if each == hosts]
                    for first in range(0, len(places), fit):
                        taken = places[first : first + fit]
                        number = offset << 26 | taken[0] << 13
                        receipt = Receipt(session, number, tuple(messages[i] for i in taken))
                        frames.append(Sent(receipt, hosts, batch))
                sent[session] += sorted(frames, key=lambda frame: frame.receipt.sequence)
            at += count
        offsets[partition] = list(range(at))
    received: Rows = {host: [] for host in HOSTS}
    for batch in range(batches):
        mine = {
            session: [f for f in frames if f.batch == batch] for session, frames in sent.items()
        }
        broken = draw(st.lists(st.integers(0, 12), max_size=2)) if crashes else []
        for ends in (*broken, None):
            # Both partitions break off somewhere, and their frames mingle anyhow.
            left = {session: frames[:ends] for session, frames in mine.items()}
            while any(left.values()):
                session = draw(st.sampled_from([s for s, frames in left.items() if frames]))
                frame = left[session].pop(0)
                for host in sorted(frame.hosts):
                    received[host].append(frame.receipt)
    recorded = [
        Recorded(
            Batch(number, taken, ()),
            {"subscriptions": 5},
            packets=sum(until - start for start, until in taken.values()),
        )
        for number, taken in enumerate(ranges)
    ]
    return Story(expectation, recorded, offsets, sent, received)


def changed(story: Story, host: str, rows: list[Receipt]) -> DeliveryVerdict:
    return story.verdict(story.received | {host: rows})


def pick(data: st.DataObject, story: Story) -> tuple[str, int]:
    """A host that has something, and the place of a receipt of its."""
    host = data.draw(st.sampled_from([host for host in HOSTS if story.received[host]]))
    return host, data.draw(st.integers(0, len(story.received[host]) - 1))


@given(stories())
def test_tries_that_broke_off_and_the_batch_again_pass(story: Story) -> None:
    verdict = story.verdict()
    assert verdict.proved, list(verdict.lines())
    frames = [frame for frames in story.sent.values() for frame in frames]
    assert verdict.owed == sum(len(frame.hosts) for frame in frames)
    assert verdict.received == sum(map(len, story.received.values()))
    assert verdict.repeats == verdict.received - verdict.owed
    assert "proved" in list(verdict.lines())[-1]


@given(stories(crashes=False), st.data())
def test_one_receipt_removed_is_missing(story: Story, data: st.DataObject) -> None:
    host, place = pick(data, story)
    rows = list(story.received[host])
    gone = rows.pop(place)
    verdict = changed(story, host, rows)
    (fault,) = verdict.faults["missing"]
    assert (fault.host, fault.session, fault.sequence) == (host, gone.session, gone.sequence)
    assert f"sequence {gone.sequence}" in "\n".join(verdict.lines())
    assert "subscriptions@5" in "\n".join(verdict.lines())


def could_be(story: Story, received: Rows) -> bool:
    """Whether a stream that crashes any number of times could have left these receipts.

    Brute force over all that tries may have sent. How far one that broke off had come within a
    source packet may differ from host to host, as a packet may leave in several frames.
    """
    for session, frames in story.sent.items():
        for batch in range(len(story.recorded)):
            mine = [frame for frame in frames if frame.batch == batch]
            known = [frame.receipt for frame in mine]
            left = {h: [r for r in rows if r in known] for h, rows in received.items()}
            if not _tries(mine, left):
                return False
        for rows in received.values():
            of_session = [r for r in rows if r.session == session]
            batch_of = {frame.receipt: frame.batch for frame in frames}
            in_turn = [batch_of[r] for r in of_session]
            if in_turn != sorted(in_turn):
                return False
    return True


def _tries(frames: list[Sent], left: Rows) -> bool:
    """Whether what hosts have of a batch and session is some tries and then a whole one."""
    owed = {host: [f.receipt for f in frames if host in f.hosts] for host in left}
    if left == owed:
        return True
    for cut in sorted({frame.receipt.sequence >> 26 for frame in frames}):
        before = {h: [r for r in rows if r.sequence >> 26 < cut] for h, rows in owed.items()}
        upto = {h: [r for r in rows if r.sequence >> 26 <= cut] for h, rows in owed.items()}
        some = [
            [n for n in range(len(before[h]), len(upto[h]) + 1) if rows[:n] == upto[h][:n]]
            for h, rows in left.items()
        ]
        for lengths in itertools.product(*some):
            after = {h: left[h][n:] for h, n in zip(left, lengths, strict=True)}
            if any(lengths) and _tries(frames, after):
                return True
    return False


@examples(40)
@given(stories(), st.data())
def test_a_copy_removed_or_added_is_noticed_unless_a_crash_leaves_the_same(
    story: Story, data: st.DataObject
) -> None:
    host, place = pick(data, story)
    rows = list(story.received[host])
    if data.draw(st.booleans()):
        del rows[place]
    else:
        rows.insert(data.draw(st.integers(0, len(rows))), rows[place])
    assert changed(story, host, rows).proved is could_be(story, story.received | {host: rows})


@given(stories(), st.data())
def test_one_receipt_of_another_host_is_foreign(story: Story, data: st.DataObject) -> None:
    frames = [f for each in story.sent.values() for f in each if len(f.hosts) < len(HOSTS)]
    if not frames:
        return
    frame = data.draw(st.sampled_from(frames))
    host = data.draw(st.sampled_from(sorted(set(HOSTS) - frame.hosts)))
    rows = list(story.received[host])
    rows.insert(data.draw(st.integers(0, len(rows))), frame.receipt)
    verdict = changed(story, host, rows)
    (fault,) = verdict.faults["foreign"]
    assert (fault.host, fault.sequence) == (host, frame.receipt.sequence)


@given(stories(), st.data())
def test_any_byte_that_changes_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, story: Story, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("lab") / "receipts"
    folder.mkdir()
    host, _ = pick(data, story)
    for name, rows in story.received.items():
        (folder / f"{name}.mold").write_bytes(b"".join(map(receipt_bytes, rows)))
    path = folder / f"{host}.mold"
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(content))
    try:
        found = receipts(folder.parent)
    except LabError as error:
        assert error.what == "TRUNCATED_RECEIPTS"
        return
    assert not story.verdict(found).proved


@given(stories(), st.data())
def test_order_within_a_try_counts(story: Story, data: st.DataObject) -> None:
    host, place = pick(data, story)
    rows = list(story.received[host])
    later = [
        n
        for n in range(place + 1, len(rows))
        if rows[n].session == rows[place].session and rows[n].sequence > rows[place].sequence
    ]
    if not later:
        return
    # The next one of the session comes first.
    rows.insert(place, rows.pop(later[0]))
    received = story.received | {host: rows}
    verdict = story.verdict(received)
    assert verdict.proved is could_be(story, received)
    assert {kind for kind, faults in verdict.faults.items() if faults} <= {"order", "copies"}
    assert story.verdict(received, ordered=False).proved


@st.composite
def disturbed(draw: st.DrawFn) -> tuple[Story, Rows]:
    """A story, and receipts of it with some of any number removed, doubled, moved, changed, or of
    other hosts, sessions and offsets."""
    story = draw(stories())
    rows = {host: list(each) for host, each in story.received.items()}
    everything = [receipt for each in rows.values() for receipt in each]
    for _ in range(draw(st.integers(0, 6))):
        host = draw(st.sampled_from(HOSTS))
        mine = rows[host]
        how = draw(st.sampled_from(["remove", "copy", "move", "foreign", "change", "number"]))
        if how == "foreign":
            mine.insert(draw(st.integers(0, len(mine))), draw(st.sampled_from(everything)))
        if not mine or how == "foreign":
            continue
        place = draw(st.integers(0, len(mine) - 1))
        one = mine[place]
        if how in ("remove", "move"):
            del mine[place]
        if how in ("copy", "move"):
            mine.insert(draw(st.integers(0, len(mine))), one)
        if how == "change":
            mine[place] = one._replace(messages=one.messages[:-1] or (b"x",))
        if how == "number":
            session = draw(st.sampled_from([one.session, session_id(TOPIC, 9), *story.sent]))
            mine[place] = one._replace(session=session, sequence=draw(st.integers(0, 9)) << 26)
    return story, rows


@examples(150)
@given(disturbed(), st.integers(1, 7), st.integers(0, 3), st.booleans())
def test_any_size_of_windows_gives_the_verdict_of_all_in_memory(
    disturbance: tuple[Story, Rows], size: int, since: int, ordered: bool
) -> None:
    """Counts and the faults that are shown, also where a border is inside a batch or a try."""
    story, rows = disturbance
    whole = whole_verdict(story.expectation, story.recorded, rows, TOPIC, since, ordered)
    found = check_receipts(story.expect, story.recorded, rows, TOPIC, since, ordered, size)
    assert [*found.lines()] == [*whole.lines()]


@given(stories(), st.integers(1, 7))
def test_tries_that_cross_the_borders_of_windows_pass(story: Story, size: int) -> None:
    verdict = story.verdict(window=size)
    assert verdict.proved, list(verdict.lines())


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6)), min_size=1, max_size=6),
    st.integers(1, 9),
)
def test_windows_hold_each_offset_under_the_batches_that_took_it_in_their_order(
    taken: list[tuple[int, int]], size: int
) -> None:
    """Also where batches overlap, leave something out, or begin anew."""
    recorded = [
        Recorded(Batch(n, {0: (start, start + count)}, []))
        for n, (start, count) in enumerate(taken)
    ]
    cut = [*windows(recorded, size)]
    assert all(a.until == b.start and a.last <= b.first for a, b in itertools.pairwise(cut))
    found = [
        (offset, batch.batch_id)
        for window in cut
        for batch in window.batches()
        for offset in range(*batch.offsets[0])
    ]
    owed = [(o, n) for n, (start, count) in enumerate(taken) for o in range(start, start + count)]
    by_offset: dict[int, list[int]] = {}
    for offset, number in owed:
        by_offset.setdefault(offset, []).append(number)
    in_windows: dict[int, list[int]] = {}
    for offset, number in found:
        in_windows.setdefault(offset, []).append(number)
    assert in_windows == by_offset
    takers = Takers(recorded, TOPIC)
    assert {o: takers.place(0, o) for o in range(20)} == {
        o: max(by_offset[o]) if o in by_offset else None for o in range(20)
    }
    steps = [number for number, _ in itertools.groupby(number for _, number in found)]
    # State goes from batch to batch in the order in which they ran.
    assert steps == [number for number, _ in itertools.groupby(number for _, number in owed)]


@given(st.sets(st.integers(0, 30)), st.integers(0, 31), st.integers(0, 31))
def test_runs_of_offsets_count_like_a_list(held: set[int], start: int, until: int) -> None:
    offsets = Offsets((o, o + 1) for o in sorted(held))
    assert offsets.count(start, until) == sum(start <= o < until for o in held)
    assert offsets.count_from(start) == sum(o >= start for o in held)
    assert offsets.following(start) == min((o for o in held if o >= start), default=None)
    assert offsets.first == min(held, default=None)


def test_batches_before_the_one_asked_for_do_not_count() -> None:
    story = small()
    lost = story.received | {"h1": story.received["h1"][1:]}
    assert story.verdict(lost).faults["missing"]
    assert story.verdict(lost, since=1).proved
    lost = story.received | {"h1": story.received["h1"][:-1]}
    (fault,) = story.verdict(lost, since=1).faults["missing"]
    assert fault.batch == 1


def test_a_host_that_no_link_leads_to_is_owed_nothing() -> None:
    story = small()
    second = story.recorded[1]
    story.recorded[1] = dataclasses.replace(second, cut_off=frozenset({"h1"}))
    assert story.verdict(story.received | {"h1": story.received["h1"][:2]}).proved
    # What it gets then came by a way that nobody knows of.
    assert len(story.verdict().faults["foreign"]) == 2


def test_a_batch_that_is_not_on_the_ledger_is_told() -> None:
    story = small()
    del story.recorded[1]
    verdict = story.verdict()
    assert {f.host for f in verdict.faults["unrecorded"]} == {"h1", "h2"}
    assert verdict.waiting == 2


@pytest.mark.parametrize(
    ("ranges", "what"),
    [
        ([(0, 2), (3, 4)], "1 records starting at offset 2 are missing"),
        ([(1, 2), (2, 4)], "1 records starting at offset 0 are missing"),
        ([(0, 3), (2, 4)], "offsets 2 to 2 are also in an earlier batch"),
        ([(0, 2), (2, 4), (2, 4)], "offsets 2 to 3 are also in an earlier batch"),
        ([(0, 2), (2, 4), (4, 6)], "no longer has records at offsets 4 to 5"),
    ],
)
def test_a_ledger_with_a_hole_or_an_overlap_is_told(
    ranges: list[tuple[int, int]], what: str
) -> None:
    verdict = DeliveryVerdict()
    recorded = [Recorded(Batch(n, {0: taken}, ())) for n, taken in enumerate(ranges)]
    check_ledger(verdict, recorded, {0: Offsets([(0, 4)])})
    assert not verdict.proved
    assert any(what in line for line in verdict.lines()), list(verdict.lines())


def test_a_ledger_counts_its_batches_and_records() -> None:
    def lines(*recorded: Recorded) -> str:
        verdict = DeliveryVerdict()
        check_ledger(verdict, recorded, {0: Offsets([(0, 2), (4, 6)])})
        return "\n".join(verdict.lines())

    whole = [Recorded(Batch(0, {0: (0, 2)}, ())), Recorded(Batch(1, {0: (4, 6)}, ()))]
    # Offsets that the topic never used, as those of transactions, are no hole.
    assert "\nproved" in lines(*whole)
    assert "preceding batch in the ledger is 0" in lines(
        whole[0], Recorded(Batch(2, {0: (4, 6)}, ()))
    )
    assert "the ledger has 3 records, but the topic has 2" in lines(
        dataclasses.replace(whole[0], packets=3), whole[1]
    )
    assert "2 records are not in a batch" in lines(whole[0])


def test_the_report_shows_the_first_faults_of_each_kind() -> None:
    verdict = small().verdict({"h1": [Receipt(b"", 0, (b"noise",))] * (SHOWN + 3), "h2": []})
    lines = list(verdict.lines())
    assert lines[-1] == "NOT PROVED"
    assert (
        sum("h1" in line and "the session does not belong to the topic" in line for line in lines)
        == SHOWN
    )
    assert "    and 3 more" in lines
    assert any(line.startswith("missing: ") for line in lines)


def test_summaries_are_no_notifications() -> None:
    story = small()
    session = story.received["h1"][0].session
    summary = struct.pack(">10sQHQQQQ", session, 1 << 26, 0, 0, 2, 7, 9)
    rows = [*story.received["h1"], packet_receipt(summary)]
    assert story.verdict(story.received | {"h1": rows}).proved


def small() -> Story:
    """Four packets of one message for h1 and h2, in two batches."""
    session = session_id(TOPIC, 0)
    rows = [Receipt(session, offset << 26, (b"%d" % offset,)) for offset in range(4)]
    expectation = Expectation()
    for offset, row in enumerate(rows):
        expectation.packets[session, offset] = row.messages
        expectation.receivers[session, offset] = [frozenset({"h1", "h2"})]
    recorded = [Recorded(Batch(n, {0: (2 * n, 2 * n + 2)}, ())) for n in range(2)]
    sent = [Sent(row, frozenset({"h1", "h2"}), n // 2) for n, row in enumerate(rows)]
    received = {"h1": rows, "h2": list(rows)}
    return Story(expectation, recorded, {0: [0, 1, 2, 3]}, {session: sent}, received)


def order(stock: str, shares: int, time: int = 0) -> bytes:
    """Returns an order; time: nanoseconds since midnight."""
    head = b"A" + bytes(4) + time.to_bytes(6) + struct.pack(">Q1sI", 7, b"B", shares)
    return head + stock.ljust(8).encode() + struct.pack(">I", 1)


def test_who_is_owed_each_message_is_told_message_by_message(itch: Specification) -> None:
    rows = [Subscription("a", "h1", "stock == GOOGL"), Subscription("b", "h2", "shares > 5")]
    rules, _ = check(rows, itch, {"h1", "h2"}, "feed1")
    messages = [order("GOOGL", 9), b"?what", order("AAPL", 1), order("AAPL", 9), order("GOOGL", 1)]
    packet = build_packet(b"SESSION001", 1, messages)
    found = expected([(0, 3, packet)], [Batch(0, {0: (3, 4)}, rules)], itch, TOPIC)
    owed = found.receivers[session_id(TOPIC, 0), 3]
    assert [sorted(hosts) for hosts in owed] == [["h1", "h2"], [], [], ["h2"], ["h1"]]


@given(flags=st.lists(st.booleans(), min_size=1, max_size=7), data=st.data())
@examples(60)
def test_what_hosts_are_owed_depends_on_no_record_of_a_batch_without_state(
    flags: list[bool], data: st.DataObject, itch: Specification
) -> None:
    since = data.draw(st.integers(0, len(flags)))
    rows = [Subscription("a", "h1", "shares > 5 and count(1h) > 1")]
    stateful, plain = (check(part, itch, {"h1"}, "feed1")[0] for part in (rows, ()))
    recorded = [
        Recorded(Batch(n, {0: (n, n + 1)}, stateful if flag else plain))
        for n, flag in enumerate(flags)
    ]

    def owed(offsets: range | set[int]) -> dict[int, object]:
        records = [(0, n, build_packet(b"SESSION001", 1, [order("GOOGL", 9, n)])) for n in offsets]
        found = expected(records, [one.batch for one in recorded], itch, TOPIC)
        return {offset: hosts for (_, offset), hosts in found.receivers.items() if offset >= since}

    needed = {one.batch.batch_id for one in with_state(recorded, since)}
    assert owed(needed | set(range(since, len(flags)))) == owed(range(len(flags)))
    # Those of batches between the last one without state and the first one that is looked at count.
    last_plain = max((n for n in range(since) if not flags[n]), default=-1)
    counted = {n for n in range(last_plain + 1, len(flags)) if flags[n]}
    assert needed == (counted if any(n >= since for n in counted) else set())


def pruned(story: Story) -> Rows:
    """What hosts get of the story's packets from switches that match, once and in order."""
    rows: Rows = {host: [] for host in HOSTS}
    for (session, offset), messages in sorted(story.expectation.packets.items()):
        owed = story.expectation.receivers[session, offset]
        for host in HOSTS:
            mine = tuple(m for m, hosts in zip(messages, owed, strict=True) if host in hosts)
            if mine:
                rows[host].append(Receipt(session, offset << 26, mine))
    return rows


@given(story=stories(crashes=False), size=st.integers(1, 5))
@examples(60)
def test_packets_that_switches_took_messages_off_are_proved(story: Story, size: int) -> None:
    rows = pruned(story)
    verdict = story.verdict(rows, pruned=True, window=size)
    assert verdict.proved and verdict.owed == verdict.received == sum(map(len, rows.values()))
    # Again, and in whatever order, as after a repair.
    mixed = {host: [*reversed(each), *each] for host, each in rows.items()}
    verdict = story.verdict(mixed, pruned=True, window=size, ordered=False)
    assert verdict.proved and verdict.repeats == verdict.owed


@given(story=stories(crashes=False), data=st.data())
@examples(100)
def test_one_packet_of_a_switch_that_is_lost_added_or_changed_is_a_fault(
    story: Story, data: st.DataObject
) -> None:
    rows = pruned(story)
    host, at = data.draw(
        st.sampled_from([(host, n) for host, each in rows.items() for n in range(len(each))])
    )
    one = rows[host][at]
    offset = one.sequence >> 26
    source = story.expectation.packets[one.session, offset]
    what = data.draw(st.sampled_from(["lost", "bytes", "part", "all", "number", "astray"]))
    if what == "lost":
        rows[host].pop(at)
        kinds = {"missing"}
    elif what == "bytes":
        rows[host][at] = one._replace(messages=(b"xxx", *one.messages[1:]))
        kinds = {"changed", "missing"}
    elif what == "part" and len(one.messages) > 1:
        rows[host][at] = one._replace(messages=one.messages[1:])
        kinds = {"changed", "missing"}
    elif what == "all" and len(source) > len(one.messages):
        rows[host][at] = one._replace(messages=source)
        kinds = {"foreign", "missing"}
    elif what == "number":
        rows[host][at] = one._replace(sequence=one.sequence + (1 << 13))
        kinds = {"changed", "missing"}
    else:
        others = [h for h in HOSTS if all(r.sequence != one.sequence for r in rows[h])]
        if not others:
            return
        rows[others[0]].append(one)
        kinds = {"foreign"}
    verdict = story.verdict(rows, pruned=True, ordered=False)
    assert {kind for kind, faults in verdict.faults.items() if faults} == kinds
