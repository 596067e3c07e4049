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
    """Returns what a batch has read.

    Args:
        reports: reports of the checkpoint.
        tables: tables with the ledger, for batches without a report.
        topic: topic that the batch has read, in any generation.
        batch_id: number of the batch. A new checkpoint counts from 0 again; the
            newest batch of this number counts.

    Returns:
        The column ``partitions`` of the ledger; nothing if the batch is not on record.

    Raises:
        StreamError: REPORT_UNREADABLE.
    """
    found = reports.partitions(batch_id)
    if found is not None:
        return found
    rows = tables.rows(LEDGER, since={"batch_id": batch_id})
    wanted = batch_id, topic.name, topic.id
    mine = [row for row in rows if (row["batch_id"], row["topic"], row["topic_id"]) == wanted]
    newest = max(mine, key=lambda row: row["started_at"], default=None)
    return [] if newest is None else list(newest["partitions"])


def recorded_epochs(pins: Pins, reports: Reports, tables: Tables, topic: Topic) -> dict[int, int]:
    """Returns by partition the epoch of the last leader from which records were read, if it is on
    record.

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
