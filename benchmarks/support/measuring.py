"""Measuring, as benchmarks share it, and ways of others to read messages."""

from __future__ import annotations

import json
import os
import statistics
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.lab.traffic.packets import groups
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.udfs.messages.reference import build_packet

PACKETS = 4096
RUNS = 15

_ADD_ORDER = struct.Struct(">cHH6sQcI8sI")


def one_core() -> None:
    """Keep this process, and what it starts, on one core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


class Reporter:
    """Measures and prints; remembers medians for ratios.

    ``seconds`` is the median of the time of this process on its core, so that whoever shares the
    machine does not count.
    """

    def __init__(self, **batch: int) -> None:
        if batch:
            print(json.dumps({"batch": batch}), flush=True)
        self._seconds: dict[str, float] = {}

    def __call__(
        self,
        name: str,
        work: Callable[[], Any],
        items: int,
        to: str = "",
        runs: int = RUNS,
        clock: Callable[[], float] = time.thread_time,
        **more: Any,
    ) -> float:
        """Returns the seconds. ``items`` is how many ``work`` does; ratios compare seconds an
        item."""
        work()  # compiled and warm
        times = []
        for _ in range(runs):
            began = clock()
            work()
            times.append(clock() - began)
        seconds = statistics.median(times)
        self._seconds[name] = seconds / items
        line = {"name": name, "seconds": round(seconds, 7), "per_second": round(items / seconds)}
        if to:
            line |= {"to": to, "ratio": round(self._seconds[name] / self._seconds[to], 2)}
        print(json.dumps(line | more), flush=True)
        return seconds


def side_by_side(
    yardstick: Callable[[], Any], work: Callable[[], Any], runs: int = RUNS
) -> tuple[list[float], list[float], float]:
    """Returns seconds of both on their core, run by run in turn, and the median of their ratios.

    A core's speed changes within seconds, so each run of ``work`` has one of the yardstick beside.
    """
    seconds: tuple[list[float], list[float]] = ([], [])
    work()  # compiled and warm
    for _ in range(runs):
        for each, times in zip((yardstick, work), seconds, strict=True):
            began = time.thread_time()
            each()
            times.append(time.thread_time() - began)
    plain, ours = seconds
    return plain, ours, statistics.median(o / p for o, p in zip(ours, plain, strict=True))


@dataclass(frozen=True)
class DecodedSession:
    """One batch of the lab's session: its messages, packets, and the packets' bytes and borders."""

    messages: list[bytes]
    packets: list[bytes]
    data: NDArray[np.uint8]
    offsets: NDArray[np.int32]

    @classmethod
    def make(cls) -> DecodedSession:
        session = list(groups(TradingSession(messages=PACKETS * 5, seed=1, symbols=200), seed=1))
        packets = [build_packet(b"BENCHMARK1", 1, group) for group in session[-PACKETS:]]
        borders = np.concatenate(([0], np.cumsum([len(packet) for packet in packets])))
        return cls(
            [message for group in session[-PACKETS:] for message in group],
            packets,
            np.frombuffer(b"".join(packets), np.uint8),
            borders.astype(np.int32),
        )


def struct_loop(packets: list[bytes]) -> list[tuple[Any, ...]]:
    """Reads messages in plain Python: walks the blocks, unpacks new orders, skips the rest."""
    rows = []
    for packet in packets:
        (count,) = struct.unpack_from(">H", packet, 18)
        at = 20
        for _ in range(count):
            (length,) = struct.unpack_from(">H", packet, at)
            if packet[at + 2] == ord("A"):
                rows.append(_ADD_ORDER.unpack_from(packet, at + 2))
            at += 2 + length
    return rows


def drain(parser: Any, binary_file: bytes) -> int:
    """Counts the messages that a parser of others reads from a Nasdaq BinaryFILE."""
    return sum(1 for _ in parser.parse_stream(binary_file))
