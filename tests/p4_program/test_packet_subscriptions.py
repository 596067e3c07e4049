"""The program of packet subscriptions in the software switch does what its rules say, bit by bit.

The oracles are the rules themselves, read one event after the other, and `pruning_model`.
"""

from __future__ import annotations

import struct

import pytest
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st
from p4_coverage import soil
from packet_cases import (
    ALERT,
    APART,
    FROM,
    JSON,
    KEYED,
    PLAIN,
    STATE,
    Pair,
    datagrams,
    order,
    other,
    pseudo,
    right_sums,
    rows,
    running,
    udp,
)
from pruning_model import REASONS, checksum, datagram

from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.switches.sources import trusted_ports

pytestmark = pytest.mark.unit

BIG = "recent > 1 : fwd(3)"
SUM = "stock == AAPL : recent <- sum(shares)"
SAME = [datagram([order("AAPL", 500_001, 9)] * 2 + [order("GOOGL", 500_001, 9)] * 3)]


@examples(40)
@given(st.lists(datagrams, min_size=1, max_size=4), st.sampled_from([FROM, 1, 9, 64, 300]))
def test_each_copy_has_the_messages_that_its_port_wants(frames, port):
    pair = Pair(PLAIN)
    for frame in frames:
        pair.agree(frame, port)


@examples(40)
@given(
    st.lists(
        st.tuples(
            st.just(STATE) | st.lists(st.sampled_from(STATE), unique=True, max_size=3),
            st.lists(datagrams, min_size=1, max_size=6),
        ),
        min_size=1,
        max_size=3,
    )
)
@example([(STATE[:1], SAME), (STATE[1:2], SAME)])
@example([(("changed(price) : fwd(1)",), SAME), (("moved(price, 2) : fwd(2)",), SAME)])
@example([(("changed(price) : fwd(1)",), SAME), ((), SAME), (("changed(price) : fwd(1)",), SAME)])
@example([((BIG, SUM), SAME), ((BIG, SUM.replace("sum", "max")), SAME)])
def test_state_is_updated_message_by_message_also_while_rules_change(versions):
    """A new cell is empty, whosever registers it has, also if the same went before."""
    pair = Pair(())
    pair.switch = running(())
    for number, (rules, frames) in enumerate(versions):
        pair.edit(rules, number)
        for frame in frames:
            pair.agree(frame)


@examples(40)
@given(
    st.lists(datagrams, min_size=1, max_size=4),
    st.sampled_from([(), PLAIN, STATE]),
    st.sampled_from([FROM, 1, 9, 64]),
)
def test_groups_of_rules_are_met_one_after_the_other(frames, rules, port):
    """Bit vectors in two passes, alone and behind a diagram with and without state."""
    pair = Pair(rules, APART)
    for frame in frames:
        pair.agree(frame, port)


@examples(40)
@given(
    st.lists(datagrams, min_size=1, max_size=4),
    st.sampled_from([(), PLAIN, STATE]),
    st.sampled_from([(), APART]),
    st.sampled_from([FROM, 1, 9, 64]),
)
def test_keys_are_looked_up_beside_the_groups_of_their_pass(frames, rules, apart, port):
    """Nine sets of fields in two passes: alone, behind a diagram, and beside bit vectors."""
    pair = Pair(rules, apart, KEYED)
    for frame in frames:
        pair.agree(frame, port)


@pytest.mark.parametrize("rules", [(), PLAIN])
def test_a_message_is_examined_in_a_pass_a_group(rules):
    pair = Pair(rules, APART)
    before = pair.switch.passes
    assert pair.agree(datagram([order("GOOGL", shares=100)]))
    # Two of bit vectors, one of the diagram if there is one, one of the copies to two subsets.
    assert pair.switch.passes == before + 2 + bool(rules)


@pytest.mark.parametrize("count", [1, 2, 8, 9, 35, 63, 64])
@pytest.mark.parametrize("rules", [PLAIN, STATE])
def test_a_datagram_of_many_messages_is_pruned(count, rules):
    pair = Pair(rules)
    stocks = ["GOOGL", "MSFT", "IBM", "X", "NFLX"]
    several = [
        order(stocks[n % 5], 500_001 if n % 2 else 1, 100 * (n % 3), at=n * 10**7)
        for n in range(count)
    ]
    copies = pair.agree(datagram(several))
    assert rules is STATE or copies
    assert all(checksum(pseudo(frame) + udp(frame)) == 0 for _, frame in copies)


def test_a_message_for_nobody_else_passes_as_it_came_in_one_pass():
    pair = Pair(PLAIN)
    frame = datagram([order("GOOGL")], trailer=b"pad")
    before = pair.switch.passes
    assert pair.agree(frame) == [(1, frame)]
    assert pair.switch.passes == before + 1
    two = datagram([order("GOOGL"), order("GOOGL", 2)])
    assert pair.agree(two) == [(1, two)]
    assert pair.switch.passes == before + 1 + 3


def test_an_edit_of_the_rules_touches_no_group():
    before = {entry.key for entry in rows(list(PLAIN))}
    after = {entry.key for entry in rows([*PLAIN, "stock == X : fwd(1, 2, 3, 8, 9)"])}
    assert before != after
    assert not any(key.startswith("multicast_group") for key in before | after)


def test_a_udp_checksum_that_comes_to_0_is_sent_as_0xffff():
    """And one that came as 0xffff is right."""
    pair = Pair(PLAIN)
    seen = set()
    for reference in range(70_000):
        kept = order("GOOGL", reference)
        alone = datagram([kept])
        if alone[40:42] == b"\xff\xff":
            (copy,) = pair.agree(alone)
            assert copy == (1, alone)
            seen.add("came")
        whole = datagram([kept, order("X")])
        # What is left is the datagram of the kept one alone, but for its count and length.
        if alone[40:42] == b"\xff\xff":
            (copy,) = pair.agree(whole)
            assert copy[1][40:42] == b"\xff\xff"
            seen.add("left")
            break
    assert seen == {"came", "left"}


@examples(40)
@given(
    datagrams,
    st.integers(0, 0xFFFF) | st.integers(0, 14),
    st.sampled_from(["count", "udp", "ip", "block"]),
)
@example(datagram([order("GOOGL")]), 0, "count")
@example(datagram([order("GOOGL")]), 2, "count")
@example(datagram([order("GOOGL")] * 3), 2, "count")
@example(datagram([order("GOOGL")] * 64), 65, "count")
@example(datagram([order("GOOGL")]), 0xFFFF, "count")
@example(datagram([order("GOOGL")]), 37, "block")
@example(datagram([order("GOOGL")]), 35, "block")
@example(datagram([order("GOOGL")] * 2), 0xFFFF, "block")
def test_counts_and_lengths_that_lie_are_counted_and_dropped(frame, value, which):
    at = {"count": 60, "udp": 38, "ip": 16, "block": 62}[which]
    changed = bytearray(frame)
    changed[at : at + 2] = struct.pack("!H", value)
    Pair(PLAIN).agree(right_sums(bytes(changed)))


def test_too_many_and_too_long_are_counted_and_dropped():
    pair = Pair(PLAIN)
    assert pair.agree(datagram([order("GOOGL")] * 64))
    assert not pair.agree(datagram([order("GOOGL")] * 65))
    assert pair.agree(datagram([order("GOOGL"), b"?" * 1500]))
    assert not pair.agree(datagram([order("GOOGL"), b"?" * 1501]))
    assert not pair.agree(datagram([b"?" * 1501, order("GOOGL")]))
    fill = [b"?" * 1400] * 6
    assert pair.agree(datagram([order("GOOGL"), *fill, b"?" * (9000 - 28 - 38 - 6 * 1402 - 2)]))
    assert not pair.agree(datagram([order("GOOGL"), *fill, b"?" * (9000 - 28 - 38 - 6 * 1402 - 1)]))


@examples(40)
@given(datagrams, st.data())
def test_a_bit_that_fell_is_never_made_right(frame, data):
    pair = Pair(PLAIN)
    pair.agree(frame)
    bit = data.draw(st.integers(0, 8 * len(frame) - 1))
    changed = bytearray(frame)
    changed[bit // 8] ^= 0x80 >> bit % 8
    pair.agree(bytes(changed))


@examples(40)
@given(datagrams, st.data())
def test_what_is_cut_short_is_counted_and_dropped(frame, data):
    pair = Pair(PLAIN)
    for _ in range(6):
        pair.agree(frame[: data.draw(st.integers(0, len(frame)))])


def test_frames_of_every_short_length_and_random_bytes_are_counted_drops():
    pair = Pair(PLAIN)
    frame = datagram([order("GOOGL"), order("MSFT")])
    for size in range(65):
        assert not pair.agree(frame[:size])
        assert not pair.agree(bytes(size))
        assert not pair.agree(b"\xff" * size)


@examples(40)
@given(st.binary(max_size=200))
def test_random_bytes_go_nowhere_unless_they_are_a_datagram(octets):
    pair = Pair(PLAIN)
    pair.agree(octets)
    pair.agree(datagram([])[:12] + octets)
    pair.agree(datagram([])[:42] + octets)


@pytest.mark.parametrize(
    ("frame", "copies"),
    [
        (other("10.1.9.9"), [9]),
        (other("10.1.2.9"), [64]),
        (other("10.1.2.3"), [2]),
        (other("10.1.2.3", protocol=6), [2]),
        (other("10.1.2.3", fragment=0x2000), [2]),
        (other("10.1.2.3", fragment=1, port=26_400), [2]),
        (other("10.2.0.1"), []),
        (other("224.0.0.251"), []),
        (other("239.1.1.1", protocol=2, options=ALERT), []),
        (other("255.255.255.255"), []),
        (other("10.1.2.3", ttl=1), []),
        (other("10.1.2.3", ttl=2), [2]),
        (datagram([], port=26_400), []),
        (other("10.1.2.3", protocol=2, options=ALERT), [2]),
        (other("10.1.2.9", protocol=46, options=ALERT * 10), [64]),
        (other("10.1.2.3", port=26_400, options=ALERT), [2]),
        (other("10.1.2.3", fragment=1, options=ALERT), [2]),
        (other("10.1.2.3", ttl=1, options=ALERT), []),
    ],
)
def test_other_traffic_is_forwarded_by_its_address(frame, copies):
    pair = Pair(PLAIN)
    assert [port for port, _ in pair.agree(frame)] == copies


@examples(40)
@given(st.integers(1, 10), st.data())
def test_options_are_forwarded_whole_and_their_checksum_is_verified(words, data):
    pair = Pair(PLAIN)
    options = data.draw(st.binary(min_size=4 * words, max_size=4 * words))
    frame = other("10.1.2.3", data.draw(st.integers(0, 255)), 2, options=options)
    pair.agree(frame)
    # Damaged, cut short, or of a length that ends within the header.
    bit = data.draw(st.integers(0, 8 * 74 - 1)) % (8 * len(frame))
    changed = bytearray(frame)
    changed[bit // 8] ^= 0x80 >> bit % 8
    pair.agree(bytes(changed))
    pair.agree(frame[: data.draw(st.integers(14, len(frame)))])
    short = bytearray(frame)
    short[16:18] = struct.pack("!H", data.draw(st.integers(18, 22 + 4 * words)))
    short[24:26] = b"\0\0"
    short[24:26] = struct.pack("!H", checksum(bytes(short[14 : 34 + 4 * words])))
    pair.agree(bytes(short))


def test_a_header_shorter_than_any_is_no_ipv4():
    pair = Pair(PLAIN)
    frame = other("10.1.2.3")
    for first in (0x44, 0x40, 0x65, 0x66, 0x05):
        assert not pair.agree(frame[:14] + bytes([first]) + frame[15:])


def test_metadata_need_not_be_zeros_at_first(monkeypatch):
    pair = Pair(PLAIN)
    pair.switch = running(PLAIN, cached=False)
    soil(monkeypatch, pair.switch, JSON)
    for several in (["GOOGL"], ["GOOGL", "MSFT", "X"], ["X"], ["MSFT", "IBM"] * 5):
        for udp_sum in (True, False):
            pair.agree(datagram([order(stock) for stock in several], udp_sum=udp_sum))
    pair.agree(datagram([b"", b"?", order("GOOGL")]))
    for frame in (other("10.1.2.3"), other("10.1.2.9", options=ALERT), datagram([], count=0)):
        pair.agree(frame)


def test_heartbeats_and_the_end_of_a_session_are_other_traffic():
    pair = Pair(PLAIN)
    for count in (0, 0xFFFF):
        frame = bytearray(datagram([], count=count))
        frame[30:34] = bytes([10, 1, 2, 3])
        assert [port for port, _ in pair.agree(right_sums(bytes(frame)))] == [2]


def test_without_rules_nobody_wants_anything():
    pair = Pair([])
    assert not pair.agree(datagram([order("GOOGL"), order("MSFT")]))
    switch = SimpleSwitch()
    switch.load(JSON)
    assert not switch.process(1, datagram([order("GOOGL")]))
    assert switch.counter("ingress.dropped", REASONS.index("UNKNOWN_PORT"))[0] == 1
    switch.apply({entry.key: entry for entry in trusted_ports("s", [1])})
    assert not switch.process(1, datagram([order("GOOGL")]))
    assert switch.counter("ingress.dropped", REASONS.index("UNWANTED"))[0] == 1
