"""Datagrams, rules and switches for the program of packet subscriptions: for its tests."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import cache

from hypothesis import strategies as st
from p4_tables import entries_of
from paths import COMPILED_P4, ROOT
from program_switches import OPEN, open_ports
from pruning_model import REASONS, DroppedError, Model, Route, checksum, datagram

from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.interpreter import Interpreter
from stackcast.udfs.messages.specification import parse_specification
from stackcast.udfs.network_match.cell_tags import HeldCells
from stackcast.udfs.switches.entry import SwitchEntry, canonical

JSON = (COMPILED_P4 / "packet_subscriptions.json").read_bytes()
ITCH = parse_specification((ROOT / "schemas/messages/itch.spec").read_text(), "itch")
LENGTHS = {h.message_type: h.length for h in ITCH.headers if h.message_type is not None}
REGISTERS = [
    f"ingress.subscriptions.cells.recent_{of}" for of in ("owner", "start", "count", "value")
]
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
    "stock == AAPL and moved(price, 30.5) : fwd(44)",
    "changed(stock) : fwd(12)",
)
APART = (
    *(f"stock == {stock} and price > {n} : fwd(1)" for n, stock in enumerate(["X", "IBM", "MSFT"])),
    "price < 20 and shares >= 100 : fwd(1)",
    "buy_sell != B and price > 99 : fwd(1, 9)",
    "shares > 99 : fwd(2)",
    "shares == 0 and stock != X : fwd(1, 64)",
    "add_order.message_type == A and buy_sell == S and shares < 100 : fwd(33)",
)
"""Six terms to port 1, more than a pass has room for."""
KEYED = (
    "stock == GOOGL and price == 20 : fwd(1)",
    "stock == GOOGL and price == 20 : fwd(2)",
    "stock in {IBM, MSFT} and shares == 99 and buy_sell == S : fwd(1, 20)",
    "shares == 100 : fwd(33)",
    "buy_sell == B : fwd(8)",
    "price == 20 and shares == 99 : fwd(9)",
    "stock == X and buy_sell == S : fwd(3)",
    "stock == AAPL and shares == 0 : fwd(12)",
    "price == 50 and buy_sell == B : fwd(52)",
    "stock == X and price == 50 and shares == 99 : fwd(64)",
)
"""Conjunctions of nine sets of fields, more than a pass has tables of keys."""
ROUTES = (
    Route("10.1.0.0/16", 9),
    Route("10.1.2.0/24", 64),
    Route("10.1.2.3/32", 2, bytes([2, 0, 0, 0, 0, 3])),
)


class Pair:
    """A software switch with the rules' entries, and the oracle."""

    def __init__(
        self, rules: Iterable[str], apart: Iterable[str] = (), keyed: Iterable[str] = ()
    ) -> None:
        self.switch = switch_of(tuple(rules), tuple(apart), tuple(keyed))
        texts = [*rules, *apart, *keyed]
        for name in REGISTERS:
            for index, value in enumerate(self.switch.register(name)):
                if value:
                    self.switch.write_register(name, index, 0)
        self._interpreter = Interpreter([parse_rule(text, ITCH) for text in texts], ITCH)
        self._held: list[SwitchEntry] = []
        self.model = Model(self._wanted, LENGTHS, ROUTES)

    def edit(self, rules: Iterable[str], number: int) -> None:
        """Gives both other rules; the entries of the last edit are all that is known of cells."""
        texts, cells = list(rules), HeldCells.of(self._held, number)
        gone = {entry.key for entry in self._held}
        self._held = [entry.on("s") for entry in entries_of(texts, ITCH, held=cells).entries]
        self.switch.apply(dict.fromkeys(gone) | {entry.key: entry for entry in self._held})
        before = self._interpreter
        self._interpreter = Interpreter([parse_rule(text, ITCH) for text in texts], ITCH)
        self._interpreter.carry(before)

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
def switch_of(
    texts: tuple[str, ...], apart: tuple[str, ...] = (), keyed: tuple[str, ...] = ()
) -> SimpleSwitch:
    return running(texts, apart, keyed)


def running(
    texts: Sequence[str], apart: Sequence[str] = (), keyed: Sequence[str] = (), **options: bool
) -> SimpleSwitch:
    """The software switch with these rules, those ``apart`` as bit vectors and ``keyed`` as
    keys."""
    switch = SimpleSwitch(**options)
    switch.load(JSON)
    held = (
        open_ports("s", PORTS, OPEN)
        + rows(list(texts), list(apart), list(keyed))
        + [routed(route) for route in ROUTES]
    )
    switch.apply({entry.key: entry for entry in held})
    return switch


def rows(
    texts: Sequence[str], apart: Sequence[str] = (), keyed: Sequence[str] = ()
) -> list[SwitchEntry]:
    held = entries_of(texts, ITCH, apart=apart, keyed=keyed)
    return [entry.on("s") for entry in held.entries]


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


def right_sums(frame: bytes) -> bytes:
    """The frame with right checksums, as far as it has places for them."""
    ip = frame[14:24] + b"\0\0" + frame[26:34]
    frame = frame[:24] + struct.pack("!H", checksum(ip)) + frame[26:]
    if frame[40:42] == b"\0\0" or len(frame) < 42:
        return frame
    frame = frame[:40] + b"\0\0" + frame[42:]
    found = checksum(pseudo(frame) + udp(frame)) or 0xFFFF
    return frame[:40] + struct.pack("!H", found) + frame[42:]


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


def udp(frame: bytes) -> bytes:
    return frame[34 : 34 + int.from_bytes(frame[38:40], "big")]


def pseudo(frame: bytes) -> bytes:
    return frame[26:34] + b"\0\x11" + frame[38:40]
