"""Replays of the record under every strategy, side by side on the executors."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
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
    """Of each strategy its outcome, as they come: one job of Spark a strategy, of one task.

    A task needs the memory of one strategy, whatever executor it is on.
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

    def ask(number: int) -> Outcome:
        frame = spark.range(number, number + 1, 1, 1).mapInPandas(work, "outcome binary")
        (row,) = frame.toArrow().to_pylist()
        outcome: Outcome = pickle.loads(row["outcome"])
        return outcome

    try:
        with ThreadPoolExecutor(max_workers=max(1, len(names))) as pool:
            waiting = [pool.submit(ask, number) for number in range(len(names))]
            for future in as_completed(waiting):
                yield future.result()
    finally:
        given.unpersist()
