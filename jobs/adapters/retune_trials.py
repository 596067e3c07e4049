"""Replays of the record under every strategy, side by side on the executors."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from udfs.trees.retuning.comparison import Outcome, Record, examine
from udfs.trees.strategies.registry import STRATEGIES
from udfs.trees.strategies.strategy import Situation

if TYPE_CHECKING:
    import pandas as pd


def compare(
    spark: SparkSession,
    names: Sequence[str],
    situation: Situation,
    budget: Mapping[str, int],
    record: Record,
) -> Iterator[Outcome]:
    """Of each strategy its outcome, as they come: one task of Spark a strategy.

    All together are kept by none but the caller; a task needs the memory of one strategy.
    """
    given = spark.sparkContext.broadcast(
        pickle.dumps((list(names), situation, dict(budget), record))
    )

    # A function of its own is sent along: nodes need `udfs` and nothing of jobs.
    def work(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        import pandas as pd  # noqa: PLC0415

        names, situation, budget, record = pickle.loads(given.value)
        for frame in frames:
            for number in frame["id"]:
                outcome = examine(STRATEGIES[names[number]], situation, budget, record)
                yield pd.DataFrame({"outcome": [pickle.dumps(outcome)]})

    frame = spark.range(0, len(names), 1, len(names)).mapInPandas(work, "outcome binary")
    try:
        # Partition by partition would be one after the other; so all at once.
        for row in frame.toArrow().to_pylist():
            yield pickle.loads(row["outcome"])
    finally:
        given.unpersist()
