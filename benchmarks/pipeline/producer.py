"""Packets into topics by confluent-kafka, as fast as it goes or paced, stamped with their time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.pipeline.workload import Packets

if TYPE_CHECKING:
    from confluent_kafka import Producer

#: Seconds between two looks at the clock: packets of one are sent, and stamped, together.
TICK = 0.001


def connect(servers: str, linger: int) -> Producer:
    """Returns a producer that waits ``linger`` ms for more to send together."""
    # Tests, which have none, look at what is here all the same.
    from confluent_kafka import Producer  # noqa: PLC0415

    return Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": linger,
            "batch.num.messages": 10_000,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 512 << 10,
        }
    )


class NotWrittenError(Exception):
    """A record was not written."""


def send(producer: Producer, topic: str, value: bytes, partition: int) -> None:
    """Queue one record; waits where the queue is full."""
    while True:
        try:
            producer.produce(topic, value, partition=partition)
            return
        except BufferError:
            producer.poll(0.01)


def flush(producer: Producer) -> None:
    """All that is queued is written when this returns."""
    if left := producer.flush(120):
        raise NotWrittenError(f"{left} records were not written within 120 s")


def fill(servers: str, topic: str, packets: Packets, count: int, partitions: int) -> float:
    """Write ``count`` records, the packets again and again; returns the seconds it took."""
    producer = connect(servers, linger=50)
    values = packets.values(0, packets.count)
    began = time.monotonic()
    for number in range(count):
        send(producer, topic, values[number % len(values)], number % partitions)
        if number % 1_000 == 0:
            producer.poll(0)
    flush(producer)
    return time.monotonic() - began


def paced(
    servers: str, topic: str, packets: Packets, partitions: int, rate: float, seconds: float
) -> int:
    """Write ``rate`` records a second; each message's order reference is when, ns since 1970.

    Returns how many.
    """
    own = Packets(packets.data.copy(), packets.offsets, packets.first, packets.start)
    producer = connect(servers, linger=0)
    began = time.monotonic()
    sent = 0
    while (passed := time.monotonic() - began) < seconds:
        due = int(passed * rate)
        while sent < due:
            begin = sent % own.count
            end = min(begin + due - sent, own.count)
            own.stamp(begin, end, time.time_ns())
            for value in own.values(begin, end):
                send(producer, topic, value, sent % partitions)
                sent += 1
        producer.poll(0)
        time.sleep(TICK)
    flush(producer)
    return sent
