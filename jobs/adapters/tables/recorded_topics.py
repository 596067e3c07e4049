"""Topics as `egress_ledger` has them: by name, id and generation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from stackcast.jobs.adapters.tables.tables import LEDGER, Tables
from stackcast.udfs.messages.sequence import Topic


def topic_of_row(row: Mapping[str, Any]) -> Topic:
    """Returns the topic that the batch of a row has read."""
    return Topic(row["topic"], row["topic_id"], row["generation"])


class ReadBefore(NamedTuple):
    """The newest generation of a topic that is on record, and how far it was read.

    Attributes:
        generation: the generation; 0 if no batch of the topic is on record.
        read: by partition, the offset up to which batches have read, and the epoch of the leader
            from which the last of them was read, if that is known.
    """

    generation: int
    read: Mapping[int, tuple[int, int | None]]


def read_before(tables: Tables, name: str, topic_id: str) -> ReadBefore:
    """Returns what batches of any checkpoint have read of a topic.

    Args:
        tables: tables of the deployment.
        name: name of the topic.
        topic_id: id of the topic as Kafka has it now, or nothing if the broker has no ids.

    Raises:
        TableError: MISSING.
    """
    ledger = tables.arrow(LEDGER, columns=("topic", "topic_id", "generation", "partitions"))
    mine = ledger.filter((pc.field("topic") == name) & (pc.field("topic_id") == topic_id))
    if not len(mine):
        return ReadBefore(0, {})
    generation = pc.max(mine["generation"]).as_py()
    newest = mine.filter(pc.field("generation") == generation)
    offsets = pa.Table.from_struct_array(pc.list_flatten(newest["partitions"]))
    offsets = offsets.select(["partition", "until_offset", "leader_epoch"])
    order = [("until_offset", "ascending"), ("leader_epoch", "ascending")]
    offsets = offsets.take(pc.sort_indices(offsets, order, null_placement="at_start"))
    partitions, *last = (column.to_pylist() for column in offsets.columns)
    return ReadBefore(generation, dict(zip(partitions, zip(*last, strict=True), strict=True)))
