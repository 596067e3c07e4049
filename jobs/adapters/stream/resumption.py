"""Lets a stream continue whose log Kafka has truncated, or may have, in a new generation of the
topic."""

from __future__ import annotations

import logging
from dataclasses import replace

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.checkpoint.identity import IdentityFile
from stackcast.jobs.adapters.checkpoint.pins import Pin
from stackcast.jobs.adapters.checkpoint.progress import Progress, position
from stackcast.jobs.adapters.stream.checks import Beginning
from stackcast.jobs.adapters.stream.delivery import BatchDelivery
from stackcast.udfs.delivery.summary_progress import SummaryProgress

log = logging.getLogger(__name__)


def resume(
    spark: SparkSession,
    settings: Settings,
    delivery: BatchDelivery,
    beginning: Beginning,
) -> None:
    """Moves a checkpoint back to where the log was truncated, and raises its generation.

    The next batch begins there. State that rules keep stays as the lost records have left it. A
    batch that was cut off is dropped: what it had sent of records that are still there is sent
    again, in the new sessions.

    Args:
        spark: session of the stream.
        settings: settings of the stream.
        delivery: delivery of the stream, before its first batch; gets the new topic.
        beginning: position of the stream, and the truncated partitions.

    Raises:
        StreamError: PROGRESS_NOT_WRITTEN, or an error of the checkpoint's files.
    """
    identity, stands, truncation = beginning
    assert stands is not None
    assert truncation is not None
    if not truncation.certain:
        log.warning(
            "a slice was interrupted, and then partitions %s of topic %s got another leader, "
            "which may not have all records that were sent: hosts get the next events in new "
            "sessions",
            ", ".join(map(str, sorted(truncation.ends))),
            settings.topic,
        )
    progress = Progress(spark, settings.checkpoint, settings.topic)
    batch_id, offsets, planned = stands.batch, stands.offsets, stands.planned
    if planned is not None and delivery.recorded(batch_id):
        # Its commit alone is missing.
        progress.done(batch_id)
        batch_id, offsets, planned = batch_id + 1, offsets | planned, None
    begins = truncation.begins(offsets)
    # If this process dies after the first step, the next one finds the same truncation.
    identity = replace(identity, generation=identity.generation + 1)
    IdentityFile(spark, settings.checkpoint).write(identity)
    delivery.topic = identity.read_topic
    versions = dict(delivery.take_up_newest().compilation.versions)
    delivery.leaders.epochs = delivery.epochs_before()
    delivery.leaders.look_up(begins)
    epochs = dict(delivery.leaders.epochs)
    if position(spark, settings.checkpoint) is None:
        progress.begin(begins)
    if planned is not None:
        progress.forget(batch_id)
    newest = delivery.pins.newest()
    for number in reversed(range(batch_id, batch_id if newest is None else newest[0] + 1)):
        delivery.pins.remove(number)
    progress.plan(batch_id, begins)
    since = {p: SummaryProgress.complete(offset) for p, offset in begins.items()}
    delivery.pins.put(batch_id, Pin(versions, delivery.shaping, since, {}, epochs=epochs))
    delivery.record_resumption(batch_id, begins, versions)
    progress.done(batch_id)
    log.warning(
        "topic %s continues in generation %d at offsets %s",
        settings.topic,
        identity.generation,
        ", ".join(f"{p}: {offset}" for p, offset in sorted(begins.items())),
    )
