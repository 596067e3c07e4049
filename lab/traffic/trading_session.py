"""A trading session of exact ITCH 5.0 messages, from opening to close, from a seed.

All 23 message types occur in about the proportions of a real day. Orders add up: what is executed,
cancelled, deleted or replaced is live and has the shares; bids stay below asks. Time is strictly
increasing.

    python -m stackcast.lab.traffic.trading_session --messages N --seed S --symbols K --out FILE
        [--packets]

writes one into a file.
"""

from __future__ import annotations

import sys
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from itertools import accumulate
from pathlib import Path
from random import Random

from stackcast.command_line import ArgumentParser
from stackcast.lab.traffic.itch_writer import MessageWriter
from stackcast.lab.traffic.market import HALTED, PAUSED, QUOTING, TRADING, Market, Stock
from stackcast.lab.traffic.packets import packetize, write_records
from stackcast.lab.traffic.symbols import popularity, symbols
from stackcast.udfs.errors import LabError, StackcastError, printable

SECOND = 1_000_000_000
_MINUTE = 60 * SECOND
_HOUR = 60 * _MINUTE

_BEFORE_OPEN, _OPEN = 9 * _HOUR + 25 * _MINUTE, 9 * _HOUR + 30 * _MINUTE
_BEFORE_CLOSE, _CLOSE = 15 * _HOUR + 50 * _MINUTE, 16 * _HOUR
_RELEASE = 10 * _HOUR + 30 * _MINUTE  # new stocks are quoted from then on

FEWEST_SYMBOLS, MOST_SYMBOLS = 4, 10_000

#: How often each action happens, of about 1,000 messages. Adding is somewhat more frequent than
#: leaving, as on a real day, so books fill slowly.
_AUCTION: dict[str, float] = {
    "add": 560,
    "add_attributed": 30,
    "delete": 280,
    "replace": 70,
    "cancel": 30,
    "notice": 30,
}
_CONTINUOUS: dict[str, float] = {
    "add": 405,
    "add_attributed": 15,
    "delete": 360,
    "replace": 95,
    "execute": 65,
    "cancel": 30,
    "execute_with_price": 4,
    "trade": 20,
    "retail_interest": 3,
    "participant": 1,
    "break_trade": 0.2,
    "pause": 0.15,
}
_CLOSING = {**_CONTINUOUS, "notice": 60}

Action = Callable[[int, Stock], bytes]


class TradingSession:
    """An iterable of messages (``bytes``) in time order; iterating again gives the same ones.

    Parameters
    ----------
    messages: how many, exactly. From about 3,000 on, every type occurs.
    seed: the same seed gives the same bytes.
    symbols: how many stocks (4 to 10,000), traded by Zipf's law.
    writer: packs the messages; by default with the layouts of ``schemas/messages/itch.spec``.

    Errors: ``LabError`` ``BAD_SESSION`` if the messages do not suffice to introduce the stocks.
    """

    def __init__(
        self,
        messages: int = 100_000,
        seed: int = 1,
        symbols: int = 200,
        writer: MessageWriter | None = None,
    ) -> None:
        if not FEWEST_SYMBOLS <= symbols <= MOST_SYMBOLS:
            raise LabError(
                "BAD_SESSION",
                f"{symbols} symbols: expected {FEWEST_SYMBOLS} to {MOST_SYMBOLS}",
                symbols=symbols,
            )
        self._messages = messages
        self._seed = seed
        self._symbols = symbols
        self._writer = writer or MessageWriter()

    def __len__(self) -> int:
        return self._messages

    def __iter__(self) -> Iterator[bytes]:
        return _Day(self._seed, self._symbols, self._writer).messages(self._messages)


class _Day:
    """One run through the day: the market, the clock, and what is due later."""

    def __init__(self, seed: int, count: int, writer: MessageWriter) -> None:
        self._random = Random(seed)
        self._market = Market(symbols(count), self._random, writer)
        self._stocks = self._market.stocks
        self._popularity = popularity(count)
        # The last two are new today: one by an initial offering, one by a direct listing.
        self._new = self._stocks[-2:]
        self._auctions = self._stocks[:-2][:10]
        # (when, in which order, what); everything here tells of itself in one message.
        self._due: list[tuple[int, int, Callable[[int], bytes]]] = []
        self._planned = 0
        self._clock = 0

    def messages(self, count: int) -> Iterator[bytes]:
        opening = list(self._opening())
        fixed = len(opening) + 2 * len(self._auctions) + 4
        if count < fixed:
            raise LabError(
                "BAD_SESSION",
                f"a session with {len(self._stocks)} symbols has at least {fixed} messages, "
                f"not {count}: use more messages or fewer symbols",
                messages=count,
                fewest=fixed,
            )
        orders = count - fixed
        early, late = orders // 25, orders // 16
        yield from opening
        yield from self._trading(early, _BEFORE_OPEN, _OPEN, _AUCTION, b"O")
        yield from self._auction(_OPEN, b"Q", b"O")
        self._plan_the_day()
        between = orders - early - late
        yield from self._trading(between, self._clock, _BEFORE_CLOSE, _CONTINUOUS, b"C")
        yield from self._trading(late, _BEFORE_CLOSE, _CLOSE, _CLOSING, b"C")
        yield from self._auction(_CLOSE, b"M", b"C")
        yield self._market.system_event(self._at(20 * _HOUR), b"E")
        yield self._market.system_event(self._at(20 * _HOUR + 5 * _MINUTE), b"C")

    def _at(self, time: int) -> int:
        """Sets the clock to ``time``, or just after what has happened already."""
        self._clock = max(self._clock + 1, time)
        return self._clock

    def _soon(self) -> int:
        return self._at(self._clock + 1_000 + int(self._random.random() * 1_000_000))

    def _opening(self) -> Iterator[bytes]:
        market, stocks = self._market, self._stocks
        yield market.system_event(self._at(3 * _HOUR), b"O")
        self._at(3 * _HOUR + 5 * _MINUTE)
        for stock in stocks:
            yield market.directory(self._soon(), stock, stock in self._new)
        for stock in stocks:
            state, reason = (HALTED, b"IPO1") if stock in self._new else (TRADING, b"")
            yield market.set_state(self._soon(), stock, state, reason)
        for stock in stocks[::20]:
            yield market.short_sale_rule(self._soon(), stock, b"0")
        for stock in stocks[::4]:
            yield market.participant(self._soon(), stock)
        yield market.system_event(self._at(4 * _HOUR), b"S")
        self._at(8 * _HOUR)
        for stock in self._new:
            yield market.ipo_release(self._soon(), stock, _RELEASE // SECOND)
        yield market.decline_levels(self._at(9 * _HOUR), 4_500 * 10**8)

    def _auction(self, time: int, event: bytes, kind: bytes) -> Iterator[bytes]:
        yield self._market.system_event(self._at(time), event)
        for stock in self._auctions:
            yield self._market.cross(self._soon(), stock, kind)

    def _trading(
        self, count: int, start: int, end: int, often: dict[str, float], auction: bytes
    ) -> Iterator[bytes]:
        """``count`` messages at uniformly random times of ``start`` to ``end``, in order."""
        random = self._random.random
        actions = self._actions(often, auction)
        steps = list(accumulate(often.values()))
        stocks, popular = self._stocks, self._popularity
        due = self._due
        self._clock = max(self._clock, start)
        for left in range(count, 0, -1):
            # The smallest of `left` uniform times between now and the end.
            self._at(self._clock + int((end - self._clock) * (1 - random() ** (1 / left))))
            if due and due[0][0] <= self._clock:
                yield heappop(due)[2](self._clock)
                continue
            stock = stocks[bisect(popular, random() * popular[-1])]
            if stock.state == HALTED:
                stock = stocks[0]
            yield actions[bisect(steps, random() * steps[-1])](self._clock, stock)

    def _actions(self, names: dict[str, float], auction: bytes) -> list[Action]:
        def notice(time: int, stock: Stock) -> bytes:
            return self._market.imbalance(time, stock, auction)

        own: dict[str, Action] = {"notice": notice, "pause": self._pause}
        return [own.get(name) or getattr(self._market, name) for name in names]

    def _later(self, time: int, what: Callable[[int], bytes]) -> None:
        self._planned += 1
        heappush(self._due, (time, self._planned, what))

    def _plan_the_day(self) -> None:
        """Plans what a day has at least once, whatever the dice say."""
        market = self._market
        popular, other = self._stocks[0], self._stocks[1]
        once: list[Action] = [
            market.add_attributed,
            market.execute,
            market.execute_with_price,
            market.trade,
            market.cancel,
            market.replace,
            market.retail_interest,
            market.break_trade,
        ]
        for number, action in enumerate(once, 1):
            self._later(_RELEASE + number * 20 * _MINUTE, _on(action, popular))
        self._later(10 * _HOUR, lambda t: self._pause(t, other))
        self._later(11 * _HOUR, lambda t: market.operational_halt(t, other, b"H"))
        self._later(11 * _HOUR + 5 * _MINUTE, lambda t: market.operational_halt(t, other, b"T"))
        # After 15:25 a decline through the first level does not stop trading.
        self._later(15 * _HOUR + 30 * _MINUTE, market.decline_status)
        self._later(15 * _HOUR + 30 * _MINUTE, lambda t: market.short_sale_rule(t, popular, b"1"))
        listed = self._new[-1]
        self._later(_RELEASE - _MINUTE, lambda t: market.direct_listing(t, listed))
        for stock in self._new:
            self._release(stock)

    def _release(self, stock: Stock) -> None:
        market, seconds = self._market, SECOND
        self._later(_RELEASE, lambda t: market.set_state(t, stock, QUOTING, b"IPOQ"))
        self._later(_RELEASE + 590 * seconds, lambda t: market.imbalance(t, stock, b"H"))
        self._later(_RELEASE + 600 * seconds, lambda t: market.cross(t, stock, b"H"))
        self._later(_RELEASE + 601 * seconds, lambda t: market.set_state(t, stock, TRADING, b""))

    def _pause(self, time: int, stock: Stock) -> bytes:
        """Trading pauses for five minutes because the price moved too fast."""
        market, seconds = self._market, SECOND
        if stock.state != TRADING or time > _BEFORE_CLOSE - 10 * _MINUTE:
            return market.add(time, stock)
        self._later(time + 290 * seconds, lambda t: market.auction_collar(t, stock))
        self._later(time + 295 * seconds, lambda t: market.imbalance(t, stock, b"H"))
        self._later(time + 300 * seconds, lambda t: market.cross(t, stock, b"H"))
        self._later(time + 301 * seconds, lambda t: market.set_state(t, stock, TRADING, b""))
        return market.set_state(time, stock, PAUSED, b"LUDP")


def _on(action: Action, stock: Stock) -> Callable[[int], bytes]:
    """``action`` on a stock, at a time still to be told."""
    return lambda time: action(time, stock)


_PROGRESS_EVERY = 20_000  # messages

Progress = Callable[[int], None]


def generate(
    out: str | Path,
    messages: int = 100_000,
    seed: int = 1,
    symbols: int = 200,
    packets: bool = False,
    progress: Progress | None = None,
) -> int:
    """Writes a session as a Nasdaq BinaryFILE, packed if ``out`` ends in ``.gz``.

    Parameters
    ----------
    packets: records are MoldUDP64 packets of 1 to 12 messages, not messages.
    progress: called now and then with the number of messages written.

    Returns the number of records. Errors: ``LabError`` ``BAD_SESSION``, ``NOT_WRITTEN``.
    """
    session: Iterable[bytes] = TradingSession(messages, seed, symbols)
    if progress is not None:
        session = _counted(session, progress)
    try:
        return write_records(out, packetize(session, seed=seed) if packets else session)
    except OSError as error:
        raise LabError(
            "NOT_WRITTEN", f"cannot write {out}: {error.strerror}", path=str(out)
        ) from None


def _counted(messages: Iterable[bytes], progress: Progress) -> Iterator[bytes]:
    for number, message in enumerate(messages, 1):
        if number % _PROGRESS_EVERY == 0:
            progress(number)
        yield message


def main(arguments: list[str] | None = None) -> int:
    """Writes the session of the command line; returns the exit code."""
    parser = ArgumentParser(
        "stackcast.lab.traffic.trading_session", description="Write a trading session."
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--symbols", type=int, default=200)
    parser.add_argument("--packets", action="store_true")
    options = parser.parse_args(arguments)
    try:
        generate(**vars(options))
    except StackcastError as error:
        print(printable(str(error)), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
