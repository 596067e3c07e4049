"""The software switch does with frames what BMv2's simple_switch is documented to do."""

from __future__ import annotations

import itertools
import json
import struct
from collections import Counter

import feature_cases
import pytest
from examples import examples
from feature_cases import FEATURES, PAYLOAD, REQUESTS, entry, keys, receivable, requests, seen
from hypothesis import given
from hypothesis import strategies as st
from p4_coverage import executed, missed, statements_of

from stackcast.switch.bmv2.packet import Packet
from stackcast.switch.bmv2.passes import PASS_LIMIT, Passes, Walk
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.switches.entry import default_entry, group_entry, session_entry

pytestmark = pytest.mark.unit

# Requests of feature_traffic.p4.
CLONE, CLONE_KEEPING, PASS, PASS_KEEPING, MULTICAST, DROP, MULTICAST_LATE, TRUNCATE = (
    1 << bit for bit in range(8)
)
FILLER = MULTICAST_LATE  # of egress
NORMAL, INGRESS_CLONE, EGRESS_CLONE, _, RECIRCULATED, REPLICATED, RESUBMITTED = range(7)
TRAFFIC = FEATURES["feature_traffic"]


def sent(*flags: int, **options: int) -> dict[int, list[tuple[list[dict[str, int]], bytes]]]:
    """By egress port: what each copy has seen, and its payload; the frame comes in at port 1."""
    copies = TRAFFIC.switch().process(1, requests(*flags, **options))
    found: dict[int, list[tuple[list[dict[str, int]], bytes]]] = {}
    for port, frame in copies:
        views = seen(frame)
        end = REQUESTS.size + feature_cases.SEEN.size * len(views)
        found.setdefault(port, []).append((views, frame[end:]))
    return found


def views(found: dict[int, list[tuple[list[dict[str, int]], bytes]]], port: int) -> dict[str, int]:
    """What the last run of egress saw of the only copy to a port."""
    ((newest, *_), _) = found[port][0]
    assert len(found[port]) == 1
    return newest


LENGTH = len(requests())


def test_a_new_frame_goes_to_the_port_that_ingress_chose_with_its_metadata() -> None:
    found = sent()
    assert found.keys() == {2}
    assert views(found, 2) == {
        "ingress_type": NORMAL,
        "ingress_length": LENGTH,
        "ingress_from": 1,
        "kept": 3,
        "listed": 16,
        "instance_type": NORMAL,
        "ingress_port": 1,
        "egress_port": 2,
        "egress_rid": 0,
        "packet_length": LENGTH,
        "egress_spec": 0,
        "mcast_grp": 0,
        "parser_error": 0,
    }
    assert found[2][0][1] == PAYLOAD


@pytest.mark.parametrize(
    ("flags", "kept", "come_from"),
    [(CLONE, 0, 0), (CLONE_KEEPING, 3, 1), (CLONE | CLONE_KEEPING, 3, 1)],
)
def test_an_ingress_clone_is_the_frame_as_it_came_with_only_its_field_list(
    flags: int, kept: int, come_from: int
) -> None:
    found = sent(flags)
    assert found.keys() == {2, 4}
    assert views(found, 2) == views(sent(), 2)  # nothing changes for the original
    clone = views(found, 4)
    assert clone["instance_type"] == INGRESS_CLONE
    assert (clone["kept"], clone["ingress_from"]) == (kept, come_from)
    assert (clone["listed"], clone["ingress_length"], clone["ingress_port"]) == (0, 0, 0)
    assert (clone["packet_length"], clone["egress_port"]) == (LENGTH, 4)
    # Ingress raises `padding`; the clone was taken before.
    copies = dict(TRAFFIC.switch().process(1, requests(flags)))
    assert [copies[port][REQUESTS.size - 2] for port in (2, 4)] == [1, 0]


def test_a_clone_session_has_several_copies_and_an_unknown_one_none() -> None:
    found = sent(CLONE, port=3, session=10)
    assert {port: views(found, port)["egress_rid"] for port in found} == {2: 2, 3: 0, 5: 1}
    assert sent(CLONE, session=3) == sent()


def test_a_clone_is_cut_to_the_length_of_its_session() -> None:
    switch = TRAFFIC.switch()
    session = session_entry("s", 9, [(4, 0)], 20)
    switch.apply({session.key: session})
    copies = dict(switch.process(1, requests(CLONE)))
    assert len(copies[4]) == 20 < len(copies[2])


@pytest.mark.parametrize("others", [0, MULTICAST, DROP, TRUNCATE])
def test_resubmit_comes_before_multicast_and_drop(others: int) -> None:
    found = sent(PASS_KEEPING | others, again=0)
    view = views(found, 2)
    assert view["ingress_type"] == RESUBMITTED
    assert (view["kept"], view["listed"]) == (3 + 3, 16 + 16)
    assert view["instance_type"] == NORMAL
    assert (view["ingress_port"], view["packet_length"]) == (0, LENGTH)
    assert found[2][0][1] == PAYLOAD


def test_a_resubmitted_frame_is_the_original_one_and_keeps_what_is_listed() -> None:
    view = views(sent(PASS), 2)
    assert (view["kept"], view["listed"], view["ingress_length"]) == (3, 16, LENGTH)
    frame = dict(TRAFFIC.switch().process(1, requests(PASS)))[2]
    assert frame[REQUESTS.size - 2] == 1  # raised once, as the first raise was undone
    assert views(sent(PASS_KEEPING, again=MULTICAST), 1)["instance_type"] == REPLICATED


def test_multicast_makes_a_copy_of_each_replica_with_all_metadata() -> None:
    found = sent(MULTICAST)
    copies = [(port, view[0]["egress_rid"]) for port in found for view, _ in found[port]]
    assert sorted(copies) == [(1, 0), (2, 7), (3, 0), (3, 2)]
    for port in found:
        for (view,), payload in found[port]:
            assert (view["instance_type"], view["mcast_grp"]) == (REPLICATED, 5)
            assert (view["kept"], view["listed"], view["ingress_port"]) == (3, 16, 1)
            assert payload == PAYLOAD


def test_dropping_takes_back_a_group_and_a_group_takes_back_dropping() -> None:
    assert sent(MULTICAST | DROP) == {} == sent(DROP)
    assert sent(DROP | MULTICAST_LATE) == sent(MULTICAST)


@pytest.mark.parametrize("group", [7, 77])
def test_a_group_that_is_empty_or_unknown_drops_the_frame(group: int) -> None:
    switch = TRAFFIC.switch()
    assert switch.process(1, requests(MULTICAST, group=group)) == []
    assert switch.drops == {"dropped_by_program": 1}


@pytest.mark.parametrize(("flags", "kept"), [(CLONE, 0), (CLONE_KEEPING, 7)])
def test_an_egress_clone_is_the_frame_at_the_end_of_egress(flags: int, kept: int) -> None:
    found = sent(0, flags)
    assert found.keys() == {2, 4}
    (newest, first), payload = found[4][0]
    assert payload == PAYLOAD
    assert [first] == found[2][0][0]
    assert (newest["instance_type"], newest["kept"]) == (EGRESS_CLONE, kept)
    assert newest["listed"] == newest["ingress_port"] == newest["ingress_length"] == 0


def test_an_egress_clone_leaves_though_the_frame_is_dropped() -> None:
    assert sent(0, CLONE | DROP).keys() == {4}


@pytest.mark.parametrize(("flags", "kept", "listed"), [(PASS, 3, 16), (PASS_KEEPING, 10, 32)])
def test_a_recirculated_frame_begins_anew_as_it_was_deparsed(
    flags: int, kept: int, listed: int
) -> None:
    found = sent(0, flags)
    (newest, first), payload = found[2][0]
    grown = LENGTH + feature_cases.SEEN.size
    assert payload == PAYLOAD
    assert [first] == sent()[2][0][0]
    assert (newest["ingress_type"], newest["instance_type"]) == (RECIRCULATED, NORMAL)
    assert (newest["ingress_length"], newest["packet_length"]) == (grown, grown)
    assert (newest["kept"], newest["listed"]) == (kept, listed)
    assert (newest["ingress_from"], newest["ingress_port"]) == (0, 0)


def test_dropping_in_egress_comes_before_recirculating() -> None:
    assert sent(0, PASS | DROP) == {}


def test_only_the_copy_itself_is_truncated_not_what_is_made_of_it() -> None:
    switch = TRAFFIC.switch()
    for ingress, egress in ((TRUNCATE, 0), (0, TRUNCATE), (TRUNCATE, FILLER)):
        ((_, frame),) = switch.process(1, requests(ingress, egress, size=30))
        assert len(frame) == 30
    copies = dict(switch.process(1, requests(TRUNCATE | CLONE, size=30)))
    assert len(copies[2]) == 30 < len(copies[4])
    for _, frame in switch.process(1, requests(TRUNCATE | MULTICAST, size=30)):
        assert len(frame) > 30
    ((_, frame),) = switch.process(1, requests(TRUNCATE, PASS, size=30))
    assert len(frame) > 30


def test_truncating_to_more_than_there_is_changes_nothing() -> None:
    assert sent(TRUNCATE, size=2000) == sent()


def test_what_goes_round_for_ever_is_given_up_and_counted() -> None:
    switch = TRAFFIC.switch()
    # Every run of egress makes two more, until `left` would be 0 after 255 rounds.
    switch.process(1, requests(0, CLONE | PASS, left=255))
    assert switch.drops == {"pass_limit": 1}
    assert switch.passes <= PASS_LIMIT
    assert len(switch.process(1, requests())) == 1


# --- what outlives a frame ---------------------------------------------------------------------

REPLY = struct.Struct(">II2sHIHHHHBB")
STATE = FEATURES["feature_state"]


def asked(what: int, index: int = 1, value: int = 5) -> bytes:
    return struct.pack(">BBI", what, index, value) + b"rest"


def reply(switch: SimpleSwitch, frame: bytes) -> tuple[int, ...]:
    ((_, copy),) = switch.process(1, frame)
    return REPLY.unpack_from(copy)


def test_registers_last_and_can_be_read_and_written_from_outside() -> None:
    switch = STATE.switch()
    assert [reply(switch, asked(1))[:2] for _ in range(3)] == [(0, 5), (5, 10), (10, 15)]
    assert switch.register("ingress.cells")[:3] == [0, 15, 0]
    switch.write_register("ingress.cells", 1, 100)
    assert reply(switch, asked(0))[:2] == (100, 100)
    switch.load(STATE.json())
    assert reply(switch, asked(0))[:2] == (0, 0)


def test_counters_count_packets_and_bytes_of_the_frame_as_it_came() -> None:
    switch = STATE.switch()
    for _ in range(3):
        switch.process(1, asked(0, 2))
    switch.process(1, asked(16, 2) + b"more")  # dropped frames count too
    bytes_in = 3 * 10 + 14
    assert switch.counter("ingress.frames", 2) == (4, bytes_in)
    assert switch.counter("ingress.frames_alone", 2)[0] == 4
    assert switch.counter("ingress.bytes_alone", 2)[1] == bytes_in
    assert switch.counter("egress.sent", 2) == (3, 30)
    assert switch.counter_size("ingress.frames") == 16
    switch.write_counter("ingress.frames", 2, 1, 0)
    switch.process(1, asked(0, 2))
    assert switch.counter("ingress.frames", 2) == (2, 10)


def test_random_numbers_are_in_their_range_and_time_goes_on() -> None:
    switch = STATE.switch()
    drawn = {reply(switch, asked(4))[9] for _ in range(200)}
    assert drawn == {10, 11, 12, 13}
    now = iter(range(1, 100))
    switch = SimpleSwitch(clock=lambda: next(now))
    switch.load(STATE.json())
    assert reply(switch, asked(8))[10] == 2


def test_digests_are_handed_over() -> None:
    learned: list[tuple[int, Packet]] = []
    switch = SimpleSwitch(digest=lambda number, packet: learned.append((number, packet)))
    switch.load(STATE.json())
    for _ in range(2):
        switch.process(1, asked(2))
    assert (len(learned), switch.digests) == (2, 2)


# --- tables ------------------------------------------------------------------------------------

ANSWERS = struct.Struct(">7HBB")
TABLES = FEATURES["feature_tables"]


def answers(switch: SimpleSwitch, *values: int) -> tuple[int, ...]:
    ((_, frame),) = switch.process(1, keys(*values))
    return ANSWERS.unpack_from(frame)


def test_direct_counters_count_by_entry_and_begin_at_nothing() -> None:
    switch = TABLES.switch()
    row = TABLES.entries[0]
    for _ in range(3):
        answers(switch, 1, 1, 2)
    assert switch.direct_counter(row.table, row.key) == (3, 3 * len(keys(1, 1, 2)))
    switch.apply({row.key: None})
    assert answers(switch, 1, 1, 2)[0] == 0xDEAD
    switch.apply({row.key: row})
    assert switch.direct_counter(row.table, row.key) == (0, 0)


def test_a_default_action_can_be_changed_and_given_back() -> None:
    switch = TABLES.switch()
    changed = default_entry("s", "ingress.by_value", "ingress.answer_exact", [("number", b"\x07")])
    switch.apply({changed.key: changed})
    assert answers(switch, 1, 9, 9)[0] == 7
    switch.apply({changed.key: None})
    assert answers(switch, 1, 9, 9)[0] == 0xDEAD
    fixed = default_entry("s", "ingress.by_prefix", "ingress.drop")
    with pytest.raises(SwitchError, match="BAD_ENTRY"):
        switch.apply({fixed.key: fixed})


# --- against BMv2 ------------------------------------------------------------------------------


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("name", FEATURES)
def test_the_switch_answers_as_bmv2_answered(name: str, cached: bool) -> None:
    switch = FEATURES[name].switch(cached=cached)
    for port, frame, expected in FEATURES[name].answers():
        copies = receivable(switch.process(port, frame))
        assert copies == expected, (port, frame.hex())


@pytest.mark.parametrize("name", FEATURES)
def test_the_frames_of_a_feature_reach_every_statement_of_its_program(name: str) -> None:
    feature = FEATURES[name]
    back = itertools.count(0, -1)
    switch = feature.switch(coverage=True, clock=lambda: next(back))  # for comparisons of times
    for port, frame, _ in feature.answers():
        switch.process(port, frame)
    if feature is STATE:
        later = feature.switch(coverage=True)
        later.process(1, asked(4 | 8))  # random numbers, which no recorded answer can have
        assert missed(switch) & missed(later) == set()
        assert executed(switch) | executed(later) >= statements_of(feature.json())
    else:
        assert missed(switch) == set()
        assert executed(switch) >= statements_of(feature.json())


# --- bad input ---------------------------------------------------------------------------------


@examples(300)
@given(st.sampled_from(sorted(FEATURES)), st.integers(0, 511), st.binary(max_size=64))
def test_no_frame_stops_the_switch(name: str, port: int, frame: bytes) -> None:
    switch = SWITCHES[name]
    before = switch.drops.total()
    copies = switch.process(port, frame)
    assert copies or switch.drops.total() == before + 1


SWITCHES = {name: feature.switch() for name, feature in FEATURES.items()}


def test_a_frame_that_makes_the_program_fail_is_lost_alone_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    switch, walk = TRAFFIC.switch(), Passes.walk

    def fail(passes: Passes, port: int, frame: bytes) -> Walk:
        if frame.startswith(b"bad"):
            raise UnboundLocalError("s")
        return walk(passes, port, frame)

    monkeypatch.setattr(Passes, "walk", fail)
    for frame in (b"bad", b"bad again"):
        assert switch.process(1, frame) == []
    assert switch.drops == {"program_failed": 2}
    assert len(caplog.records) == 1 and "UnboundLocalError" in caplog.text
    assert switch.process(1, requests()) == TRAFFIC.switch().process(1, requests())


def test_a_switch_without_a_program_drops_and_refuses() -> None:
    switch = SimpleSwitch()
    assert switch.process(1, b"frame") == []
    assert switch.drops == {"no_program": 1}
    assert switch.program is None
    row = TABLES.entries[0]
    for call in (lambda: switch.check(row), lambda: switch.apply({row.key: row})):
        with pytest.raises(SwitchError, match="BAD_ENTRY"):
            call()


@pytest.mark.parametrize(
    "row",
    [
        group_entry("s", 0, [(1, 0)]),
        group_entry("s", 1 << 16, [(1, 0)]),
        group_entry("s", 1, [(512, 0)]),
        group_entry("s", 1, [(1, 1 << 16)]),
        group_entry("s", 1, [(1, 0), (1, 0)]),
        session_entry("s", 1 << 15, [(1, 0)]),
        entry("ingress.nothing", "ingress.drop"),
        entry("ingress.by_value", "ingress.drop", ("hdr.keys.one", "exact", 1)),
        entry(
            "ingress.by_value",
            "ingress.answer_lpm",
            ("hdr.keys.one", "exact", 1),
            ("hdr.keys.two", "exact", 1),
            number=1,
        ),
    ],
    ids=lambda row: row.key,
)
def test_what_can_never_be_held_is_refused_and_changes_nothing(row) -> None:
    switch = TABLES.switch()
    good = group_entry("s", 9, [(1, 0)])
    with pytest.raises(SwitchError, match="BAD_ENTRY"):
        switch.check(row)
    with pytest.raises(SwitchError, match="BAD_ENTRY"):
        switch.apply({TABLES.entries[0].key: None, good.key: good, row.key: row})
    assert answers(switch, 1, 1, 2)[0] == 12


@pytest.mark.parametrize(
    "config", [b"", b"{}", b"[1]", b"\xff\x00", json.dumps({"pipelines": 3}).encode()]
)
def test_a_program_that_cannot_run_is_refused_and_the_old_one_goes_on(config: bytes) -> None:
    switch = TABLES.switch()
    with pytest.raises(SwitchError, match="WRONG_PROGRAM"):
        switch.load(config)
    assert answers(switch, 1, 1, 2)[0] == 12


def test_drops_are_named_by_the_counter_of_the_program() -> None:
    switch = STATE.switch()
    switch.process(1, asked(16))
    assert switch.drops == Counter(dropped_by_program=1)
