"""Position of a stream, as its checkpoint says: read from what Spark writes there, without Spark.

Spark writes ``offsets/<batch>`` before a batch and ``commits/<batch>`` after it, and once
``sources/0/0``, where the stream began.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from pyspark.sql import SparkSession

from jobs.adapters.checkpoint.files import BatchFiles
from udfs.errors import StreamError


class Position(NamedTuple):
    """``batch`` is the next one, ``again`` whether it ran before and was cut off; ``offsets``: by
    partition of ``topic`` the next record that is to be read."""

    batch: int
    again: bool
    topic: str
    offsets: dict[int, int]


def position(spark: SparkSession, checkpoint: str) -> Position | None:
    """The position of a checkpoint; None where no batch was ever begun in it.

    Raises StreamError CHECKPOINT_UNREADABLE.
    """
    offsets = BatchFiles(spark, checkpoint, "offsets", "")
    begun = offsets.newest()
    committed = BatchFiles(spark, checkpoint, "commits", "").newest()
    if begun is None:
        files, number = BatchFiles(spark, checkpoint, "sources/0", ""), 0
        batch, again = 0, False
    elif committed is not None and committed >= begun:
        files, number = offsets, begun
        batch, again = begun + 1, False
    elif begun:
        files, number = offsets, begun - 1
        batch, again = begun, True
    else:
        files, number = BatchFiles(spark, checkpoint, "sources/0", ""), 0
        batch, again = 0, True
    content = files.read(number)
    if content is None:
        if begun is None:
            return None
        raise _unreadable(files.name(number), "it is not there")
    return Position(batch, again, *_offsets(content, files.name(number)))


def _offsets(content: bytes, name: str) -> tuple[str, dict[int, int]]:
    """Topic and offsets of a file of Spark's: lines, of which the last is of the one source."""
    lines = content.decode(errors="replace").split()
    try:
        ((topic, partitions),) = json.loads(lines[-1]).items()
        return str(topic), {int(p): int(offset) for p, offset in partitions.items()}
    except (ValueError, IndexError, AttributeError) as error:
        raise _unreadable(
            name, f"it does not end with the offsets of one topic ({error})"
        ) from error


def _unreadable(name: str, why: str) -> StreamError:
    return StreamError(
        "CHECKPOINT_UNREADABLE",
        f"{name}: {why}; restore the checkpoint, or set spark.stackcast.checkpoint to a new folder "
        "and spark.stackcast.startingOffsets to where egress_ledger ends",
    )
