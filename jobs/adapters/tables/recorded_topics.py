"""Topics as `egress_ledger` has them: by name, id and generation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import functions

from stackcast.jobs.adapters.tables.tables import LEDGER, Tables
from stackcast.udfs.messages.sequence import Topic


def topic_of_row(row: Mapping[str, Any]) -> Topic:
    """Returns the topic that the batch of a row has read."""
    return Topic(row["topic"], row["topic_id"], row["generation"])


def newest_generation(tables: Tables, name: str, topic_id: str) -> Topic:
    """Returns the newest generation of a topic that is on record.

    Args:
        tables: tables of the deployment.
        name: name of the topic.
        topic_id: id of the topic as Kafka has it now, or nothing if the broker has no ids.

    Returns:
        The topic; generation 0 if no batch of it is on record.

    Raises:
        TableError: MISSING.
    """
    ledger = tables.read(LEDGER)
    mine = ledger.where((functions.col("topic") == name) & (functions.col("topic_id") == topic_id))
    newest = mine.agg(functions.max("generation").alias("generation")).collect()[0].generation
    return Topic(name, topic_id, newest or 0)
