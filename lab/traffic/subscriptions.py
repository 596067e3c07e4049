"""Subscriptions for the lab: who wants which events of the default session, from a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypedDict

from stackcast.lab.traffic.symbols import Symbol, popularity, symbols

#: Where the price of a stock will roughly be during a session, in parts of its base price.
_NEAR, _FAR = 0.995, 1.005


class DrawnSubscription(TypedDict):
    """One row of the table ``subscriptions``, without its housekeeping columns."""

    id: str
    subscriber: str
    filter: str


def subscriptions(
    hosts: Sequence[str], count: int = 1000, stock_count: int = 100, seed: int = 1
) -> list[DrawnSubscription]:
    """Returns ``count`` rules over the ``stock_count`` most traded stocks, spread evenly over
    ``hosts``.

    Most name one stock and a threshold on price (dollars) or shares; the others combine them with
    ``and``, ``or`` and ``not``, ask for a side of the market, or for other messages than new
    orders. The same arguments give the same rows. Each filter is a condition without action: what
    matches goes to the subscriber of its row.
    """
    random = Random(seed)
    stocks = symbols(stock_count)
    weights = popularity(stock_count, exponent=0.6)
    rows: list[DrawnSubscription] = []
    for number in range(1, count + 1):
        symbol = random.choices(stocks, cum_weights=weights)[0]
        form = random.choices(_FORMS, weights=_WEIGHTS)[0]
        # In turn, not by chance: every host has its share of the rules.
        host = hosts[(number - 1) % len(hosts)]
        rows.append({"id": f"s{number:04d}", "subscriber": host, "filter": form(random, symbol)})
    return rows


def _is(symbol: Symbol) -> str:
    return f"stock == {symbol.name}"


def _dollars(random: Random, symbol: Symbol, low: float = _NEAR, high: float = _FAR) -> str:
    return f"{symbol.price / 10_000 * random.uniform(low, high):.2f}"


def _lots(random: Random, low: int = 4, high: int = 12) -> int:
    return 100 * random.randint(low, high)


def _price_above(random: Random, symbol: Symbol) -> str:
    return f"{_is(symbol)} and price > {_dollars(random, symbol, 0.9995, 1.006)}"


def _price_below(random: Random, symbol: Symbol) -> str:
    return f"{_is(symbol)} and price <= {_dollars(random, symbol, 0.994, 1.0005)}"


def _many_shares(random: Random, symbol: Symbol) -> str:
    return f"{_is(symbol)} and shares >= {_lots(random)}"


def _price_and_shares(random: Random, symbol: Symbol) -> str:
    return (
        f"{_is(symbol)} and price > {_dollars(random, symbol)} and shares >= {_lots(random, 2, 8)}"
    )


def _band_or_block(random: Random, symbol: Symbol) -> str:
    low, high = sorted((_dollars(random, symbol), _dollars(random, symbol)), key=float)
    return (
        f"{_is(symbol)} and (price >= {low} and price < {high} and shares > 300 "
        f"or shares >= {_lots(random, 8, 20)})"
    )


def _not_small(random: Random, symbol: Symbol) -> str:
    return f"{_is(symbol)} and not (shares < {_lots(random)} or price < {_dollars(random, symbol)})"


def _side(random: Random, symbol: Symbol) -> str:
    side = random.choice("BS")
    return f'{_is(symbol)} and buy_sell == "{side}" and shares > {_lots(random, 3, 8)}'


def _other_side(random: Random, symbol: Symbol) -> str:
    return f'{_is(symbol)} and buy_sell != "B" and not price > {_dollars(random, symbol)}'


def _either_stock(random: Random, symbol: Symbol) -> str:
    other = random.choice(symbols(100))
    return f"({_is(symbol)} or {_is(other)}) and shares >= {_lots(random, 8, 15)}"


def _attributed(random: Random, symbol: Symbol) -> str:
    return f"add_order_mpid.stock == {symbol.name} and add_order_mpid.shares >= {_lots(random)}"


def _traded(random: Random, symbol: Symbol) -> str:
    return f"trade.stock == {symbol.name} and trade.price > {_dollars(random, symbol)}"


def _dear_trade(random: Random, symbol: Symbol) -> str:
    return f"trade.price > {random.randint(300, 900)}"


def _auction_or_halt(random: Random, symbol: Symbol) -> str:
    return (
        f"cross_trade.stock == {symbol.name} or stock_trading_action.stock == {symbol.name} "
        'and stock_trading_action.trading_state != "T"'
    )


_FORMS: tuple[Callable[[Random, Symbol], str], ...]
_FORMS, _WEIGHTS = zip(
    (_price_above, 18),
    (_price_below, 14),
    (_many_shares, 14),
    (_price_and_shares, 14),
    (_band_or_block, 8),
    (_not_small, 8),
    (_side, 8),
    (_other_side, 4),
    (_either_stock, 4),
    (_attributed, 3),
    (_traded, 3),
    (_dear_trade, 0.3),
    (_auction_or_halt, 1.7),
    strict=True,
)
