"""The start of a stream whose last batches were interrupted.

Frames of a batch may have been sent although it is not recorded. Such a batch is sent again by its
pin, with the same versions of tables and the same numbers. N is the batch at which the checkpoint
continues (the first one that is not committed); a slice may have been started *ahead*, while the
previous one was still running.

    planned  recorded  pins      interrupted                      steps
    -------  --------  --------  -------------------------------  ----------------------------------
    no       -         none      nothing                          begin with N
    no       -         N         slice N                          send N again, up to its pin or the
                                                                  end of the topic
    no       -         N, N + 1  slices N and N + 1               send both again as N
    yes      no        none      micro-batch N, before its pin    send N with the current tables
    yes      no        N         micro-batch N, or the record of  send N again
                                 slice N
    yes      no        N, N + 1  the record of slice N, while     forget the plan of N, and send
                                 N + 1 ran                        both again as N
    yes      yes       any       the commit of N                  commit N, then as in the first
                                                                  rows, with N + 1 in place of N

Two slices that are sent again as one keep the order of their records. The pin of the second one is
removed after their common plan is recorded, and before they are sent. A slice that has read nothing
is not sent again, and its number is free.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.checkpoint.pins import Pin
from stackcast.jobs.adapters.checkpoint.progress import Position, Progress
from stackcast.jobs.adapters.kafka.ranges import NO_EPOCH, Range
from stackcast.jobs.adapters.kafka.record_source import RecordSource
from stackcast.jobs.adapters.kafka.topic_log import TopicLog
from stackcast.jobs.adapters.stream.batch_recorder import Start
from stackcast.jobs.adapters.stream.delivery import BatchDelivery
from stackcast.jobs.adapters.stream.input import ByTasks, lost_task
from stackcast.jobs.adapters.stream.progress_reports import ProgressReports, RecordedBatch

Spans = Mapping[int, tuple[int, int]]
"""By partition, the first offset of its records, and the offset after the last one."""


def beginnings(settings: Settings, spans: Spans) -> dict[int, int]:
    """Return the offset at which a new stream begins in each partition.

    Args:
        settings: settings with ``startingOffsets``.
        spans: by partition, the first offset of its records, and the offset after the last one.
    """
    named: dict[int, int] = {}
    default = -1 if settings.starting_offsets == "latest" else -2
    if settings.starting_offsets.startswith("{"):
        offsets = json.loads(settings.starting_offsets).get(settings.topic, {})
        named = {int(p): int(offset) for p, offset in offsets.items()}
    ends = {-2: 0, -1: 1}
    offsets = {p: named.get(p, default) for p in spans}
    return {p: spans[p][ends[o]] if o in ends else o for p, o in offsets.items()}


class Interrupted(NamedTuple):
    """A batch that must be sent again.

    Attributes:
        until: by partition, the offset up to which it reads.
        pin: its pin; None if nothing of it has been sent.
        replan: whether to record ``until`` as the plan of the batch first.
    """

    until: dict[int, int]
    pin: Pin | None
    replan: bool


class RecoveryPlan(NamedTuple):
    """Steps of a start before its first batch.

    Attributes:
        commit: whether to commit batch ``number - 1``, which is recorded.
        forget: whether to forget the plan of batch ``number``.
        number: number of the next batch.
        offsets: by partition, the offset at which it begins.
        interrupted: batch ``number``, if it must be sent again.
        stale_pins: numbers of pins that are not valid afterwards.
    """

    commit: bool
    forget: bool
    number: int
    offsets: dict[int, int]
    interrupted: Interrupted | None
    stale_pins: tuple[int, ...]


def recovery_plan(
    position: Position, pins: Mapping[int, Pin], spans: Spans, recorded: bool
) -> RecoveryPlan:
    """Return the steps of a start, by the table of this module.

    Args:
        position: position of the checkpoint.
        pins: pins of batches that are not recorded, by number.
        spans: offsets that the topic has.
        recorded: whether the planned batch is recorded.
    """
    number, offsets, planned = position.batch, dict(position.offsets), position.planned
    commit = planned is not None and recorded
    if planned is not None and recorded:
        number, offsets, planned = number + 1, offsets | planned, None
    newest = max(pins, default=number - 1)
    forget = planned is not None and newest > number
    pin = pins.get(number)
    interrupted = None
    if planned is not None and not forget:
        interrupted = Interrupted(dict(planned), pin, replan=False)
    elif pin is not None:
        # Frames of the next slice may have been sent, too.
        limits = pins[newest].until
        begins = dict.fromkeys(limits, 0) | offsets
        ends = {p: min(end, limits.get(p, 0)) for p, (_, end) in spans.items()}
        until = {p: max(begin, ends.get(p, begin)) for p, begin in begins.items()}
        if until != begins:
            interrupted = Interrupted(until, pin, replan=True)
    # If nothing is sent, the pin of the batch itself is stale, too.
    first_stale = number + (interrupted is not None)
    stale = tuple(each for each in sorted(pins) if each >= first_stale)
    return RecoveryPlan(commit, forget, number, offsets, interrupted, stale)


def interrupted_slice(delivery: BatchDelivery, position: Position | None) -> bool:
    """Return True if a slice was interrupted, which only tasks that fetch can send again."""
    newest = delivery.pins.newest()
    return (
        position is not None
        and newest is not None
        and newest[0] >= position.batch
        and bool(newest[1].until)
    )


class Recovery:
    """Carries out the plan of a start.

    Args:
        settings: settings of the stream.
        topics: topics of the stream.
        delivery: delivery of the stream.
        progress: progress of the checkpoint.
        source: source from which tasks fetch records.
        reports: progress reports of this run; None if Spark reports the batches.
    """

    def __init__(
        self,
        settings: Settings,
        topics: TopicLog,
        delivery: BatchDelivery,
        progress: Progress,
        source: RecordSource,
        reports: ProgressReports | None = None,
    ) -> None:
        self._settings = settings
        self._topic = settings.topic
        self._topics = topics
        self._delivery = delivery
        self._progress = progress
        self._source = source
        self._reports = reports

    def run(self, position: Position | None) -> Position:
        """Send interrupted batches again.

        Args:
            position: position of the checkpoint; None for a new one.

        Returns:
            Number and offsets of the next batch. Partitions of the topic that were not read yet
            begin at 0.

        Raises:
            StreamError: PIN_UNREADABLE, PIN_GONE, TASK_LOST, LOG_TRUNCATED.
            StackcastError: an error of a batch.
        """
        delivery = self._delivery
        spans = self._topics.ask(self._topics.spans)
        if position is None:
            position = Position(0, None, self._topic, beginnings(self._settings, spans))
            self._progress.begin(position.offsets)
        recorded = position.planned is not None and delivery.recorder.is_recorded(position.batch)
        newest = delivery.pins.newest()
        last = position.batch - 1 if newest is None else newest[0]
        numbers = range(position.batch + recorded, last + 1)
        pins = {n: pin for n in numbers if (pin := delivery.pins.get(n)) is not None}
        plan = recovery_plan(position, pins, spans, recorded)
        delivery.leaders.restore()
        if newest is not None and pins:
            self._check_interrupted(newest[1].until or position.planned or {})
        delivery.leaders.look_up(plan.offsets)
        if plan.commit:
            self._progress.done(plan.number - 1)
        if plan.forget:
            self._progress.forget(plan.number)
        number, offsets = plan.number, plan.offsets
        if plan.interrupted is not None:
            self._send_again(number, offsets, plan.interrupted, plan.stale_pins)
            number, offsets = number + 1, offsets | plan.interrupted.until
        else:
            delivery.pins.remove_stale(plan.stale_pins)
            delivery.summaries.restore()
        delivery.plans.take_newest()
        return Position(number, None, self._topic, dict.fromkeys(spans, 0) | offsets)

    def _check_interrupted(self, ends: Mapping[int, int]) -> None:
        """End the stream if Kafka may have truncated records that an interrupted batch has sent.

        The checks before the start have not found it, and those of the next start will.

        Args:
            ends: by partition, the offset up to which the batch may have read.
        """
        leaders = self._delivery.leaders
        truncation = leaders.find(ends, leaders.epochs, leaders.current_epochs())
        if truncation is not None:
            raise lost_task(self._topic, *truncation.ends)

    def _send_again(
        self,
        number: int,
        offsets: Mapping[int, int],
        batch: Interrupted,
        stale_pins: Sequence[int],
    ) -> None:
        delivery, leaders = self._delivery, self._delivery.leaders
        start = Start.now(delivery.engine.clock)
        if batch.replan:
            self._progress.plan(number, batch.until)
            # The plan contains all that these slices may have sent. After the commit of the batch,
            # a start would take their pins for those of the next batch.
            delivery.pins.remove_stale(stale_pins)
        pin = batch.pin
        if pin is None:
            delivery.summaries.restore()
            pin = delivery.new_pin(delivery.plans.take_newest())
            delivery.pins.put(number, pin)
        else:
            delivery.summaries.restore_before(number, pin)
            delivery.plans.restore(number, pin)
        plan = delivery.plans.with_known_stacks()
        state = delivery.recorder.initial_state(plan, number)
        epochs = dict(leaders.epochs)
        ranges = [
            Range(self._topic, p, offsets.get(p, 0), end, epochs.get(p, NO_EPOCH))
            for p, end in batch.until.items()
            if end > offsets.get(p, 0)
        ]
        records = ByTasks(delivery.engine, self._source, ranges)
        leaders.check(batch.until, epochs, {})
        rows = delivery.deliver(plan, state, records, pin.everyone)
        result = delivery.recorder.collect(number, plan, state, rows, start, records.epochs)
        leaders.check(batch.until, epochs, records.epochs)
        delivery.recorder.record(result)
        self._progress.done(number)
        if self._reports is not None:
            ends = {**offsets, **batch.until}
            stages = {"deliver": result.seconds}
            self._reports.recorded(
                RecordedBatch(
                    *(number, result.started, result.seconds, stages, result.report, ends)
                )
            )
