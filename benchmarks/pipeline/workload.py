"""Rules and packets of the benchmark of the whole path, from seeds; nothing else.

Rules are ``stock == S and price > P``. Some hosts follow a stock, each with thresholds of its own;
a share of the messages is above the lowest threshold of a followed stock, and so matches. Half of
the others name stocks that nobody follows, half are too cheap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stackcast.lab.traffic.symbols import symbols
from stackcast.lab.traffic.trading_session import TradingSession

STOCKS, FOLLOWERS = 1_000, 8
#: Of the mix of all types: messages and stocks of the session, most messages a packet.
SESSION, SESSION_STOCKS, MOST = 100_000, 4_000, 35
#: Prices are below it, thresholds above; in units of 0.0001.
CHEAP, DEAR = 100_000, 10_000_000
HEADER = 20
#: Where the order's reference number is in a block.
REFERENCE = 13

BLOCK = np.dtype(
    [
        ("length", ">u2"),
        ("message_type", "S1"),
        ("locate", ">u2"),
        ("tracking", ">u2"),
        ("timestamp", "V6"),
        ("reference", ">u8"),
        ("side", "S1"),
        ("shares", ">u4"),
        ("stock", "S8"),
        ("price", ">u4"),
    ]
)


def names(first: int, count: int) -> NDArray[np.bytes_]:
    """S8[count]: stocks as ITCH carries them, from rank ``first`` on."""
    return np.array([symbol.stock for symbol in symbols(first + count)[first:]], "S8")


@dataclass(frozen=True)
class Rules:
    """Rule r asks for ``stock[r]`` (its rank) above ``price[r]`` (raw), for host ``h{host[r]}``.

    stock, price, host: int64[r]. stocks: how many are followed.
    """

    stock: NDArray[np.int64]
    price: NDArray[np.int64]
    host: NDArray[np.int64]
    stocks: int

    @classmethod
    def make(cls, count: int, hosts: int, seed: int = 1) -> Rules:
        """Fewer rules are the first of more, with the same stocks, if there are enough of them."""
        random = np.random.default_rng(seed)
        stocks = min(STOCKS, count)
        followers = np.array(
            [random.choice(hosts, min(FOLLOWERS, hosts), replace=False) for _ in range(stocks)]
        )
        number = np.arange(count)
        stock = number % stocks
        host = followers[stock, number // stocks % followers.shape[1]] + 1
        return cls(stock, random.integers(CHEAP, DEAR, count), host, stocks)

    def texts(self) -> list[str]:
        name = [text.decode().rstrip() for text in names(0, self.stocks).tolist()]
        return [
            f"stock == {name[stock]} and price > {Decimal(price).scaleb(-4)}"
            for stock, price in zip(self.stock.tolist(), self.price.tolist(), strict=True)
        ]

    def lowest(self) -> NDArray[np.int64]:
        """int64[stocks]: the threshold above which anybody asks for a stock."""
        lowest = np.full(self.stocks, DEAR)
        np.minimum.at(lowest, self.stock, self.price)
        return lowest

    def ladders(self) -> dict[bytes, tuple[list[int], list[tuple[str, ...]]]]:
        """By stock: ascending thresholds at which one more host is reached, and the hosts.

        Who has passed n thresholds reaches the hosts with number n; the first are nobody.
        """
        ladders = {}
        order = np.lexsort((self.price, self.stock))
        borders = np.searchsorted(self.stock[order], np.arange(self.stocks + 1))
        for rank, name in enumerate(names(0, self.stocks).tolist()):
            mine = order[borders[rank] : borders[rank + 1]]
            prices: list[int] = []
            sets: list[tuple[str, ...]] = [()]
            for price, host in zip(
                self.price[mine].tolist(), self.host[mine].tolist(), strict=True
            ):
                reached = tuple(sorted({*sets[-1], f"h{host}"}))
                if reached == sets[-1]:
                    continue
                if prices and prices[-1] == price:
                    sets[-1] = reached
                else:
                    prices.append(price)
                    sets.append(reached)
            ladders[name.ljust(8)] = (prices, sets)
        return ladders


@dataclass(frozen=True)
class Packets:
    """MoldUDP64 packets of new orders, one behind the other.

    data: uint8[bytes]; offsets: int64[n+1] of packets; first: int64[n+1], message m is of packet n
    where ``first[n] <= m < first[n+1]``; start: int64[m], of each message's block in ``data``.
    """

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    first: NDArray[np.int64]
    start: NDArray[np.int64]

    @classmethod
    def make(
        cls, rules: Rules, count: int, messages: tuple[int, int], share: float, seed: int = 1
    ) -> Packets:
        """``messages``: fewest and most a packet. ``share``: of messages that match."""
        random = np.random.default_rng(seed)
        sizes = random.integers(messages[0], messages[1] + 1, count)
        first = np.concatenate(([0], np.cumsum(sizes)))
        offsets = HEADER * np.arange(count + 1) + BLOCK.itemsize * first
        packet = np.repeat(np.arange(count), sizes)
        start = HEADER * (packet + 1) + BLOCK.itemsize * np.arange(first[-1])
        total = int(first[-1])

        matching = np.zeros(total, np.bool_)
        matching[random.permutation(total)[: round(share * total)]] = True
        followed = matching | (random.random(total) < 0.5)
        stock = random.integers(0, rules.stocks, total)
        lowest = rules.lowest()[stock]
        high = random.integers(lowest + 1, DEAR + 1)
        low = random.integers(1, CHEAP, total)
        known, others = names(0, rules.stocks), names(rules.stocks, rules.stocks)
        blocks = np.zeros(total, BLOCK)
        blocks["length"], blocks["message_type"] = BLOCK.itemsize - 2, b"A"
        blocks["side"], blocks["shares"] = b"B", 100
        blocks["reference"] = np.arange(total)
        blocks["stock"] = np.where(followed, known[stock], others[stock])
        blocks["price"] = np.where(matching, high, np.where(followed, low, high))

        data = np.zeros(int(offsets[-1]), np.uint8)
        data[_places(offsets[:-1], HEADER)] = _heads(first)
        data[_places(start, BLOCK.itemsize)] = blocks.view(np.uint8).reshape(total, -1)
        return cls(data, offsets, first, start)

    @classmethod
    def mixed(cls, count: int, seed: int = 1) -> Packets:
        """Packets of the lab's trading sessions: all types of messages, stocks by Zipf's law, and
        by the same 1 to `MOST` messages a packet."""
        random = np.random.default_rng(seed)
        session = _session(seed)
        sizes = np.fromiter(map(len, session), np.int64)
        blocks = np.frombuffer(b"".join(len(each).to_bytes(2) + each for each in session), np.uint8)
        begin = np.cumsum(sizes + 2) - sizes - 2
        weight = 1 / np.arange(1, MOST + 1)
        packed = random.choice(MOST, count, p=weight / weight.sum()) + 1
        first = np.concatenate(([0], np.cumsum(packed)))
        # Each as often as the others, and so the rare types, too.
        often = -(-int(first[-1]) // len(session))
        chosen = np.concatenate([random.permutation(len(session)) for _ in range(often)])
        chosen = chosen[: first[-1]]
        length = sizes[chosen] + 2
        ends = np.concatenate(([0], np.cumsum(length)))
        offsets = HEADER * np.arange(count + 1) + ends[first]
        start = ends[:-1] + HEADER * (np.repeat(np.arange(count), packed) + 1)
        data = np.zeros(int(offsets[-1]), np.uint8)
        data[_places(offsets[:-1], HEADER)] = _heads(first)
        for size in np.unique(length).tolist():
            mine = length == size
            data[_places(start[mine], size)] = blocks[_places(begin[chosen[mine]], size)]
        return cls(data, offsets, first, start)

    @classmethod
    def joined(cls, parts: Sequence[Packets]) -> Packets:
        """Those of all parts, one behind the other."""

        def behind(column: str, moved: str) -> NDArray[np.int64]:
            ends = np.cumsum([0, *(len(getattr(part, moved)) for part in parts)])
            columns = [getattr(part, column) for part in parts]
            if column != "start":
                columns = [each[:-1] for each in columns]
            return np.concatenate([each + end for each, end in zip(columns, ends, strict=False)])

        data = np.concatenate([part.data for part in parts])
        start = behind("start", "data")
        return cls(
            data,
            np.append(behind("offsets", "data"), len(data)),
            np.append(behind("first", "start"), len(start)),
            start,
        )

    @property
    def count(self) -> int:
        return len(self.offsets) - 1

    @property
    def messages(self) -> int:
        return len(self.start)

    def values(self, begin: int, end: int) -> list[bytes]:
        """The bytes of packets ``begin`` up to ``end``."""
        data = self.data[self.offsets[begin] : self.offsets[end]].tobytes()
        borders = (self.offsets[begin : end + 1] - self.offsets[begin]).tolist()
        return [data[a:b] for a, b in pairwise(borders)]

    def stamp(self, begin: int, end: int, number: int) -> None:
        """Write ``number`` as the order reference of all messages of these packets."""
        mine = self.start[self.first[begin] : self.first[end]]
        self.data[_places(mine + REFERENCE, 8)] = np.frombuffer(number.to_bytes(8), np.uint8)


def stamps(data: NDArray[np.uint8], place: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64[n]: the numbers that eight bytes at each place say, big-endian."""
    wide = np.ascontiguousarray(data[_places(place, 8)])
    return wide.view(">u8").reshape(-1).astype(np.int64)


@cache
def _session(seed: int) -> list[bytes]:
    return list(TradingSession(SESSION, seed, SESSION_STOCKS))


def _heads(first: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Returns the MoldUDP64 header of each packet, uint8[n, HEADER]."""
    count = len(first) - 1
    head = np.zeros(count, [("session", "S10"), ("sequence", ">u8"), ("count", ">u2")])
    head["session"], head["sequence"], head["count"] = b"BENCHMARK1", first[:-1] + 1, np.diff(first)
    return head.view(np.uint8).reshape(count, -1)


def _places(start: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    places: NDArray[np.int64] = start[:, None] + np.arange(size)
    return places
