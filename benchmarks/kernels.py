"""What the kernels cost on one core, beside other ways to do the same work.

    ./spark-submit.sh bench kernels

One line of JSON a measurement: ``seconds`` is the median of the time on the core in some
runs over the same bytes, ``ratio`` compares with the measurement named in ``to``, in this very run.
"""

from __future__ import annotations

import json
import os
import statistics
import struct
import time
from collections.abc import Callable
from typing import Any

os.environ["ITCH_NO_CPP"] = "1"  # itchfeed would hand everything to itchcpp

import numpy as np
from itch.parser import MessageParser as FeedParser
from itchcpp.parser import MessageParser as CppParser

import schemas
from lab.packets import groups
from lab.subscriptions import subscriptions
from lab.trading_session import TradingSession
from udfs.filters.compile import compile_rules
from udfs.filters.evaluate import fields_of, matches_columns
from udfs.filters.matcher import Matcher
from udfs.filters.subscriptions import Subscription, check
from udfs.messages.moldudp64 import decode
from udfs.messages.reference import build_packet
from udfs.messages.sequence import session_id
from udfs.messages.specification import parse_specification
from udfs.stacks.frame import FrameTemplates, build_frames, header_template
from udfs.stacks.labels import HOP, label

PACKETS = 4096
RUNS = 15
MTU = 1500
HOSTS = [f"h{number}" for number in range(1, 17)]
GROUP, PORT = 0xE9360C01, 26400

_ADD_ORDER = struct.Struct(">cHH6sQcI8sI")


def main() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    itch = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
    session = list(groups(TradingSession(messages=PACKETS * 5, seed=1, symbols=200), seed=1))
    packets = [build_packet(b"BENCHMARK1", 1, group) for group in session[-PACKETS:]]
    plain = [message for group in session[-PACKETS:] for message in group]
    data = np.frombuffer(b"".join(packets), np.uint8)
    offsets = np.concatenate(([0], np.cumsum([len(p) for p in packets]))).astype(np.int32)
    say = Reporter(packets=len(packets), messages=len(plain), bytes=data.size)

    rows = [Subscription(**row) for row in subscriptions(HOSTS, count=1000, seed=1)]
    rules, rejected = check(rows, itch, set(HOSTS), "feed1")
    assert not rejected
    matcher = Matcher(compile_rules(rules, itch))
    fields = tuple(itch.field(name) for name in matcher.fields)

    # Decode: offsets and bytes of a batch to the columns that the subscriptions ask for.
    copied = np.empty_like(data)
    binary_file = b"".join(len(m).to_bytes(2) + m for m in plain)
    say("memcpy of the packets", lambda: np.copyto(copied, data), len(plain))
    say("decode", lambda: decode(itch, offsets, data, fields), len(plain), "memcpy of the packets")
    say("decode by a struct loop", lambda: struct_loop(packets), len(plain), "decode")
    assert drain(CppParser(), binary_file) == drain(FeedParser(), binary_file) == len(plain)
    say("decode by itchcpp", lambda: drain(CppParser(), binary_file), len(plain), "decode", 3)
    say("decode by itchfeed", lambda: drain(FeedParser(), binary_file), len(plain), "decode", 3)

    # Match: columns to one leaf a message.
    messages = decode(itch, offsets, data, fields)
    kinds, values = messages.message_type, messages.values
    leaf = matcher.match(kinds, values)
    table = np.arange(1 << 20, dtype=np.int32)
    places = np.random.default_rng(1).integers(0, table.size, leaf.size)
    columns = dict(zip(matcher.fields, values, strict=True))
    present = {h.name: kinds == h.message_type for h in itch.headers if h.message_type is not None}
    assert {field for rule in rules for field in fields_of(rule.condition)} <= set(columns)

    def brute_force() -> list[Any]:
        return [matches_columns(rule.condition, columns, present) for rule in rules]

    owed = np.zeros((len(HOSTS), leaf.size), bool)
    for rule, hits in zip(rules, brute_force(), strict=True):
        for host in rule.receivers:
            owed[HOSTS.index(host)] |= hits
    reached = np.array([[h in r for r in matcher.receivers] for h in HOSTS])
    assert (reached[:, leaf] == owed).all(), "the compiled rules disagree with brute force"
    say("random gather of as many", lambda: table[places], leaf.size)
    say("match", lambda: matcher.match(kinds, values), leaf.size, "random gather of as many")
    say("match by brute force", brute_force, leaf.size, "match", 3)

    # Frames: matched messages under their headers.
    template = header_template([label(HOP, 1), label(HOP, 2)], 1, 0x0A000001, GROUP, PORT)
    templates = FrameTemplates.build([[template] if r else [] for r in matcher.receivers])
    bases = np.arange(PACKETS, dtype=np.int64)
    who = np.frombuffer(session_id("bench", 0), np.uint8).reshape(1, 10)

    def build() -> Any:
        return build_frames(templates, leaf, messages, data, bases, who, MTU)

    frames = build()
    target = np.empty_like(frames.data)
    count = frames.offsets.size - 1
    say("memcpy of the frames", lambda: np.copyto(target, frames.data), count)
    say("build frames", build, count, "memcpy of the frames")


class Reporter:
    """Measures and prints; remembers medians for ratios."""

    def __init__(self, **batch: int) -> None:
        print(json.dumps({"batch": batch}), flush=True)
        self._seconds: dict[str, float] = {}

    def __call__(
        self, name: str, work: Callable[[], Any], items: int, to: str = "", runs: int = RUNS
    ) -> None:
        work()  # compiled and warm
        times = []
        for _ in range(runs):
            # Time of this thread on its core: whoever shares the machine does not count.
            began = time.thread_time()
            work()
            times.append(time.thread_time() - began)
        seconds = self._seconds[name] = statistics.median(times)
        line = {"name": name, "seconds": round(seconds, 7), "per_second": round(items / seconds)}
        if to:
            line |= {"to": to, "ratio": round(seconds / self._seconds[to], 2)}
        print(json.dumps(line), flush=True)


def struct_loop(packets: list[bytes]) -> list[tuple[Any, ...]]:
    """The plain Python way: walk the blocks, unpack new orders, skip the rest."""
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
    """Messages that a parser of others reads from a Nasdaq BinaryFILE."""
    return sum(1 for _ in parser.parse_stream(binary_file))


if __name__ == "__main__":
    main()
