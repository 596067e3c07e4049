"""Epochs of the leaders from which a stream has read, from its checkpoint and the ledger.

Kafka counts the leaders of a partition. With the epoch of the leader from which a record was read,
a broker finds out whether the log was truncated before that record (KIP-320).
"""

from __future__ import annotations

from typing import Any

from stackcast.jobs.adapters.checkpoint.pins import Pins
from stackcast.jobs.adapters.checkpoint.reports import Reports
from stackcast.jobs.adapters.tables.tables import LEDGER, Tables
from stackcast.udfs.messages.sequence import Topic


def recorded_partitions(
    reports: Reports, tables: Tables, topic: Topic, batch_id: int
) -> list[dict[str, Any]]:
    """Return the partitions that a batch has read.

    Args:
        reports: reports of the checkpoint.
        tables: tables with the ledger, for batches without a report.
        topic: topic that the batch has read, in any generation.
        batch_id: number of the batch. A new checkpoint counts from 0 again, so several batches may
            have this number, of which the newest one counts.

    Returns:
        The column ``partitions`` of the ledger; an empty list if the batch is not recorded.

    Raises:
        StreamError: REPORT_UNREADABLE.
    """
    partitions = reports.partitions(batch_id)
    if partitions is not None:
        return partitions
    rows = tables.rows(LEDGER, since={"batch_id": batch_id})
    key = batch_id, topic.name, topic.id
    matches = [row for row in rows if (row["batch_id"], row["topic"], row["topic_id"]) == key]
    newest = max(matches, key=lambda row: row["started_at"], default=None)
    return [] if newest is None else list(newest["partitions"])


def recorded_epochs(pins: Pins, reports: Reports, tables: Tables, topic: Topic) -> dict[int, int]:
    """Return by partition the epoch of the last leader from which records were read, if recorded.

    The pin of a batch contains the epochs with which it was planned. If the batch has ended, its
    report or the ledger contains those with which it was read, which may be higher. A pin that was
    written ahead does not contain those of the batch before it.

    Args:
        pins: pins of the checkpoint.
        reports: reports of the checkpoint.
        tables: tables with the ledger.
        topic: topic of the stream.

    Raises:
        StreamError: PIN_UNREADABLE, REPORT_UNREADABLE.
    """
    newest = pins.newest()
    if newest is None:
        return {}
    batch_id, pin = newest
    epochs = dict(pin.epochs)
    for number in [batch_id - 1, batch_id] if pin.ahead else [batch_id]:
        for row in recorded_partitions(reports, tables, topic, number):
            # An earlier checkpoint may have a batch of this number. Epochs only rise.
            epoch, partition = row["leader_epoch"], row["partition"]
            if epoch is not None:
                epochs[partition] = max(epoch, epochs.get(partition, epoch))
    return epochs
