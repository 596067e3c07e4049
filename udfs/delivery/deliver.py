"""Delivery of records by one task: decode, match, frame, send, and report."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from stackcast.udfs.delivery.frame_headers import StacksHandle
from stackcast.udfs.delivery.plan import Plan, PlanHandle
from stackcast.udfs.delivery.sink import EntrySinks, Opener, Sink
from stackcast.udfs.delivery.summary_progress import SummaryAssignment, SummaryChannel
from stackcast.udfs.delivery.task import Task
from stackcast.udfs.messages.buffers import Batch
from stackcast.udfs.messages.sequence import Topic

Source = Callable[[Iterator[Any], SummaryChannel], Iterator[Batch | pa.RecordBatch]]
"""Makes the records of a task from its input. It may use the channel to the task's summaries."""

Work = Callable[[Iterator[Any]], Iterator[pa.RecordBatch]]
"""The work of a task: from its input to the rows of its report."""

#: Columns of a task's report. ``kind`` determines which columns a row fills:
#:
#: - ``partition``: offsets, sequence numbers and counts. ``sender`` is the host of the ingress, if
#:   all frames entered by one.
#: - ``template``: frames of one header stack, the ``part`` of a ``delivery`` by a ``publisher``,
#:   which is the number of a sender if there are several; its receivers, unless the plan has them.
#: - ``reason``: number of dead letters.
#: - ``dead``: number of records that are dead as a whole; ``length`` of them begin with the byte
#:   ``sample``, the most frequent one.
#: - ``sample``: one dead letter, cut to its first bytes, the ``field`` at fault, and the ``sender``
#:   that it names.
#: - ``state``: cells of the rules with state of a partition.
#: - ``summaries``: summary ``progress`` of a partition, as JSON of
#:   `stackcast.udfs.delivery.summary_progress.SummaryProgress`.
REPORT = pa.schema(
    [
        ("kind", pa.string()),
        ("partition", pa.int32()),
        ("from_offset", pa.int64()),
        ("until_offset", pa.int64()),
        ("first_sequence", pa.int64()),
        ("last_sequence", pa.int64()),
        ("packets", pa.int64()),
        ("read_bytes", pa.int64()),
        ("messages", pa.int64()),
        ("matched", pa.int64()),
        ("frames", pa.int64()),
        ("bytes", pa.int64()),
        ("datagram_bytes", pa.int64()),
        ("publisher", pa.int32()),
        ("delivery", pa.int32()),
        ("part", pa.int32()),
        ("receivers", pa.list_(pa.string())),
        ("receiver_set", pa.list_(pa.string())),
        ("reason", pa.string()),
        ("field", pa.string()),
        ("sender", pa.string()),
        ("count", pa.int64()),
        ("message_index", pa.int32()),
        ("length", pa.int32()),
        ("sample", pa.binary()),
        ("cells", pa.binary()),
        ("progress", pa.string()),
    ]
)


def unchanged(batches: Iterator[Any], _: SummaryChannel) -> Iterator[Any]:
    """Return the input of a task, which consists of record batches."""
    return batches


def without_summaries(source: Source) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a source of records for a task that sends no summaries."""
    return partial(_from_source, source)


def _from_source(source: Source, batches: Iterator[Any]) -> Iterator[Any]:
    return source(batches, SummaryChannel(SummaryAssignment({})))


def deliver(
    plan: PlanHandle,
    header_stacks: StacksHandle,
    topic: Topic,
    open_sink: Opener | Callable[[], Sink],
    samples: int,
    initial_state: Mapping[int, bytes] | None = None,
    assignment: SummaryAssignment | None = None,
    source: Source = unchanged,
    *,
    flush_each_batch: bool = False,
    freeze: bool = False,
) -> Work:
    """Return the work of a task that delivers records.

    The task decodes, matches, frames and sends each batch before it takes the next one. It flushes
    the sink before it ends, so a task that has ended has handed over all its frames. If switches
    match, frames are counted and not sent. Summaries are sent at the end of the task.

    Args:
        plan: plan of the delivery.
        header_stacks: header stacks of receiver sets that the plan does not contain. The task
            computes those that its records use.
        topic: topic of the records.
        open_sink: opens the sink; an `Opener` if the plan has several publishers or ingresses.
        samples: maximum number of dead letters that the task reports with their bytes. All dead
            letters are counted.
        initial_state: by partition, the state of rules before the task, as in ``cells`` of the rows
            of kind ``state``. If rules keep state, one task must process all records of a
            partition, in the order of their offsets.
        assignment: summaries to send; by default to all hosts.
        source: makes the records from the input of the task. By default, the input contains the
            columns partition (int32), offset (int64), value (binary), and timestamp (microseconds)
            if rules keep state and messages have no clock.
        flush_each_batch: whether to flush the sink after each batch.
        freeze: whether to exclude the plan from garbage collection after its first task. For
            processes that only run tasks.
    """

    def run(batches: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        channel = SummaryChannel(assignment or SummaryAssignment({}))
        sink = EntrySinks(plan.value, open_sink)
        try:
            ingress = _ingress(plan.value, open_sink)
            task = Task(
                *(plan.value, header_stacks, topic, samples, initial_state or {}, channel, ingress)
            )
            for batch in source(batches, channel):
                frames = task.add(batch)
                if plan.value.host_packets is None:
                    sink.send(frames.data, frames.offsets, frames.template)
                if flush_each_batch:
                    sink.flush()
            summaries = task.summaries()
            if summaries is not None:
                sink.send(*summaries)
            sink.flush()
        finally:
            sink.close()
        yield from _report(task)
        if freeze:
            _freeze(plan.value)

    return run


def _ingress(plan: Plan, open_sink: Any) -> str:
    """Return the host through whose link all frames of this process enter the network.

    The result is empty if each frame enters through the link of its publisher.
    """
    hosts = () if plan.publishers is None else plan.publishers.ingresses
    host = plan.ingresses.shared_host(open_sink.place()) if hosts else ""
    return host if host in hosts else ""


_FROZEN: list[weakref.ref[Plan]] = []


def _freeze(plan: Plan) -> None:
    """Exclude all current objects from garbage collection, once per plan.

    Spark's daemon collects garbage after each task. It would examine all modules, kernels and the
    plan each time, which takes 70 to 120 ms.
    """
    if not _FROZEN or _FROZEN[0]() is not plan:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        _FROZEN[:] = [weakref.ref(plan)]


def _report(task: Task) -> Iterator[pa.RecordBatch]:
    totals = task.totals()
    if totals:
        yield pa.RecordBatch.from_pylist(totals, schema=REPORT)
    templates = task.templates()
    count = len(templates["delivery"])
    if count:
        columns = templates | {"kind": pa.repeat(pa.scalar("template"), count)}
        yield pa.RecordBatch.from_arrays(
            [columns.get(field.name, pa.nulls(count, field.type)) for field in REPORT],
            schema=REPORT,
        )
