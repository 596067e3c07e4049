"""Continuation of a stream whose log Kafka has truncated, or may have, in a new generation of the
topic."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from stackcast.jobs.adapters.checkpoint.identity import IdentityFile
from stackcast.jobs.adapters.checkpoint.pins import Pin
from stackcast.jobs.adapters.checkpoint.progress import Progress
from stackcast.jobs.adapters.stream.delivery import BatchDelivery
from stackcast.jobs.adapters.stream.truncation import Beginning
from stackcast.udfs.delivery.summary_progress import SummaryProgress
from stackcast.udfs.messages.sequence import Topic

log = logging.getLogger(__name__)


class NewGeneration(NamedTuple):
    """A new generation of a topic.

    Attributes:
        topic: topic with the number of the generation.
        batch_id: number of the batch at which it begins.
        begins: by partition, the offset at which it begins.
        was_planned: whether the checkpoint contains a plan of this batch.
        is_new: whether the checkpoint contains no position yet.
    """

    topic: Topic
    batch_id: int
    begins: dict[int, int]
    was_planned: bool
    is_new: bool


def begin_generation(
    beginning: Beginning,
    identity_file: IdentityFile,
    progress: Progress,
    is_recorded: Callable[[int], bool],
    is_new: bool,
) -> NewGeneration:
    """Raise the generation of a checkpoint.

    If this process dies afterwards, the next one finds the same truncation, and raises it again.

    Args:
        beginning: position of the stream, and the truncated partitions.
        identity_file: identity of the checkpoint.
        progress: progress of the checkpoint.
        is_recorded: returns True if a batch is recorded.
        is_new: whether the checkpoint contains no position yet.

    Raises:
        StreamError: PROGRESS_NOT_WRITTEN, or an error of the checkpoint's files.
    """
    identity, position, truncation = beginning
    assert position is not None
    assert truncation is not None
    if not truncation.certain:
        log.warning(
            "a slice was interrupted, and then partitions %s of topic %s got another leader, "
            "which may not have all records that were sent: hosts get the next events in new "
            "sessions",
            ", ".join(map(str, sorted(truncation.ends))),
            identity.topic,
        )
    batch_id, offsets, planned = position.batch, position.offsets, position.planned
    if planned is not None and is_recorded(batch_id):
        # Only its commit is missing.
        progress.done(batch_id)
        batch_id, offsets, planned = batch_id + 1, offsets | planned, None
    identity = replace(identity, generation=identity.generation + 1)
    identity_file.write(identity)
    begins = truncation.begins(offsets)
    return NewGeneration(identity.read_topic, batch_id, begins, planned is not None, is_new)


def resume(generation: NewGeneration, delivery: BatchDelivery, progress: Progress) -> None:
    """Move a checkpoint back to where the log was truncated.

    The next batch begins there. State of rules stays as the lost records have left it. An
    interrupted batch is dropped: the records of it that still exist are sent again, in the new
    sessions.

    Args:
        generation: new generation of the topic.
        delivery: delivery of the stream in this generation, before its first batch.
        progress: progress of the checkpoint.

    Raises:
        StreamError: PROGRESS_NOT_WRITTEN, or an error of the checkpoint's files.
    """
    batch_id, begins = generation.batch_id, generation.begins
    plan = delivery.plans.take_newest()
    delivery.leaders.restore()
    delivery.leaders.look_up(begins)
    if generation.is_new:
        progress.begin(begins)
    if generation.was_planned:
        progress.forget(batch_id)
    newest = delivery.pins.newest()
    for number in reversed(range(batch_id, batch_id if newest is None else newest[0] + 1)):
        delivery.pins.remove(number)
    progress.plan(batch_id, begins)
    since = {p: SummaryProgress.complete(offset) for p, offset in begins.items()}
    pin: Pin = delivery.new_pin(plan)._replace(since=since)
    delivery.pins.put(batch_id, pin)
    delivery.recorder.record_resumption(batch_id, begins, plan.versions)
    progress.done(batch_id)
    log.warning(
        "topic %s continues in generation %d at offsets %s",
        generation.topic.name,
        generation.topic.generation,
        ", ".join(f"{p}: {offset}" for p, offset in sorted(begins.items())),
    )
