"""Topics as `egress_ledger` has them: by name, id and generation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark.sql import functions

from stackcast.jobs.adapters.tables import local
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
    if tables.local and local.has_no_files(f"{tables.location}/{LEDGER}"):
        # The first query of a Spark takes seconds, in which a new deployment would wait.
        return ReadBefore(0, {})
    ledger = tables.read(LEDGER)
    mine = ledger.where((functions.col("topic") == name) & (functions.col("topic_id") == topic_id))
    read = mine.select("generation", functions.inline("partitions"))
    last = functions.max(functions.struct("until_offset", "leader_epoch")).alias("last")
    rows = read.groupBy("generation", "partition").agg(last).collect()
    generation = max((row.generation for row in rows), default=0)
    newest = [row for row in rows if row.generation == generation]
    return ReadBefore(generation, {row.partition: tuple(row.last) for row in newest})
