"""The shipped format of ITCH 5.0: every message, its names, its prices and its symbols."""

from __future__ import annotations

from decimal import Decimal

import pytest

from stackcast.udfs.errors import SpecificationError
from stackcast.udfs.messages.specification import Specification

pytestmark = pytest.mark.unit

ITCH_LENGTHS = {
    "S": 12,
    "R": 39,
    "H": 25,
    "Y": 20,
    "L": 26,
    "V": 35,
    "W": 12,
    "K": 28,
    "J": 35,
    "h": 21,
    "A": 36,
    "F": 40,
    "E": 31,
    "C": 36,
    "X": 23,
    "D": 19,
    "U": 35,
    "P": 44,
    "Q": 40,
    "B": 19,
    "I": 50,
    "N": 20,
    "O": 48,
}


def test_the_shipped_format_has_every_message_of_itch_5_with_its_length(itch: Specification):
    typed = {chr(h.message_type): h for h in itch.headers if h.message_type is not None}
    assert {kind: header.length for kind, header in typed.items()} == ITCH_LENGTHS
    for header in typed.values():
        names = [f.name for f in header.fields[:4]]
        assert names == ["message_type", "stock_locate", "tracking_number", "timestamp"]
        for f in header.fields:
            price = f.name.endswith(("price", "collar"))
            level = f.name.startswith("level_")
            assert f.decimals == (4 if price else 8 if level else 0), f.qualified
    assert [h.name for h in itch.headers if h.message_type is None] == [
        "moldudp64",
        "message_block",
    ]


def test_short_names_mean_the_query_field(itch: Specification):
    for name in ("stock", "price", "shares", "buy_sell"):
        assert itch.field(name).qualified == f"add_order.{name}"
    assert itch.field("attribution").qualified == "add_order_mpid.attribution"
    assert itch.field("trade.price").qualified == "trade.price"
    assert [f.qualified for f in itch.order()[:4]] == [
        "add_order.stock",
        "add_order.price",
        "add_order.shares",
        "add_order.buy_sell",
    ]
    assert len(itch.order()) == sum(len(h.fields) for h in itch.headers)


def test_names_that_are_ambiguous_or_unknown_come_with_suggestions(itch: Specification):
    with pytest.raises(SpecificationError) as caught:
        itch.field("match_number")
    assert caught.value.what == "AMBIGUOUS_FIELD"
    assert "trade.match_number" in caught.value.suggestions
    with pytest.raises(SpecificationError) as caught:
        itch.field("prise")
    assert caught.value.what == "UNKNOWN_FIELD" and "price" in caught.value.suggestions
    with pytest.raises(SpecificationError) as caught:
        itch.field("add_order.stok")
    assert caught.value.suggestions[0] == "add_order.stock"


def test_a_price_in_dollars_and_a_symbol_become_what_is_on_the_wire(itch: Specification):
    assert itch.field("price").encode(Decimal("50.25")) == 502_500
    assert itch.field("price").encode(200_000) == 2_000_000_000
    assert itch.field("stock").encode("GOOGL") == int.from_bytes(b"GOOGL   ", "big")
    assert itch.field("shares").encode(0) == 0
    assert itch.field("price").render(502_500) == "50.2500"
    assert itch.field("stock").render(int.from_bytes(b"GOOGL   ", "big")) == "GOOGL"
