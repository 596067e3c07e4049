"""An exchange in small: every action of its participants is one ITCH 5.0 message.

Each method takes the time in nanoseconds since midnight, changes the state of the market, and
returns exactly one message that tells of it. Where an action is impossible (nothing to delete,
trading paused), an order is added in its place.
"""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

from stackcast.lab.traffic.itch_writer import MessageWriter
from stackcast.lab.traffic.symbols import Symbol

BUY, SELL = b"B", b"S"

#: One cent in units of 0.0001 dollars: prices of stocks over a dollar move in cents.
TICK = 100


class Order:
    """A live order. ``price`` in units of 0.0001 dollars; ``shares`` are those that remain."""

    __slots__ = ("place", "price", "reference", "shares", "side")

    def __init__(self, reference: int, side: bytes, shares: int, price: int) -> None:
        self.reference = reference
        self.side = side
        self.shares = shares
        self.price = price
        self.place = -1  # index in the book's list; -1 when the order is no longer live


class OrderBook:
    """Live orders of one stock, as an exchange keeps them: the best bid is below the best ask."""

    def __init__(self) -> None:
        self._orders: list[Order] = []
        # Heaps with the best price on top; orders that are gone are dropped when they surface.
        self._sides: dict[bytes, list[tuple[int, int, Order]]] = {BUY: [], SELL: []}

    def __len__(self) -> int:
        return len(self._orders)

    def add(self, order: Order) -> None:
        """Puts an order in. Its price must not cross the other side (see ``uncrossed``)."""
        order.place = len(self._orders)
        self._orders.append(order)
        key = -order.price if order.side == BUY else order.price
        heappush(self._sides[order.side], (key, order.reference, order))

    def take(self, order: Order, shares: int) -> None:
        """Takes shares off an order; an order without shares leaves the book."""
        order.shares -= shares
        if order.shares == 0:
            self.remove(order)

    def remove(self, order: Order) -> None:
        """Takes an order out, in constant time."""
        last = self._orders.pop()
        if last is not order:
            self._orders[order.place] = last
            last.place = order.place
        order.place = -1

    def any(self, random: Random) -> Order | None:
        """Returns a live order, each as likely as the other; None in an empty book."""
        orders = self._orders
        return orders[int(random.random() * len(orders))] if orders else None

    def best(self, side: bytes) -> Order | None:
        """Returns the order that would be executed next: best price, then oldest."""
        heap = self._sides[side]
        while heap and heap[0][2].place < 0:
            heappop(heap)
        return heap[0][2] if heap else None

    def uncrossed(self, side: bytes, price: int) -> int:
        """Returns the price nearest to ``price`` at which an order of this side rests without
        trading.
        """
        other = self.best(SELL if side == BUY else BUY)
        if other is None:
            return price
        return min(price, other.price - TICK) if side == BUY else max(price, other.price + TICK)

    def inside(self, price: int) -> int:
        """Returns ``price``, moved to the nearest of the range from best bid to best ask."""
        bid, ask = self.best(BUY), self.best(SELL)
        if bid is not None:
            price = max(price, bid.price)
        if ask is not None:
            price = min(price, ask.price)
        return price


_PARTICIPANTS = (b"NITE", b"VIRT", b"CDRG", b"GSCO", b"MSCO", b"JPMS", b"UBSS", b"TIMB")
_LOWEST_MID = 100 * TICK  # a stock under a dollar would trade in other ticks

TRADING, PAUSED, QUOTING, HALTED = b"T", b"P", b"Q", b"H"


class Stock:
    """A stock during the session: its book, its moving mid price, its trading state."""

    def __init__(self, symbol: Symbol) -> None:
        self.symbol = symbol
        self.book = OrderBook()
        self.mid = symbol.price
        self.state = TRADING


class Market:
    """All stocks, and the numbers that the exchange hands out.

    Parameters
    ----------
    symbols: the stocks.
    random: the only source of chance.
    writer: packs the messages.
    """

    def __init__(self, symbols: list[Symbol], random: Random, writer: MessageWriter) -> None:
        self.stocks = [Stock(symbol) for symbol in symbols]
        self._random = random
        self._write = writer.pack
        self._tracking = 0
        self._reference = 0
        self._match = 0
        self._trades: list[tuple[Stock, int]] = []  # what a broken trade may still name

    # -- orders ---------------------------------------------------------------------------

    def add(self, time: int, stock: Stock) -> bytes:
        """Tells of a new order (A)."""
        order = self._new_order(stock)
        return self._message("add_order", time, stock, *_added(order, stock))

    def add_attributed(self, time: int, stock: Stock) -> bytes:
        """Tells of a new order under the name of its participant (F)."""
        order = self._new_order(stock)
        participant = self._random.choice(_PARTICIPANTS)
        return self._message("add_order_mpid", time, stock, *_added(order, stock), participant)

    def delete(self, time: int, stock: Stock) -> bytes:
        """Tells that a live order is withdrawn (D)."""
        order = stock.book.any(self._random)
        if order is None:
            return self.add(time, stock)
        stock.book.remove(order)
        return self._message("order_delete", time, stock, order.reference)

    def cancel(self, time: int, stock: Stock) -> bytes:
        """Tells that a part of a live order is withdrawn (X); at least one share remains."""
        order = stock.book.any(self._random)
        if order is None or order.shares == 1:
            return self.delete(time, stock)
        shares = self._part(order.shares)
        stock.book.take(order, shares)
        return self._message("order_cancel", time, stock, order.reference, shares)

    def replace(self, time: int, stock: Stock) -> bytes:
        """Tells that a live order gives way to a new one at another price (U)."""
        old = stock.book.any(self._random)
        if old is None:
            return self.add(time, stock)
        stock.book.remove(old)
        new = self._new_order(stock, old.side)
        return self._message(
            "order_replace", time, stock, old.reference, new.reference, new.shares, new.price
        )

    # -- trades ---------------------------------------------------------------------------

    def execute(self, time: int, stock: Stock) -> bytes:
        """Tells that the best order of one side is executed, in whole or in part (E)."""
        order = self._next_to_trade(stock)
        if order is None:
            return self.add(time, stock)
        shares = self._execute(stock, order)
        return self._message(
            "order_executed", time, stock, order.reference, shares, self._traded(stock)
        )

    def execute_with_price(self, time: int, stock: Stock) -> bytes:
        """Tells that the best order of one side is executed at a better price than its own (C)."""
        order = self._next_to_trade(stock)
        if order is None:
            return self.add(time, stock)
        better = self._random.randrange(1, TICK)
        price = order.price - better if order.side == BUY else order.price + better
        shares = self._execute(stock, order)
        printable = b"Y" if self._random.random() < 0.9 else b"N"
        match = self._traded(stock)
        return self._message(
            "order_executed_with_price",
            time,
            stock,
            order.reference,
            shares,
            match,
            printable,
            price,
        )

    def trade(self, time: int, stock: Stock) -> bytes:
        """Tells that a hidden order is executed, between the best prices (P)."""
        if stock.state != TRADING:
            return self.add(time, stock)
        price = stock.book.inside(stock.mid)
        shares, match = self._shares(), self._traded(stock)
        # Since 2014 the exchange says B for either side, and names no order.
        return self._message("trade", time, stock, 0, BUY, shares, stock.symbol.stock, price, match)

    def cross(self, time: int, stock: Stock, kind: bytes) -> bytes:
        """Tells of an auction: opening ``O``, closing ``C``, or after a halt ``H`` (Q)."""
        price = stock.book.inside(stock.mid)
        shares = 100 * self._random.randrange(10, 5000)
        return self._message(
            "cross_trade",
            time,
            stock,
            shares,
            stock.symbol.stock,
            price,
            self._next_match(),
            kind,
        )

    def break_trade(self, time: int, stock: Stock) -> bytes:
        """Tells that an earlier trade is declared void (B), once."""
        if not self._trades:
            return self.add(time, stock)
        place = self._random.randrange(len(self._trades))
        self._trades[place], self._trades[-1] = self._trades[-1], self._trades[place]
        traded, match = self._trades.pop()
        return self._message("broken_trade", time, traded, match)

    # -- notices --------------------------------------------------------------------------

    def system_event(self, time: int, event: bytes) -> bytes:
        """Tells of an event of the whole market (S)."""
        return self._message("system_event", time, None, event)

    def directory(self, time: int, stock: Stock, new: bool) -> bytes:
        """Tells that a stock is introduced (R); ``new``: it has its first day today."""
        return self._message(
            "stock_directory",
            time,
            stock,
            stock.symbol.stock,
            b"Q",
            b"N",
            100,
            b"N",
            b"C",
            b"Z ",
            b"P",
            b"N",
            b"Y" if new else b"N",
            b"1" if stock.symbol.locate <= 100 else b"2",
            b"N",
            0,
            b"N",
        )

    def set_state(self, time: int, stock: Stock, state: bytes, reason: bytes) -> bytes:
        """Trading in a stock is halted, paused, opened for quotes, or resumed (H)."""
        stock.state = state
        return self._message(
            "stock_trading_action", time, stock, stock.symbol.stock, state, b" ", reason.ljust(4)
        )

    def short_sale_rule(self, time: int, stock: Stock, action: bytes) -> bytes:
        """Tells that the short sale price test is off ``0``, on ``1`` or remains ``2`` (Y)."""
        return self._message("reg_sho_restriction", time, stock, stock.symbol.stock, action)

    def participant(self, time: int, stock: Stock) -> bytes:
        """Tells that a market maker stands in a stock (L)."""
        name = self._random.choice(_PARTICIPANTS)
        return self._message(
            "market_participant_position", time, stock, name, stock.symbol.stock, b"Y", b"N", b"A"
        )

    def decline_levels(self, time: int, index: int) -> bytes:
        """Tells of the day's levels of the market-wide circuit breaker (V); ``index`` with 8
        decimals.
        """
        levels = (index * percent // 100 for percent in (93, 87, 80))
        return self._message("mwcb_decline_level", time, None, *levels)

    def decline_status(self, time: int) -> bytes:
        """Tells that the market fell through its first level (W)."""
        return self._message("mwcb_status", time, None, b"1")

    def ipo_release(self, time: int, stock: Stock, release: int) -> bytes:
        """Tells when a new stock will be quoted (K); ``release`` in seconds since midnight."""
        return self._message(
            "ipo_quoting_period", time, stock, stock.symbol.stock, release, b"A", stock.symbol.price
        )

    def auction_collar(self, time: int, stock: Stock) -> bytes:
        """Tells of the price range of the auction after a pause (J)."""
        reference = stock.book.inside(stock.mid)
        width = reference // 20
        return self._message(
            "luld_auction_collar",
            time,
            stock,
            stock.symbol.stock,
            reference,
            reference + width,
            reference - width,
            0,
        )

    def operational_halt(self, time: int, stock: Stock, action: bytes) -> bytes:
        """Tells that a stock is halted ``H`` or resumes ``T`` on the sister exchange BX (h)."""
        return self._message("operational_halt", time, stock, stock.symbol.stock, b"B", action)

    def imbalance(self, time: int, stock: Stock, kind: bytes) -> bytes:
        """Tells what the auction would be now (I)."""
        random = self._random
        reference = stock.book.inside(stock.mid)
        imbalance = 100 * random.randrange(0, 400)
        direction = random.choice((b"B", b"S")) if imbalance else b"N"
        return self._message(
            "noii",
            time,
            stock,
            100 * random.randrange(10, 5000),
            imbalance,
            direction,
            stock.symbol.stock,
            max(reference + TICK * random.randint(-5, 5), TICK),
            max(reference + TICK * random.randint(-3, 3), TICK),
            reference,
            kind,
            b"L",
        )

    def retail_interest(self, time: int, stock: Stock) -> bytes:
        """Retail orders could trade inside the spread (N)."""
        flag = self._random.choice((b"B", b"S", b"A", b"N"))
        return self._message("retail_price_improvement", time, stock, stock.symbol.stock, flag)

    def direct_listing(self, time: int, stock: Stock) -> bytes:
        """Tells of the price range in which a directly listed stock may open (O)."""
        price = stock.symbol.price
        return self._message(
            "direct_listing_capital_raise",
            time,
            stock,
            stock.symbol.stock,
            b"Y",
            price * 4 // 5,
            price * 9 // 5,
            price,
            time,
            price * 9 // 10,
            price * 11 // 10,
        )

    # -- inside ---------------------------------------------------------------------------

    def _message(self, name: str, time: int, stock: Stock | None, *values: int | bytes) -> bytes:
        locate = stock.symbol.locate if stock else 0
        self._tracking = (self._tracking + 2) & 0xFFFF
        return self._write(name, locate, self._tracking, time.to_bytes(6, "big"), *values)

    def _new_order(self, stock: Stock, side: bytes = b"") -> Order:
        random = self._random
        side = side or (BUY if random.random() < 0.5 else SELL)
        if random.random() < 0.2:
            step = TICK if random.random() < 0.5 else -TICK
            stock.mid = max(stock.mid + step, _LOWEST_MID)
        away = TICK * (1 + int(random.expovariate(1 / 6)))
        price = max(stock.mid - away, TICK) if side == BUY else stock.mid + away
        self._reference += 1 + int(random.random() * 8)
        shares, price = self._shares(), stock.book.uncrossed(side, price)
        order = Order(self._reference, side, shares, price)
        stock.book.add(order)
        return order

    def _shares(self) -> int:
        """Mostly round lots of a hundred, small ones more often."""
        random = self._random
        if random.random() < 0.2:
            return 1 + int(random.random() * 99)
        return 100 * (1 + int(random.expovariate(0.4)))

    def _part(self, shares: int) -> int:
        """At least one of ``shares``, and not all."""
        return 1 + int(self._random.random() * (shares - 1))

    def _next_to_trade(self, stock: Stock) -> Order | None:
        if stock.state != TRADING:
            return None
        first, second = (BUY, SELL) if self._random.random() < 0.5 else (SELL, BUY)
        return stock.book.best(first) or stock.book.best(second)

    def _execute(self, stock: Stock, order: Order) -> int:
        whole = order.shares == 1 or self._random.random() < 0.6
        shares = order.shares if whole else self._part(order.shares)
        stock.book.take(order, shares)
        return shares

    def _next_match(self) -> int:
        self._match += 1
        return self._match

    def _traded(self, stock: Stock) -> int:
        match = self._next_match()
        self._trades.append((stock, match))
        return match


def _added(order: Order, stock: Stock) -> tuple[int | bytes, ...]:
    return order.reference, order.side, order.shares, stock.symbol.stock, order.price
