"""The program of packet subscriptions in the software switch does what its rules say, bit by bit.

The oracles are the rules themselves, read one event after the other, and `pruning_model`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from p4_coverage import soil
from pruning_model import REASONS, DroppedError, Model, Route, checksum, datagram

from lab.bmv2.simple_switch import SimpleSwitch
from udfs.filters.compiler.compile import compile_texts
from udfs.filters.language.rule import parse_rule
from udfs.filters.meaning.interpreter import Interpreter
from udfs.filters.switch.entries import entries
from udfs.messages.specification import parse_specification
from udfs.switches.entry import SwitchEntry, canonical
from udfs.switches.ports import port_groups

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
JSON = (ROOT / "p4/packet_subscriptions.json").read_bytes()
ITCH = parse_specification((ROOT / "schemas/messages/itch.spec").read_text(), "itch")
LENGTHS = {h.message_type: h.length for h in ITCH.headers if h.message_type is not None}
REGISTERS = [f"ingress.subscriptions.cells.recent_{of}" for of in ("start", "count", "value")]
PORTS = (1, 2, 3, 8, 9, 12, 20, 33, 44, 52, 64)
FROM = 12
"""The port that frames come in by, unless a test says another."""
PLAIN = (
    "stock == GOOGL : fwd(1)",
    "stock == GOOGL and price > 50 : fwd(2)",
    "stock == MSFT : fwd(3, 8)",
    "stock == IBM and price < 20 : fwd(8, 9, 12)",
    "stock == IBM and shares >= 100 : fwd(64)",
    "stock == AAPL : fwd(12)",
    "buy_sell == B and price > 99 : fwd(20, 33)",
    "stock == NFLX and buy_sell != B : fwd(44)",
    "stock == NFLX : fwd(52)",
)
STATE = (
    "stock == GOOGL and avg(price) > 50 : fwd(1)",
    "stock == GOOGL and count() >= 2 : fwd(2)",
    "recent > 150 : fwd(3)",
    "stock == MSFT : { fwd(8); recent <- sum(shares) }",
    "stock == IBM and max(shares, 1000000) > 99 and min(price) < 20 : fwd(9, 64)",
)
ROUTES = (
    Route("10.1.0.0/16", 9),
    Route("10.1.2.0/24", 64),
    Route("10.1.2.3/32", 2, bytes([2, 0, 0, 0, 0, 3])),
)
patient = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])


class Pair:
    """A software switch with the rules' entries, and the oracle."""

    def __init__(self, rules: Iterable[str]) -> None:
        texts = list(rules)
        self.switch = switch_of(tuple(texts))
        for name in REGISTERS:
            for index, value in enumerate(self.switch.register(name)):
                if value:
                    self.switch.write_register(name, index, 0)
        self._interpreter = Interpreter([parse_rule(text, ITCH) for text in texts], ITCH)
        self.model = Model(self._wanted, LENGTHS, ROUTES)

    def _wanted(self, message: bytes) -> set[int]:
        return {int(name) for name in self._interpreter.step(fields_of(message)).receivers}

    def agree(self, frame: bytes, port: int = FROM) -> list[tuple[int, bytes]]:
        """Let the frame pass both; the copies, by port."""
        before = self._dropped()
        copies = sorted(self.switch.process(port, frame))
        after = self._dropped()
        told = [REASONS[i] for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
        try:
            expected, why = sorted(self.model.process(port, frame)), []
        except DroppedError as dropped:
            expected, why = [], [str(dropped)]
        assert (told, copies) == (why, expected)
        assert sum(after) - sum(before) == len(why)
        return copies

    def _dropped(self) -> list[int]:
        name = "ingress.dropped"
        size = self.switch.counter_size(name)
        return [self.switch.counter(name, index)[0] for index in range(size)]


@cache
def switch_of(texts: tuple[str, ...]) -> SimpleSwitch:
    return running(texts)


def running(texts: Iterable[str], **options: bool) -> SimpleSwitch:
    """The software switch with these rules."""
    switch = SimpleSwitch(**options)
    switch.load(JSON)
    held = port_groups("s", PORTS) + rows(list(texts)) + [routed(route) for route in ROUTES]
    switch.apply({entry.key: entry for entry in held})
    return switch


def rows(texts: list[str]) -> list[SwitchEntry]:
    return [
        SwitchEntry(
            "s",
            entry.table,
            tuple((match.name, match.kind, match.joined()) for match in entry.match),
            entry.action,
            entry.params,
            entry.priority,
        )
        for entry in entries(compile_texts(texts, ITCH), ITCH, {}).entries
    ]


def routed(route: Route) -> SwitchEntry:
    address, _, length = route.prefix.partition("/")
    key = bytes(map(int, address.split("."))) + bytes([int(length)])
    port = ("port", canonical(route.port))
    action, params = "send", (port,)
    if route.mac is not None:
        action, params = "deliver", (("mac", canonical(int.from_bytes(route.mac, "big"))), port)
    return SwitchEntry(
        "s", "ingress.route.ipv4", (("dst", "lpm", key),), f"ingress.route.{action}", params
    )


def fields_of(message: bytes) -> dict[str, int]:
    """Raw values of a message's fields, by the specification."""
    header = ITCH.header_of_type(message[0])
    assert header is not None
    number, bits = int.from_bytes(message, "big"), 8 * header.length
    return {
        f.qualified: number >> (bits - f.bit_offset - f.bits) & ((1 << f.bits) - 1)
        for f in header.fields
    }


def order(stock: str, price: int = 1, shares: int = 1, side: str = "B", at: int = 0) -> bytes:
    """An add-order message; ``at`` in nanoseconds."""
    return (
        b"A\0\1\0\2"
        + at.to_bytes(6, "big")
        + bytes(8)
        + side.encode()
        + struct.pack("!I", shares)
        + stock.ljust(8).encode()
        + struct.pack("!I", price)
    )


orders = st.builds(
    order,
    st.sampled_from(["GOOGL", "MSFT", "IBM", "AAPL", "NFLX", "X"]),
    st.sampled_from([0, 199_999, 200_000, 500_001, 990_001, 2**32 - 1]),
    st.sampled_from([0, 99, 100, 2**32 - 1]),
    st.sampled_from("BS"),
    st.sampled_from([0, 1, 10**9 - 1, 10**9, 5 * 10**9, 86_399_999_999_999]),
)
others = st.one_of(
    st.sampled_from(sorted(LENGTHS)).flatmap(
        lambda kind: st.binary(min_size=LENGTHS[kind] - 1, max_size=LENGTHS[kind] - 1).map(
            lambda rest: bytes([kind]) + rest
        )
    ),
    st.binary(max_size=60),
    st.builds(lambda kind, size: bytes([kind]) * size, st.sampled_from(b"AFS"), st.integers(0, 50)),
)
messages = st.one_of(orders, orders, others)
datagrams = st.builds(
    datagram,
    st.lists(messages, min_size=1, max_size=12),
    udp_sum=st.booleans(),
    trailer=st.binary(max_size=6),
)


@patient
@given(st.lists(datagrams, min_size=1, max_size=4), st.sampled_from([FROM, 1, 9, 64, 300]))
def test_each_copy_has_the_messages_that_its_port_wants(frames, port):
    pair = Pair(PLAIN)
    for frame in frames:
        pair.agree(frame, port)


@patient
@given(st.lists(datagrams, min_size=1, max_size=6))
def test_state_is_updated_message_by_message(frames):
    pair = Pair(STATE)
    for frame in frames:
        pair.agree(frame)


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


def udp(frame: bytes) -> bytes:
    return frame[34 : 34 + int.from_bytes(frame[38:40], "big")]


def pseudo(frame: bytes) -> bytes:
    return frame[26:34] + b"\0\x11" + frame[38:40]


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


@patient
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


def right_sums(frame: bytes) -> bytes:
    """The frame with right checksums, as far as it has places for them."""
    ip = frame[14:24] + b"\0\0" + frame[26:34]
    frame = frame[:24] + struct.pack("!H", checksum(ip)) + frame[26:]
    if frame[40:42] == b"\0\0" or len(frame) < 42:
        return frame
    frame = frame[:40] + b"\0\0" + frame[42:]
    found = checksum(pseudo(frame) + udp(frame)) or 0xFFFF
    return frame[:40] + struct.pack("!H", found) + frame[42:]


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


@patient
@given(datagrams, st.data())
def test_a_bit_that_fell_is_never_made_right(frame, data):
    pair = Pair(PLAIN)
    pair.agree(frame)
    bit = data.draw(st.integers(0, 8 * len(frame) - 1))
    changed = bytearray(frame)
    changed[bit // 8] ^= 0x80 >> bit % 8
    pair.agree(bytes(changed))


@patient
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


@patient
@given(st.binary(max_size=200))
def test_random_bytes_go_nowhere_unless_they_are_a_datagram(octets):
    pair = Pair(PLAIN)
    pair.agree(octets)
    pair.agree(datagram([])[:12] + octets)
    pair.agree(datagram([])[:42] + octets)


def other(
    address: str,
    ttl: int = 16,
    protocol: int = 17,
    port: int = 5,
    fragment: int = 0,
    options: bytes = b"",
) -> bytes:
    """A frame of other traffic; ``options`` of IPv4 are whole words."""
    frame = bytearray(datagram([b"hello"], port=port))
    frame[30:34] = bytes(map(int, address.split(".")))
    frame[22], frame[23] = ttl, protocol
    frame[20:22] = struct.pack("!H", fragment)
    if not options:
        return right_sums(bytes(frame))
    frame[14] += len(options) // 4
    frame[16:18] = struct.pack("!H", int.from_bytes(frame[16:18], "big") + len(options))
    frame[24:26] = b"\0\0"
    frame[34:34] = options
    frame[24:26] = struct.pack("!H", checksum(bytes(frame[14 : 34 + len(options)])))
    return bytes(frame)


ALERT = bytes.fromhex("94040000")
"""The router alert, with which IGMP and RSVP are sent."""


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


@patient
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
    assert switch.counter("ingress.dropped", REASONS.index("UNWANTED"))[0] == 1
