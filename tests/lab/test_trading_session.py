"""The lab's trading session is a plausible Nasdaq day, in the eyes of decoders of others.

Oracles: ``itchfeed`` (Python) and ``itchcpp`` (C++), which know nothing of our layouts, and an
order book kept here from what they decode.
"""

from __future__ import annotations

import gzip
import importlib
import io
import os
import sys
from bisect import insort
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from unittest.mock import patch

import itchcpp.messages
import itchcpp.parser
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.lab.traffic.itch_writer import MessageWriter, itch_specification, timestamp
from stackcast.lab.traffic.packets import groups, open_records, packetize, write_records
from stackcast.lab.traffic.symbols import symbols
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.udfs.errors import LabError
from stackcast.udfs.messages.reference import read_message, read_packet

pytestmark = pytest.mark.unit

ALL_TYPES = set("SRHYLVWKJhAFECXDUPQBINO")
MESSAGES = 12_000


class Recorder(MessageWriter):
    """Packs messages, and keeps what the generator meant: the name and every value by field."""

    def __init__(self):
        super().__init__()
        self.meant: list[tuple[str, dict[str, object]]] = []
        self._names = {
            header.name: [field.name for field in header.fields[1:]]
            for header in itch_specification().headers
        }

    def pack(self, name, *values):
        self.meant.append((name, dict(zip(self._names[name], values, strict=True))))
        return super().pack(name, *values)


@pytest.fixture(scope="module")
def recorder():
    return Recorder()


@pytest.fixture(scope="module")
def session(recorder):
    return list(TradingSession(messages=MESSAGES, seed=7, symbols=60, writer=recorder))


@pytest.fixture(scope="module")
def python_decoder():
    """``itch.messages`` in pure Python: with itchcpp installed it would hand everything to that."""
    loaded = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "itch"}
    for name in loaded:
        del sys.modules[name]
    try:
        with patch.dict(os.environ, {"ITCH_NO_CPP": "1"}):
            decoder = importlib.import_module("itch.messages")
            assert not importlib.import_module("itch").USING_CPP_BACKEND
        yield decoder.messages
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "itch"]:
            del sys.modules[name]
        sys.modules.update(loaded)


@pytest.fixture(scope="module", params=["itchfeed", "itchcpp"])
def decoded(request, session):
    """All messages, as one of the two decoders of others reads them."""
    if request.param == "itchfeed":
        kinds = request.getfixturevalue("python_decoder")
        return [kinds[message[:1]](message) for message in session]
    stream = b"".join(len(message).to_bytes(2, "big") + message for message in session)
    return list(itchcpp.parser.MessageParser().parse_stream(stream))


# What both decoders call the fields after the timestamp, in the order of Nasdaq's document.
_ADDED = "order_reference_number buy_sell_indicator shares stock price"
THEIR_FIELDS = {
    "S": "event_code",
    "R": "stock market_category financial_status_indicator round_lot_size round_lots_only "
    "issue_classification issue_sub_type authenticity short_sale_threshold_indicator ipo_flag "
    "luld_ref etp_flag etp_leverage_factor inverse_indicator",
    "H": "stock trading_state reserved reason",
    "Y": "stock reg_sho_action",
    "L": "mpid stock primary_market_maker market_maker_mode market_participant_state",
    "V": "level1_price level2_price level3_price",
    "W": "breached_level",
    "K": "stock ipo_release_time ipo_release_qualifier ipo_price",
    "J": "stock auction_collar_reference_price upper_auction_collar_price "
    "lower_auction_collar_price auction_collar_extention",
    "h": "stock market_code operational_halt_action",
    "A": _ADDED,
    "F": f"{_ADDED} attribution",
    "E": "order_reference_number executed_shares match_number",
    "C": "order_reference_number executed_shares match_number printable execution_price",
    "X": "order_reference_number cancelled_shares",
    "D": "order_reference_number",
    "U": "order_reference_number new_order_reference_number shares price",
    "P": f"{_ADDED} match_number",
    "Q": "shares stock cross_price match_number cross_type",
    "B": "match_number",
    "I": "paired_shares imbalance_shares imbalance_direction stock far_price near_price "
    "current_reference_price cross_type variation_indicator",
    "N": "stock interest_flag",
    "O": "stock open_eligibility_status minimum_allowable_price maximum_allowable_price "
    "near_execution_price near_execution_time lower_price_range_collar upper_price_range_collar",
}


def test_every_value_is_decoded_as_the_generator_meant_it(recorder, session, decoded):
    assert len(decoded) == len(session) == len(recorder.meant) == MESSAGES
    seen = set()
    for (name, values), message, theirs in zip(recorder.meant, session, decoded, strict=True):
        kind = chr(message[0])
        seen.add(kind)
        locate, tracking, stamp, *meant = values.values()
        read = [getattr(theirs, attribute) for attribute in THEIR_FIELDS[kind].split()]
        assert read == meant, name
        assert (theirs.stock_locate, theirs.tracking_number) == (locate, tracking)
        assert theirs.timestamp == int.from_bytes(stamp, "big")
        assert theirs.to_bytes() == message
    assert seen == ALL_TYPES


@dataclass
class Book:
    """Live orders of one stock: reference to [side, shares, price], prices sorted by side."""

    orders: dict[int, list] = field(default_factory=dict)
    bids: list[int] = field(default_factory=list)
    asks: list[int] = field(default_factory=list)

    def side(self, side):
        return self.bids if side == b"B" else self.asks

    def add(self, reference, side, shares, price):
        assert shares > 0
        assert price > 0
        self.orders[reference] = [side, shares, price]
        insort(self.side(side), price)
        assert not (self.bids and self.asks) or self.bids[-1] < self.asks[0]

    def take(self, reference, shares):
        order = self.orders[reference]
        assert 0 < shares <= order[1], "more than remains"
        order[1] -= shares
        if order[1] == 0:
            self.remove(reference)

    def remove(self, reference):
        side, _, price = self.orders.pop(reference)
        self.side(side).remove(price)
        return side


def test_order_books_add_up(decoded):
    """Only live orders change, not below 0; ids are new; bids below asks; no trade in a halt."""
    books: dict[int, Book] = defaultdict(Book)
    stocks: dict[int, bytes] = {}
    state: dict[int, bytes] = {}
    known: set[int] = set()
    matches: set[int] = set()
    broken: set[int] = set()
    last = -1
    for message in decoded:
        kind = message.message_type
        kind = kind.decode() if isinstance(kind, bytes) else kind
        locate, book = message.stock_locate, books[message.stock_locate]
        assert message.timestamp > last
        last = message.timestamp
        if kind == "R":
            stocks[locate] = message.stock
        elif hasattr(message, "stock"):
            assert message.stock == stocks[locate]
        if kind == "H":
            state[locate] = message.trading_state
        if kind in "AFDXU":
            assert state[locate] != b"H"
        if kind in "ECP":
            assert state[locate] == b"T"
        if kind in "ECPQ":
            assert message.match_number not in matches
            matches.add(message.match_number)
        if kind in "AFU":
            new = getattr(message, "new_order_reference_number", message.order_reference_number)
            assert new not in known
            known.add(new)
        if kind in "AF":
            book.add(
                message.order_reference_number,
                message.buy_sell_indicator,
                message.shares,
                message.price,
            )
        elif kind in "EC":
            order = book.orders[message.order_reference_number]
            assert order[2] == (book.bids[-1] if order[0] == b"B" else book.asks[0])
            book.take(message.order_reference_number, message.executed_shares)
        elif kind == "X":
            book.take(message.order_reference_number, message.cancelled_shares)
        elif kind == "D":
            book.remove(message.order_reference_number)
        elif kind == "U":
            side = book.remove(message.order_reference_number)
            book.add(message.new_order_reference_number, side, message.shares, message.price)
        elif kind == "B":
            assert message.match_number in matches - broken
            broken.add(message.match_number)
    assert sum(len(book.orders) for book in books.values()) > 100


def test_the_reference_decoder_agrees(recorder, session):
    specification = itch_specification()
    for (name, values), message in zip(recorder.meant, session, strict=True):
        read = read_message(specification, message)
        for key, value in values.items():
            raw = value if isinstance(value, int) else int.from_bytes(value, "big")
            assert read[f"{name}.{key}"] == raw


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("messages", "stocks"), [(3000, 200), (3000, 60), (3000, 4)])
def test_every_message_type_occurs_from_a_few_thousand_on(messages, seed, stocks):
    session = TradingSession(messages, seed, stocks)
    assert {chr(message[0]) for message in session} == ALL_TYPES


def test_proportions_are_those_of_a_real_day():
    counts = Counter(chr(message[0]) for message in TradingSession(30_000))
    share = {kind: count / 30_000 for kind, count in counts.items()}
    assert 0.35 < share["A"] < 0.47
    assert 0.28 < share["D"] < 0.40
    assert 0.06 < share["U"] < 0.12
    assert 0.03 < share["E"] < 0.09
    assert all(share[kind] < 0.04 for kind in ALL_TYPES - set("ADUE"))


def test_popular_symbols_are_traded_most(decoded):
    adds = Counter(m.stock_locate for m in decoded if m.message_type in (b"A", "A"))
    assert adds[1] > 1.5 * adds[3] > 2 * adds[30] > 0


def test_prices_stay_near_the_price_of_the_stock(decoded):
    base = {symbol.locate: symbol.price for symbol in symbols(60)}
    for message in decoded:
        if message.message_type in (b"A", "A"):
            reference = base[message.stock_locate]
            assert abs(message.price - reference) < max(0.1 * reference, 20_000)
            assert message.price % 100 == 0  # whole cents


def test_a_seed_is_the_same_session_and_another_is_not():
    first = TradingSession(1500, seed=5, symbols=30)
    assert list(first) == list(first) == list(TradingSession(1500, seed=5, symbols=30))
    assert list(first) != list(TradingSession(1500, seed=6, symbols=30))


@examples(25)
@given(st.integers(0, 2000), st.integers(4, 40), st.integers())
def test_there_are_exactly_as_many_messages_as_asked_for(count, stocks, seed):
    try:
        session = list(TradingSession(count, seed, stocks))
    except LabError as error:
        assert error.code == "LAB.BAD_SESSION"
        assert len(list(TradingSession(error.fewest, seed, stocks))) == error.fewest > count
        return
    assert len(session) == count
    stamps = [timestamp(message) for message in session]
    assert stamps == sorted(set(stamps))
    assert [session[0][-1:], session[-1][-1:]] == [b"O", b"C"]


def test_packets_hold_1_to_12_messages_by_zipf_and_lose_none(session):
    packets = [read_packet(packet) for packet in packetize(session, b"0123456789", seed=2)]
    assert [message for _, _, group in packets for message in group] == session
    sequence = 1
    for name, number, group in packets:
        assert (name, number) == (b"0123456789", sequence)
        sequence += len(group)
    sizes = Counter(len(group) for _, _, group in packets)
    assert set(sizes) == set(range(1, 13))
    for size in (2, 3, 4):
        assert sizes[size] == pytest.approx(sizes[1] / size, rel=0.2)


def test_packet_sizes_follow_from_the_seed(session):
    cut = [list(map(len, groups(session, seed))) for seed in (1, 1, 2)]
    assert cut[0] == cut[1] != cut[2]


@pytest.mark.parametrize("name", ["day.NASDAQ_ITCH50", "day.NASDAQ_ITCH50.gz"])
def test_a_file_holds_the_session_as_nasdaq_writes_it(tmp_path, session, name):
    path = tmp_path / name
    assert write_records(path, session[:1000]) == 1000
    with open_records(path) as records:
        assert list(records) == session[:1000]
    content = path.read_bytes()
    plain = gzip.decompress(content) if name.endswith(".gz") else content
    theirs = list(itchcpp.parser.MessageParser().parse_file(io.BytesIO(plain)))
    assert [message.to_bytes() for message in theirs] == session[:1000]
    write_records(path, session[:1000])
    assert path.read_bytes() == content


def test_a_missing_file_is_one_clear_error(tmp_path):
    with (
        pytest.raises(LabError, match=r"cannot read .*nothing"),
        open_records(tmp_path / "nothing.gz"),
    ):
        pass
