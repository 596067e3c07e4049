"""The cost, on one core, of decoding events and finding their receivers, and of alternatives.

    ./spark-submit.sh bench match [fields] [--quick]

``fields`` measures only rules over many fields, and ``--quick`` only small sets of them. Prints one
line of JSON per measurement: ``seconds`` is the median time on the core over several runs with the
same events, and ``ratio`` compares seconds per event with the measurement named in ``to``, of the
same run. docs/results/matching.md describes the comparisons.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

os.environ["ITCH_NO_CPP"] = "1"  # itchfeed would hand everything to itchcpp
os.environ["POLARS_MAX_THREADS"] = "1"

import duckdb
import numpy as np
import polars
import pyarrow as pa
from itch.parser import MessageParser as FeedParser
from itchcpp.parser import MessageParser as CppParser
from numpy.typing import NDArray
from plain_matcher import PlainMatcher
from pyspark.sql import SparkSession

from benchmarks import many_fields, rules_with_state
from benchmarks.compile import HOSTS, RULES, SYMBOLS, Drawn, independent, texts_of
from benchmarks.support.measuring import DecodedSession, Reporter, drain, one_core, struct_loop
from stackcast import schemas
from stackcast.lab.traffic.symbols import symbols
from stackcast.udfs.filters.compiler.compile import compile_texts
from stackcast.udfs.filters.matching.matcher import Matcher
from stackcast.udfs.messages.moldudp64 import decode
from stackcast.udfs.messages.specification import Specification, parse_specification

EVENTS, PER_PACKET = 1_000_000, 32
SPARK_EVENTS = 100_000
NAIVE_EVENTS = 300
SLOW = 3

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
PACKET = np.dtype(
    [("session", "S10"), ("sequence", ">u8"), ("count", ">u2"), ("blocks", BLOCK, PER_PACKET)]
)


def main() -> None:
    one_core()
    if "fields" not in sys.argv[1:]:
        rules_of_the_text()
    many_fields.measure("--quick" in sys.argv[1:])
    rules_with_state.measure("--quick" in sys.argv[1:])


def rules_of_the_text() -> None:
    """100,000 rules on stock and price, and what finds their receivers otherwise."""
    itch = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
    decoding(itch)
    drawn = independent(seed=1)
    compiled = compile_texts(texts_of(drawn), itch)
    matcher, by_vectors = Matcher(compiled), PlainMatcher(compiled)
    assert matcher.fields == ("add_order.stock", "add_order.price")

    data, offsets = add_orders(seed=1)
    messages = decode(itch, offsets, data, [itch.field(name) for name in matcher.fields])
    kinds, values = messages.message_type, messages.values
    assert values.shape[1] == EVENTS
    say = Reporter(rules=RULES, symbols=SYMBOLS, hosts=HOSTS, events=EVENTS)
    memory(matcher)

    leaf = matcher.match(kinds, values)
    assert (by_vectors.match(kinds, values) == leaf).all()
    ladder = Ladder.of(drawn, itch)
    answer = ladder.sets_of(matcher)[leaf]
    table = np.arange(1 << 20, dtype=np.int32)
    places = np.random.default_rng(1).integers(0, table.size, EVENTS)
    limit, ours = "random gather of as many", "match, numba"
    say(limit, lambda: table[places], EVENTS)
    say(ours, lambda: matcher.match(kinds, values), EVENTS, limit)
    say("match, numpy", lambda: by_vectors.match(kinds, values), EVENTS, ours)

    for name, work in (
        ("polars join_asof", polars_asof(ladder, values)),
        ("duckdb asof join", duckdb_asof(ladder, values)),
    ):
        assert (work() == answer).all(), f"{name} disagrees"
        # Their work is done by threads of their own.
        say(name, work, EVENTS, ours, SLOW, time.process_time)
    naive = every_rule(drawn, itch, values[:, :NAIVE_EVENTS])
    assert naive() == [ladder.sets[number] for number in answer[:NAIVE_EVENTS]]
    say("every rule for every event, numpy", naive, NAIVE_EVENTS, ours, SLOW, events=NAIVE_EVENTS)
    spark_join(say, ladder, values[:, :SPARK_EVENTS], answer[:SPARK_EVENTS], ours)


def decoding(itch: Specification) -> None:
    """Offsets and bytes of a batch of the lab's session, to two columns."""
    session = DecodedSession.make()
    plain, packets = session.messages, session.packets
    data, offsets = session.data, session.offsets
    say = Reporter(packets=len(packets), messages=len(plain), bytes=data.size)
    copied = np.empty_like(data)
    binary_file = b"".join(len(m).to_bytes(2) + m for m in plain)
    fields = [itch.field(f"add_order.{name}") for name in ("stock", "price", "shares", "buy_sell")]
    read = decode(itch, offsets, data, fields)
    orders = np.flatnonzero(read.message_type == ord("A"))
    stocks = [row[7] for row in struct_loop(packets)]
    assert [int(v).to_bytes(8) for v in read.values[0, orders]] == stocks
    say("memcpy of the packets", lambda: np.copyto(copied, data), len(plain))
    say("decode", lambda: decode(itch, offsets, data, fields), len(plain), "memcpy of the packets")
    say("decode by a struct loop", lambda: struct_loop(packets), len(plain), "decode")
    assert drain(CppParser(), binary_file) == drain(FeedParser(), binary_file) == len(plain)
    say("decode by itchcpp", lambda: drain(CppParser(), binary_file), len(plain), "decode", SLOW)
    say("decode by itchfeed", lambda: drain(FeedParser(), binary_file), len(plain), "decode", SLOW)


def add_orders(seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """New orders of the symbols at prices up to 1000, as packets and their borders."""
    random = np.random.default_rng(seed)
    names = np.array([s.name.ljust(8).encode() for s in symbols(SYMBOLS)], "S8")
    packets = np.zeros(EVENTS // PER_PACKET, PACKET)
    packets["session"], packets["count"] = b"BENCHMARK1", PER_PACKET
    packets["sequence"] = np.arange(len(packets)) * PER_PACKET + 1
    blocks = packets["blocks"]
    blocks["length"], blocks["message_type"], blocks["side"] = BLOCK.itemsize - 2, b"A", b"B"
    blocks["stock"] = names[random.integers(0, SYMBOLS, blocks.shape)]
    blocks["price"] = random.integers(0, 10_000_000, blocks.shape)
    offsets = np.arange(len(packets) + 1, dtype=np.int32) * PACKET.itemsize
    return packets.view(np.uint8), offsets


def memory(matcher: Matcher) -> None:
    line = {
        "name": "memory of the compiled form",
        "arrays_bytes": matcher.nbytes,
        "pickled_bytes": len(pickle.dumps(matcher)),
    }
    assert max(line["arrays_bytes"], line["pickled_bytes"]) < 64 << 20  # type: ignore[type-var]
    print(json.dumps(line), flush=True)


@dataclass(frozen=True)
class Ladder:
    """The same rules by hand: for each stock, from which price on which set of hosts gets it.

    stock, low, high (both included), number: a row a step; ``sets[number]`` are the hosts. Made
    from the rules as drawn, without the compiler: what a peer's join looks up.
    """

    stock: NDArray[np.uint64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    number: NDArray[np.int32]
    sets: Sequence[frozenset[str]]

    @classmethod
    def of(cls, drawn: Drawn, itch: Specification) -> Ladder:
        field = itch.field("add_order.stock")
        numbers: dict[frozenset[str], int] = {frozenset(): 0}
        rows: list[tuple[int, int, int, int]] = []
        for name in sorted({name for name, _, _ in drawn}):
            hosts: frozenset[str] = frozenset()
            steps = [(0, hosts)]
            for raw, host in sorted((raw, host) for s, raw, host in drawn if s == name):
                hosts |= {f"h{host}"}
                if steps[-1][0] == raw + 1:
                    steps[-1] = (raw + 1, hosts)
                elif hosts != steps[-1][1]:
                    steps.append((raw + 1, hosts))
            ends = [low - 1 for low, _ in steps[1:]] + [(1 << 32) - 1]
            for (low, hosts), high in zip(steps, ends, strict=True):
                number = numbers.setdefault(hosts, len(numbers))
                rows.append((field.encode(name), low, high, number))
        stock, low, high, number = zip(*rows, strict=True)
        return cls(
            np.array(stock, np.uint64),
            np.array(low, np.int64),
            np.array(high, np.int64),
            np.array(number, np.int32),
            list(numbers),
        )

    def sets_of(self, matcher: Matcher) -> NDArray[np.int32]:
        """By leaf index, the number of its set."""
        numbers = {hosts: number for number, hosts in enumerate(self.sets)}
        return np.array([numbers[frozenset(r)] for r in matcher.receivers], np.int32)


def polars_asof(ladder: Ladder, values: NDArray[np.uint64]) -> Callable[[], Any]:
    """Sort by price, join each event with the last step at or below it, and put back in order."""
    steps = polars.DataFrame(
        {"stock": ladder.stock, "price": ladder.low, "number": ladder.number}
    ).sort("price")
    stocks, prices = values[0], values[1].astype(np.int64)

    def work() -> Any:
        events = polars.DataFrame({"stock": stocks, "price": prices}).with_row_index("place")
        joined = events.sort("price").join_asof(
            steps, on="price", by="stock", strategy="backward", check_sortedness=False
        )
        return joined.sort("place")["number"].to_numpy()

    return work


def duckdb_asof(ladder: Ladder, values: NDArray[np.uint64]) -> Callable[[], Any]:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    columns = {"stock": ladder.stock, "low": ladder.low, "number": ladder.number}
    connection.register("steps_in", pa.table(columns))
    connection.execute("CREATE TABLE steps AS SELECT * FROM steps_in")
    at = np.arange(values.shape[1])
    connection.register(
        "events_in",
        pa.table({"place": at, "stock": values[0], "price": values[1].astype(np.int64)}),
    )
    connection.execute("CREATE TABLE events AS SELECT * FROM events_in")
    query = """
        SELECT place, number FROM events e ASOF JOIN steps s
        ON e.stock = s.stock AND e.price >= s.low
    """

    def work() -> Any:
        found = connection.execute(query).fetchnumpy()
        numbers = np.empty(len(at), np.int32)
        numbers[found["place"]] = found["number"]
        return numbers

    return work


def every_rule(
    drawn: Drawn, itch: Specification, values: NDArray[np.uint64]
) -> Callable[[], list[frozenset[str]]]:
    """No tables: each event is compared with all rules, as vectors."""
    field = itch.field("add_order.stock")
    stock = np.array([field.encode(name) for name, _, _ in drawn], np.uint64)
    price = np.array([raw for _, raw, _ in drawn], np.uint64)
    host = np.array([f"h{host}" for _, _, host in drawn], object)
    events = values.T.tolist()

    def work() -> list[frozenset[str]]:
        return [frozenset(host[(stock == s) & (price < p)]) for s, p in events]

    return work


def spark_join(
    say: Reporter,
    ladder: Ladder,
    values: NDArray[np.uint64],
    answer: NDArray[np.int32],
    ours: str,
) -> None:
    """Spark's broadcast join by stock and between prices, on one core of the same machine."""
    spark = (
        SparkSession.builder.master("local[1]")
        .appName("stackcast bench match")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    # Spark has no unsigned numbers; the symbols do not reach the sign.
    stock, price = (column.astype(np.int64) for column in values)
    events = spark.createDataFrame(
        pa.table({"place": np.arange(len(stock)), "stock": stock, "price": price})
    ).cache()
    steps = spark.createDataFrame(
        pa.table(
            {
                "stock": ladder.stock.astype(np.int64),
                "low": ladder.low,
                "high": ladder.high,
                "number": ladder.number,
            }
        )
    ).cache()
    assert events.count() == len(stock) and steps.count() == len(ladder.low)
    events.createOrReplaceTempView("events")
    steps.createOrReplaceTempView("steps")
    joined = spark.sql(
        """SELECT /*+ BROADCAST(s) */ e.place, s.number FROM events e JOIN steps s
        ON e.stock = s.stock AND e.price BETWEEN s.low AND s.high"""
    )
    found = joined.toPandas().sort_values("place")["number"].to_numpy()
    assert (found == answer).all(), "Spark disagrees"
    say(
        "spark broadcast join",
        lambda: joined.write.format("noop").mode("overwrite").save(),
        len(stock),
        ours,
        SLOW,
        time.perf_counter,
        events=len(stock),
        time="wall",
    )
    spark.stop()


if __name__ == "__main__":
    main()
