"""Finds from which offsets of a topic on versions of the subscriptions were live."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import functions

from stackcast.jobs.adapters.tables.spark_tables import SparkTables
from stackcast.jobs.adapters.tables.tables import LEDGER
from stackcast.udfs.messages.sequence import Topic


@dataclass(frozen=True)
class LiveOffsets:
    """Holds by partition the offset at which each version began to be used, and the end.

    begins: version -> offset. end: the offset after the last record that counts.
    """

    begins: Mapping[int, Mapping[int, int]]
    end: Mapping[int, int]

    @classmethod
    def of_ledger(cls, tables: SparkTables, topic: Topic) -> LiveOffsets:
        """Returns what the batches on record say of a topic, in all of its generations."""
        ledger = tables.read(LEDGER).where(
            (functions.col("topic") == topic.name) & (functions.col("topic_id") == topic.id)
        )
        rows = (
            ledger.select(
                functions.col("versions")["subscriptions"].alias("version"),
                functions.explode("partitions").alias("read"),
            )
            .groupBy("version", "read.partition")
            .agg(
                functions.min("read.from_offset").alias("begin"),
                functions.max("read.until_offset").alias("end"),
            )
            .collect()
        )
        begins: dict[int, dict[int, int]] = defaultdict(dict)
        end: dict[int, int] = defaultdict(int)
        for row in rows:
            begins[row.partition][row.version] = row.begin
            end[row.partition] = max(row.end, end[row.partition])
        return cls(begins, end)

    def since(self, versions: Sequence[int]) -> dict[int, NDArray[np.int64]]:
        """Returns by partition, for each version, the first offset that it or a later one was used
        for: int64[versions]; the end where there is none."""
        found = {}
        for partition, begins in self.begins.items():
            known = sorted(begins)
            offsets = [*(begins[version] for version in known), self.end[partition]]
            # Batches of a later version may have read what an earlier one had read before.
            least = np.minimum.accumulate(np.array(offsets, np.int64)[::-1])[::-1]
            found[partition] = least[np.searchsorted(known, versions)]
        return found
