"""The order book of one stock, as an exchange keeps it: live orders, best prices, no crossing."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

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
    """Live orders of one stock. The best bid is always below the best ask."""

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
        """A live order, each as likely as the other; None in an empty book."""
        orders = self._orders
        return orders[int(random.random() * len(orders))] if orders else None

    def best(self, side: bytes) -> Order | None:
        """The order that would be executed next: best price, then oldest."""
        heap = self._sides[side]
        while heap and heap[0][2].place < 0:
            heappop(heap)
        return heap[0][2] if heap else None

    def uncrossed(self, side: bytes, price: int) -> int:
        """The price nearest to ``price`` at which an order of this side rests without trading."""
        other = self.best(SELL if side == BUY else BUY)
        if other is None:
            return price
        return min(price, other.price - TICK) if side == BUY else max(price, other.price + TICK)

    def inside(self, price: int) -> int:
        """``price``, moved to the nearest of the range from best bid to best ask."""
        bid, ask = self.best(BUY), self.best(SELL)
        if bid is not None:
            price = max(price, bid.price)
        if ask is not None:
            price = min(price, ask.price)
        return price
