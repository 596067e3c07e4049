"""Ways in Python without Spark, a process for each partition (`program`).

    python -m benchmarks.pipeline.python_program kernels|bytewax PARTITION FILE

kernels  our fetch, task and sink alone; WORK is fetch, match or frame, each with what is before it,
         or a sink, with all that is
bytewax  a dataflow of Bytewax that hands each record on and does nothing with it
"""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.pipeline.program import Look, Order, Program, own_output, sending
from stackcast.jobs.adapters.kafka.client import client_of
from stackcast.jobs.adapters.kafka.options import fetch_options
from stackcast.jobs.adapters.kafka.ranges import Range
from stackcast.jobs.adapters.wire import open_sink, sink_options
from stackcast.udfs.delivery.task import Task
from stackcast.udfs.messages.sequence import Topic

#: Records that a task takes, as a partition's part of a micro-batch.
RANGE = 100_000
#: Records that a dataflow takes at once.
BATCH = 4_096


class PythonProgram(Program):
    """A pass over one partition; the other partitions are of other processes."""

    def __init__(self, partition: int, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.partition = partition
        self.settings = options["settings"]
        self.options = options

    def records_of(self, order: Order) -> int:
        return order.records // order.partitions + (
            self.partition < order.records % order.partitions
        )

    def count(self, records: int) -> None:
        self.seen = Look(1, self.seen.records + records, time.time())


class Kernels(PythonProgram):
    """Does what a worker of ours does, for ranges of offsets, one after the other."""

    def __init__(self, partition: int, options: Mapping[str, Any]) -> None:
        super().__init__(partition, options)
        with Path(options["compiled"]).open("rb") as file:
            self._plan, stacks = pickle.load(file)
        self._stacks = SimpleNamespace(value=stacks)
        self._interface = options["interface"]

    def read(self, order: Order, number: int) -> None:
        fetch = client_of(fetch_options(self.settings.kafka))
        until, plan = self.records_of(order), self._plan
        sent = sending(self.settings, order.work, self._interface)
        for first in range(0, until, RANGE):
            if self.halting.is_set():
                return
            sink = open_sink(sink_options(sent))
            task = Task(plan, self._stacks, Topic(order.topic), 0, {})
            span = Range(order.topic, self.partition, first, min(first + RANGE, until))
            for batch in fetch.batches(span):
                if order.work == "match":
                    plan.matched(batch)
                elif order.work != "fetch":
                    frames = task.add(batch)
                    if order.work != "frame":
                        sink.send(frames.data, frames.offsets)
                self.count(len(batch))
            sink.close()


class Bytewax(PythonProgram):
    """A dataflow that ends with a sink of its own, which counts."""

    def read(self, order: Order, number: int) -> None:
        # A benchmark's package: the tests look at this module without it.
        from bytewax import operators  # noqa: PLC0415
        from bytewax.dataflow import Dataflow  # noqa: PLC0415
        from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition  # noqa: PLC0415
        from bytewax.outputs import DynamicSink, StatelessSinkPartition  # noqa: PLC0415
        from bytewax.testing import run_main  # noqa: PLC0415
        from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415

        program, until = self, self.records_of(order)
        consumer = Consumer(
            {
                "bootstrap.servers": self.settings.kafka["bootstrap.servers"],
                "group.id": "bench",
                "enable.auto.commit": False,
                "queued.min.messages": 100_000,
                "fetch.message.max.bytes": 4 << 20,
            }
        )

        class Records(StatefulSourcePartition):  # type: ignore[misc]
            def __init__(self) -> None:
                consumer.assign([TopicPartition(order.topic, program.partition, 0)])
                self._left = until

            def next_batch(self) -> list[Any]:
                if program.halting.is_set() or not self._left:
                    raise StopIteration
                found = consumer.consume(min(BATCH, self._left), 1)
                self._left -= len(found)
                return [message.value() for message in found]

            def snapshot(self) -> None:
                return None

        class Source(FixedPartitionedSource):  # type: ignore[misc]
            def list_parts(self) -> list[str]:
                return ["one"]

            def build_part(self, *_: object) -> Records:
                return Records()

        class Counted(StatelessSinkPartition):  # type: ignore[misc]
            def write_batch(self, items: list[Any]) -> None:
                program.count(len(items))

        class Sink(DynamicSink):  # type: ignore[misc]
            def build(self, *_: object) -> Counted:
                return Counted()

        flow = Dataflow("bench")
        operators.output("out", operators.input("in", flow, Source()), Sink())
        run_main(flow, epoch_interval=timedelta(seconds=10))
        consumer.close()


if __name__ == "__main__":
    answers = own_output()
    kind = {"kernels": Kernels, "bytewax": Bytewax}[sys.argv[1]]
    options = pickle.loads(Path(sys.argv[3]).read_bytes())
    kind(int(sys.argv[2]), options).serve(answers)
