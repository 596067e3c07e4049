"""Positions of a real-time stream: by partition, the offset before which everything was sent.

Spark's own checkpoint knows it once a long batch, workers say it every second. So each start begins
a checkpoint of Spark's anew, at these offsets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from jobs.adapters.app.settings import PREFIX, Settings
from jobs.adapters.checkpoint import progress
from jobs.adapters.checkpoint.files import BatchFiles
from udfs.errors import StreamError

_FOLDER = "realtime"


def home(settings: Settings) -> str:
    """The folder of real-time mode in the checkpoint."""
    return f"{settings.checkpoint}/{_FOLDER}"


class Positions:
    """Files ``<checkpoint>/realtime/positions/<number>.json``: the newest holds.

    number: of the newest file, rising, over restarts too; -1 before the first.
    """

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._files = BatchFiles(spark, home(settings), "positions", ".json")
        newest = self._files.newest()
        self.number = -1 if newest is None else newest

    def read(self) -> dict[int, int] | None:
        """The newest positions; None before the first. Raises StreamError POSITIONS_UNREADABLE."""
        if self.number < 0:
            return None
        try:
            content = json.loads(self._files.read(self.number) or b"")
            return {int(p): int(offset) for p, offset in content.items()}
        except (ValueError, AttributeError) as error:
            raise StreamError(
                "POSITIONS_UNREADABLE",
                f"{self._files.name(self.number)} does not hold offsets ({error}): remove it, and "
                "the one before it holds",
            ) from error

    def write(self, positions: Mapping[int, int]) -> None:
        """Write them beside the others, whole or not at all. Raises StreamError NOT_WRITTEN."""
        content = json.dumps({str(p): offset for p, offset in sorted(positions.items())})
        if not self._files.write(self.number + 1, content.encode()):
            raise StreamError(
                "POSITIONS_NOT_WRITTEN",
                f"{self._files.name(self.number + 1)} could not get its name: does another stream "
                f"run with this {PREFIX}checkpoint?",
            )
        self.number += 1


def first_positions(
    spark: SparkSession, settings: Settings, spans: Mapping[int, tuple[int, int]]
) -> dict[int, int]:
    """Returns where a stream without positions begins, for each partition of the topic.

    Where micro-batches of this checkpoint ended; else where ``startingOffsets`` say. ``spans``: of
    each partition the first offset that is there, and the end.
    """
    stands = progress.position(spark, settings.checkpoint)
    if stands is not None:
        return {p: stands.offsets.get(p, first) for p, (first, _) in spans.items()}
    named: dict[int, int] = {}
    other = -1 if settings.starting_offsets == "latest" else -2
    if settings.starting_offsets.startswith("{"):
        offsets = json.loads(settings.starting_offsets).get(settings.topic, {})
        named = {int(p): int(offset) for p, offset in offsets.items()}
    found = {p: named.get(p, other) for p in spans}
    ends = {-2: 0, -1: 1}
    return {p: spans[p][ends[at]] if at in ends else at for p, at in found.items()}


def starting_offsets(topic: str, positions: Mapping[int, int]) -> str:
    """The positions as ``startingOffsets`` takes them."""
    return json.dumps({topic: {str(p): offset for p, offset in sorted(positions.items())}})


def new_checkpoint(spark: SparkSession, settings: Settings, number: int) -> str:
    """A folder for Spark's own checkpoint of one run; those of earlier runs are removed."""
    jvm: Any = spark._jvm
    folder = jvm.org.apache.hadoop.fs.Path(f"{home(settings)}/spark")
    folder.getFileSystem(spark._jsc.hadoopConfiguration()).delete(folder, True)
    return f"{home(settings)}/spark/{number}"


def refuse_after_real_time(spark: SparkSession, settings: Settings) -> None:
    """Micro-batches would send again all that went out in real-time mode since.

    Raises StreamError CHECKPOINT_OF_REALTIME where this checkpoint has positions of that mode.
    """
    positions = Positions(spark, settings).read()
    if positions is not None:
        raise StreamError(
            "CHECKPOINT_OF_REALTIME",
            f"{settings.checkpoint} has been used with {PREFIX}latency=realtime, and micro-batches "
            f"know nothing of how far that came: set {PREFIX}checkpoint to a new folder and "
            f"{PREFIX}startingOffsets to {starting_offsets(settings.topic, positions)}",
        )
