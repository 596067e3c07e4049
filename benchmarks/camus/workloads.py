"""The workloads of CAMUS 4 and of its slides, drawn by seed, and those of a file of a user's.

The paper does not say how many messages a packet of its synthetic feed has; the slides do (1 to 12,
Zipf), so both have that. Messages are new orders, as the text implemented no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from stackcast.lab.traffic.feed import feed_frames
from stackcast.lab.traffic.itch_writer import MessageWriter, timestamp
from stackcast.lab.traffic.packets import MOST_MESSAGES, SESSION, open_records
from stackcast.lab.traffic.symbols import symbols
from stackcast.udfs.messages.reference import build_packet
from stackcast.udfs.network.network import Host

STOCK = "GOOGL"
RULE = f"stock == {STOCK}"
ORDER = 36
"""Bytes of a new order."""
BLOCK = 2 + ORDER
HEADERS = 14 + 20 + 8 + 20
"""Bytes of a frame before its messages: Ethernet, IPv4, UDP, MoldUDP64."""
REFERENCE = slice(11, 19)
"""Of an order's bytes its reference, in which each has its number."""
_STOCK = slice(24, 32)
_OTHERS = 100


@dataclass(frozen=True)
class Drawn:
    """Packets of new orders. sizes: int64[n], messages of each. wanted: bool[m], messages of
    interest. times: int64[n], ns at which the packets were sent by the file that they are of; None
    where they are drawn."""

    sizes: NDArray[np.int64]
    wanted: NDArray[np.bool_]
    times: NDArray[np.int64] | None = None

    @cached_property
    def first(self) -> NDArray[np.int64]:
        """int64[n + 1]: the first message of each packet, and the end."""
        return np.concatenate(([0], np.cumsum(self.sizes)))

    @cached_property
    def kept(self) -> NDArray[np.int64]:
        """int64[n]: messages of interest of each packet."""
        found: NDArray[np.int64] = np.add.reduceat(self.wanted.astype(np.int64), self.first[:-1])
        return found

    @cached_property
    def packet(self) -> NDArray[np.int64]:
        """int64[m]: the packet of each message."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)


@dataclass(frozen=True)
class Workload:
    """share: of messages that are of interest. messages: of a packet, ``one``, ``zipf`` or
    ``twelve``. source: where the text has it."""

    name: str
    share: float
    messages: str
    source: str

    def draw(self, packets: int) -> Drawn:
        """Draws packets; more of them begin with others, as numbers are drawn by the array."""
        random = np.random.default_rng([len(self.messages), round(self.share * 1e6), packets])
        if self.messages == "zipf":
            numbers = np.arange(1, MOST_MESSAGES + 1)
            weights = 1 / numbers
            sizes = random.choice(numbers, packets, p=weights / weights.sum())
        else:
            sizes = np.full(packets, {"one": 1, "twelve": MOST_MESSAGES}[self.messages])
        return Drawn(sizes.astype(np.int64), random.random(int(sizes.sum())) < self.share)


WORKLOADS = (
    Workload("synthetic, 5 %", 0.05, "zipf", "Fig. 7b"),
    Workload("synthetic, 1 %", 0.01, "zipf", "slides"),
    Workload("Nasdaq, 0.5 %", 0.005, "one", "Fig. 7a"),
    Workload("Nasdaq, 0.1 %", 0.001, "one", "slides"),
    Workload("worst case", 1.0, "twelve", "slides"),
)


def read_orders(path: str | Path, most: int) -> tuple[Drawn, list[bytes]]:
    """Reads the first new orders of a Nasdaq BinaryFILE, one a packet, at their own times.

    Their references are their numbers from 0 on. Raises LabError NO_SUCH_FILE, MessageError for a
    damaged file, ValueError for one without new orders.
    """
    with open_records(path) as records:
        orders = list(islice((each for each in records if _is_order(each)), most))
    if not orders:
        raise ValueError(f"{path} has no new orders")
    return (
        Drawn(
            np.ones(len(orders), np.int64),
            np.array([is_wanted(each) for each in orders]),
            np.array([timestamp(each) for each in orders]),
        ),
        [_numbered(each, number) for number, each in enumerate(orders)],
    )


def is_wanted(order: bytes) -> bool:
    """Says whether an order is of interest."""
    return order[_STOCK] == STOCK.encode().ljust(8)


def orders_of(drawn: Drawn) -> list[bytes]:
    """Returns an order a message: of the stock where it is wanted, else of others in turn.

    References are numbers from 0 on.
    """
    pack = MessageWriter().pack
    names = [each for each in symbols(_OTHERS) if each.name != STOCK]
    stock = next(each for each in symbols(_OTHERS) if each.name == STOCK)
    random = Random("orders")
    made = []
    for number, wanted in enumerate(drawn.wanted.tolist()):
        of = stock if wanted else random.choice(names)
        values = (of.locate, 0, bytes(6), number, b"B", 100, of.stock, of.price)
        made.append(pack("add_order", *values))
    return made


def frames_of(
    drawn: Drawn, orders: Sequence[bytes], publisher: Host, address: int, port: int
) -> list[bytes]:
    """Returns the frame of each packet, from a publisher to an IPv4 address and UDP port."""
    first = drawn.first.tolist()
    packets = (
        build_packet(SESSION, first[at] + 1, orders[first[at] : first[at + 1]])
        for at in range(len(drawn.sizes))
    )
    return list(feed_frames(packets, publisher, address, port))


def bursts(
    packets: int, mean: float, drawn: Callable[[int], NDArray[np.float64]]
) -> NDArray[np.int64]:
    """Returns the first packet of each burst, and the end: int64[b + 1].

    Sizes are geometric with this mean, made from even numbers in [0, 1) that ``drawn`` gives.
    """
    if mean <= 1:
        return np.arange(packets + 1)
    sizes = 1 + np.floor(np.log1p(-drawn(packets)) / np.log1p(-1 / mean)).astype(np.int64)
    ends = np.cumsum(sizes)
    return np.concatenate(([0], ends[ends < packets], [packets]))


def joined(frames: Iterable[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Returns the bytes of frames one behind the other, and their borders: int64[n + 1]."""
    listed = list(frames)
    borders = np.zeros(len(listed) + 1, np.int64)
    np.cumsum([len(each) for each in listed], out=borders[1:])
    return np.frombuffer(b"".join(listed), np.uint8), borders


def _is_order(message: bytes) -> bool:
    return message[:1] == b"A" and len(message) == ORDER


def _numbered(order: bytes, number: int) -> bytes:
    return order[: REFERENCE.start] + number.to_bytes(8) + order[REFERENCE.stop :]
